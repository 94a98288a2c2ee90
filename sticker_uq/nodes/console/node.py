# SPDX-License-Identifier: Apache-2.0
"""Node ``console``: the operator's page. Shows what the cell sees and decides, and takes a person's answer."""

import asyncio
import time
from collections import Counter, OrderedDict
from functools import partial
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, KeyValue
from rclpy.client import Client
from rclpy.node import Node
from rclpy.subscription import Subscription
from sensor_msgs.msg import Image

from sticker_uq.cell.processes import LIFECYCLE_NODES
from sticker_uq.console.album import Album, heat
from sticker_uq.console.app import Accepted, Person, PersonsAnswer, PersonsCommand
from sticker_uq.console.metrics import DONE, CellMetrics
from sticker_uq.console.server import ConsoleSettings, PageServer
from sticker_uq.console.state import ConsoleState
from sticker_uq.gate import Answer, SceneAnswer
from sticker_uq.io.images import encode_jpeg
from sticker_uq.io.messages import stamp_to_ns
from sticker_uq.nodes.common.conversions import ns_to_stamp
from sticker_uq.nodes.common.diagnostics import Diagnostics, Level, PartReport, steady_timer
from sticker_uq.nodes.common.image_input import ImageInput
from sticker_uq.nodes.common.images import bgr_from_msg
from sticker_uq.nodes.common.lifecycle import run_process
from sticker_uq.nodes.common.parameters import declare_settings
from sticker_uq.nodes.common.qos import DIAGNOSTICS, LATCHED, RELIABLE
from sticker_uq.nodes.console.shown import (
    gate_to_json,
    name_of,
    reason_to_json,
    reasons_to_json,
    request_to_json,
    scene_to_json,
)
from sticker_uq.scene import Reason
from sticker_uq_msgs import msg as m
from sticker_uq_msgs.srv import OperateGate, ResolveIntervention

_JPEG_QUALITY = 85
_MOST_PENDING = 6
"""Calls of a service that wait for its response. A service of ROS 2 drops what is more than ten; a hold is always sent."""


