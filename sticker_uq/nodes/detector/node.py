# SPDX-License-Identifier: Apache-2.0
"""Node ``detector``: publishes one :class:`SceneAssessment` per image.

The executor's thread only receives, answers and reports; a worker thread computes, always on the newest
image of a camera, and serves the cameras round-robin. Torch is loaded by configure, not by the import of this module.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import psutil
from rclpy.node import Node

from sticker_uq.cell.node_settings import LOCKED, LOCKED_SINCE_CONFIGURE, DetectorNodeSettings
from sticker_uq.io.topics import folder_of, more_topics
from sticker_uq.nodes.common.diagnostics import Level, PartReport
from sticker_uq.nodes.common.lifecycle import ManagedNode, request_exit, run_process
from sticker_uq.nodes.detector.camera_feed import NOT_CONFIGURED, Arrival, CameraFeed, Counters
from sticker_uq.nodes.detector.mailbox import Mailbox
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.factory import load_perception
from sticker_uq.scene import DeviceFailed, InvalidInput, Status

if TYPE_CHECKING:
    from sticker_uq.perception.pipeline import Perception


#: Shortest interval between two log lines of one kind, s.
LOG_PERIOD_S = 5.0


@dataclass(eq=False, repr=False)
class Worker(threading.Thread):
    """Takes images out of ``mailbox`` and publishes their scenes until the mailbox is closed.

    The lock ``computing`` keeps a worker that did not stop in time and its successor from computing at once; ``counters`` are
    those of all cameras; ``give_up`` ends the process, to be started again.
    """

    node: Node
    mailbox: Mailbox[Arrival]
    perception: Perception
    computing: threading.Lock
    counters: Counters
    options: Callable[[], DetectorNodeSettings]
    give_up: Callable[[], None]

    def __post_init__(self) -> None:
        super().__init__(name="worker", daemon=True)

    def run(self) -> None:
        while (arrival := self.mailbox.take()) is not None:
            with self.computing:
                try:
                    self._process(arrival)
                except Exception as error:  # noqa: BLE001 - the worker goes on with the next image
                    self._count_failure(f"the scene could not be published: {type(error).__name__}: {error}")

    def _process(self, arrival: Arrival) -> None:
        feed, check, image = arrival
        stamp_ns, frame_id = check.stamp_ns, check.frame_id
        perception, counters = self.perception, self.counters
        device_failed = False
        started = time.perf_counter()
        try:
            if stamp_ns == 0:
                raise InvalidInput("the stamp of the image is zero: the camera driver must set header.stamp")
            if image is None:
                raise InvalidInput(check.problem)
            # the check on arrival measured only brightness, a replay measures all: both must give the same scene
            scene = perception.assess(image, stamp_ns, frame_id, feed.outputs.saliency_wanted())
        except InvalidInput as error:
            feed.counters.unusable += 1
            counters.last_error = f"unusable image: {error}"
            self.node.get_logger().warning(counters.last_error, throttle_duration_sec=LOG_PERIOD_S)
            scene = perception.failed_assessment(stamp_ns, frame_id, str(error))
        except DeviceFailed as error:
            device_failed = True
            self._count_failure(str(error))
            scene = perception.failed_assessment(stamp_ns, frame_id, str(error))
        except Exception as error:  # noqa: BLE001 - one image must not end the node
            reason = f"{type(error).__name__}: {error}"
            self._count_failure(f"perception failed: {reason}")
            scene = perception.failed_assessment(stamp_ns, frame_id, reason)
        else:
            counters.assessed += 1
            if scene.status is Status.FAILED:
                self._count_failure(f"perception failed: {scene.status_text}")
        if self.mailbox.closed:
            return
        feed.publish(scene, check.image_publishers)
        if device_failed:
            self.node.get_logger().fatal(
                f"giving up: {scene.status_text}; every further image would fail in this process, a new one can use the device "
                "again (respawn)"
            )
            feed.outputs.settle()
            self.give_up()
            return
        counters.count_scene(scene, (time.perf_counter() - started) * 1e3)
        if image is not None:
            feed.outputs.publish_pictures(scene, image, self.options().annotated_rate)

    def _count_failure(self, reason: str) -> None:
        self.counters.failed += 1
        self.counters.last_error = reason
        self.node.get_logger().debug(traceback.format_exc())
        self.node.get_logger().error(reason, throttle_duration_sec=LOG_PERIOD_S)


Factory = Callable[[PerceptionSettings], "Perception"]


def fallback_of(perception: Perception) -> str:
    """That device "auto" found no GPU, in words; "" if it did, or a device was named."""
    if perception.settings.device != "auto" or perception.device != "cpu":
        return ""
    return (
        "device is auto and no usable GPU was found: computing on the processor (sticker-uq doctor says why)"
    )


#: Longest wait of deactivation for the current assessment, s; shorter than the timeout of a lifecycle manager.
STOP_TIMEOUT_S = 5.0
_STAGES = (
    "encode",
    "sample",
    "detect",
    "dil",
    "last_look",
    "novelty",
    "cluster",
    "close_ups",
    "photo",
    "panel",
    "total",
)


class DetectorNode(ManagedNode[DetectorNodeSettings]):
    """``factory`` makes perception from its settings; ``feeds``: the cameras, that of the topic ``image`` first; ``perception``:
    None until configure has loaded it.
    """

    def __init__(self, factory: Factory = load_perception, **arguments: Any) -> None:
        super().__init__("detector", DetectorNodeSettings, locked_while_active=LOCKED, **arguments)
        self._factory = factory
        self.perception: Perception | None = None
        self.feeds: tuple[CameraFeed, ...] = ()
        self._computing = threading.Lock()
        self._counters = Counters()
        self._process = psutil.Process()
        self.diagnostics.add("images", self._report_images)
        self.diagnostics.add("perception", self._report_perception)

    def configure(self) -> None:
        topics = ("image", *more_topics(self.settings.more_image_topics))
        self._check_scene_topics(topics)
        self.perception = self._load_perception(self.settings.part(PerceptionSettings))
        self.while_configured.callback(setattr, self, "perception", None)
        self.while_configured.callback(setattr, self, "feeds", ())
        self.feeds = tuple(CameraFeed(self, topic, self.create_managed_publisher) for topic in topics)
        for feed in self.feeds[1:]:
            self.report_while_configured(f"images of {feed.topic}", feed.report)

    def activate(self) -> None:
        assert self.perception is not None
        self._counters = Counters()
        mailbox: Mailbox[Arrival] = Mailbox()
        worker = Worker(
            self,
            mailbox,
            self.perception,
            self._computing,
            self._counters,
            lambda: self.settings,
            lambda: request_exit(self, 1),
        )
        self.while_active.callback(self._stop_worker, mailbox, worker)
        worker.start()
        for feed in self.feeds:
            self.while_active.callback(feed.open(mailbox, self.settings))

    def reason_for_lock(self, name: str) -> str | None:
        """What perception and cameras are made of is locked as long as they are there."""
        if self.feeds and name in LOCKED_SINCE_CONFIGURE:
            return f"{name} cannot be changed while {self.get_name()} is configured: clean it up first"
        return super().reason_for_lock(name)

    def _load_perception(self, settings: PerceptionSettings) -> Perception:
        logger = self.get_logger()
        logger.info(f"loading {settings.model} ({settings.weights or 'packaged weights'})")
        start = time.perf_counter()
        perception = self._factory(settings)
        perception.warm_up()
        elapsed_ms = (time.perf_counter() - start) * 1e3
        logger.info(
            f"{settings.model} (weights {perception.model_hash[:12]}) ready on {perception.device} in {settings.precision} after "
            f"{elapsed_ms:.0f} ms, T={settings.passes}, dropout rate {settings.dropout_rate:g}"
        )
        if fallback := fallback_of(perception):
            logger.warning(f"{fallback}; set device to cpu if that is meant")
        return perception

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
        counters, serving = self._counters, self.perception
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
            "without_graphs": serving.graph_problems or None if serving else None,
            "last_error": counters.last_error or None,
        }
        if serving is None:
            return PartReport(Level.WARN, "no model is loaded", values)
        if serving.shortage and (scene is None or scene.status is Status.OK):
            return PartReport(Level.WARN, serving.shortage, values)
        if scene is None and (fallback := fallback_of(serving)):
            return PartReport(Level.WARN, fallback, values)
        if scene is None:
            return PartReport(Level.OK, f"{serving.settings.model} is ready", values)
        if scene.status is not Status.OK:
            level = Level.WARN if scene.status is Status.DEGRADED else Level.ERROR
            return PartReport(level, f"last scene {scene.status.name}: {scene.status_text}", values)
        total = timings.get("total")
        return PartReport(Level.OK, f"{total:.0f} ms per image" if total is not None else "working", values)


main = partial(run_process, DetectorNode)
