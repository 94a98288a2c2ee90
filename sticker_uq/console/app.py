"""The operator's web page: what it serves and what it accepts. The ROS side is in :mod:`sticker_uq.nodes.console.node`.

Bound to the machine itself the page is open; bound to a network it asks for a token. Answers are taken only from the page
itself (same origin), and only whole and valid.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from fastapi import Depends, FastAPI, HTTPException, Request, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import FileResponse
from pydantic import BaseModel, ConfigDict, Field

from sticker_uq.console.state import ConsoleState

PAGE = Path(__file__).parent / "page"
HEARTBEAT_S = 1.0
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' blob:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_STATIC = frozenset(path.name for path in PAGE.iterdir() if path.suffix in (".js", ".css", ".svg"))
Coordinate = Field(ge=-1e5, le=1e5, allow_inf_nan=False)
Person = Field(min_length=1, max_length=100)


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
    person: str = Person
    scene: Literal["none", "rescan", "skip_laptop", "fault", "clean"] = "none"
    answers: list[BoxAnswer] = Field(default_factory=list, max_length=200)


class PersonsCommand(BaseModel):
    """What a person wants of the gate without being asked."""

    model_config = ConfigDict(extra="forbid")

    command: Literal["hold", "release", "reset"]
    person: str = Person


class Accepted(BaseModel):
    """Whether the supervisor accepted it, and why, as the page shows reasons."""

    accepted: bool
    reasons: list[dict[str, Any]]


class Cell(Protocol):
    """What the page needs of the cell."""

    async def answer(self, said: PersonsAnswer) -> Accepted:
        """Hand an answer to the supervisor."""

    async def command(self, wanted: PersonsCommand) -> Accepted:
        """Hold, release or reset the gate."""

    def picture(self, stamp_ns: int) -> bytes:
        """The camera's image of that stamp as JPEG, empty when it is not kept."""

    def heat(self, stamp_ns: int) -> bytes:
        """The saliency of that image as PNG, empty when it is not kept."""

    def watched(self, pages: int, heat: int) -> None:
        """So many pages are open, and so many of them show the saliency."""


def make_app(state: ConsoleState, cell: Cell, token: str = "") -> FastAPI:
    """The page's server. ``token`` empty: none is asked for."""
    app = FastAPI(
        title="sticker_uq console",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[Depends(in_time)],
    )
    pages: dict[WebSocket, bool] = {}

    def allowed(given: str) -> bool:
        return not token or hmac.compare_digest(given.encode(), token.encode())

    def authorised(request: Request) -> None:
        if not allowed(request.query_params.get("token", "")):
            raise HTTPException(401, "this page needs its token: open it with ?token=...")

    def from_the_page(request: Request) -> None:
        if not same_origin(request.headers.get("origin"), request.headers.get("host", "")):
            raise HTTPException(403, "answers are taken from this page only")

    def tell() -> None:
        cell.watched(len(pages), sum(pages.values()))

    @app.middleware("http")
    async def add_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await call_next(request)
        response.headers.update(_HEADERS)
        return response

    @app.get("/", dependencies=[Depends(authorised)])
    def page() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    @app.get("/static/{name}")
    def static(name: str) -> FileResponse:
        if name not in _STATIC:
            raise HTTPException(404, f"there is no {name}")
        return FileResponse(PAGE / name)

    @app.get("/picture/{stamp_ns}.jpg", dependencies=[Depends(authorised)])
    def picture(stamp_ns: int) -> Response:
        return _image(cell.picture(stamp_ns), "image/jpeg")

    @app.get("/heat/{stamp_ns}.png", dependencies=[Depends(authorised)])
    def heat(stamp_ns: int) -> Response:
        return _image(cell.heat(stamp_ns), "image/png")

    @app.post("/answer", dependencies=[Depends(authorised), Depends(from_the_page)])
    async def answer(body: PersonsAnswer) -> Accepted:
        return await cell.answer(body)

    @app.post("/command", dependencies=[Depends(authorised), Depends(from_the_page)])
    async def command(body: PersonsCommand) -> Accepted:
        return await cell.command(body)

    @app.websocket("/live")
    async def live(socket: WebSocket) -> None:
        origin = same_origin(socket.headers.get("origin"), socket.headers.get("host", ""))
        if not origin or not allowed(socket.query_params.get("token", "")):
            await socket.close(code=4401)
            return
        await socket.accept()
        pages[socket] = False
        tell()
        listening = asyncio.create_task(listen(socket))
        try:
            with suppress(WebSocketDisconnect, RuntimeError):
                while True:
                    shown = state.snapshot()
                    await socket.send_json(shown)
                    await asyncio.to_thread(state.wait_for_change, shown["version"], HEARTBEAT_S)
        finally:
            listening.cancel()
            pages.pop(socket, None)
            tell()

    async def listen(socket: WebSocket) -> None:
        """What the page wants to see: ``{"heat": true}``; whatever else it says is ignored."""
        with suppress(WebSocketDisconnect, RuntimeError, ValueError, KeyError):
            while True:
                said: Any = await socket.receive_json()
                if isinstance(said, dict) and isinstance(said.get("heat"), bool) and socket in pages:
                    pages[socket] = said["heat"]
                    tell()

    return app


async def in_time(until: float | None = None) -> None:
    """Refuse what the page has reported as not done meanwhile, because this process or the network stood still.

    ``until``: the end of the page's patience, s of the monotonic clock of :meth:`ConsoleState.snapshot`.
    """
    if until is not None and not time.monotonic() <= until:
        raise HTTPException(408, "it came too late: the page has reported it as not done")


def same_origin(origin: str | None, host: str) -> bool:
    """Whether a request with this Origin header comes from the page served at ``host``. A browser always sends one."""
    return origin is not None and bool(host) and urlsplit(origin).netloc == host


def _image(data: bytes, media_type: str) -> Response:
    return Response(data, media_type=media_type) if data else Response(status_code=204)
