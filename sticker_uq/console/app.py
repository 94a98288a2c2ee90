# SPDX-License-Identifier: Apache-2.0
"""The operator's web page: what it serves and what it accepts. The ROS side is in :mod:`sticker_uq.nodes.console.node`.

:class:`Guard` decides which requests come as far as the application: those from the page itself and, where there is a token,
of somebody who has entered it.
"""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from fastapi import (
    Cookie,
    Depends,
    FastAPI,
    Header,
    HTTPException,
    Request,
    Response,
    WebSocket,
    WebSocketDisconnect,
)
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sticker_uq.console.access import LONGEST_TEXT, Access, Addresses, WrongTokens
from sticker_uq.console.state import ConsoleState
from sticker_uq.gate.box_overlap import SAME_PLACE_IOU
from sticker_uq.io.setting_fields import words
from sticker_uq.messages import PAGE_LANGUAGES

MOST_BODY = 64 * 1024
"""Largest body, bytes: two hundred answers have 20 KB."""
SIGNED_IN = "sticker_uq.signed_in"
NAME = "sticker_uq.name"
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_PUBLIC = ("/", "/session")


class Guard:
    """ASGI middleware: refuses requests that are not from the page or not from somebody whom ``access`` lets in.

    The request that passes has in ``scope[SIGNED_IN]`` whether it has the cookie, and in ``scope[NAME]`` whom the proxy names.
    """

    def __init__(self, app: ASGIApp, access: Access, addresses: Addresses, cookie: str) -> None:
        self._app = app
        self._access = access
        self._addresses = addresses
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        signed_in = self._access.knows(HTTPConnection(scope).cookies.get(self._cookie, ""))
        name = self._access.name_in(headers.getlist(self._access.name_header)) or ""
        refusal = self._refusal(scope, headers, signed_in, name)
        if refusal is None:
            passed = {**scope, SIGNED_IN: signed_in, NAME: name}
            await self._app(passed, receive, _with_headers(send) if scope["type"] == "http" else send)
            return
        status, detail = refusal
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 4400 + status % 100})
            return
        # what is still to come of the body is not waited for
        response = JSONResponse({"detail": detail}, status, {**_HEADERS, "Connection": "close"})
        await response(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers, signed_in: bool, name: str) -> tuple[int, str] | None:
        """Status and detail of the response to a request that is refused by its head alone; None: it is not."""
        local = (scope.get("server") or ("", 0))[0]
        host = headers.get("host", "")
        if not self._addresses.has_host(host, local):
            return 421, "this is not the address of the page; further ones are named in the parameter origins"
        safe = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if not safe and not self._addresses.has_origin(headers.get("origin"), host, local):
            return 403, "answers are taken from this page only"
        if (header := self._access.name_header) and not name:
            return 403, f"open the page through its proxy, which says in {header} who you are"
        path = scope["path"]
        if not signed_in and path not in _PUBLIC and not path.startswith("/static/"):
            return 401, "please sign in"
        if scope["type"] == "http" and scope["method"] == "POST":
            return _body_refusal(headers)
        return None


def _body_refusal(headers: Headers) -> tuple[int, str] | None:
    length = headers.get("content-length", "")
    if "transfer-encoding" in headers or not length.isascii() or not length.isdigit():
        return 411, "Content-Length: expected a number of bytes, and no transfer encoding"
    if len(length) > len(str(MOST_BODY)) or int(length) > MOST_BODY:
        return 413, f"the body is larger than {MOST_BODY} bytes"
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return 415, "the body must be application/json"
    return None


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(_HEADERS)
        await send(message)

    return send_with_headers


PAGE = Path(__file__).parent / "page"
HEARTBEAT_S = 1.0
MOST_PAGES = 32
"""Pages that show the cell at the same time."""
SEND_S = 10.0
"""A page that does not take a message for so long is given up."""
_STATIC = frozenset(path.name for path in PAGE.iterdir() if path.suffix in (".js", ".css", ".svg"))
Coordinate = Field(ge=-1e5, le=1e5, allow_inf_nan=False)


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("expected printable characters")
    return text.strip()


Text = Annotated[str, AfterValidator(_printable)]
"""A name as it may stand in a log: no line breaks, control characters or characters that turn the direction of a line."""


