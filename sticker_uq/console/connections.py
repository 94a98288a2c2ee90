# SPDX-License-Identifier: Apache-2.0
"""A bound on the connections of the operator's page, and on how long each may take with a request."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

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
        """Accept a connection to the operator's page, or the one in whose place it comes is closed."""
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
        """The next request to the operator's page may come."""
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
