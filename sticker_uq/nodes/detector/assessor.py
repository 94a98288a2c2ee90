# SPDX-License-Identifier: Apache-2.0
"""The worker thread of the detector node: assesses images and publishes their scenes.

An error of an image or of perception does not end the worker: it is published as a scene with status FAILED, counted and
logged. Only a device that this process can no longer use ends the process.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rclpy.node import Node

from sticker_uq.cell.mailbox import Mailbox
from sticker_uq.cell.node_settings import DetectorNodeSettings
from sticker_uq.nodes.detector.camera_feed import Arrival, Counters
from sticker_uq.scene import DeviceFailed, InvalidInput, Status

if TYPE_CHECKING:
    from sticker_uq.perception.pipeline import Perception

#: Shortest interval between two log lines of one kind, s.
LOG_PERIOD_S = 5.0


@dataclass(eq=False, repr=False)
class Worker(threading.Thread):
    """The detector node's worker: takes images out of ``mailbox`` and publishes their scenes until the mailbox is closed.

    ``serving`` returns the perception for each image, so that the model can be replaced; the lock ``computing`` keeps a worker
    that did not stop in time and its successor from computing at once; ``counters`` are those of all cameras;
    ``give_up`` ends the process, to be started again.
    """

    node: Node
    mailbox: Mailbox[Arrival]
    serving: Callable[[], Perception]
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
        perception, counters = self.serving(), self.counters
        device_failed = False
        started = time.perf_counter()
        try:
            self._check_stamp(stamp_ns)
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
            self.give_up()
            return
        counters.finished(scene, (time.perf_counter() - started) * 1e3)
        if image is not None:
            feed.outputs.publish_pictures(scene, image, self.options().annotated_rate)

    def _check_stamp(self, stamp_ns: int) -> None:
        if stamp_ns == 0:
            raise InvalidInput("the stamp of the image is zero: the camera driver must set header.stamp")

    def _count_failure(self, reason: str) -> None:
        self.counters.failed += 1
        self.counters.last_error = reason
        self.node.get_logger().debug(traceback.format_exc())
        self.node.get_logger().error(reason, throttle_duration_sec=LOG_PERIOD_S)
