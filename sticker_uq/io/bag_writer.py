# SPDX-License-Identifier: Apache-2.0
"""Writing rosbag2 recordings (mcap) without rosbag2."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from rosbags.interfaces import Connection
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from sticker_uq.scene import InvalidInput


class BagWriter:
    """Writes serialised (CDR) messages into a new rosbag2 folder. Use as a context manager; not thread-safe.

    Raises :class:`InvalidInput` when the folder exists or a type is unknown.
    """

    def __init__(self, path: Path) -> None:
        if path.exists():
            raise InvalidInput(f"{path} exists already: choose another name for the recording")
        self._writer = Writer(path, version=9, storage_plugin=StoragePlugin.MCAP)
        self._types = get_typestore(Stores.ROS2_JAZZY)
        self._connections: dict[str, Connection] = {}

    def __enter__(self) -> BagWriter:
        self._writer.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    def abort(self) -> None:
        """End the recording as it is, without an index: what reached the disk can be read, like that of a killed recorder."""
        with contextlib.suppress(OSError):
            self._writer.abort()

    def add_topic(self, topic: str, message_type: str) -> None:
        """Register a topic of the recording with the full name of its type, e.g. ``sensor_msgs/msg/Image``."""
        if message_type not in self._types.fielddefs:
            register_installed_type(self._types, message_type)
        self._connections[topic] = self._writer.add_connection(topic, message_type, typestore=self._types)

    def write(self, topic: str, received_ns: int, data: bytes) -> None:
        """Append one serialised message to the recording; disk errors propagate as :class:`OSError`."""
        self._writer.write(self._connections[topic], received_ns, data)


def register_installed_type(
    types: Typestore, message_type: str, prefixes: Iterable[Path] | None = None
) -> None:
    """Add the installed definitions of all messages of ``message_type``'s package to ``types``, to write a recording.

    ``prefixes`` are install prefixes, by default those of AMENT_PREFIX_PATH. Raises :class:`InvalidInput` when the package is
    not installed or lacks the type.
    """
    package = message_type.split("/")[0]
    if prefixes is None:
        prefixes = [Path(p) for p in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if p]
    for prefix in prefixes:
        files = sorted((prefix / "share" / package / "msg").glob("*.msg"))
        if not files:
            continue
        found = {}
        for file in files:
            found.update(get_types_from_msg(file.read_text(), f"{package}/msg/{file.stem}"))
        types.register({name: fields for name, fields in found.items() if name not in types.fielddefs})
        if message_type in types.fielddefs:
            return
    raise InvalidInput(
        f"type {message_type}: no definition under AMENT_PREFIX_PATH; source the workspace that has {package}"
    )