class Said(BaseModel):
    """What the page sends."""

    model_config = ConfigDict(extra="forbid")


class Place(Said):
    x1: float = Coordinate
    y1: float = Coordinate
    x2: float = Coordinate
    y2: float = Coordinate


class BoxAnswer(Place):
    answer: Literal["remove", "keep", "not_there", "missed"]


class PersonsAnswer(Said):
    """A person's answer to one question. ``person``: counts only where no proxy names the operator. ``not_stickers``: what looks
    like a sticker and is none, where ``scene`` is "clean". ``image_ns``: stamp of the image on the page, 0 where there was
    none.
    """

    request_id: Text = Field(min_length=1, max_length=200)
    image_ns: int = Field(0, ge=0, lt=2**63)
    person: Text = Field("", max_length=100)
    scene: Literal["none", "rescan", "skip_laptop", "fault", "clean"] = "none"
    answers: list[BoxAnswer] = Field(default_factory=list, max_length=200)
    not_stickers: list[Place] = Field(default_factory=list, max_length=200)


class PersonsCommand(Said):
    """A person's command to the gate. ``person``: as in :class:`PersonsAnswer`; not needed to hold."""

    command: Literal["hold", "release", "reset"]
    person: Text = Field("", max_length=100)


class SignIn(Said):
    secret: str = Field(min_length=1, max_length=LONGEST_TEXT)


class Accepted(BaseModel):
    """Whether the supervisor accepted what was sent, and why, as the page shows reasons."""

    accepted: bool
    reasons: list[dict[str, Any]]


class Person(NamedTuple):
    """Who answers or commands. ``checked``: whether a proxy has checked the name."""

    name: str
    checked: bool


class Cell(Protocol):
    async def answer(self, said: PersonsAnswer, person: Person) -> Accepted:
        """Hand an answer to the supervisor."""

    async def command(self, wanted: PersonsCommand, person: Person) -> Accepted:
        """Hold, release or reset the gate."""

    def picture(self, stamp_ns: int) -> bytes:
        """The camera's picture of that stamp as JPEG, empty when it is not kept."""

    def heat(self, stamp_ns: int) -> bytes:
        """The saliency of that picture as PNG, empty when it is not kept."""

    def note_viewers(self, pages: int, heat: int) -> None:
        """Take note of how many pages are open, and how many of them show the saliency."""

    def wrong_token(self, address: str, lately: int, ever: int) -> None:
        """Take note that a wrong token came from ``address``, of so many from there lately and so many in all."""


def page_app(
    page_file: str,
    access: Access,
    addresses: Addresses,
    cookie: str,
    wrong_token: Callable[[str, int, int], None] = lambda *_: None,
) -> FastAPI:
    """A page of ``page/`` behind the :class:`Guard`, with its sign-in, words and files; ``wrong_token``: see :class:`Cell`."""
    app = FastAPI(title="sticker_uq console", openapi_url=None, dependencies=[Depends(in_time)])
    app.add_middleware(Guard, access=access, addresses=addresses, cookie=cookie)
    wrong = WrongTokens()

    @app.exception_handler(RequestValidationError)
    async def refuse(_: Request, error: RequestValidationError) -> Response:
        # pydantic would repeat what was sent
        return JSONResponse({"detail": words(error.errors()[0])}, 422)

    @app.get("/")
    def page(request: Request) -> FileResponse:
        if not request.scope[SIGNED_IN]:
            return FileResponse(PAGE / "sign_in.html", 401)
        return FileResponse(PAGE / page_file)

    # a module, so that the browser waits for it as for the rest: a page that shows HOLD also takes it
    @app.get("/static/words.js")
    def page_words(
        language: Annotated[str, Cookie()] = "", accept_language: Annotated[str, Header()] = ""
    ) -> Response:
        wanted = [tag.strip()[:2].lower() for tag in f"{language},{accept_language}".split(",")]
        known = next((tag for tag in wanted if tag in PAGE_LANGUAGES), "en")
        languages = {lang: each["language"] for lang, each in PAGE_LANGUAGES.items()}
        words = json.dumps(PAGE_LANGUAGES[known] | {"languages": languages})
        facts = f"export const STRINGS = {words}, SAME_PLACE_IOU = {SAME_PLACE_IOU};"
        return Response(facts, media_type="text/javascript")

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in _STATIC:
            raise HTTPException(404, "there is no such file")
        return FileResponse(PAGE / name)

    @app.get("/session")
    def session(request: Request) -> Response:
        return Response(status_code=204 if request.scope[SIGNED_IN] else 401)

    @app.post("/session")
    async def sign_in(body: SignIn, request: Request) -> Response:
        if not access.accepts(body.secret):
            address = request.client.host if request.client is not None else ""
            lately, delay_s = wrong.another(address)
            wrong_token(address, lately, wrong.count)
            await slow_down(delay_s)
            raise HTTPException(401, "wrong token")
        response = Response(status_code=204)
        secure = request.headers["origin"].startswith("https:")
        response.set_cookie(cookie, access.cookie, secure=secure, httponly=True, samesite="strict")
        return response

    return app


