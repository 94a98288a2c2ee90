# SPDX-License-Identifier: Apache-2.0
"""Pictures of laptops from prompts, by DALL-E 3 or a diffusion model (Lu et al., 3.3), each client through its own library."""

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter, ValidationError

from sticker_uq.io.coco import encode_picture
from sticker_uq.io.files import write_file
from sticker_uq.io.images import Picture, decode_picture
from sticker_uq.io.reading import MIB, read_text
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.datasets.prompts import Prompt

PICTURES, MANIFEST = "pictures", "manifest.jsonl"
MOST_PROMPTS = 64 * MIB
MODELS = {"openai": "dall-e-3", "diffusers": "stabilityai/stable-diffusion-3-medium-diffusers"}
"""Each client with the paper's model."""
_MISSING = "--client {0}: {1} is not installed: pip install './sticker_uq_lab[generate]'"

Generate = Callable[[Prompt], Picture]


class Refused(Exception):
    """The service makes no picture of this prompt."""


def openai_client(model: str, base_url: str | None = None) -> Generate:
    """OpenAI's images API, with the key in OPENAI_API_KEY. It takes no seed: every call is another picture."""
    try:
        import openai
    except ImportError as error:
        raise InvalidInput(_MISSING.format("openai", error.name)) from None
    try:
        client = openai.OpenAI(base_url=base_url)
    except openai.OpenAIError as error:
        raise InvalidInput(f"--client openai: {error}") from None
    # other models than DALL-E answer so by themselves, and refuse to be asked
    how = {"response_format": "b64_json"} if model.startswith("dall-e") else {}

    def generate(prompt: Prompt) -> Picture:
        try:
            answer = client.images.generate(  # type: ignore[call-overload]
                model=model, prompt=prompt.prompt, n=1, size="1024x1024", **how
            )
        except openai.BadRequestError as error:
            if error.code in ("content_policy_violation", "moderation_blocked"):
                raise Refused(str(error)) from None
            raise InvalidInput(f"--client openai, model {model}: {error}") from None
        except openai.OpenAIError as error:
            raise InvalidInput(f"--client openai, model {model}: {error}") from None
        try:
            return decode_picture(base64.b64decode(answer.data[0].b64_json, validate=True))
        except (TypeError, IndexError, binascii.Error):
            raise InvalidInput(f"--client openai, model {model}: an answer without a picture") from None

    return generate


def diffusers_client(model: str) -> Generate:
    """A text-to-image pipeline on this machine, a folder or a published name; its noise is that of the prompt's seed."""
    try:
        import torch
        from diffusers import DiffusionPipeline
    except ImportError as error:
        raise InvalidInput(_MISSING.format("diffusers", error.name)) from None
    device, kind = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)
    try:
        pipeline = DiffusionPipeline.from_pretrained(model, dtype=kind).to(device)
    except (OSError, ValueError, ImportError) as error:
        raise InvalidInput(f"--client diffusers, model {model}: {' '.join(str(error).split())}") from None
    pipeline.set_progress_bar_config(disable=True)

    def generate(prompt: Prompt) -> Picture:
        noise = torch.Generator("cpu").manual_seed(prompt.seed)  # the same on every device
        picture = pipeline(prompt=prompt.prompt, generator=noise).images[0]
        return np.ascontiguousarray(np.asarray(picture.convert("RGB"))[..., ::-1])

    return generate


def read_prompts(path: Path) -> list[Prompt]:
    """Prompts of `dataset prompts`; InvalidInput names the line that is none."""
    known, found = TypeAdapter(Prompt), []
    for number, line in enumerate(read_text(path, MOST_PROMPTS).splitlines(), 1):
        try:
            found.append(known.validate_json(line))
        except ValidationError:
            raise InvalidInput(
                f"{path}: line {number}: expected a prompt as `dataset prompts` writes it"
            ) from None
    if not found or len({prompt.index for prompt in found}) < len(found):
        raise InvalidInput(f"{path}: {len(found)} prompts, expected one or more, each index once")
    return found


def generate_pictures(
    out: Path, prompts: Sequence[Prompt], model: str, generate: Generate, done: Callable[[], None]
) -> int:
    """Make ``out``/pictures/INDEX.png of each prompt that manifest.jsonl does not name yet; how many were refused.

    InvalidInput where the manifest is of other prompts or another model, before anything is made.
    """
    manifest = read_manifest(out)
    kept = {line["index"]: line for line in manifest}
    for prompt in prompts:
        line = kept.get(prompt.index, {"seed": prompt.seed, "prompt": prompt.prompt, "model": model})
        if (line["seed"], line["prompt"], line["model"]) != (prompt.seed, prompt.prompt, model):
            raise InvalidInput(
                f"{out / MANIFEST}: picture {prompt.index} is of {line['model']}, seed {line['seed']}, {line['prompt']!r}: "
                "expected the same prompts and model, or choose another folder"
            )
    (out / PICTURES).mkdir(parents=True, exist_ok=True)
    for prompt in prompts:
        if prompt.index not in kept:
            line = {"index": prompt.index, "prompt": prompt.prompt, "model": model, "seed": prompt.seed}
            try:
                picture = generate(prompt)
            except Refused as error:
                manifest.append(line | {"file": None, "refused": str(error)})
            else:
                name = f"{prompt.index:05d}.png"
                write_file(out / PICTURES / name, encode_picture(picture, "png"))
                manifest.append(line | {"file": name})
            write_file(
                out / MANIFEST, "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in manifest)
            )
        done()
    return sum(line["file"] is None for line in manifest)


def read_manifest(out: Path) -> list[dict[str, object]]:
    path = out / MANIFEST
    if not path.exists():
        return []
    try:
        found = [json.loads(line) for line in read_text(path, MOST_PROMPTS).splitlines()]
        for line in found:
            line["index"], line["prompt"], line["model"], line["seed"], line["file"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidInput(f"{path}: expected the lines that `dataset generate` wrote") from None
    return found
