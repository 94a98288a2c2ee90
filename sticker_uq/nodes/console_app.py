"""The operator's web page: what it serves and what it accepts. The ROS side is in :mod:`sticker_uq.nodes.console`.

Bound to the machine itself the page is open; bound to a network it asks for a token. Answers are taken only from the page
itself (same origin), and only whole and valid.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from fastapi import Depends, FastAPI, HTTPException, Request, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import FileResponse
from pydantic import BaseModel, ConfigDict, Field

from sticker_uq.nodes.console_state import ConsoleState

PAGE = Path(__file__).parent / "console_page"
HEARTBEAT_S = 1.0
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' blob:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
Coordinate = Field(ge=-1e5, le=1e5, allow_inf_nan=False)


class BoxAnswer(BaseModel):
    """What a person said about one place, px of the image."""

    model_config = ConfigDict(extra="forbid")

    answer: Literal["remove", "keep", "not_there", "missed"]
    x1: float = Coordinate
    y1: float = Coordinate
    x2: float = Coordinate
    y2: float = Coordinate


class PersonsAnswer(BaseModel):
    """What a person said to one question."""

    model_config = ConfigDict(extra="forbid")

    request_id: str = Field(min_length=1, max_length=200)
    person: str = Field(min_length=1, max_length=100)
    scene: Literal["none", "rescan", "skip_laptop", "fault", "clean"] = "none"
    answers: list[BoxAnswer] = Field(default_factory=list, max_length=200)


class Accepted(BaseModel):
    """Whether the supervisor took the answer, and why not."""

    accepted: bool
    message: str


Answering = Callable[[PersonsAnswer], Awaitable[Accepted]]


def make_app(
    state: ConsoleState, answer: Answering, token: str = "", watching: Callable[[int], None] = lambda n: None
) -> FastAPI:
    """The page's server. ``answer`` hands an answer to the supervisor; ``token`` empty: none is asked for.

    ``watching`` is told how many pages are open, whenever that changes.
    """
    app = FastAPI(title="sticker_uq console", docs_url=None, redoc_url=None, openapi_url=None)
    pages: set[WebSocket] = set()

    def allowed(given: str) -> bool:
        return not token or hmac.compare_digest(given.encode(), token.encode())

    def authorised(request: Request) -> None:
        if not allowed(request.query_params.get("token", "")):
            raise HTTPException(401, "this page needs its token: open it with ?token=...")

    @app.middleware("http")
    async def add_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await call_next(request)
        response.headers.update(_HEADERS)
        return response

    @app.get("/", dependencies=[Depends(authorised)])
    def page() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    @app.get("/static/{name}")
    def static(name: Literal["console.css", "console.js", "strings.js"]) -> FileResponse:
        return FileResponse(PAGE / name)

    @app.get("/picture.jpg", dependencies=[Depends(authorised)])
    def picture() -> Response:
        jpeg = state.picture()
        return Response(jpeg, media_type="image/jpeg") if jpeg else Response(status_code=204)

    @app.post("/answer", dependencies=[Depends(authorised)])
    async def post_answer(body: PersonsAnswer, request: Request) -> Accepted:
        if not same_origin(request.headers.get("origin"), request.headers.get("host", "")):
            raise HTTPException(403, "answers are taken from this page only")
        return await answer(body)

    @app.websocket("/live")
    async def live(socket: WebSocket) -> None:
        origin = same_origin(socket.headers.get("origin"), socket.headers.get("host", ""))
        if not origin or not allowed(socket.query_params.get("token", "")):
            await socket.close(code=4401)
            return
        await socket.accept()
        pages.add(socket)
        watching(len(pages))
        try:
            with suppress(WebSocketDisconnect, RuntimeError):
                while True:
                    shown = state.snapshot()
                    await socket.send_json(shown)
                    await asyncio.to_thread(state.wait_for_change, shown["version"], HEARTBEAT_S)
        finally:
            pages.discard(socket)
            watching(len(pages))

    return app


def same_origin(origin: str | None, host: str) -> bool:
    """Whether a request with this Origin header comes from the page served at ``host``. A browser always sends one."""
    return origin is not None and bool(host) and urlsplit(origin).netloc == host
