# SPDX-License-Identifier: Apache-2.0
"""Stable Diffusion 3 on this machine, by the optional package diffusers."""

from __future__ import annotations

import io

from sticker_uq.lab.datasets.generators import Picture
from sticker_uq.lab.datasets.prompts import Prompt
from sticker_uq.scene import InvalidInput

DEFAULT_MODEL = "stabilityai/stable-diffusion-3-medium-diffusers"
_SIZE = (1120, 896)
"""Aspect ratio 5:4 with the million pixels that the model was trained on."""


class DiffusersGenerator:
    """An image generator of diffusers, a text-to-image pipeline: a folder or the name of a published model."""

    def __init__(self, model: str = DEFAULT_MODEL) -> None:
        try:
            import torch
            from diffusers import DiffusionPipeline
        except ImportError as error:
            raise InvalidInput(
                f"generator diffusers: {error.name or error} is not installed; "
                "expected pip install diffusers transformers accelerate sentencepiece protobuf"
            ) from None
        self.name = f"diffusers:{model}"
        self._torch = torch
        device = "cuda" if torch.cuda.is_available() else "cpu"
        dtype = torch.float16 if device == "cuda" else torch.float32
        try:
            self._pipeline = DiffusionPipeline.from_pretrained(model, torch_dtype=dtype).to(device)
        except (OSError, ValueError, ImportError) as error:
            raise InvalidInput(
                f"generator diffusers: {model}: {' '.join(str(error).split())[:300]}"
            ) from None
        self._pipeline.set_progress_bar_config(disable=True)

    def generate(self, prompt: Prompt) -> Picture:
        """A generated PNG picture for the prompt's text and seed, by diffusers."""
        # noise from the CPU's generator is the same on every device
        noise = self._torch.Generator("cpu").manual_seed(prompt.seed)
        width, height = _SIZE
        made = self._pipeline(prompt=prompt.prompt, width=width, height=height, generator=noise)
        stream = io.BytesIO()
        made.images[0].save(stream, format="PNG")
        return Picture(stream.getvalue())
