# SPDX-License-Identifier: Apache-2.0
"""One client per image service: prompt in, encoded picture out. Keys go into the Authorization header and no text."""

from __future__ import annotations

import base64
import binascii
import io
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
from PIL import Image, UnidentifiedImageError

from sticker_uq.io.files import atomic_write
from sticker_uq.lab.datasets.prompts import Prompt
from sticker_uq.scene import InvalidInput

OPENAI_URL = "https://api.openai.com/v1"
STABILITY_URL = "https://api.stability.ai"
SOURCE = "source.json"
"""Beside ``images/``: which generator made the pictures of which prompts."""
_SUFFIXES = {"PNG": ".png", "JPEG": ".jpg", "WEBP": ".webp"}
_REFUSALS = ("content_policy_violation", "moderation_blocked", "content_moderation")
_NO_CREDIT = ("insufficient_quota", "billing_hard_limit_reached")
_ATTEMPTS, _FIRST_WAIT_S, _LONGEST_WAIT_S = 5, 1.0, 60.0
_STABILITY_SEEDS = 4294967294
_DIFFUSERS_SIZE = (1120, 896)
"""Aspect ratio 5:4 with the million pixels that Stable Diffusion 3 was trained on."""

Generate = Callable[[Prompt], bytes]


class Refused(Exception):
    """The service makes no picture of this prompt (content policy)."""


class Service:
    """POSTs JSON answers of one address; ``sleep`` waits between attempts. InvalidInput for an address or key that cannot be."""

    def __init__(
        self, url: str, key: str, timeout_s: float = 120.0, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL:
            parsed = httpx.URL("")
        local = parsed.host in ("localhost", "127.0.0.1", "::1")
        secure = parsed.scheme == "https" or (parsed.scheme == "http" and local)
        if not parsed.host or parsed.userinfo or not secure:
            raise InvalidInput("base URL: expected https://HOST without a user, or http:// to this machine")
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise InvalidInput("key of the image service: expected one word of ASCII characters")
        self._url, self._key, self._sleep = url.rstrip("/"), key, sleep
        headers = {"Authorization": f"Bearer {key}", "Accept": "application/json"}
        self._client = httpx.Client(headers=headers, timeout=timeout_s)

    def post(self, path: str, **content: Any) -> dict[str, Any]:
        """The answer of a request, asked again up to five times while the service is busy or fails.

        Raises Refused, and InvalidInput for what another attempt does not change.
        """
        wait = _FIRST_WAIT_S
        for attempt in range(_ATTEMPTS):
            try:
                response = self._client.post(f"{self._url}/{path}", **content)
            except httpx.RequestError as error:
                text = f"{type(error).__name__}: {error}"
            else:
                if response.is_success:
                    return self._answer(response)
                text = self._explained(response)
            if attempt + 1 < _ATTEMPTS:
                self._sleep(wait)
                wait = min(2 * wait, _LONGEST_WAIT_S)
        raise InvalidInput(
            f"{self._url}: {self._clean(text)}, {_ATTEMPTS} times; the same command goes on from here"
        )

    def _answer(self, response: httpx.Response) -> dict[str, Any]:
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise InvalidInput(f"{self._url}: the answer is no JSON object")
        return answer

    def _explained(self, response: httpx.Response) -> str:
        """Why a request failed that may be repeated; raises what another failure stands for."""
        try:
            answer = response.json()
        except ValueError:
            answer = None
        error = answer.get("error", answer) if isinstance(answer, dict) else None
        told = error if isinstance(error, dict) else {}
        code = str(told.get("code") or told.get("type") or told.get("name") or "")
        message = str(told.get("message") or told.get("errors") or response.reason_phrase)
        status = response.status_code
        text = self._clean(f"HTTP {status}: {code} {message}")
        if status in (400, 403) and (code in _REFUSALS or "safety system" in message):
            raise Refused(text)
        if code in _NO_CREDIT or not (status in (408, 409, 425, 429) or status >= 500):
            raise InvalidInput(f"{self._url}: {text}")
        return text

    def _clean(self, text: str) -> str:
        return " ".join(text.replace(self._key, "***").split())[:300]


def openai(service: Service, model: str = "dall-e-3") -> Generate:
    """OpenAI's images API; DALL-E 3 as in the paper: 1024x1024, standard quality, style "vivid". It takes no seed."""
    request: dict[str, Any] = {"model": model, "n": 1, "size": "1024x1024"}
    if model.startswith("dall-e"):  # other models always answer in base64 and do not know this
        request["response_format"] = "b64_json"
    if model == "dall-e-3":
        request |= {"quality": "standard", "style": "vivid"}

    def generate(prompt: Prompt) -> bytes:
        data = service.post("images/generations", json=request | {"prompt": prompt.prompt}).get("data")
        first = data[0] if isinstance(data, list) and data and isinstance(data[0], dict) else {}
        return _decoded(first.get("b64_json"))

    return generate


def stability(service: Service, model: str = "sd3.5-large") -> Generate:
    """Stability AI's REST API v2beta for Stable Diffusion 3: pictures of 5:4 as in the paper, from text and seed."""
    form = {"model": model, "mode": "text-to-image", "aspect_ratio": "5:4", "output_format": "png"}

    def generate(prompt: Prompt) -> bytes:
        seed = str(1 + prompt.seed % _STABILITY_SEEDS)  # 0 requests a random one
        fields = {**form, "prompt": prompt.prompt, "seed": seed}
        files = {name: (None, value) for name, value in fields.items()}
        answer = service.post("v2beta/stable-image/generate/sd3", files=files)
        if answer.get("finish_reason") == "CONTENT_FILTERED":
            raise Refused("the picture was filtered (CONTENT_FILTERED)")
        return _decoded(answer.get("image"))

    return generate


def diffusers(model: str = "stabilityai/stable-diffusion-3-medium-diffusers") -> Generate:
    """A text-to-image pipeline of the optional package diffusers on this machine: a folder or the name of a published model."""
    try:
        import torch
        from diffusers import DiffusionPipeline
    except ImportError as error:
        raise InvalidInput(
            f"generator diffusers: {error.name or error} is not installed; "
            "expected pip install diffusers transformers accelerate sentencepiece protobuf"
        ) from None
    device, dtype = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)
    try:
        pipeline = DiffusionPipeline.from_pretrained(model, torch_dtype=dtype).to(device)
    except (OSError, ValueError, ImportError) as error:
        raise InvalidInput(f"generator diffusers: {model}: {' '.join(str(error).split())[:300]}") from None
    pipeline.set_progress_bar_config(disable=True)

    def generate(prompt: Prompt) -> bytes:
        noise = torch.Generator("cpu").manual_seed(prompt.seed)  # the same on every device
        width, height = _DIFFUSERS_SIZE
        made = pipeline(prompt=prompt.prompt, width=width, height=height, generator=noise)
        stream = io.BytesIO()
        made.images[0].save(stream, format="PNG")
        return stream.getvalue()

    return generate


