# SPDX-License-Identifier: Apache-2.0
"""Writing rosbag2 recordings (mcap) without rosbag2: one, or several folders each of which can be read alone."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from rosbags.interfaces import (
    Connection,
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from sticker_uq.io.share import ament_prefixes
from sticker_uq.scene import InvalidInput


def register_installed_type(types: Typestore, message_type: str) -> None:
    """Add all messages of ``message_type``'s installed package to ``types``; InvalidInput when it or the type is missing."""
    package = message_type.split("/")[0]
    for prefix in ament_prefixes():
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


_NEVER = QosTime(9_223_372_036, 854_775_807)
"""ROS 2's infinite duration: 2^63 - 1 ns."""


def _make_qos(latched: bool) -> Qos:
    """What ``ros2 bag play`` offers a topic with: reliable, as every subscription takes it; if ``latched`` for late ones, too."""
    durability = QosDurability.TRANSIENT_LOCAL if latched else QosDurability.VOLATILE
    how = QosHistory.KEEP_LAST, 1 if latched else 10, QosReliability.RELIABLE, durability
    return Qos(*how, _NEVER, _NEVER, QosLiveliness.AUTOMATIC, _NEVER, False)


SPACE_BYTES = 64_000_000
"""A recording that a full disk ended goes on where so much can be reserved."""
_MADE_BY_WRITER = re.compile(r"metadata\.yaml|.+\.mcap")


class BagWriter:
    """Writes serialised (CDR) messages to ``path`` and, when ``split_bytes`` are full, to ``path_2``, ``path_3``, ... (0: never).

    Each folder begins with the newest message of every latched topic, so that it can be replayed alone. A disk error ends a
    folder as it is, without an index: what reached the disk can be read, like that of a killed recorder; :meth:`resume` begins
    the next one. With ``keep`` > 0 only so many of the newest folders ``path``, ``path_2``, ... stay, those of earlier starts
    included; of the others what a recorder wrote is removed.

    ``types``: the message types that can be written. ``numbered``: an existing ``path`` is no error; the recording begins in the
    next free folder. Else raises :class:`InvalidInput` when the folder exists. Not thread-safe.
    """

    def __init__(self, path: Path, numbered: bool = False, split_bytes: int = 0, keep: int = 0) -> None:
        self._path, self._split_bytes, self._keep = path, split_bytes, keep
        self.types = get_typestore(Stores.ROS2_JAZZY)
        self._topics: dict[str, str] = {}
        self._latched: dict[str, bytes | None] = {}
        self._open(next_folder(path) if numbered else path)

    def _open(self, folder: Path) -> None:
        if folder.exists():
            raise InvalidInput(f"{folder} exists already: choose another name for the recording")
        writer = Writer(folder, version=9, storage_plugin=StoragePlugin.MCAP)
        writer.open()
        self._writer: Writer | None = writer
        self.folder, self._written = folder, 0
        self._file = next(folder.glob("*.mcap"))
        self._identity = self._file.stat()
        self._connections = {topic: self._connect(writer, topic) for topic in self._topics}

    def _connect(self, writer: Writer, topic: str) -> Connection:
        qos = [_make_qos(topic in self._latched)]
        return writer.add_connection(
            topic, self._topics[topic], typestore=self.types, offered_qos_profiles=qos
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add_topic(self, topic: str, message_type: str, latched: bool = False) -> None:
        """Register a topic with the full name of its type, e.g. ``sensor_msgs/msg/Image``.

        ``latched``: a message is valid until the next. Raises :class:`InvalidInput` when the type is unknown.
        """
        if message_type not in self.types.fielddefs:
            register_installed_type(self.types, message_type)
        self._topics[topic] = message_type
        if latched:
            self._latched[topic] = None
        if self._writer is not None:
            self._connections[topic] = self._connect(self._writer, topic)

    def write(self, topic: str, received_ns: int, data: bytes) -> bool:
        """Returns whether a new folder was begun for it. After an OSError nothing can be written before :meth:`resume`."""
        if topic in self._latched:
            self._latched[topic] = data
        with self._abandon_on_error():
            if full := 0 < self._split_bytes <= self._written:
                self._next(received_ns)
            self._append(topic, received_ns, data)
        return full

    def check(self) -> None:
        """Raise :class:`OSError` where the file that is written is not in its folder any more: nobody would find what follows."""
        if self._writer is None:
            return
        with self._abandon_on_error():
            found = self._file.stat()
            if not os.path.samestat(found, self._identity) or found.st_size < self._identity.st_size:
                raise OSError(f"{self._file} was replaced or cut off while it was written")
            self._identity = found

    def resume(self, now_ns: int) -> None:
        """Begin the next folder after a disk error. Raises :class:`OSError` where there is no space for it."""
        with tempfile.TemporaryFile(dir=self._path.parent) as probe:
            os.posix_fallocate(probe.fileno(), 0, SPACE_BYTES)
        with self._abandon_on_error():
            self._next(now_ns)

    def _append(self, topic: str, received_ns: int, data: bytes) -> None:
        if self._writer is None:
            raise OSError(f"{self.folder}: the recording is closed")
        self._writer.write(self._connections[topic], received_ns, data)
        self._written += len(data)

    def _next(self, now_ns: int) -> None:
        self.close()
        self._open(next_folder(self._path))
        for topic, data in self._latched.items():
            if data is not None:
                self._append(topic, now_ns, data)
        for folder in folders_of(self._path)[: -self._keep] if self._keep else ():
            _remove(folder)

    @contextlib.contextmanager
    def _abandon_on_error(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            writer, self._writer = self._writer, None
            if writer is not None:
                with contextlib.suppress(OSError):
                    writer.abort()
            raise

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


def folders_of(path: Path) -> list[Path]:
    """The folders of a recording that was split or begun anew: ``path``, ``path_2``, ... that exist, the oldest first."""
    return [_number_path(path, number) for number in _numbers(path)]


def next_folder(path: Path) -> Path:
    """Where a recording goes on: after the last of ``path``, ``path_2``, ..., also where earlier ones were removed."""
    return _number_path(path, max(_numbers(path), default=0) + 1)


def _number_path(path: Path, number: int) -> Path:
    return path if number == 1 else path.with_name(f"{path.name}_{number}")


def _numbers(path: Path) -> list[int]:
    """The numbers of what is called ``path`` (1), ``path_2`` (2), ..., sorted."""
    if not path.parent.is_dir():
        return []
    called = re.compile(re.escape(path.name) + r"(?:_([1-9][0-9]{0,6}))?")
    matches = [match for found in path.parent.iterdir() if (match := called.fullmatch(found.name))]
    return sorted(int(match[1] or 1) for match in matches if match[1] != "1")


def _remove(folder: Path) -> None:
    """Remove what a writer made; the folder stays where there is more in it."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for file in folder.iterdir():
        if _MADE_BY_WRITER.fullmatch(file.name) and file.is_file() and not file.is_symlink():
            file.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()
