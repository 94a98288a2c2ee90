# SPDX-License-Identifier: Apache-2.0
"""Node ``image_source``: plays a recording, a folder of pictures, a video or a camera device as images.

A recording's CameraInfo is published with every image, as its first one says.

Images are stamped with the node's time when they are read, because the detector checks the age of an image and the stamps of a
recording lie in the past. Playback starts with the first subscriber, so that no image of a short source is lost.
"""

import threading
import time
from functools import partial
from typing import Any

from sensor_msgs.msg import CameraInfo, CompressedImage, Image, RegionOfInterest

from sticker_uq.cell.node_settings import ImageSourceSettings
from sticker_uq.io.sources import ImageSource, SourceImage, open_source
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.diagnostics import Level, PartReport
from sticker_uq.nodes.common.images import bgr_to_compressed, bgr_to_image
from sticker_uq.nodes.common.lifecycle import ManagedNode, run_process
from sticker_uq.scene import InvalidInput

#: Longest wait for a blocking read of a camera at the end, s.
_PATIENCE_S = 5.0
_POLL_S = 0.05


class ImageSourceNode(ManagedNode[ImageSourceSettings]):
    def __init__(self, **arguments: Any) -> None:
        fixed = frozenset(ImageSourceSettings.model_fields) - {"rate", "frame_id", "jpeg_quality"}
        super().__init__("image_source", ImageSourceSettings, locked_while_active=fixed, **arguments)
        self._published = 0
        self._unreadable = 0
        self._progress = "not started"

    def configure(self) -> None:
        settings = self.settings
        if not settings.source:
            raise InvalidInput(
                "parameter source is empty: expected a recording, folder, video or camera device"
            )
        self._is_camera = settings.source.isdigit() or settings.source.startswith("/dev/")
        path = f"/dev/video{settings.source}" if settings.source.isdigit() else settings.source
        self._source: ImageSource = open_source(path, settings.topic or None)
        for remark in (*self._source.remarks, self._source.lost):
            if remark:
                self.get_logger().warning(f"{path}: {remark}")
        self._raw = self._compressed = self._info = None
        if settings.transport != "compressed":
            self._raw = self.create_managed_publisher(Image, "image", qos.IMAGES)
        if settings.transport != "raw":
            self._compressed = self.create_managed_publisher(CompressedImage, "image/compressed", qos.IMAGES)
        if (recorded := self._source.camera_info) is not None:
            self._calibration = _camera_info(recorded)
            self._info = self.create_managed_publisher(CameraInfo, "camera_info", qos.IMAGES)
        self.report_while_configured("source", self._report_source)

    def activate(self) -> None:
        """Play from the beginning, in a thread because reading a camera blocks."""
        self._published = self._unreadable = 0
        stop = threading.Event()
        player = threading.Thread(target=self._play, args=(stop,), name="player", daemon=True)
        self.while_active.callback(self._stop_player, stop, player)
        player.start()

    def _stop_player(self, stop: threading.Event, player: threading.Thread) -> None:
        stop.set()
        player.join(_PATIENCE_S)
        if player.is_alive():
            self.get_logger().warning(
                f"{self.settings.source} still blocks in a read; its thread is abandoned"
            )

    def _play(self, stop: threading.Event) -> None:
        try:
            self._progress = "waiting for a subscriber"
            publishers = [p for p in (self._raw, self._compressed) if p is not None]
            while not any(p.get_subscription_count() for p in publishers):
                if stop.wait(_POLL_S):
                    return
            while self._play_once(stop) and self.settings.loop:
                pass
        except Exception as error:  # noqa: BLE001 - the thread's only way to tell
            self._progress = f"failed: {error}"
            self.get_logger().error(f"{self.settings.source}: {error}")
            return
        if not stop.is_set():
            self._progress = "finished"
            self.get_logger().info(
                f"end of {self.settings.source}: {self._published} images published, {self._unreadable} unreadable"
            )

    def _play_once(self, stop: threading.Event) -> bool:
        """Publish the source at the set rate; False when stopped."""
        due = time.monotonic()
        self._progress = "playing"
        for item in self._source:
            now = time.monotonic()
            # A camera is read at its own rate, or its driver would queue old images.
            if self._is_camera and now < due:
                continue
            if stop.wait(max(0.0, due - now)):
                return False
            due = max(due + 1.0 / self.settings.rate, now)
            self._publish(item)
        return not stop.is_set()

    def _publish(self, item: SourceImage) -> None:
        if item.image is None:
            self._unreadable += 1
            self.get_logger().warning(f"{self.settings.source}, {item.name}: {item.error}")
            return
        stamp = self.get_clock().now().to_msg()
        frame_id = self.settings.frame_id or item.frame_id
        if self._info is not None:  # first: who gets the image needs it
            self._calibration.header.stamp, self._calibration.header.frame_id = stamp, frame_id
            self._info.publish(self._calibration)
        if self._raw is not None and self._raw.get_subscription_count():
            self._raw.publish(bgr_to_image(item.image, stamp, frame_id))
        if self._compressed is not None and self._compressed.get_subscription_count():
            message = bgr_to_compressed(item.image, stamp, frame_id, self.settings.jpeg_quality)
            self._compressed.publish(message)
        self._published += 1

    def _report_source(self) -> PartReport:
        failed = self._progress.startswith("failed")
        level = Level.ERROR if failed else Level.OK if self.is_active else Level.WARN
        values = {
            "source": self.settings.source,
            "published": self._published,
            "unreadable": self._unreadable,
            "rate": self.settings.rate,
        }
        return PartReport(level, self._progress, values)


def _camera_info(recorded: Any) -> CameraInfo:
    """Without header; raises :class:`InvalidInput` when ``recorded`` is no such message."""
    try:
        numbers = {name: [float(value) for value in getattr(recorded, name)] for name in "dkrp"}
        sizes = {name: int(getattr(recorded, name)) for name in ("height", "width", "binning_x", "binning_y")}
        place = {
            name: int(getattr(recorded.roi, name)) for name in ("x_offset", "y_offset", "height", "width")
        }
        roi = RegionOfInterest(**place, do_rectify=bool(recorded.roi.do_rectify))
        return CameraInfo(distortion_model=recorded.distortion_model, roi=roi, **numbers, **sizes)
    except (AssertionError, AttributeError, TypeError, ValueError) as error:
        raise InvalidInput(f"camera_info of the recording: {error}") from None


main = partial(run_process, ImageSourceNode)
