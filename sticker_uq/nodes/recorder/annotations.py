# SPDX-License-Identifier: Apache-2.0
"""What the gate decided about each object, as Foxglove draws it over the image: ``foxglove_msgs/msg/ImageAnnotations``.

The recording holds the definition, so that neither the cell nor the viewer needs the package.
"""

import math
from collections.abc import Mapping
from typing import Any

from rosbags.typesys import get_types_from_msg
from rosbags.typesys.store import Typestore

from sticker_uq.messages import LABELS, VERDICTS
from sticker_uq_msgs.msg import SceneDecision

TYPE = "foxglove_msgs/msg/ImageAnnotations"
_DEFINITIONS = {
    "KeyValuePair": "string key\nstring value",
    "Color": "float64 r\nfloat64 g\nfloat64 b\nfloat64 a",
    "Point2": "float64 x\nfloat64 y",
    "CircleAnnotation": "builtin_interfaces/Time timestamp\nfoxglove_msgs/Point2 position\nfloat64 diameter\nfloat64 thickness\n"
    "foxglove_msgs/Color fill_color\nfoxglove_msgs/Color outline_color\nfoxglove_msgs/KeyValuePair[] metadata",
    "PointsAnnotation": "uint8 UNKNOWN=0\nuint8 POINTS=1\nuint8 LINE_LOOP=2\nuint8 LINE_STRIP=3\nuint8 LINE_LIST=4\n"
    "builtin_interfaces/Time timestamp\nuint8 type\nfoxglove_msgs/Point2[] points\nfoxglove_msgs/Color outline_color\n"
    "foxglove_msgs/Color[] outline_colors\nfoxglove_msgs/Color fill_color\nfloat64 thickness\n"
    "foxglove_msgs/KeyValuePair[] metadata",
    "TextAnnotation": "builtin_interfaces/Time timestamp\nfoxglove_msgs/Point2 position\nstring text\nfloat64 font_size\n"
    "foxglove_msgs/Color text_color\nfoxglove_msgs/Color background_color\nfoxglove_msgs/KeyValuePair[] metadata",
    "ImageAnnotations": "builtin_interfaces/Time timestamp\nfoxglove_msgs/CircleAnnotation[] circles\n"
    "foxglove_msgs/PointsAnnotation[] points\nfoxglove_msgs/TextAnnotation[] texts\nfoxglove_msgs/KeyValuePair[] metadata",
}
"""https://docs.foxglove.dev/docs/visualization/message-schemas/image-annotations"""
_LINE_LOOP = 2
_COLOURS = {"remove": (0.0, 0.45, 0.7), "ask": (0.9, 0.62, 0.0)}
"""Those of the operator's page; of every other verdict grey."""
_GREY = (0.8, 0.8, 0.8)
_FONT_PX = 20.0
_LINE_PX = 3.0


def register(types: Typestore) -> None:
    """Make :data:`TYPE` known to ``types``."""
    for name, definition in _DEFINITIONS.items():
        types.register(get_types_from_msg(definition, f"foxglove_msgs/msg/{name}"))


def annotations(decision: SceneDecision, types: Typestore) -> bytes:
    """The boxes of ``decision`` with what was decided of them, serialised (CDR). A box that is not finite is left out."""
    kinds = types.types
    point, colour = kinds["foxglove_msgs/msg/Point2"], kinds["foxglove_msgs/msg/Color"]
    stamp = decision.header.stamp
    time = kinds["builtin_interfaces/msg/Time"](sec=stamp.sec, nanosec=stamp.nanosec)
    clear, dark = colour(r=0.0, g=0.0, b=0.0, a=0.0), colour(r=0.06, g=0.08, b=0.1, a=0.85)
    outlines: list[Any] = []
    texts: list[Any] = []
    for verdict in decision.verdicts:
        box = verdict.box
        if not all(map(math.isfinite, (box.x1, box.y1, box.x2, box.y2))):
            continue
        said = _word(VERDICTS, verdict.verdict)
        red, green, blue = _COLOURS.get(said, _GREY)
        line = colour(r=red, g=green, b=blue, a=1.0)
        corners = ((box.x1, box.y1), (box.x2, box.y1), (box.x2, box.y2), (box.x1, box.y2))
        outlines.append(
            kinds["foxglove_msgs/msg/PointsAnnotation"](
                timestamp=time,
                type=_LINE_LOOP,
                points=[point(x=float(x), y=float(y)) for x, y in corners],
                outline_color=line,
                outline_colors=[],
                fill_color=clear,
                thickness=_LINE_PX,
                metadata=[],
            )
        )
        words = f"{_word(LABELS, verdict.label)}: {said}"
        texts.append(
            kinds["foxglove_msgs/msg/TextAnnotation"](
                timestamp=time,
                position=point(x=float(box.x1), y=float(box.y1)),
                text=words,
                font_size=_FONT_PX,
                text_color=line,
                background_color=dark,
                metadata=[],
            )
        )
    made = kinds[TYPE](timestamp=time, circles=[], points=outlines, texts=texts, metadata=[])
    return bytes(types.serialize_cdr(made, TYPE))


def _word(words: Mapping[str, str], number: int) -> str:
    return list(words.values())[number] if number < len(words) else str(number)
