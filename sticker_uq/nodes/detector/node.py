# SPDX-License-Identifier: Apache-2.0
"""Node ``detector``: publishes one :class:`SceneAssessment` per image.

The executor's thread only receives, answers and reports; a worker thread computes, always on the newest
image of a camera, and serves the cameras round-robin. Torch is loaded by configure, not by the import of this module.
"""

from __future__ import annotations

import threading
from typing import Any

import psutil

from sticker_uq.cell.mailbox import Mailbox
from sticker_uq.cell.node_settings import LOCKED, LOCKED_SINCE_CONFIGURE, DetectorNodeSettings
from sticker_uq.io.topics import folder_of, more_topics
from sticker_uq.nodes.common.diagnostics import Level, PartReport
from sticker_uq.nodes.common.lifecycle import ManagedNode, exit_process, request_exit, run_node
from sticker_uq.nodes.detector.assessor import Worker
from sticker_uq.nodes.detector.camera_feed import NOT_CONFIGURED, Arrival, CameraFeed, Counters
from sticker_uq.nodes.detector.model_exchange import Factory, ModelExchange
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.factory import load_perception
from sticker_uq.scene import InvalidInput, Status

#: Longest wait of deactivation for the current assessment, s; shorter than the timeout of a lifecycle manager.
STOP_TIMEOUT_S = 5.0
_STAGES = ("encode", "sample", "detect", "dil", "novelty", "cluster", "panel", "total")


class DetectorNode(ManagedNode[DetectorNodeSettings]):
    """The ROS node ``detector``; see the module's docstring. ``factory`` makes perception from its settings.

    ``feeds``: the cameras, that of the topic ``image`` first; ``models``: the current model.
    """

    def __init__(self, factory: Factory = load_perception, **arguments: Any) -> None:
        super().__init__("detector", DetectorNodeSettings, locked_while_active=LOCKED, **arguments)
        self.models = ModelExchange(self, factory, self._served)
        self.feeds: tuple[CameraFeed, ...] = ()
        self._computing = threading.Lock()
        self._counters = Counters()
        self._process = psutil.Process()
        self.diagnostics.add("images", self._report_images)
        self.diagnostics.add("perception", self._report_perception)

    def configure(self) -> None:
        topics = ("image", *more_topics(self.settings.more_image_topics))
        self._check_scene_topics(topics)
        self.models.load(self.settings.perception())
        self.while_configured.callback(self.models.clear)
        self.while_configured.callback(setattr, self, "feeds", ())
        self.feeds = tuple(CameraFeed(self, topic, self.managed_publisher) for topic in topics)
        for feed in self.feeds[1:]:
            self.diagnostics.add(f"images of {feed.topic}", feed.report)
            self.while_configured.callback(self.diagnostics.remove, f"images of {feed.topic}")

    def activate(self) -> None:
        self._counters = Counters()
        mailbox: Mailbox[Arrival] = Mailbox()
        worker = Worker(
            self,
            mailbox,
            self.models.current,
            self._computing,
            self._counters,
            lambda: self.settings,
            lambda: request_exit(self, 1),
        )
        self.while_active.callback(self._stop_worker, mailbox, worker)
        worker.start()
        for feed in self.feeds:
            self.while_active.callback(feed.open(mailbox, self.settings))

    def settings_changed(self, old: DetectorNodeSettings, new: DetectorNodeSettings) -> None:
        """The detector node's new settings are loaded in the background: another model serves images when it is ready."""
        if self.models.serving is not None and old.perception() != new.perception():
            self.models.exchange(new.perception())

    def reason_for_lock(self, name: str) -> str | None:
        """The perception parameters are locked while a model is being loaded."""
        if self.models.busy and name in PerceptionSettings.model_fields:
            return f"{name} cannot be changed while a model is being loaded: try again"
        if self.feeds and name in LOCKED_SINCE_CONFIGURE:
            return f"{name} cannot be changed while {self.get_name()} is configured: clean it up first"
        return super().reason_for_lock(name)

    def _check_scene_topics(self, topics: tuple[str, ...]) -> None:
        """Raise :class:`InvalidInput` when two cameras' scenes would be published on one topic."""
        camera_of: dict[str, str] = {}
        for topic in topics:
            scene = self.resolve_topic_name(f"{folder_of(topic)}scene")
            other = camera_of.setdefault(scene, topic)
            if other != topic:
                raise InvalidInput(
                    f"more_image_topics: scenes of {topic} and of {other} would both be published on {scene}, "
                    "expected another namespace"
                )

    def _served(self, settings: PerceptionSettings) -> None:
        self.settings = self.settings.model_copy(update=settings.model_dump())
        self.parameters.store(self.settings)
        if self.is_active:
            for feed in self.feeds:
                feed.outputs.publish_labels(settings.score_floor)

    def _stop_worker(self, mailbox: Mailbox[Arrival], worker: Worker) -> None:
        mailbox.close()
        worker.join(STOP_TIMEOUT_S)
        if worker.is_alive():
            self.get_logger().warning(
                f"the assessment under way takes longer than {STOP_TIMEOUT_S:g} s; its result will be dropped"
            )

    # Diagnostics

    def _report_images(self) -> PartReport:
        return self.feeds[0].report() if self.feeds else NOT_CONFIGURED

    def _report_perception(self) -> PartReport:
        counters, serving = self._counters, self.models.serving
        scene = counters.last_scene
        timings = scene.timings if scene else {}
        settings = serving.settings if serving else None
        values: dict[str, object] = {
            "model": settings.model if settings else None,
            "model_hash": serving.model_hash if serving else None,
            "passes": (scene.passes if scene else settings.passes) if settings else None,
            "dropout_rate": settings.dropout_rate if settings else None,
            "device": serving.device if serving else None,
            "precision": settings.precision if settings else None,
            "rate_hz": counters.rate(),
            "assessed": counters.assessed,
            "failed": counters.failed,
            **{f"{stage}_ms": timings.get(stage) for stage in _STAGES},
            "overhead_ms": counters.overhead_ms(),
            "memory_mb": self._process.memory_info().rss / 2**20,
            "shortage": serving.shortage or None if serving else None,
            "loading": self.models.busy,
            "last_error": counters.last_error or None,
        }
        if serving is None:
            return PartReport(Level.WARN, "no model is loaded", values)
        if serving.shortage and (scene is None or scene.status is Status.OK):
            return PartReport(Level.WARN, serving.shortage, values)
        if scene is None and (fallback := self.models.fallback()):
            return PartReport(Level.WARN, fallback, values)
        if scene is None:
            return PartReport(Level.OK, f"{serving.settings.model} is ready", values)
        if scene.status is not Status.OK:
            level = Level.WARN if scene.status is Status.DEGRADED else Level.ERROR
            return PartReport(level, f"last scene {scene.status.name}: {scene.status_text}", values)
        total = timings.get("total")
        return PartReport(Level.OK, f"{total:.0f} ms per image" if total is not None else "working", values)


def main() -> None:
    exit_process(run_node(DetectorNode))


if __name__ == "__main__":
    main()
