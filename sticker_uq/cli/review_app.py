# SPDX-License-Identifier: Apache-2.0
"""The web page of ``dataset review`` for reviewing generated pictures, for a browser on the same machine."""

from __future__ import annotations

from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.middleware.trustedhost import TrustedHostMiddleware

from sticker_uq.lab.datasets.reviewing import Review
from sticker_uq.messages import printable
from sticker_uq.scene import InvalidInput

_HOSTS = ("127.0.0.1", "localhost", "[::1]")


class Decision(BaseModel):
    """The reviewer's decision about one generated picture, from the page of ``dataset review``."""

    model_config = ConfigDict(extra="forbid")

    picture: str
    verdict: str


def make_app(review: Review) -> FastAPI:
    """Web page of ``dataset review``: ``/``, state ``/state``, pictures ``/pictures/NAME``, and ``/decide`` for a verdict.

    Accepts only local host names, which prevents DNS rebinding.
    """
    app = FastAPI(openapi_url=None)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(_HOSTS))
    page = resources.files("sticker_uq.cli").joinpath("review.html").read_text(encoding="utf-8")

    @app.get("/")
    def index() -> HTMLResponse:
        return HTMLResponse(page, headers={"Content-Security-Policy": "default-src 'self' 'unsafe-inline'"})

    @app.get("/state")
    def state() -> dict[str, Any]:
        return {"pictures": [asdict(picture) for picture in review.pictures]}

    @app.get("/pictures/{name}")
    def picture(name: str) -> FileResponse:
        return FileResponse(_known(review, name))

    @app.post("/decide")
    def decide(decision: Decision) -> dict[str, Any]:
        try:
            review.decide(decision.picture, decision.verdict)
        except InvalidInput as error:
            raise HTTPException(422, str(error)) from None
        return state()

    @app.exception_handler(RequestValidationError)
    def refuse(_: Request, error: RequestValidationError) -> JSONResponse:
        """Unlike FastAPI's own answer this one does not repeat the value, which JSON may not be able to hold."""
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        return JSONResponse({"detail": printable(f"{place}: {first['msg']}")}, 422)

    return app


def _known(review: Review, name: str) -> Path:
    try:
        return review.path(name)
    except InvalidInput as error:
        raise HTTPException(404, str(error)) from None
