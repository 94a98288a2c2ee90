# SPDX-License-Identifier: Apache-2.0
"""Recordings of small cells: laptops that are announced, pictures, a gate, questions."""

import itertools
import re
from pathlib import Path

import cv2
from rclpy.serialization import serialize_message
from sensor_msgs.msg import CompressedImage

from sticker_uq.io.bag_writer import BagWriter
from sticker_uq.nodes.common.conversions import header_of
from sticker_uq_msgs.msg import GateState, InterventionAnswer, InterventionRequest, Workpiece, WorkpieceDone
from test.helpers.laptops import laptop

_SECOND = 10**9
_TYPES = {
    "image/compressed": CompressedImage,
    "workpiece": Workpiece,
    "workpiece/done": WorkpieceDone,
    "gate": GateState,
    "intervention/request": InterventionRequest,
    "intervention/answer": InterventionAnswer,
}


def record(path: Path, laptops: int = 2, seed: int = 0, without: str = "") -> Path:
    """A recording in ``path``: an empty lid, then ``laptops`` with two images, of which the last is asked about and all others

    are released from once; ``without`` one of the topics.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with BagWriter(path) as bag:
        for topic, kind in _TYPES.items():
            if topic == without:
                continue
            package = "sensor_msgs" if kind is CompressedImage else "sticker_uq_msgs"
            bag.add_topic(f"/{topic}", f"{package}/msg/{kind.__name__}")

        def write(topic: str, stamp_ns: int, **values) -> None:
            message = _TYPES[topic](header=header_of(stamp_ns, "camera"), **values)
            if topic != without:
                bag.write(f"/{topic}", stamp_ns, serialize_message(message))

        pictures = itertools.count(5 * seed)  # others than those of a seed before

        def image(stamp_ns: int) -> None:
            data = cv2.imencode(".png", laptop("small", next(pictures)))[1].tobytes()
            write("image/compressed", stamp_ns, format="png", data=data)

        image(_SECOND)
        for number in range(1, laptops + 1):
            now = 10 * number * _SECOND
            write("workpiece", now, id=f"laptop-{number}")
            for view in (1, 2):
                image(now + view * _SECOND)
            if number == laptops:
                asked = {"request_id": "r", "workpiece_id": f"laptop-{number}", "text": "Is this a sticker?"}
                write("gate", now + 3 * _SECOND, state=GateState.STATE_INTERVENTION)
                write("intervention/request", now + 3 * _SECOND, **asked)
                continue
            for _ in range(2):  # the gate repeats itself
                permit = {"decision_id": f"d{number}", "object_id": 1}
                write("gate", now + 3 * _SECOND, state=GateState.STATE_REMOVING, **permit)
    return path


def declare_more(path: Path, more: int = 2) -> Path:
    """Let metadata.yaml of the recording at ``path`` count ``more`` messages of each topic than there are."""
    file = path / "metadata.yaml"
    text = re.sub(
        r"(message_count: )(\d+)", lambda found: f"{found[1]}{int(found[2]) + more}", file.read_text()
    )
    file.write_text(text)
    return path
