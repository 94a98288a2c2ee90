# SPDX-License-Identifier: Apache-2.0
"""The topics that the detector publishes for each image."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from rclpy.node import Node
from rclpy.qos import QoSProfile
from sensor_msgs.msg import Image

from sticker_uq.io.images import Picture
from sticker_uq.nodes.common import conversions, qos
from sticker_uq.nodes.common.images import bgr_to_image, map_to_image
from sticker_uq.nodes.detector import vision_mirror as vision
from sticker_uq.scene import ImageCheck, SceneAssessment
from sticker_uq_msgs import msg as m


class SceneOutputs:
    """The publishers for one camera; ``create`` makes one from type, topic and QoS.

    ``folder``: the namespace of the topics with a trailing slash, or "". Images are drawn only while they have subscribers.
    """

    def __init__(self, node: Node, create: Callable[[type, str, QoSProfile], Any], folder: str = "") -> None:
        self._scene = create(m.SceneAssessment, f"{folder}scene", qos.RELIABLE)
        self._check = create(m.ImageCheck, f"{folder}image_check", qos.IMAGE_CHECKS)
        parts: list[tuple[type, str, Callable[[SceneAssessment], Any]]] = [
            (m.StickerDetectionArray, "detections", conversions.detections_to_msg),
            (m.ImageUncertainty, "uncertainty", conversions.uncertainty_to_msg),
            (m.DistinctiveLocalization, "dil", conversions.localization_to_msg),
        ]
        self._annotated = create(Image, f"{folder}annotated", qos.RELIABLE)
        self._saliency = create(Image, f"{folder}saliency", qos.RELIABLE)
        self._drawn_at = -float("inf")
        self._label_info = None
        if vision.VISION_MSGS is None:
            node.get_logger().info("vision_msgs is not installed: detections_2d and label_info are off")
        else:
            array = vision.VISION_MSGS.Detection2DArray
            to_msg = partial(vision.detections_2d_to_msg, vision=vision.VISION_MSGS)
            parts.append((array, "detections_2d", to_msg))
            self._label_info = create(vision.VISION_MSGS.LabelInfo, f"{folder}label_info", qos.LATCHED)
        self._parts = [
            (create(kind, folder + topic, qos.RELIABLE), made_of) for kind, topic, made_of in parts
        ]

    def publish_labels(self, score_floor: float) -> None:
        if self._label_info is not None and vision.VISION_MSGS is not None:
            self._label_info.publish(vision.label_info_msg(score_floor, vision.VISION_MSGS))

    def saliency_wanted(self) -> bool:
        return bool(self._saliency.get_subscription_count())

    def publish_check(self, check: ImageCheck) -> None:
        self._check.publish(conversions.image_check_to_msg(check))

    def publish(self, scene: SceneAssessment, sequence: int) -> None:
        """Publish the scene first, then its parts on the topics that have subscribers."""
        self._scene.publish(conversions.scene_to_msg(scene, sequence))
        for publisher, made_of in self._parts:
            if publisher.get_subscription_count():
                publisher.publish(made_of(scene))

    def publish_pictures(self, scene: SceneAssessment, image: Picture, rate: float) -> None:
        """Publish the annotated image, at most at ``rate`` Hz, and saliency map, if they have subscribers."""
        stamp = conversions.ns_to_stamp(scene.stamp_ns)
        localization = scene.localization
        if localization is not None and localization.saliency is not None and self.saliency_wanted():
            self._saliency.publish(map_to_image(localization.saliency, stamp, scene.frame_id))
        now = time.monotonic()
        if self._annotated.get_subscription_count() and now - self._drawn_at >= 1.0 / rate:
            # imported on first use: drawing needs fonts and more libraries
            from sticker_uq.evaluation.reporting.annotated_images import annotate

            self._drawn_at = now
            self._annotated.publish(bgr_to_image(annotate(image, scene), stamp, scene.frame_id))
