"""Node ``detector``: images in, one :class:`SceneAssessment` per image out.

The executor's thread only receives, answers and reports; a worker thread computes, always on the newest
image. Torch is loaded by configure, not by the import of this module.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Literal

import psutil
from pydantic import Field
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.task import Future
from sensor_msgs.msg import CompressedImage, Image

from sticker_uq.nodes.assessor import Assessor, Counters, Worker
from sticker_uq.nodes.background import BackgroundTask
from sticker_uq.nodes.diagnostics import Level, Report
from sticker_uq.nodes.image_input import ImageInput
from sticker_uq.nodes.lifecycle import ManagedNode, exit_process, run_node
from sticker_uq.nodes.mailbox import Mailbox
from sticker_uq.nodes.parameters import validated
from sticker_uq.nodes.perceiving import load_perception
from sticker_uq.nodes.scene_outputs import SceneOutputs
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import InvalidInput, Status
from sticker_uq_msgs.srv import SelectModel

#: So long deactivation waits for the assessment under way, s; a lifecycle manager waits longer than that.
PATIENCE_S = 5.0
CHECK_PERIOD_S = 1.0
_STAGES = ("encode", "decode", "detect", "dil", "cluster", "total")


class DetectorNodeSettings(PerceptionSettings):
    """Parameters of ``detector``: those of perception, and how images come and results go."""

    image_transport: Literal["raw", "compressed"] = Field(
        "raw", description="Subscribe to image or to image/compressed"
    )
    image_reliability: Literal["auto", "reliable", "best_effort"] = Field(
        "auto", description="Reliability asked of the camera; auto: reliable if every publisher offers it"
    )
    max_image_age_s: float = Field(
        0.0,
        ge=0.0,
        le=3600.0,
        description="Older images are not assessed but reported as failed, s; 0: no limit",
    )
    annotated_rate: float = Field(5.0, gt=0.0, le=60.0, description="Annotated pictures per second at most")

    def perception(self) -> PerceptionSettings:
        """The part that is perception's."""
        return PerceptionSettings(**{name: getattr(self, name) for name in PerceptionSettings.model_fields})


_LOCKED = frozenset({"model", "weights", "device", "threads", "image_transport", "image_reliability"})


