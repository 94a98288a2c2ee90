# SPDX-License-Identifier: Apache-2.0
"""What every request to the operator's page must pass before its body is read: address, origin, token, name, size."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sticker_uq.console.access import Access, Addresses

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
    """ASGI middleware of the operator's page: refuses requests not from it or not from somebody whom ``access`` lets in.

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
        await JSONResponse({"detail": detail}, status, {**_HEADERS, "Connection": "close"})(
            scope, receive, send
        )

    def _refusal(self, scope: Scope, headers: Headers, signed_in: bool, name: str) -> tuple[int, str] | None:
        """Status and detail of the response to a request that is refused by its head alone; None: it is not."""
        local = (scope.get("server") or ("", 0))[0]
        host = headers.get("host", "")
        if not self._addresses.has_host(host, local):
            return 421, "this is not the address of the page; further ones are named in the parameter origins"
        safe = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if not safe and not self._addresses.has_origin(headers.get("origin"), host, local):
            return 403, "answers are taken from this page only"
        if self._access.name_header and not name:
            return (
                403,
                f"open the page through its proxy, which says in {self._access.name_header} who you are",
            )
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
