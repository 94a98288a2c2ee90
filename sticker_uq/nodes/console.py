"""Node ``console``: the operator's page. Shows the live picture, the gate and the open question, and takes the answer."""

from __future__ import annotations

import asyncio
import secrets
import threading
from typing import Any

import cv2
import uvicorn
from pydantic import BaseModel, ConfigDict, Field
from rclpy.node import Node
from rclpy.subscription import Subscription
from sensor_msgs.msg import Image

from sticker_uq.evaluation.recording import GATE_STATES
from sticker_uq.nodes.console_app import Accepted, PersonsAnswer, make_app
from sticker_uq.nodes.console_state import ConsoleState
from sticker_uq.nodes.diagnostics import Diagnostics, Level, Report
from sticker_uq.nodes.images import bgr_from_msg
from sticker_uq.nodes.lifecycle import exit_process, run_node
from sticker_uq.nodes.parameters import declare_settings, read_settings
from sticker_uq.nodes.qos import LATCHED, NEWEST_IMAGE_RELIABLE
from sticker_uq.scene import InvalidInput
from sticker_uq_msgs.msg import Box, GateState, InterventionRequest, ObjectAnswer, Workpiece
from sticker_uq_msgs.srv import ResolveIntervention

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_OBJECT_ANSWERS = {
    "remove": ObjectAnswer.ANSWER_REMOVE,
    "keep": ObjectAnswer.ANSWER_KEEP,
    "not_there": ObjectAnswer.ANSWER_NOT_THERE,
    "missed": ObjectAnswer.ANSWER_MISSED,
}
_SCENE_ANSWERS = {
    "none": ResolveIntervention.Request.SCENE_NONE,
    "rescan": ResolveIntervention.Request.SCENE_RESCAN,
    "skip_laptop": ResolveIntervention.Request.SCENE_SKIP_LAPTOP,
    "fault": ResolveIntervention.Request.SCENE_FAULT,
    "clean": ResolveIntervention.Request.SCENE_CLEAN,
}


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


class Console(Node):
    """The node; see the module's docstring. ``port`` is the one that is listened on."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__("console", **arguments)
        declare_settings(self, ConsoleSettings)
        self._settings: ConsoleSettings = read_settings(self, ConsoleSettings)
        self.state = ConsoleState()
        self.create_subscription(GateState, "gate", self._on_gate, LATCHED)
        self.create_subscription(InterventionRequest, "intervention/request", self._on_request, LATCHED)
        self.create_subscription(Workpiece, "workpiece", self._on_workpiece, LATCHED)
        self._client = self.create_client(ResolveIntervention, "intervention/resolve")
        self._pictures: Subscription | None = None
        self._pages = 0
        # pages come and go in the web server's thread; subscriptions are made in the executor's
        self._pages_changed = self.create_guard_condition(self._follow_pages)
        self._start_server()
        self._diagnostics = Diagnostics(self)
        self._diagnostics.add(
            "page", lambda: Report(Level.OK, "the page is served", {"pages": self._pages, "port": self.port})
        )

    def destroy_node(self) -> None:
        """Close the page."""
        self._server.should_exit = True
        self._thread.join(5.0)
        super().destroy_node()

    def _start_server(self) -> None:
        token = self._settings.token
        if self._settings.host not in _LOOPBACK and not token:
            token = secrets.token_urlsafe(18)
        app = make_app(self.state, self._answer, token, self._watching)
        config = uvicorn.Config(
            app, self._settings.host, self._settings.port, log_level="warning", ws="websockets-sansio"
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

    def _on_gate(self, message: GateState) -> None:
        state = GATE_STATES[message.state] if message.state < len(GATE_STATES) else "unknown"
        self.state.put("gate", {"state": state, "text": message.text})

    def _on_workpiece(self, message: Workpiece) -> None:
        self.state.put("workpiece", message.id)

    def _on_request(self, message: InterventionRequest) -> None:
        self.state.put("request", _question(message) if message.request_id else None)

    def _watching(self, pages: int) -> None:
        self._pages = pages
        self._pages_changed.trigger()

    def _follow_pages(self) -> None:
        """Subscribe to the picture only while a page is open: the detector draws it only for somebody."""
        if self._pages and self._pictures is None:
            self._pictures = self.create_subscription(
                Image, "annotated", self._on_picture, NEWEST_IMAGE_RELIABLE
            )
        elif not self._pages and self._pictures is not None:
            self.destroy_subscription(self._pictures)
            self._pictures = None

    def _on_picture(self, message: Image) -> None:
        try:
            picture = bgr_from_msg(message)
        except InvalidInput as error:
            self.get_logger().warning(f"picture not shown: {error}", throttle_duration_sec=5.0)
            return
        self.state.put_picture(cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 85])[1].tobytes())

    async def _answer(self, said: PersonsAnswer) -> Accepted:
        """Hand an answer to the supervisor; called in the web server's thread."""
        if not self._client.service_is_ready():
            return Accepted(accepted=False, message="the supervisor is not there")
        request = ResolveIntervention.Request(
            request_id=said.request_id,
            person=said.person,
            scene_answer=_SCENE_ANSWERS[said.scene],
            answers=[
                ObjectAnswer(answer=_OBJECT_ANSWERS[a.answer], box=Box(x1=a.x1, y1=a.y1, x2=a.x2, y2=a.y2))
                for a in said.answers
            ],
        )
        loop = asyncio.get_running_loop()
        done: asyncio.Future[ResolveIntervention.Response] = loop.create_future()
        pending = self._client.call_async(request)

        def deliver() -> None:
            if not done.done():
                done.set_result(pending.result())

        pending.add_done_callback(lambda _: loop.call_soon_threadsafe(deliver))
        try:
            response = await asyncio.wait_for(done, self._settings.answer_timeout_s)
        except TimeoutError:
            self._client.remove_pending_request(pending)
            return Accepted(accepted=False, message="the supervisor did not answer in time")
        return Accepted(accepted=response.accepted, message=response.message)


def _question(message: InterventionRequest) -> dict[str, Any]:
    return {
        "request_id": message.request_id,
        "text": " ".join([message.text, *(reason.text for reason in message.scene_reasons)]),
        "objects": [
            {
                "id": verdict.object_id,
                "label": verdict.label,
                "box": {name: float(getattr(verdict.box, name)) for name in ("x1", "y1", "x2", "y2")},
                "reasons": [reason.text for reason in verdict.reasons],
            }
            for verdict in message.objects
        ],
    }


def main() -> None:
    """Entry point of the executable ``console``."""
    exit_process(run_node(Console))


if __name__ == "__main__":
    main()