class DetectorNode(ManagedNode[DetectorNodeSettings]):
    """The node; see the module's docstring. ``factory`` makes perception from its settings."""

    def __init__(
        self, factory: Callable[[PerceptionSettings], Assessor] = load_perception, **arguments: Any
    ) -> None:
        super().__init__("detector", DetectorNodeSettings, locked_while_active=_LOCKED, **arguments)
        self._factory = factory
        self._serving: Assessor | None = None
        self._computing = threading.Lock()
        self._counters = Counters()
        self._input: ImageInput | None = None
        self._mailbox: Mailbox[Image | CompressedImage] = Mailbox()
        self._process = psutil.Process()
        self._loading: BackgroundTask[Assessor] = BackgroundTask(self)
        # a waiting answer must not hold up the other services
        self.create_service(
            SelectModel,
            "select_model",
            self._on_select_model,
            callback_group=MutuallyExclusiveCallbackGroup(),
        )
        self.diagnostics.add("images", self._report_images)
        self.diagnostics.add("perception", self._report_perception)

    def configure(self) -> None:
        """Load and warm up the model, create the publishers."""
        self._serving = self._load(self.settings.perception())
        self.while_configured.callback(setattr, self, "_serving", None)
        self._outputs = SceneOutputs(self, self.managed_publisher)

    def activate(self) -> None:
        """Start the worker, then let images in."""
        self._counters = counters = Counters()
        mailbox: Mailbox[Image | CompressedImage] = Mailbox()
        self._mailbox = mailbox
        worker = Worker(
            self, mailbox, self._outputs, self._assessor, self._computing, counters, lambda: self.settings
        )
        self.while_active.callback(self._stop_worker, mailbox, worker)
        worker.start()
        settings = self.settings
        self._input = ImageInput(self, settings.image_transport, settings.image_reliability, mailbox.put)
        self.while_active.callback(setattr, self, "_input", None)
        self.while_active.callback(self._input.close)
        timer = self.create_timer(
            CHECK_PERIOD_S, self._input.check, clock=Clock(clock_type=ClockType.STEADY_TIME)
        )
        self.while_active.callback(self.destroy_timer, timer)
        self._outputs.publish_labels(settings.score_floor)

    def settings_changed(self, old: DetectorNodeSettings, new: DetectorNodeSettings) -> None:
        """Perception with other settings is made beside the present one and takes over when it is ready."""
        if self._serving is not None and old.perception() != new.perception():
            self._exchange(new.perception(), lambda success, message: None)

    def reason_for_lock(self, name: str) -> str | None:
        """While a model is being loaded, perception's parameters rest."""
        if self._loading.busy and name in PerceptionSettings.model_fields:
            return f"{name} cannot be changed while a model is being loaded: try again"
        return super().reason_for_lock(name)

    def _assessor(self) -> Assessor:
        if self._serving is None:
            raise RuntimeError("no model is loaded")
        return self._serving

    def _load(self, settings: PerceptionSettings) -> Assessor:
        self.get_logger().info(f"loading {settings.model} ({settings.weights or 'packaged weights'})")
        start = time.perf_counter()
        perception = self._factory(settings)
        perception.warm_up()
        elapsed_ms = (time.perf_counter() - start) * 1e3
        self.get_logger().info(
            f"{settings.model} (weights {perception.model_hash[:12]}) ready on {settings.device} in {elapsed_ms:.0f} ms, "
            f"T={settings.passes}, dropout rate {settings.dropout_rate:g}"
        )
        return perception

    def _stop_worker(self, mailbox: Mailbox[Image | CompressedImage], worker: Worker) -> None:
        mailbox.close()
        worker.join(PATIENCE_S)
        if worker.is_alive():
            self.get_logger().warning(
                f"the assessment under way takes longer than {PATIENCE_S:g} s; its result will be dropped"
            )

    # Exchanging the model

    async def _on_select_model(
        self, request: SelectModel.Request, response: SelectModel.Response
    ) -> SelectModel.Response:
        response.success, response.message = await self._select(request.model, request.weights)
        response.model_hash = self._serving.model_hash if self._serving else ""
        return response

    async def _select(self, model: str, weights: str) -> tuple[bool, str]:
        if self._serving is None:
            return False, f"{self.get_name()} is not configured"
        if self._loading.busy:
            return False, "a model is being loaded already: try again"
        values = self.settings.perception().model_dump() | {"model": model, "weights": weights}
        try:
            wanted = validated(PerceptionSettings, values)
        except InvalidInput as error:
            return False, str(error)
        answer: Future = Future()
        self._exchange(wanted, lambda success, message: answer.set_result((success, message)))
        await answer
        return answer.result()

    def _exchange(self, wanted: PerceptionSettings, told: Callable[[bool, str], None]) -> None:
        """Load ``wanted`` in the background; ``told`` gets success and the story once it serves or was given
        up.
        """

        def done(perception: Assessor | None, error: str) -> None:
            old = self._serving
            if old is None:
                told(False, f"{self.get_name()} was cleaned up meanwhile")
                return
            if perception is not None:
                self._serving = perception
            message = f"{wanted.model} serves" if perception else f"{old.settings.model} goes on: {error}"
            if perception is None:
                self.get_logger().error(f"{wanted.model} could not be loaded, {message}")
            # the parameters tell what serves
            served = self._assessor().settings
            self.settings = self.settings.model_copy(update=served.model_dump())
            self.parameters.store(self.settings)
            if self.is_active:
                self._outputs.publish_labels(served.score_floor)
            told(perception is not None, message)

        self._loading.start(lambda: self._load(wanted), done)

    # Diagnostics

    def _report_images(self) -> Report:
        source = self._input
        level, message = source.state() if source else (Level.WARN, "not active")
        stamp_ns = self._counters.last_scene.stamp_ns if self._counters.last_scene else 0
        now_ns = self.get_clock().now().nanoseconds
        values = {
            "topic": source.topic if source else None,
            "publishers": source.publisher_count() if source else None,
            "reliability": source.profile.reliability.name.lower() if source else None,
            "rate_hz": source.rate() if source else None,
            "received": source.received if source else None,
            "dropped": self._mailbox.dropped,
            "unusable": self._counters.unusable,
            "last_image_age_s": (now_ns - stamp_ns) * 1e-9 if now_ns and stamp_ns else None,
        }
        return Report(level, message, values)

    def _report_perception(self) -> Report:
        counters, serving = self._counters, self._serving
        scene = counters.last_scene
        timings = scene.timings if scene else {}
        settings = serving.settings if serving else None
        values: dict[str, object] = {
            "model": settings.model if settings else None,
            "model_hash": serving.model_hash if serving else None,
            "passes": (scene.passes if scene else settings.passes) if settings else None,
            "dropout_rate": settings.dropout_rate if settings else None,
            "device": settings.device if settings else None,
            "rate_hz": counters.rate(),
            "assessed": counters.assessed,
            "failed": counters.failed,
            **{f"{stage}_ms": timings.get(stage) for stage in _STAGES},
            "memory_mb": self._process.memory_info().rss / 2**20,
            "loading": self._loading.busy,
            "last_error": counters.last_error or None,
        }
        if serving is None:
            return Report(Level.WARN, "no model is loaded", values)
        if scene is None:
            return Report(Level.OK, f"{serving.settings.model} is ready", values)
        if scene.status is not Status.OK:
            level = Level.WARN if scene.status is Status.DEGRADED else Level.ERROR
            return Report(level, f"last scene {scene.status.name}: {scene.status_text}", values)
        total = timings.get("total")
        return Report(Level.OK, f"{total:.0f} ms per image" if total is not None else "working", values)


def main() -> None:
    """Entry point of the executable ``detector``."""
    exit_process(run_node(DetectorNode))


if __name__ == "__main__":
    main()
