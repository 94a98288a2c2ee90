# SPDX-License-Identifier: Apache-2.0
"""The supervisor's client of the cell's service ``change_view``: a request goes out; what becomes of it comes back as event."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from rclpy.node import Node
from rclpy.task import Future

from sticker_uq.gate.events import RequestView, ViewRefused, ViewTaken
from sticker_uq.gate.second_view import Places
from sticker_uq.scene import InvalidInput
from sticker_uq_msgs.srv import ChangeView

SERVICE = "change_view"


class ViewClient:
    """The supervisor's client of the cell on ``node``; reports to ``happened`` and never waits: the gate has a time limit."""

    def __init__(self, node: Node, happened: Callable[[ViewTaken | ViewRefused], object]) -> None:
        self._node = node
        self._happened = happened
        self._client = node.create_client(ChangeView, SERVICE)
        self._pending: Future | None = None
        self._unserved: ViewRefused | None = None

    def destroy(self) -> None:
        """Withdraw the supervisor's client of the cell; nothing is reported any more."""
        self._happened = lambda event: None
        self._drop()
        self._node.destroy_client(self._client)

    def ask(self, request: RequestView) -> None:
        """Ask the cell for another view for the supervisor.

        A service that is missing, or served twice (each would turn the laptop), counts as a refusal with the next tick.
        """
        self._drop()
        servers = self._node.count_services(self._client.srv_name)
        if servers != 1 or not self._client.service_is_ready():
            self._unserved = ViewRefused(
                request.number, f"servers of {self._client.srv_name}: {servers}, expected 1"
            )
            return
        asked = ChangeView.Request(view=request.view, workpiece_id=request.workpiece_id)
        self._pending = self._client.call_async(asked)
        self._pending.add_done_callback(lambda future: self._on_response(request.number, future))

    def tick(self) -> None:
        """Report a request that could not be sent to the supervisor; called with every tick."""
        if self._unserved is not None:
            refused, self._unserved = self._unserved, None
            self._happened(refused)

    def _on_response(self, number: int, future: Future) -> None:
        if future is self._pending:
            self._pending = None
            self._happened(event_of(number, future.result()))

    def _drop(self) -> None:
        self._unserved = None
        if self._pending is not None:
            self._client.remove_pending_request(self._pending)
        self._pending = None


def event_of(number: int, response: ChangeView.Response) -> ViewTaken | ViewRefused:
    """What the cell's response to the supervisor's request ``number`` means; no places where their map cannot be inverted."""
    if not response.changed:
        return ViewRefused(number, response.message)
    try:
        return ViewTaken(number, Places.of(np.asarray(response.places, float)))
    except InvalidInput:
        return ViewTaken(number, None)
