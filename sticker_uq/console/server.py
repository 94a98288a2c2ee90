# SPDX-License-Identifier: Apache-2.0
"""The web server behind the operator's page, in a thread of its own."""

import errno
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import uvicorn
from pydantic import Field
from starlette.types import ASGIApp

from sticker_uq.console.access import (
    EVERY_ADDRESS,
    Access,
    Addresses,
    in_url,
    is_loopback,
    origins_of,
    read_token,
)
from sticker_uq.console.app import Cell, make_app
from sticker_uq.console.state import ConsoleState
from sticker_uq.io.images import Transport
from sticker_uq.io.setting_fields import Frozen
from sticker_uq.scene import InvalidInput

_CLOSING_S = 5.0
_BACKLOG = 64
"""Connections that wait; asyncio accepts as many at once, before those that are too many have ended."""
_MOST_HEAD = 16 * 1024
_MOST_SAID = 1024
_STALLED_MS = 10_000
"""A client that takes nothing for so long loses its connection, ms."""


class ConsoleSettings(Frozen):
    host: str = Field("127.0.0.1", min_length=1)
    """Address to listen on; other than loopback needs token_file"""
    port: int = Field(8780, ge=0, le=65535, description="TCP port; 0: any free one")
    origins: str = ""
    """Further addresses of the page, comma-separated, e.g. https://cell-3.example behind a TLS proxy; loopback, host and the IP
    address of this machine are known"""
    token_file: str = ""
    """File with the one token that everybody signs in with, made when it is missing; empty: none"""
    name_header: str = Field("", pattern=r"^[A-Za-z0-9-]*$")
    """Header in which a reverse proxy on this machine names the signed-in operator, e.g. X-Remote-User; needs a host of loopback;
    empty: operators type their names, which are not checked"""
    answer_timeout_s: float = Field(5.0, ge=0.1, le=60.0)
    """Time the supervisor has to take an answer, s"""
    metrics_port: int = Field(0, ge=0, le=65535)
    """TCP port of http://HOST:PORT/metrics for Prometheus, without sign-in; 0: none"""
    image_transport: Transport = "raw"
    """Show image or image/compressed; the same as the detector's"""
    kept_images_s: float = Field(5.0, ge=0.1, le=60.0)
    """Time that images are kept until their scene and its question are shown, s; longer than the supervisor's max_scene_age_s"""
    kept_images_mb: int = Field(500, ge=1, le=100_000)
    """Memory for them, MB; the newest are kept"""


class AppServer:
    """Serves the page that ``make`` makes of access, addresses, name of the cookie and an event that is set when it closes, until
    :meth:`close`. ``port``: where; ``address``: the same as a link.

    Raises :class:`InvalidInput` when the address cannot be listened on, or is reachable from other machines without a sign-in.
    """

    def __init__(
        self, make: Callable[[Access, Addresses, str, threading.Event], ASGIApp], settings: ConsoleSettings
    ) -> None:
        access, origins = access_of(settings), origins_of(settings.origins)
        listener = _listen(settings.host, settings.port)
        self.port: int = listener.getsockname()[1]
        addresses = Addresses(settings.host, self.port, origins)
        self._closing = threading.Event()
        config = uvicorn.Config(
            make(access, addresses, f"sticker_uq_{self.port}", self._closing),
            http="h11",
            ws="websockets-sansio",
            ws_max_size=_MOST_SAID,
            h11_max_incomplete_event_size=_MOST_HEAD,
            proxy_headers=False,  # anybody could write them
            server_header=False,
            backlog=_BACKLOG,
            log_level="error",
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="web", daemon=True)
        self._thread.start()
        name = "127.0.0.1" if settings.host in EVERY_ADDRESS else in_url(settings.host)
        self.address = f"http://{name}:{self.port}/"

    def close(self) -> None:
        self._closing.set()
        self._server.should_exit = True
        self._thread.join(_CLOSING_S)


class PageServer(AppServer):
    """Serves the page of ``cell``."""

    def __init__(self, state: ConsoleState, cell: Cell, settings: ConsoleSettings) -> None:
        super().__init__(lambda *reached_by: make_app(state, cell, *reached_by), settings)


def access_of(settings: ConsoleSettings) -> Access:
    """Whom the page lets in; raises what :class:`AppServer` raises of them."""
    host, local = settings.host, is_loopback(settings.host)
    if settings.name_header and not local:
        raise InvalidInput(
            f"name_header with host {host}: other machines could write the header themselves: expected host 127.0.0.1, "
            "behind a proxy on this machine"
        )
    if not settings.token_file:
        if not local:
            raise InvalidInput(f"host {host} can be reached from other machines: expected token_file")
        return Access(name_header=settings.name_header)
    path = Path(settings.token_file).expanduser()
    try:
        return Access(read_token(path), settings.name_header)
    except OSError as error:
        raise InvalidInput(f"token_file {path}: {error.strerror}") from None


def _listen(host: str, port: int) -> socket.socket:
    """A socket on which whoever comes before the server runs waits instead of being turned away."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        hint = ": is another console running?" if error.errno == errno.EADDRINUSE else ""
        raise InvalidInput(
            f"host {host} and port {port} cannot be listened on: {error.strerror}{hint}"
        ) from None
    # connections inherit it; uvicorn alone would wait for a client that never reads
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STALLED_MS)
    return listener
