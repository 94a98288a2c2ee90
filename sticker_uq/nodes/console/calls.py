# SPDX-License-Identifier: Apache-2.0
"""The console node's service calls to the supervisor, from the web server's thread."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from rclpy.client import Client
from rclpy.node import Node

from sticker_uq.console.app import Accepted, Person, PersonsAnswer, PersonsCommand
from sticker_uq.messages import ANSWERS, SCENE_ANSWERS
from sticker_uq.nodes.console.scene import shown_reason, shown_reasons
from sticker_uq.scene import Reason
from sticker_uq_msgs.msg import Box, ObjectAnswer
from sticker_uq_msgs.srv import OperateGate, ResolveIntervention

_COMMANDS = {
    "hold": OperateGate.Request.COMMAND_HOLD,
    "release": OperateGate.Request.COMMAND_RELEASE,
    "reset": OperateGate.Request.COMMAND_RESET,
}


_MOST_PENDING = 6
"""Calls of a service that wait for its response. A service of ROS 2 drops what is more than ten; a hold is always sent."""


class SupervisorCalls:
    """The supervisor's services as the console node calls them for ``node``, which waits ``timeout_s`` for each response."""

    def __init__(self, node: Node, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._answers = node.create_client(ResolveIntervention, "intervention/resolve")
        self.operations = node.create_client(OperateGate, "operate")
        self._pending: Counter[Client] = Counter()

    async def answer(self, said: PersonsAnswer, person: Person) -> Accepted:
        answers = [
            ObjectAnswer(answer=list(ANSWERS).index(a.answer), box=Box(x1=a.x1, y1=a.y1, x2=a.x2, y2=a.y2))
            for a in said.answers
        ]
        request = ResolveIntervention.Request(
            request_id=said.request_id,
            person=person.name,
            person_checked=person.checked,
            scene_answer=list(SCENE_ANSWERS).index(said.scene),
            answers=answers,
            not_stickers=[Box(x1=a.x1, y1=a.y1, x2=a.x2, y2=a.y2) for a in said.not_stickers],
        )
        return await self._in_turn(self._answers, request)

    async def command(self, wanted: PersonsCommand, person: Person) -> Accepted:
        request = OperateGate.Request(
            command=_COMMANDS[wanted.command], person=person.name, person_checked=person.checked
        )
        call = self._call if wanted.command == "hold" else self._in_turn
        return await call(self.operations, request)

    async def _in_turn(self, client: Client, request: Any) -> Accepted:
        """The same as :meth:`_call`, refused while too many others wait."""
        if self._pending[client] >= _MOST_PENDING:
            busy = Reason.of("supervisor_busy", count=_MOST_PENDING)
            return Accepted(accepted=False, reasons=[shown_reason(busy)])
        self._pending[client] += 1
        try:
            return await self._call(client, request)
        finally:
            self._pending[client] -= 1

    async def _call(self, client: Client, request: Any) -> Accepted:
        if not client.service_is_ready():
            return Accepted(accepted=False, reasons=[shown_reason(Reason("supervisor_missing"))])
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        pending = client.call_async(request)

        def deliver() -> None:
            if not done.done():
                done.set_result(pending.result())

        pending.add_done_callback(lambda _: loop.call_soon_threadsafe(deliver))
        try:
            response = await asyncio.wait_for(done, self._timeout_s)
        except TimeoutError:
            client.remove_pending_request(pending)
            return Accepted(accepted=False, reasons=[shown_reason(Reason("supervisor_timeout"))])
        return Accepted(accepted=response.accepted, reasons=shown_reasons(response.reasons))