def make_app(
    state: ConsoleState,
    cell: Cell,
    access: Access,
    addresses: Addresses,
    cookie: str = "sticker_uq",
    closing: threading.Event | None = None,
) -> FastAPI:
    closing = closing or threading.Event()
    app = page_app("index.html", access, addresses, cookie, cell.wrong_token)
    pages: dict[WebSocket, bool] = {}
    waiting = ThreadPoolExecutor(MOST_PAGES, thread_name_prefix="page")

    def tell() -> None:
        cell.note_viewers(len(pages), sum(pages.values()))

    def person_of(request: Request, name: str) -> Person:
        proved: str = request.scope[NAME]
        return Person(proved or name, bool(proved))

    @app.get("/picture/{stamp_ns}.jpg")
    def picture(stamp_ns: int) -> Response:
        return image_response(cell.picture(stamp_ns), "image/jpeg")

    @app.get("/heat/{stamp_ns}.png")
    def heat(stamp_ns: int) -> Response:
        return image_response(cell.heat(stamp_ns), "image/png")

    @app.post("/answer")
    async def answer(body: PersonsAnswer, request: Request) -> Accepted:
        return await cell.answer(body, person_of(request, body.person))

    @app.post("/command")
    async def command(body: PersonsCommand, request: Request) -> Accepted:
        return await cell.command(body, person_of(request, body.person))

    @app.websocket("/live")
    async def live(socket: WebSocket) -> None:
        if len(pages) >= MOST_PAGES:
            await socket.close(code=1013)
            return
        await socket.accept()
        operator = {"name": socket.scope[NAME], "checked": bool(socket.scope[NAME])}
        pages[socket] = False
        tell()
        listening = asyncio.create_task(listen(socket))
        loop = asyncio.get_running_loop()
        try:
            with suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
                # a page that was connecting when the server began to close is not told to go: it would be served on and on
                while not closing.is_set():
                    shown = state.snapshot() | {"operator": operator}
                    async with asyncio.timeout(SEND_S):
                        await socket.send_json(shown)
                    # in threads of its own: with the loop's few, many pages would make each other late
                    await loop.run_in_executor(waiting, state.wait_for_change, shown["version"], HEARTBEAT_S)
        finally:
            listening.cancel()
            pages.pop(socket, None)
            tell()

    async def listen(socket: WebSocket) -> None:
        """What the page wants to see: ``{"heat": true}``; whatever else it says is ignored."""
        with suppress(WebSocketDisconnect, RuntimeError, ValueError, KeyError):
            while True:
                said: Any = await socket.receive_json()
                heat = said.get("heat") if isinstance(said, dict) else None
                if isinstance(heat, bool) and pages.get(socket, heat) is not heat:
                    pages[socket] = heat
                    tell()

    return app


slow_down = asyncio.sleep


async def in_time(until: float | None = None) -> None:
    """Refuse what the page has meanwhile reported as not done, because this process or the network stood still.

    ``until``: the end of the page's patience, s of the monotonic clock of :meth:`ConsoleState.snapshot`.
    """
    if until is not None and not time.monotonic() <= until:
        raise HTTPException(408, "it came too late: the page has reported it as not done")


def image_response(data: bytes, media_type: str) -> Response:
    return Response(data, media_type=media_type) if data else Response(status_code=204)
