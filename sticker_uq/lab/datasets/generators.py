# SPDX-License-Identifier: Apache-2.0
"""Interface of image generators, their errors, and the procedural renderer as a generator."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Protocol

from PIL import Image, UnidentifiedImageError

from sticker_uq.io.coco import encode_picture
from sticker_uq.lab.datasets.prompts import Prompt
from sticker_uq.lab.rendering.render import render
from sticker_uq.lab.rendering.scene_sampling import MAX_STICKERS, sample_scene
from sticker_uq.scene import InvalidInput

_SUFFIXES = {"PNG": ".png", "JPEG": ".jpg", "WEBP": ".webp"}
CAMERA_SIZE = (1280, 1024)
"""Width and height in the ratio of the cell's camera, 5:4, which the published generator uses too."""


@dataclass(frozen=True)
class Picture:
    """A generated picture."""

    data: bytes
    """An encoded picture."""
    revised_prompt: str = ""
    """The revised prompt of the service, if any."""


class Generator(Protocol):
    """Makes one picture of a prompt."""

    name: str
    """The generator and its model, as in the manifest."""

    def generate(self, prompt: Prompt) -> Picture:
        """A picture for ``prompt``; raises Refused or TryAgain for this prompt, InvalidInput if no prompt can succeed."""
        ...


class Refused(Exception):
    """The generator does not make a picture of this prompt (content policy)."""


class TryAgain(Exception):
    """Temporary failure; `wait`: Retry-After of the service, s, or None; `paid`: whether the request may be charged."""

    def __init__(self, reason: str, wait: float | None = None, paid: bool = False) -> None:
        super().__init__(reason)
        self.wait = wait
        self.paid = paid


class RenderedGenerator:
    """The procedural renderer. Of a prompt it takes the seed and the number of stickers (at most 8), not the words."""

    name = "rendered"

    def __init__(self, size: tuple[int, int] = CAMERA_SIZE) -> None:
        self._size = size

    def generate(self, prompt: Prompt) -> Picture:
        """The scene of the prompt's seed as a PNG picture."""
        if prompt.stickers > MAX_STICKERS:
            raise InvalidInput(
                f"prompt {prompt.index}: {prompt.stickers} stickers: the renderer knows 0 to {MAX_STICKERS}"
            )
        scene = sample_scene(prompt.seed, stickers=prompt.stickers)
        return Picture(encode_picture(render(scene, self._size).image, "png"))


def picture_suffix(data: bytes) -> str:
    """File extension of the generated picture: .png, .jpg or .webp. TryAgain when it is not a complete picture."""
    try:
        with Image.open(io.BytesIO(data), formats=tuple(_SUFFIXES)) as picture:
            picture.verify()  # the checksums and the end of a PNG, without its pixels
        with Image.open(io.BytesIO(data), formats=tuple(_SUFFIXES)) as picture:
            picture.load()
            return _SUFFIXES[str(picture.format)]
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise TryAgain(f"corrupt picture of {len(data)} bytes ({type(error).__name__})", paid=True) from None
