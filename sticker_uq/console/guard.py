# SPDX-License-Identifier: Apache-2.0
"""What every request to the operator's page must pass before its body is read: address, origin, session, size."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sticker_uq.console.access import Access, Addresses, Session

MOST_BODY = 64 * 1024
"""Largest body, bytes: two hundred answers have 20 KB."""
BODY_S = 5.0
"""So long a body may take to arrive."""
SESSION = "sticker_uq.session"
COOKIE = "sticker_uq.cookie"
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
    """ASGI middleware of the operator's page: refuses requests not from it or not from a signed-in operator, and limits bodies.

    The request that passes has its session in ``scope[SESSION]`` (None at the sign-in) and its cookie in ``scope[COOKIE]``.
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
        cookie = HTTPConnection(scope).cookies.get(self._cookie, "")
        session = self._access.session(cookie)
        refusal = self._refusal(scope, headers, session)
        if scope["type"] == "websocket":
            if refusal is not None:
                await send({"type": "websocket.close", "code": 4400 + refusal[0] % 100})
                return
            await self._app({**scope, SESSION: session, COOKIE: cookie}, receive, send)
            return
        body = b""
        if refusal is None and scope["method"] == "POST":
            try:
                async with asyncio.timeout(BODY_S):
                    body = await _read(receive)
            except TimeoutError:
                refusal = (408, f"the body did not arrive within {BODY_S:g} s")
            except _TooLarge:
                refusal = (413, f"the body is larger than {MOST_BODY} bytes")
        if refusal is not None:
            status, detail = refusal
            # what is still to come of the body is not waited for
            headers_ = {**_HEADERS, "Connection": "close"}
            await JSONResponse({"detail": detail}, status, headers_)(scope, receive, send)
            return
        await self._app(
            {**scope, SESSION: session, COOKIE: cookie}, _replayed(body, receive), _with_headers(send)
        )

    def _refusal(self, scope: Scope, headers: Headers, session: Session | None) -> tuple[int, str] | None:
        """Status and detail of the response to a request that is refused by its head alone; None: it is not."""
        local = (scope.get("server") or ("", 0))[0]
        host = headers.get("host", "")
        if not self._addresses.has_host(host, local):
            return 421, "this is not the address of the page; further ones are named in the parameter origins"
        safe = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if not safe and not self._addresses.has_origin(headers.get("origin"), host, local):
            return 403, "answers are taken from this page only"
        path = scope["path"]
        if session is None and path not in _PUBLIC and not path.startswith("/static/"):
            return 401, "please sign in"
        if scope["type"] == "http" and scope["method"] == "POST":
            return _body_refusal(headers)
        return None


def _body_refusal(headers: Headers) -> tuple[int, str] | None:
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers and "content-length" in headers:
        return 400, "a body has either a length or a transfer encoding"
    if not length.isascii() or not length.isdigit():
        return 400, "Content-Length: expected a number of bytes"
    if len(length) > len(str(MOST_BODY)) or int(length) > MOST_BODY:
        return 413, f"the body is larger than {MOST_BODY} bytes"
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return 415, "the body must be application/json"
    return None


def client_of(scope: Scope) -> str:
    """Whom wrong sign-ins are counted for: the IP address, of IPv6 the network of one customer (/64), of loopback this machine.

    Whoever is logged in to this machine has millions of loopback addresses, and others have whole networks.
    """
    host = (scope.get("client") or ("", 0))[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.is_loopback:
        return "loopback"
    return host if address.version == 4 else str(ipaddress.ip_network(f"{address}/64", strict=False))


class _TooLarge(Exception):
    pass


async def _read(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MOST_BODY:
            raise _TooLarge
        if not message.get("more_body", False):
            return body


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that gives ``body`` first."""
    first: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(_HEADERS)
        await send(message)

    return send_with_headers
