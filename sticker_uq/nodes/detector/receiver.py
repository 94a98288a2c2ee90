# SPDX-License-Identifier: Apache-2.0
"""Decodes and checks the detector node's images in a thread, so that the executor's thread stays responsive."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from dataclasses import replace

from rclpy.node import Node
from sensor_msgs.msg import CompressedImage, Image

from sticker_uq.cell.mailbox import Mailbox
from sticker_uq.io.images import Picture, lost_colours
from sticker_uq.nodes.common.conversions import stamp_to_ns
from sticker_uq.nodes.common.images import bgr_from_msg
from sticker_uq.perception.inspection import ImageInspector
from sticker_uq.scene import ImageCheck

#: Longest wait of :meth:`Receiver.close` for the current image, s. The result of a very large one is dropped.
STOP_TIMEOUT_S = 1.0
_LOG_PERIOD_S = 5.0
_MOST_FORMATS = 16


class Receiver(threading.Thread):
    """Takes the newest message of one camera out of ``inbox``; calls ``publish_check`` with its check as soon as that is
    known, and ``deliver`` with the check and the pixels, if any. A message comes with the names of those who published images
    when it arrived.
    """

    def __init__(
        self,
        node: Node,
        publish_check: Callable[[ImageCheck], None],
        deliver: Callable[[ImageCheck, Picture | None], None],
    ) -> None:
        super().__init__(name="receiver", daemon=True)
        self.inbox: Mailbox[tuple[Image | CompressedImage, tuple[str, ...]]] = Mailbox()
        self._node = node
        self._publish_check = publish_check
        self._deliver = deliver
        self._inspector = ImageInspector()
        self._newest: ImageCheck | None = None
        self._formats: set[str] = set()

    def run(self) -> None:
        while (arrived := self.inbox.take()) is not None:
            try:
                self._receive(*arrived)
            except Exception as error:  # noqa: BLE001 - one image must not end the receiver
                self._node.get_logger().debug(traceback.format_exc())
                self._node.get_logger().error(
                    f"an image could not be received: {type(error).__name__}: {error}",
                    throttle_duration_sec=_LOG_PERIOD_S,
                )

    def repeat_check(self, publishers: tuple[str, ...]) -> None:
        """Publish the newest image check once more, because ``publishers`` offer images now."""
        if self._newest is not None:
            self._publish_check(replace(self._newest, image_publishers=publishers))

    def close(self) -> None:
        self.inbox.close()
        self.join(STOP_TIMEOUT_S)

    def _receive(self, message: Image | CompressedImage, publishers: tuple[str, ...]) -> None:
        stamp_ns, frame_id = stamp_to_ns(message.header.stamp), message.header.frame_id
        # before decoding, which may take long while the worker is busy with an earlier image
        size = None if isinstance(message, CompressedImage) else (message.width, message.height)
        early = self._inspector.glance(stamp_ns, frame_id, size) if size is not None else None
        if early is not None:
            self._publish_check(replace(early, image_publishers=publishers))
        check, picture = self._inspector.inspect(stamp_ns, frame_id, lambda: bgr_from_msg(message))
        self._newest = check = replace(check, image_publishers=publishers)
        if isinstance(message, CompressedImage) and picture is not None:
            self._look_at_format(message)
        if not self.inbox.closed:
            self._publish_check(check)
            self._deliver(check, picture)

    def _look_at_format(self, message: CompressedImage) -> None:
        """Say once when the picture has lost the colours that its format names."""
        if message.format in self._formats or len(self._formats) == _MOST_FORMATS:
            return
        self._formats.add(message.format)
        if text := lost_colours(message.data, message.format):
            self._node.get_logger().warning(text)
