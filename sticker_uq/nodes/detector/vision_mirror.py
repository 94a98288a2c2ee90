# SPDX-License-Identifier: Apache-2.0
"""Detections as vision_msgs 4 messages, for tools that expect them; off where that is not installed."""

from types import ModuleType

from sticker_uq import scene as sc
from sticker_uq.nodes.common.conversions import header_of

try:
    from vision_msgs import msg as _vision
except ImportError:
    _vision = None

#: ``vision_msgs.msg``, or None where it is not installed.
VISION_MSGS: ModuleType | None = _vision


def detections_2d_to_msg(scene: sc.SceneAssessment, vision: ModuleType) -> object:
    """The clustered objects of ``scene`` as a ``Detection2DArray``.

    Boxes in pixels of the original image. Each foreground class is one hypothesis with its mean probability, most probable first;
    ``class_id`` is the number that label_info names. ``id`` stays empty: it is meant for trackers.
    """
    header = header_of(scene.stamp_ns, scene.frame_id)
    detections = [_detection(observed, header, vision) for observed in scene.objects]
    return vision.Detection2DArray(header=header, detections=detections)


def label_info_msg(threshold: float, vision: ModuleType) -> object:
    """The class names by id and the lowest score of a box, a ``LabelInfo``."""
    classes = [vision.VisionClass(class_id=int(c), class_name=c.name.lower()) for c in sc.ObjectClass]
    return vision.LabelInfo(class_map=classes, threshold=threshold)


def _detection(observed: sc.ObservedObject, header: object, vision: ModuleType) -> object:
    detection = vision.Detection2D(header=header)
    x1, y1, x2, y2 = (float(value) for value in observed.box)
    detection.bbox.center.position.x, detection.bbox.center.position.y = (x1 + x2) / 2, (y1 + y2) / 2
    detection.bbox.size_x, detection.bbox.size_y = x2 - x1, y2 - y1
    foreground = sorted(
        (c for c in sc.ObjectClass if c is not sc.ObjectClass.BACKGROUND),
        key=lambda c: -observed.probabilities[c],
    )
    for object_class in foreground:
        hypothesis = vision.ObjectHypothesisWithPose()
        hypothesis.hypothesis.class_id = str(int(object_class))
        hypothesis.hypothesis.score = float(observed.probabilities[object_class])
        detection.results.append(hypothesis)
    return detection
