# SPDX-License-Identifier: Apache-2.0
"""Files and messages that work, of which fuzzing makes others."""

from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cv2
import numpy as np
import torch
from rclpy.serialization import serialize_message
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore
from sensor_msgs.msg import Image

from sticker_uq.detection.weights import CLASSES, save_weights
from sticker_uq.gate import Policy, judge
from sticker_uq.nodes.common.conversions import decision_to_msg, header_of, scene_to_msg
from sticker_uq.testing.scenes import START, assessment, object_at
from sticker_uq_msgs.msg import GateState, InterventionAnswer, InterventionRequest, Workpiece, WorkpieceDone

ROOT = Path(__file__).parents[2]
MODEL = "ssdlite320_mobilenet_v3_large"


@cache
def types() -> Typestore:
    """The types of ROS 2 and those of the cell, from their sources."""
    store, found = get_typestore(Stores.ROS2_JAZZY), {}
    for file in sorted((ROOT / "sticker_uq_msgs" / "msg").glob("*.msg")):
        found.update(get_types_from_msg(file.read_text(), f"sticker_uq_msgs/msg/{file.stem}"))
    store.register(found)
    return store


def pictures() -> list[bytes]:
    """A small picture in every format, and one with EXIF data."""
    pixels = np.random.default_rng(0).integers(0, 255, (12, 16, 3), np.uint8)
    kinds = [
        (".jpg", []),
        (".jpg", [cv2.IMWRITE_JPEG_PROGRESSIVE, 1]),
        (".png", []),
        (".bmp", []),
        (".webp", []),
    ]
    files = [cv2.imencode(suffix, pixels, options)[1].tobytes() for suffix, options in kinds]
    turned = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    files.append(files[0][:2] + b"\xff\xe1" + (len(turned) + 2).to_bytes(2, "big") + turned + files[0][2:])
    return [*files, cv2.imencode(".png", pixels[..., 0].astype(np.uint16) * 257)[1].tobytes()]


def recordings() -> list[bytes]:
    """The files of recordings of a cell: mcap, compressed and not, and sqlite3."""
    header = header_of(START, "camera")
    scene = assessment(object_at())
    told = {
        "/image": Image(header=header, height=2, width=2, encoding="bgr8", step=6, data=bytes(range(12))),
        "/workpiece": Workpiece(header=header, id="laptop-1"),
        "/scene": scene_to_msg(scene),
        "/decision": decision_to_msg(judge(scene, Policy())),
        "/gate": GateState(header=header, state=GateState.STATE_REMOVING, decision_id="d1"),
        "/request": InterventionRequest(header=header, request_id="r1", decision_id="d1"),
        "/answer": InterventionAnswer(header=header, request_id="r1", person="Ada"),
        "/workpiece_done": WorkpieceDone(header=header, workpiece_id="laptop-1"),
    }
    found = []
    for storage, compression in (
        (StoragePlugin.MCAP, None),
        (StoragePlugin.MCAP, CompressionMode.STORAGE),
        (StoragePlugin.SQLITE3, None),
    ):
        with TemporaryDirectory() as folder:
            writer = Writer(Path(folder) / "bag", version=9, storage_plugin=storage)
            if compression is not None:
                writer.set_compression(compression, CompressionFormat.ZSTD)
            with writer:
                for topic, message in told.items():
                    package, _, _ = type(message).__module__.partition(".")
                    kind = f"{package}/msg/{type(message).__name__}"
                    connection = writer.add_connection(topic, kind, typestore=types())
                    writer.write(connection, START, serialize_message(message))
            (file,) = (f for f in (Path(folder) / "bag").iterdir() if f.suffix in (".mcap", ".db3"))
            found.append(file.read_bytes())
    return found


def model() -> torch.nn.Module:
    """A model of few numbers, for files of weights."""
    made = torch.nn.Linear(3, 2)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.fill_(0.5)
    return made


def weights() -> list[bytes]:
    """Files of weights in both formats."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "weights.safetensors"
        save_weights(model(), file, {"model": MODEL})
        found = [file.read_bytes()]
    for content in ({"model": model().state_dict(), "classes": CLASSES}, model().state_dict()):
        stream = BytesIO()
        torch.save(content, stream)
        found.append(stream.getvalue())
    return found


def coco() -> dict[str, Any]:
    """The annotations of two pictures."""
    images = [{"id": n, "file_name": f"images/{n}.png", "width": 16, "height": 12} for n in (1, 2)]
    box = {"category_id": 1, "bbox": [1, 2.5, 3, 4], "area": 12, "iscrowd": 0}
    return {
        "info": {"description": "two"},
        "categories": [{"id": 1, "name": "sticker"}, {"id": 2, "name": "Logo"}, {"id": 3, "name": "crow"}],
        "images": images,
        "annotations": [{"id": n, "image_id": n, **box} for n in (1, 2)],
    }