def generate_pictures(
    folder: Path,
    prompts: Sequence[Prompt],
    name: str,
    generate: Generate,
    count: int | None = None,
    on_prompt: Callable[[], None] = lambda: None,
) -> int:
    """Make ``images/INDEX.SUFFIX`` of each prompt, of the first ``count``, that has none yet; how many were refused.

    InvalidInput when the folder has pictures of other prompts or another generator than ``name``, and as ``generate`` raises it;
    finished pictures stay.
    """
    images, source = folder / "images", folder / SOURCE
    images.mkdir(parents=True, exist_ok=True)
    told = json.dumps({"generator": name, "prompts": {p.index: [p.seed, p.prompt] for p in prompts}})
    if source.exists() and source.read_text(encoding="utf-8") != told:
        raise InvalidInput(f"{source}: of other prompts or another generator; choose another folder")
    with atomic_write(source, "w") as stream:
        stream.write(told)
    refused = 0
    for prompt in prompts[:count]:
        if not any((images / f"{prompt.index:05d}{suffix}").is_file() for suffix in _SUFFIXES.values()):
            try:
                data = generate(prompt)
            except Refused:
                refused += 1
            else:
                with atomic_write(images / f"{prompt.index:05d}{_suffix(data)}") as file:
                    file.write(data)
        on_prompt()
    return refused


def _decoded(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, binascii.Error, ValueError):
        raise InvalidInput("the answer of the image service has no picture in base64") from None


def _suffix(data: bytes) -> str:
    try:
        with Image.open(io.BytesIO(data), formats=tuple(_SUFFIXES)) as picture:
            picture.load()
            return _SUFFIXES[str(picture.format)]
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InvalidInput(f"corrupt picture of {len(data)} bytes ({type(error).__name__})") from None
