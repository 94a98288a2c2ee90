# SPDX-License-Identifier: Apache-2.0
"""Image generators behind REST APIs: OpenAI's images API (DALL-E 3) and Stability AI's (Stable Diffusion 3).

Keys are only used in the Authorization header and removed from all texts of a service.
"""

from __future__ import annotations

import base64
import binascii
import math
import time
from collections.abc import Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from sticker_uq.lab.datasets.generators import Picture, Refused, TryAgain
from sticker_uq.lab.datasets.prompts import Prompt
from sticker_uq.scene import InvalidInput

OPENAI_URL = "https://api.openai.com/v1"
STABILITY_URL = "https://api.stability.ai"
_TEXT_LIMIT = 300
_TRANSIENT = (408, 409, 425, 429)
_NO_CREDIT = ("insufficient_quota", "billing_hard_limit_reached")
_REFUSALS = ("content_policy_violation", "moderation_blocked", "content_moderation")


class _Service:
    """Base class: one POST per picture, with error handling."""

    def __init__(
        self, base_url: str, path: str, key: str, timeout: float, now: Callable[[], float] = time.time
    ) -> None:
        try:
            url = httpx.URL(base_url)
        except httpx.InvalidURL:
            url = httpx.URL("")
        local = url.host in ("localhost", "127.0.0.1", "::1")
        if not url.host or url.userinfo or not (url.scheme == "https" or (url.scheme == "http" and local)):
            raise InvalidInput("base URL: expected https://HOST without a user, or http:// to this machine")
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise InvalidInput("key of the image service: expected one word of ASCII characters")
        self._key = key
        self._now = now
        self._url = f"{base_url.rstrip('/')}/{path}"
        headers = {"Authorization": f"Bearer {key}", "Accept": "application/json"}
        self._client = httpx.Client(headers=headers, timeout=timeout)

    def post(self, **content: Any) -> dict[str, Any]:
        """The JSON object of a service's successful answer to a request for a generated picture; raises what
        Generator.generate does.
        """
        try:
            response = self._client.post(self._url, **content)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise TryAgain(f"no connection: {self._clean(str(error))}") from None
        except httpx.RequestError as error:  # the request may have been processed and charged
            raise TryAgain(f"{type(error).__name__}: {self._clean(str(error))}", paid=True) from None
        if not response.is_success:
            self._explain(response)
        try:
            answer = response.json()
        except ValueError:
            raise TryAgain("the answer is not JSON", paid=True) from None
        if not isinstance(answer, dict):
            raise TryAgain(f"the answer is {type(answer).__name__}, not an object", paid=True)
        return answer

    def _explain(self, response: httpx.Response) -> None:
        """Raise the error that an unsuccessful answer stands for."""
        code, message = _error_of(response)
        text = f"HTTP {response.status_code}: {self._clean(f'{code} {message}'.strip())}"
        status = response.status_code
        if status in (400, 403) and (code in _REFUSALS or "safety system" in message):
            raise Refused(text)
        if code not in _NO_CREDIT and (status in _TRANSIENT or status >= 500):
            raise TryAgain(text, wait=_retry_after(response.headers, self._now()))
        raise InvalidInput(f"{self._url}: {text}")

    def _clean(self, text: str) -> str:
        return " ".join(text.replace(self._key, "***").split())[:_TEXT_LIMIT]


class OpenAIGenerator:
    """OpenAI's images API; by default DALL-E 3 as in the paper: 1024x1024, standard quality, style "vivid"."""

    def __init__(
        self, key: str, model: str = "dall-e-3", base_url: str = OPENAI_URL, timeout: float = 120.0
    ) -> None:
        self.name = f"openai:{model}"
        self._model = model
        self._service = _Service(base_url, "images/generations", key, timeout)

    def generate(self, prompt: Prompt) -> Picture:
        """A picture of the prompt's text; the API takes no seed."""
        request: dict[str, Any] = {"model": self._model, "prompt": prompt.prompt, "n": 1, "size": "1024x1024"}
        if self._model.startswith("dall-e"):  # other models always answer in base64 and do not know these
            request["response_format"] = "b64_json"
        if self._model == "dall-e-3":
            request |= {"quality": "standard", "style": "vivid"}
        answer = self._service.post(json=request)
        data = answer.get("data")
        entry = data[0] if isinstance(data, list) and data and isinstance(data[0], dict) else {}
        return Picture(_decoded(entry.get("b64_json")), str(entry.get("revised_prompt") or ""))


class StabilityGenerator:
    """Stability AI's REST API v2beta for Stable Diffusion 3, pictures of 5:4 as in the published generator."""

    _SEEDS = 4294967294

    def __init__(
        self, key: str, model: str = "sd3.5-large", base_url: str = STABILITY_URL, timeout: float = 120.0
    ) -> None:
        self.name = f"stability:{model}"
        self._model = model
        self._service = _Service(base_url, "v2beta/stable-image/generate/sd3", key, timeout)

    def generate(self, prompt: Prompt) -> Picture:
        """A picture of the prompt's text and seed."""
        form = {
            "prompt": prompt.prompt,
            "model": self._model,
            "mode": "text-to-image",
            "aspect_ratio": "5:4",
            "output_format": "png",
            "seed": str(1 + prompt.seed % self._SEEDS),  # 0 requests a random one
        }
        answer = self._service.post(files={name: (None, value) for name, value in form.items()})
        if answer.get("finish_reason") == "CONTENT_FILTERED":
            raise Refused("the picture was filtered (CONTENT_FILTERED)")
        return Picture(_decoded(answer.get("image")))


def _decoded(text: Any) -> bytes:
    if not isinstance(text, str) or not text:
        raise TryAgain("the answer has no picture", paid=True)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise TryAgain("the picture is not base64", paid=True) from None


def _error_of(response: httpx.Response) -> tuple[str, str]:
    """Code and message of an error: {"error": {"code", "message"}} of OpenAI, {"name", "errors"} of Stability AI."""
    try:
        answer = response.json()
    except ValueError:
        return "", response.reason_phrase
    if not isinstance(answer, dict):
        return "", response.reason_phrase
    error = answer.get("error")
    if isinstance(error, dict):
        return str(error.get("code") or error.get("type") or ""), str(error.get("message") or "")
    errors = answer.get("errors")
    return str(answer.get("name") or ""), "; ".join(map(str, errors)) if isinstance(errors, list) else ""


def _retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds to wait by Retry-After, a number or an HTTP date; None without a usable one."""
    value = headers.get("Retry-After", "").strip()
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now
    return max(0.0, seconds) if math.isfinite(seconds) else None