class SupervisorCalls:
    """Calls the supervisor's services; waits ``timeout_s`` for each response."""

    def __init__(self, node: Node, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._answers = node.create_client(ResolveIntervention, "intervention/resolve")
        self.operations = node.create_client(OperateGate, "operate")
        self._pending: Counter[Client] = Counter()

    async def answer(self, said: PersonsAnswer, person: Person) -> Accepted:
        answers = [
            m.ObjectAnswer(answer=Answer[a.answer.upper()], box=m.Box(x1=a.x1, y1=a.y1, x2=a.x2, y2=a.y2))
            for a in said.answers
        ]
        request = ResolveIntervention.Request(
            request_id=said.request_id,
            person=person.name,
            person_checked=person.checked,
            scene_answer=SceneAnswer[said.scene.upper()],
            image_stamp=ns_to_stamp(said.image_ns),
            answers=answers,
            not_stickers=[m.Box(x1=a.x1, y1=a.y1, x2=a.x2, y2=a.y2) for a in said.not_stickers],
        )
        return await self._in_turn(self._answers, request)

    async def command(self, wanted: PersonsCommand, person: Person) -> Accepted:
        command = getattr(OperateGate.Request, f"COMMAND_{wanted.command.upper()}")
        request = OperateGate.Request(command=command, person=person.name, person_checked=person.checked)
        call = self._call if wanted.command == "hold" else self._in_turn
        return await call(self.operations, request)

    async def _in_turn(self, client: Client, request: Any) -> Accepted:
        """The same as :meth:`_call`, refused while too many others wait."""
        if self._pending[client] >= _MOST_PENDING:
            busy = Reason.of("supervisor_busy", count=_MOST_PENDING)
            return Accepted(accepted=False, reasons=[reason_to_json(busy)])
        self._pending[client] += 1
        try:
            return await self._call(client, request)
        finally:
            self._pending[client] -= 1

    async def _call(self, client: Client, request: Any) -> Accepted:
        if not client.service_is_ready():
            return Accepted(accepted=False, reasons=[reason_to_json(Reason("supervisor_missing"))])
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
            return Accepted(accepted=False, reasons=[reason_to_json(Reason("supervisor_timeout"))])
        return Accepted(accepted=response.accepted, reasons=reasons_to_json(response.reasons))


_IMAGE_CHECK_S = 1.0
#: Scenes that wait for their decision, which comes within milliseconds, or for the question that follows from it.
_WAITING_SCENES = 8
#: A scene is shown without a decision when the supervisor has decided nothing for so long, s.
_UNDECIDED_S = 2.0


class Console(Node):
    """``port`` is the one that is listened on."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__("console", **arguments)
        self._settings = declare_settings(self, ConsoleSettings).read()
        self.state = ConsoleState(LIFECYCLE_NODES)
        self._metrics = CellMetrics([f"{node}: lifecycle" for node in LIFECYCLE_NODES])
        kept = self._settings.kept_images_s, self._settings.kept_images_mb * 1_000_000
        self._album = Album(lambda image: encode_jpeg(bgr_from_msg(image), _JPEG_QUALITY), *kept)
        self._maps = Album(_heat_of, *kept)
        self._shown: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self._question: dict[str, Any] | None = None
        self._scenes: OrderedDict[int, m.SceneAssessment] = OrderedDict()
        self._decided = -float("inf")
        self._without_picture = 0
        self._wrong_tokens = 0
        self._gate = ""
        self._asked = ""
        self._listen()
        self.supervisor = SupervisorCalls(self, self._settings.answer_timeout_s)
        self._hold_of: Person | None = None
        self._untaken = self.create_publisher(KeyValue, "console/hold", LATCHED)
        self._want_hold(None)
        self._repeated: Any = None
        self._repeat_s = 0.0
        steady_timer(self, _REPEAT_S / 4, self._repeat_hold)
        self._heat_wanted = False
        self._heats: Subscription | None = None
        self._pages = 0
        # pages come and go in the web server's thread; subscriptions are made in the executor's
        self._pages_changed = self.create_guard_condition(self._follow_pages)
        self._server = PageServer(self.state, self, self._settings)
        self.port = self._server.port
        if self._settings.metrics_port:
            self._metrics.serve(self._settings.host, self._settings.metrics_port)
        self.get_logger().info(f"the page is at {self._server.address}")
        self._diagnostics = Diagnostics(self)
        self._diagnostics.add("page", self._report)

    def destroy_node(self) -> None:
        self._server.close()
        self._metrics.close()
        super().destroy_node()

    def _listen(self) -> None:
        self.create_subscription(m.SceneAssessment, "scene", self._on_scene, RELIABLE)
        self.create_subscription(m.SceneDecision, "decision", self._on_decision, RELIABLE)
        self.create_subscription(m.GateState, "gate", self._on_gate, LATCHED)
        self.create_subscription(m.InterventionRequest, "intervention/request", self._on_request, LATCHED)
        self.create_subscription(m.InterventionAnswer, "intervention/answer", self._on_answer, RELIABLE)
        self.create_subscription(m.Workpiece, "workpiece", self._on_workpiece, LATCHED)
        self.create_subscription(m.WorkpieceDone, "workpiece/done", self._on_done, LATCHED)
        self.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, DIAGNOSTICS)
        self._images = ImageInput(self, self._settings.image_transport, "auto", self._on_image)
        steady_timer(self, _IMAGE_CHECK_S, self._images.check)

    def _report(self) -> PartReport:
        level, message = self._images.state()
        if level == Level.OK:
            message = "the page is served"
        values = {"pages": self._pages, "port": self.port, "scenes_without_picture": self._without_picture}
        values["wrong_tokens"] = self._wrong_tokens
        return PartReport(level, message, values)

    # subscriptions

    def _on_image(self, message: Any) -> None:
        self._album.add(stamp_to_ns(message.header.stamp), message)

    def _on_scene(self, message: m.SceneAssessment) -> None:
        self._metrics.stages({timing.stage: timing.ms for timing in message.timings})
        if time.monotonic() - self._decided > _UNDECIDED_S:
            self._show(message, None)
            return
        self._scenes[stamp_to_ns(message.header.stamp)] = message
        while len(self._scenes) > _WAITING_SCENES:
            self._scenes.popitem(last=False)

    def _on_decision(self, message: m.SceneDecision) -> None:
        self._decided = time.monotonic()
        scene = self._scenes.pop(stamp_to_ns(message.header.stamp), None)
        if scene is not None:
            self._show(scene, message)

    def _show(self, scene: m.SceneAssessment, decision: m.SceneDecision | None) -> None:
        stamp_ns = stamp_to_ns(scene.header.stamp)
        shown = scene_to_json(scene, decision)
        shown["picture"] = self._album.pin("live", stamp_ns)
        self._without_picture += not shown["picture"]
        self.state.put("scene", shown)
        self._shown[stamp_ns] = shown
        while len(self._shown) > _WAITING_SCENES:
            self._shown.popitem(last=False)
        self._complete_question(stamp_ns)

    def _on_gate(self, message: m.GateState) -> None:
        gate = gate_to_json(message)
        self.state.put("gate", gate)
        self._metrics.gate(gate["state"], [reason["code"] for reason in gate["closed"]])
        if gate["state"] != self._gate:
            self._gate = gate["state"]
            why = [*gate["closed"], *gate["details"]]
            self.state.add_event(stamp_to_ns(message.header.stamp), f"gate_{self._gate}", why)

    def _on_workpiece(self, message: m.Workpiece) -> None:
        self.state.put("workpiece", message.id)
        self.state.add_event(stamp_to_ns(message.header.stamp), "arrived", name=message.id)

    def _on_done(self, message: m.WorkpieceDone) -> None:
        clean = message.result == m.WorkpieceDone.RESULT_CLEAN
        kind = "done_clean" if clean else "done_left"
        self._metrics.done(DONE[not clean])
        stamp_ns, why = stamp_to_ns(message.header.stamp), reasons_to_json([message.reason])
        self.state.add_event(stamp_ns, kind, why, name=message.workpiece_id)

    def _on_request(self, message: m.InterventionRequest) -> None:
        self._question = request_to_json(message)
        if self._question is None:
            self._album.unpin("question")
            self._maps.unpin("question")
            self.state.put("request", None)
            return
        stamp_ns = stamp_to_ns(message.header.stamp)
        self._complete_question(stamp_ns)
        if message.request_id != self._asked:
            self._asked = message.request_id
            self._metrics.count_question(message.request_id)
            self.state.add_event(stamp_ns, "asked", self._question["reasons"])

    def _complete_question(self, stamp_ns: int) -> None:
        """Show the open question with all that is there of its own scene, if that is the scene of ``stamp_ns``."""
        if self._question is None or self._question["stamp"] != str(stamp_ns):
            return
        self._question = self._question | {
            "picture": self._album.pin("question", stamp_ns),
            "heat": self._maps.pin("question", stamp_ns),
            "scene": self._shown.get(stamp_ns, self._question.get("scene")),
        }
        self.state.put("request", self._question)

    def _on_answer(self, message: m.InterventionAnswer) -> None:
        scene = name_of(SceneAnswer, message.scene_answer)
        answers = [name_of(Answer, answer.answer) for answer in message.answers]
        about = {"request_id": message.request_id, "person": message.person}
        self.state.put("answered", about | {"scene": scene, "answers": answers})
        said = answers if scene == "none" else [*answers, scene]
        self._metrics.count_answers(message.request_id, said)
        self.state.add_event(stamp_to_ns(message.header.stamp), "answered", name=message.person, answers=said)

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        here = self.get_namespace().rstrip("/") + "/"
        for status in message.status:
            node, _, part = status.name.partition(": ")
            if part and status.hardware_id == here + node:
                self.state.report(node, part, status.level[0], status.message)
                values = {pair.key: pair.value for pair in status.values}
                self._metrics.status(status.name, status.level[0], values)

    def _on_heat(self, message: Image) -> None:
        stamp_ns = stamp_to_ns(message.header.stamp)
        self._maps.add(stamp_ns, message)
        self.state.put("heat", str(stamp_ns))
        self._complete_question(stamp_ns)

    # what the page wants

    def picture(self, stamp_ns: int) -> bytes:
        return self._album.file(stamp_ns)

    def heat(self, stamp_ns: int) -> bytes:
        """The saliency map with that stamp as PNG, empty when it is not kept."""
        return self._maps.file(stamp_ns)

    def note_viewers(self, pages: int, heat: int) -> None:
        self._pages = pages
        self._heat_wanted = heat > 0
        self._pages_changed.trigger()

    def wrong_token(self, address: str, lately: int, ever: int) -> None:
        self._wrong_tokens = ever
        if lately & (lately - 1) == 0:  # the 1st, 2nd, 4th, ...: guesses do not flood the log
            self.get_logger().warning(f"wrong token from {address}, number {lately} lately")

    def _follow_pages(self) -> None:
        """Subscribe to the saliency only while a page shows it: the detector computes it only for somebody."""
        if self._heat_wanted and self._heats is None:
            self._heats = self.create_subscription(Image, "saliency", self._on_heat, RELIABLE)
        elif not self._heat_wanted and self._heats is not None:
            self.destroy_subscription(self._heats)
            self._heats = None

    async def answer(self, said: PersonsAnswer, person: Person) -> Accepted:
        return await self.supervisor.answer(said, person)

    async def command(self, wanted: PersonsCommand, person: Person) -> Accepted:
        self.get_logger().info(f"{wanted.command} by {person.name or 'somebody without a name'}")
        holds = wanted.command == "hold"
        if holds:
            self._repeat_s = time.monotonic() + _REPEAT_S
            self._want_hold(person)
        reply = await self.supervisor.command(wanted, person)
        lost = holds and any(reason["code"] in _UNTAKEN for reason in reply.reasons)
        if lost and self._hold_of is None:  # a repetition was taken
            return Accepted(accepted=True, reasons=[])
        if reply.accepted:
            self.state.add_event(self.get_clock().now().nanoseconds, wanted.command, name=person.name)
        if not lost and (holds or (wanted.command == "release" and reply.accepted)):
            self._want_hold(None)
        return reply

    def _want_hold(self, person: Person | None) -> None:
        """``person`` wants the gate held, which no supervisor has taken yet: until one has, none that hears of it opens."""
        self._hold_of = person
        held = "" if person is None else "hold"
        self._untaken.publish(KeyValue(key=self.get_fully_qualified_name(), value=held))

    def _repeat_hold(self) -> None:
        """A hold is right however late it comes: one that no supervisor answers, as it is restarted, is said until one does."""
        person, operations = self._hold_of, self.supervisor.operations
        if person is None or time.monotonic() < self._repeat_s or not operations.service_is_ready():
            return
        if self._repeated is not None:
            operations.remove_pending_request(self._repeated)
        self._repeat_s = time.monotonic() + _REPEAT_S
        command = OperateGate.Request.COMMAND_HOLD
        request = OperateGate.Request(command=command, person=person.name, person_checked=person.checked)
        self._repeated = operations.call_async(request)

        def on_response(response: Any) -> None:
            if self._hold_of is not person:
                return
            self._want_hold(None)
            if response.result().accepted:
                self.state.add_event(self.get_clock().now().nanoseconds, "hold", name=person.name)

        self._repeated.add_done_callback(on_response)


_UNTAKEN = ("supervisor_missing", "supervisor_timeout")
_REPEAT_S = 0.2
"""A supervisor answers in a few milliseconds; one that was restarted listens for others before it opens the gate."""


def _heat_of(message: Image) -> bytes:
    return heat(np.frombuffer(message.data, np.float32).reshape(message.height, message.width))


main = partial(run_process, Console)
