# SPDX-License-Identifier: Apache-2.0
"""The web server behind the operator's page, in a thread of its own."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
import time
from pathlib import Path
from typing import Any

import uvicorn
from pydantic import BaseModel, ConfigDict, Field
from uvicorn.protocols.http.h11_impl import H11Protocol

from sticker_uq.console.access import (
    EVERY_ADDRESS,
    Access,
    Addresses,
    check_private,
    in_url,
    is_loopback,
    origins_of,
    read_operators,
    read_token,
)
from sticker_uq.console.app import Cell, make_app
from sticker_uq.console.state import ConsoleState
from sticker_uq.io.images import Transport
from sticker_uq.scene import InvalidInput

MOST_CONNECTIONS = 256
MOST_OF_ONE_ADDRESS = 64
REQUEST_S = 5.0
"""A connection is closed when it has been without a whole request head for so long."""


class BoundedHttp(H11Protocol):
    """uvicorn's HTTP protocol with bounds for the operator's page.

    Alone it would wait for a request for ever and refuse everybody when there are too many.

    When there are too many connections, of one address or in all, an older one gives way: one whose client is to send or to read
    something, else one that only fetches. Idle ones, bodies that do not come and floods of GET never keep a new one out.
    """

    _idle_since = 0.0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        host = _host_of(self)
        everybody = list(self.connections)
        neighbours = [other for other in everybody if _host_of(other) == host]
        if len(neighbours) > MOST_OF_ONE_ADDRESS:
            _make_way(neighbours, self)
        elif len(everybody) > MOST_CONNECTIONS:
            _make_way(everybody, self)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request to the operator's page: they stop the clock only when its head is whole."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop()

    def handle_websocket_upgrade(self, event: Any) -> None:
        self._stop()
        super().handle_websocket_upgrade(event)

    @property
    def waits_for_client(self) -> bool:
        """Whether a web connection waits for its client: for a request, the rest of its body, or the response to be read."""
        answers = self.cycle is not None and not self.cycle.more_body and not self.flow.write_paused
        return self._deadline is not None or not answers

    def _watch(self) -> None:
        waits = self.cycle is None or self.cycle.response_complete
        if not waits or self.transport.get_protocol() is not self:
            self._stop()
        elif self._deadline is None:
            self._idle_since = time.monotonic()
            self._deadline = self.loop.call_later(REQUEST_S, self.transport.abort)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _host_of(connection: Any) -> str:
    return connection.client[0] if connection.client else ""


def _make_way(connections: list[Any], new: BoundedHttp) -> None:
    """Close one of ``connections`` for ``new``, which itself gives way where all others are websockets, answers and commands."""
    older = [one for one in connections if isinstance(one, BoundedHttp) and one is not new]
    ending = [one for one in older if one.waits_for_client or one.scope["method"] != "POST"]
    oldest = min(ending, key=lambda one: (not one.waits_for_client, one._idle_since), default=new)
    # it ends in the next round of the loop; whoever comes in this one must find another
    oldest._stop()
    oldest.connections.discard(oldest)
    oldest.transport.abort()


_CLOSING_S = 5.0
_BACKLOG = 64
"""Connections that wait; asyncio accepts as many at once, before those that are too many have ended."""
_MOST_HEAD = 16 * 1024
_MOST_SAID = 1024
_STALLED_MS = 10_000
"""A client that takes nothing for so long loses its connection, ms."""


class ConsoleSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address to listen on; other than loopback needs operators_file or token_file",
    )
    port: int = Field(8780, ge=0, le=65535, description="TCP port; 0: any free one")
    origins: str = Field(
        "",
        description="Further addresses of the page, comma-separated, e.g. https://cell-3.example behind a TLS proxy; loopback, "
        "host and the IP address of this machine are known",
    )
    operators_file: str = Field(
        "",
        description="File of operators, who sign in with a secret each (sticker-uq operator add); empty: names are not checked",
    )
    token_file: str = Field(
        "",
        description="File with the one token that everybody signs in with, made when it is missing; empty: none",
    )
    answer_timeout_s: float = Field(
        5.0, ge=0.1, le=60.0, description="Time the supervisor has to take an answer, s"
    )
    metrics_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="TCP port of http://HOST:PORT/metrics for Prometheus, without sign-in; 0: none",
    )
    image_transport: Transport = Field(
        "raw", description="Show image or image/compressed; the same as the detector's"
    )
    kept_images: int = Field(
        24,
        ge=1,
        le=1000,
        description="Newest images kept in memory until their scene is published; more for a fast camera with a slow model",
    )


class PageServer:
    """Serves the operator's page of ``cell`` until :meth:`close`. ``port``: where; ``address``: the same as a link.

    Raises :class:`InvalidInput` when the address cannot be listened on, or is reachable from other machines without a sign-in.
    """

    def __init__(self, state: ConsoleState, cell: Cell, settings: ConsoleSettings) -> None:
        access, origins = _access(settings), origins_of(settings.origins)
        listener = _listen(settings.host, settings.port)
        self.port: int = listener.getsockname()[1]
        addresses = Addresses(settings.host, self.port, origins)
        config = uvicorn.Config(
            make_app(state, cell, access, addresses, f"sticker_uq_{self.port}"),
            http=BoundedHttp,
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
        self._server.should_exit = True
        self._thread.join(_CLOSING_S)


def _access(settings: ConsoleSettings) -> Access:
    if settings.operators_file and settings.token_file:
        raise InvalidInput("operators_file and token_file are both set: expected one of them")
    if settings.operators_file:
        path = Path(settings.operators_file).expanduser()
        if not read_operators(path):
            raise InvalidInput(
                f"operators_file {path}: it names nobody: sticker-uq operator add NAME --file {path}"
            )
        check_private(path, "operators_file")
        return Access(operators_file=path)
    if settings.token_file:
        return Access(_token(Path(settings.token_file).expanduser()))
    if not is_loopback(settings.host):
        raise InvalidInput(
            f"host {settings.host} can be reached from other machines: expected operators_file (sticker-uq operator add NAME "
            "--file FILE) or token_file"
        )
    return Access()


def _token(path: Path) -> str:
    try:
        return read_token(path)
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
