# SPDX-License-Identifier: Apache-2.0
"""Recordings as ROS 2 writes them."""

from pathlib import Path

import numpy as np
import pytest
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from sticker_uq.io.bags import Bag

OWN_TYPE = "cell_msgs/msg/Lid"
IMAGE_BYTES = 300_000  # a few images fill one chunk of an mcap file


def write_bag(
    path: Path, storage: StoragePlugin, images: int = 8, compression: CompressionMode | None = None
) -> Path:
    """A recording with /image, /chatter and a topic of a type that ROS 2 does not know."""
    types = get_typestore(Stores.ROS2_JAZZY)
    types.register(get_types_from_msg("std_msgs/Header header\nfloat64[] corners\n", OWN_TYPE))
    Image, Text, Lid = (types.types[t] for t in ("sensor_msgs/msg/Image", "std_msgs/msg/String", OWN_TYPE))
    Header, Time = types.types["std_msgs/msg/Header"], types.types["builtin_interfaces/msg/Time"]
    writer = Writer(path, version=9, storage_plugin=storage)
    if compression:
        writer.set_compression(compression, CompressionFormat.ZSTD)
    with writer:
        topics = {
            name: writer.add_connection(name, kind.__msgtype__, typestore=types)
            for name, kind in (("/image", Image), ("/chatter", Text), ("/lid", Lid))
        }
        for index in range(images):
            received = 1_000_000_000 + index * 100
            header = Header(Time(5, index), "camera")
            data = np.random.default_rng(index).integers(0, 255, IMAGE_BYTES, np.uint8)
            image = Image(header, 1, IMAGE_BYTES // 3, "bgr8", 0, IMAGE_BYTES, data)
            lid = Lid(header, np.arange(index, dtype=np.float64))
            for offset, (name, message) in enumerate(
                (("/image", image), ("/chatter", Text(f"{index}")), ("/lid", lid))
            ):
                raw = types.serialize_cdr(message, message.__msgtype__)
                writer.write(topics[name], received + offset, raw)
    return path


def stamps(bag: Bag) -> list[int]:
    return [item.message.header.stamp.nanosec for item in bag.messages("/image") if not item.error]


STORAGES = pytest.mark.parametrize("storage", list(StoragePlugin))
