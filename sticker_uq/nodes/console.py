"""Node ``console``: the operator's page. Shows what the cell sees and decides, and takes a person's answer."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections import OrderedDict
from typing import Any

import numpy as np
import uvicorn
from diagnostic_msgs.msg import DiagnosticArray
from pydantic import BaseModel, ConfigDict, Field
from rclpy.client import Client
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.subscription import Subscription
from sensor_msgs.msg import Image
from std_srvs.srv import SetBool, Trigger

from sticker_uq.datasets.messages import stamp_to_ns
from sticker_uq.evaluation.recording import GATE_STATES
from sticker_uq.nodes.console_album import Album, heat
from sticker_uq.nodes.console_app import Accepted, PersonsAnswer, PersonsCommand, make_app
from sticker_uq.nodes.console_scene import (
    ANSWERS,
    SCENE_ANSWERS,
    shown_answer,
    shown_request,
    shown_scene,
)
from sticker_uq.nodes.console_state import ConsoleState
from sticker_uq.nodes.diagnostics import Diagnostics, Level, Report
from sticker_uq.nodes.image_input import ImageInput, Transport
from sticker_uq.nodes.images import bgr_from_msg
from sticker_uq.nodes.lifecycle import exit_process, run_node
from sticker_uq.nodes.parameters import declare_settings, read_settings
from sticker_uq.nodes.processes import LIFECYCLE_NODES
from sticker_uq.nodes.qos import DIAGNOSTICS, LATCHED, RELIABLE
from sticker_uq.scene import InvalidInput
from sticker_uq_msgs.msg import (
    Box,
    GateState,
    InterventionAnswer,
    InterventionRequest,
    ObjectAnswer,
    SceneAssessment,
    SceneDecision,
    Workpiece,
    WorkpieceDone,
)
from sticker_uq_msgs.srv import ResolveIntervention

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_IMAGE_CHECK_S = 1.0
#: Scenes that wait for their decision; the supervisor decides about each within milliseconds.
_WAITING_SCENES = 8
#: A scene is shown without a decision when the supervisor has decided nothing for so long, s.
_UNDECIDED_S = 2.0


class ConsoleSettings(BaseModel):
    """Parameters of the console."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field(
        "127.0.0.1", min_length=1, description="Address to listen on; other than loopback needs a token"
    )
    port: int = Field(8780, ge=0, le=65535, description="TCP port; 0: any free one")
    token: str = Field(
        "", description="Token the page asks for; empty: made at start and logged, where one is needed"
    )
    answer_timeout_s: float = Field(
        5.0, ge=0.1, le=60.0, description="Time the supervisor has to take an answer, s"
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


class Console(Node):
    """The node; see the module's docstring. ``port`` is the one that is listened on."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__("console", **arguments)
        declare_settings(self, ConsoleSettings)
        self._settings: ConsoleSettings = read_settings(self, ConsoleSettings)
        self.state = ConsoleState(LIFECYCLE_NODES)
        self._album = Album(bgr_from_msg, self._settings.kept_images)
        self._scenes: OrderedDict[int, SceneAssessment] = OrderedDict()
        self._decided = -float("inf")
        self._without_picture = 0
        self._gate = ""
        self._asked = ""
        self._listen()
        self._answers = self.create_client(ResolveIntervention, "intervention/resolve")
        self._holds = self.create_client(SetBool, "hold")
        self._resets = self.create_client(Trigger, "reset")
        self._heat: tuple[int, Image] | None = None
        self._heat_wanted = False
        self._heats: Subscription | None = None
        self._pages = 0
        # pages come and go in the web server's thread; subscriptions are made in the executor's
        self._pages_changed = self.create_guard_condition(self._follow_pages)
        self._start_server()
        self._diagnostics = Diagnostics(self)
        self._diagnostics.add("page", self._report)

    def destroy_node(self) -> None:
        """Close the page."""
        self._server.should_exit = True
        self._thread.join(5.0)
        super().destroy_node()

    def _listen(self) -> None:
        self._images = ImageInput(self, self._settings.image_transport, "auto", self._on_image)
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self.create_timer(_IMAGE_CHECK_S, self._images.check, clock=steady)
        self.create_subscription(SceneAssessment, "scene", self._on_scene, RELIABLE)
        self.create_subscription(SceneDecision, "decision", self._on_decision, RELIABLE)
        self.create_subscription(GateState, "gate", self._on_gate, LATCHED)
        self.create_subscription(InterventionRequest, "intervention/request", self._on_request, LATCHED)
        self.create_subscription(InterventionAnswer, "intervention/answer", self._on_answer, RELIABLE)
        self.create_subscription(Workpiece, "workpiece", self._on_workpiece, LATCHED)
        self.create_subscription(WorkpieceDone, "workpiece/done", self._on_done, LATCHED)
        self.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, DIAGNOSTICS)

    def _start_server(self) -> None:
        token = self._settings.token
        if self._settings.host not in _LOOPBACK and not token:
            token = secrets.token_urlsafe(18)
        config = uvicorn.Config(
            make_app(self.state, self, token),
            self._settings.host,
            self._settings.port,
            log_level="warning",
            ws="websockets-sansio",
        )
        try:
            socket = config.bind_socket()
        except SystemExit:
            raise InvalidInput(
                f"host {self._settings.host} and port {self._settings.port} cannot be listened on: is another console running?"
            ) from None
        socket.listen()  # whoever comes before the server runs waits instead of being turned away
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([socket],), name="web", daemon=True)
        self._thread.start()
        self.port: int = socket.getsockname()[1]
        query = f"/?token={token}" if token else "/"
        self.get_logger().info(f"the page is at http://{self._settings.host}:{self.port}{query}")

    def _report(self) -> Report:
        level, message = self._images.state()
        if level == Level.OK:
            message = "the page is served"
        values = {"pages": self._pages, "port": self.port, "scenes_without_picture": self._without_picture}
        return Report(level, message, values)

    # what the cell says

    def _on_image(self, message: Any) -> None:
        self._album.add(stamp_to_ns(message.header.stamp), message)

    def _on_scene(self, message: SceneAssessment) -> None:
        if time.monotonic() - self._decided > _UNDECIDED_S:
            self._show(message, None)
            return
        self._scenes[stamp_to_ns(message.header.stamp)] = message
        while len(self._scenes) > _WAITING_SCENES:
            self._scenes.popitem(last=False)

    def _on_decision(self, message: SceneDecision) -> None:
        self._decided = time.monotonic()
        scene = self._scenes.pop(stamp_to_ns(message.header.stamp), None)
        if scene is not None:
            self._show(scene, message)

    def _show(self, scene: SceneAssessment, decision: SceneDecision | None) -> None:
        stamp_ns = stamp_to_ns(scene.header.stamp)
        shown = shown_scene(scene, decision)
        shown["picture"] = self._album.pin("live", stamp_ns)
        self._without_picture += not shown["picture"]
        self.state.put("scene", shown)

    def _on_gate(self, message: GateState) -> None:
        state = GATE_STATES[message.state] if message.state < len(GATE_STATES) else "unknown"
        held = bool(message.reasons & GateState.REASON_HELD)
        self.state.put("gate", {"state": state, "text": message.text, "held": held})
        if state != self._gate:
            self._gate = state
            self.state.happened(stamp_to_ns(message.header.stamp), f"gate_{state}", message.text)

    def _on_workpiece(self, message: Workpiece) -> None:
        self.state.put("workpiece", message.id)
        self.state.happened(stamp_to_ns(message.header.stamp), "arrived", message.id)

    def _on_done(self, message: WorkpieceDone) -> None:
        kind = "done_clean" if message.result == WorkpieceDone.RESULT_CLEAN else "done_left"
        self.state.happened(
            stamp_to_ns(message.header.stamp), kind, f"{message.workpiece_id}: {message.text}"
        )

    def _on_request(self, message: InterventionRequest) -> None:
        request = shown_request(message)
        if request is None:
            self._album.unpin("question")
        else:
            request["picture"] = self._album.pin("question", stamp_to_ns(message.header.stamp))
            if message.request_id != self._asked:
                self._asked = message.request_id
                self.state.happened(stamp_to_ns(message.header.stamp), "asked", message.text)
        self.state.put("request", request)

    def _on_answer(self, message: InterventionAnswer) -> None:
        answer = shown_answer(message)
        self.state.put("answered", answer)
        words = [*answer["answers"], *([] if answer["scene"] == "none" else [answer["scene"]])]
        self.state.happened(
            stamp_to_ns(message.header.stamp), "answered", f"{message.person}: {', '.join(words)}"
        )

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        here = self.get_namespace().rstrip("/") + "/"
        for status in message.status:
            node, _, part = status.name.partition(": ")
            if part and status.hardware_id == here + node:
                self.state.report(node, part, status.level[0], status.message)

    def _on_heat(self, message: Image) -> None:
        self._heat = (stamp_to_ns(message.header.stamp), message)

    # what the page wants

    def picture(self, stamp_ns: int) -> bytes:
        """The camera's image of that stamp as JPEG, empty when it is not kept."""
        return self._album.jpeg(stamp_ns)

    def heat(self, stamp_ns: int) -> bytes:
        """The saliency of that image as PNG, empty when it is not the newest."""
        newest = self._heat
        if newest is None or newest[0] != stamp_ns:
            return b""
        message = newest[1]
        return heat(np.frombuffer(message.data, np.float32).reshape(message.height, message.width))

    def watched(self, pages: int, heat: int) -> None:
        """So many pages are open, and so many of them show the saliency."""
        self._pages = pages
        self._heat_wanted = heat > 0
        self._pages_changed.trigger()

    def _follow_pages(self) -> None:
        """Subscribe to the saliency only while a page shows it: the detector computes it only for somebody."""
        if self._heat_wanted and self._heats is None:
            self._heats = self.create_subscription(Image, "saliency", self._on_heat, RELIABLE)
        elif not self._heat_wanted and self._heats is not None:
            self.destroy_subscription(self._heats)
            self._heats = None

    async def answer(self, said: PersonsAnswer) -> Accepted:
        """Hand an answer to the supervisor; called in the web server's thread."""
        answers = [
            ObjectAnswer(answer=ANSWERS.index(a.answer), box=Box(x1=a.x1, y1=a.y1, x2=a.x2, y2=a.y2))
            for a in said.answers
        ]
        request = ResolveIntervention.Request(
            request_id=said.request_id,
            person=said.person,
            scene_answer=SCENE_ANSWERS.index(said.scene),
            answers=answers,
        )
        response = await self._call(self._answers, request)
        if isinstance(response, str):
            return Accepted(accepted=False, message=response)
        return Accepted(accepted=response.accepted, message=response.message)

    async def command(self, wanted: PersonsCommand) -> Accepted:
        """Hold, release or reset the gate; called in the web server's thread."""
        self.get_logger().info(f"{wanted.person}: {wanted.command}")
        if wanted.command == "reset":
            response = await self._call(self._resets, Trigger.Request())
        else:
            response = await self._call(self._holds, SetBool.Request(data=wanted.command == "hold"))
        if isinstance(response, str):
            return Accepted(accepted=False, message=response)
        now_ns = self.get_clock().now().nanoseconds
        if response.success:
            self.state.happened(now_ns, wanted.command, wanted.person)
        return Accepted(accepted=response.success, message=response.message)

    async def _call(self, client: Client, request: Any) -> Any:
        """The supervisor's response, or in words why there is none."""
        if not client.service_is_ready():
            return "the supervisor is not there"
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        pending = client.call_async(request)

        def deliver() -> None:
            if not done.done():
                done.set_result(pending.result())

        pending.add_done_callback(lambda _: loop.call_soon_threadsafe(deliver))
        try:
            return await asyncio.wait_for(done, self._settings.answer_timeout_s)
        except TimeoutError:
            client.remove_pending_request(pending)
            return "the supervisor did not answer in time"


def main() -> None:
    """Entry point of the executable ``console``."""
    exit_process(run_node(Console))


if __name__ == "__main__":
    main()
