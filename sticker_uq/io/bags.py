# SPDX-License-Identifier: Apache-2.0
"""Reading rosbag2 recordings without ROS: mcap and sqlite3, complete or truncated.

A recorder that is killed leaves an mcap without index and footer, a folder without metadata.yaml, or an incomplete database.
The complete messages of such a recording can be read; :attr:`Bag.damage` says what is lost.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rosbags.interfaces import Connection, MessageDefinitionFormat
from rosbags.rosbag2 import Reader
from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore

from sticker_uq.io.bag_compression import bound_decompression
from sticker_uq.io.mcap_recovery import TruncatedMcap
from sticker_uq.io.reading import MIB, check_regular, read_yaml, shown
from sticker_uq.scene import InvalidInput

BAG_SUFFIXES = (".mcap", ".db3")
MOST_STRUCTURED = 16 * MIB
"""Bytes of a message that is no image. In Python lists and objects take a hundred times as many."""
_IMAGES = ("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage")

_SQLITE = b"SQLite format 3\0"
_COMPUTED = re.compile(r"\bAS\s*\(|\bVIRTUAL\b", re.IGNORECASE)

bound_decompression()


@dataclass(frozen=True)
class BagMessage:
    """One message of a recording. ``received_ns``: when it was recorded; ``message`` is None where ``error`` says why."""

    received_ns: int
    message: Any
    error: str = ""


class Bag:
    """One recording: a rosbag2 folder or a single .mcap or .db3 file.

    ``topics`` maps a topic to its type ("sensor_msgs/msg/Image"), ``counts`` to its number of messages, ``damage`` says
    which part of the recording cannot be read ("" when it is complete). Raises InvalidInput when nothing can be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage = ""
        self._parts = self._open_parts()
        self._types = get_typestore(Stores.ROS2_JAZZY)
        self.topics: dict[str, str] = {}
        self.counts: dict[str, int] = {}
        for part in self._parts:
            with Reader(part) as reader:
                for connection in reader.connections:
                    self.topics[connection.topic] = connection.msgtype
                    count = self.counts.get(connection.topic, 0)
                    self.counts[connection.topic] = count + connection.msgcount

    def messages(self, topic: str) -> Iterator[BagMessage]:
        """The messages of `topic` in a recording, in the order of recording.

        A message that cannot be decoded is an item with an error; where the recording is truncated, a last item says so. Raises
        InvalidInput when the topic is not in the recording or its type is unknown.
        """
        if topic not in self.topics:
            raise InvalidInput(
                f"{self.path}: no topic {topic}; topics in it: {', '.join(sorted(self.topics)) or 'none'}"
            )
        received = 0
        for part in self._parts:
            with Reader(part) as reader:
                connections = [c for c in reader.connections if c.topic == topic]
                if not connections:
                    continue
                self._learn(connections[0])
                raw = reader.messages(connections)
                while True:
                    try:
                        connection, received, data = next(raw)
                    except StopIteration:
                        break
                    except Exception as error:  # noqa: BLE001  # each storage and compression has its own
                        self.damage = self.damage or f"the recording is truncated: {_words(error)}"
                        break
                    yield self._decode(connection, received, data)
        if self.damage:
            yield BagMessage(received, None, self.damage)

    def _decode(self, connection: Connection, received: int, data: bytes) -> BagMessage:
        if len(data) > MOST_STRUCTURED and connection.msgtype not in _IMAGES:
            error = f"{connection.msgtype} of {len(data)} bytes, expected at most {MOST_STRUCTURED}"
            return BagMessage(received, None, error)
        try:
            return BagMessage(received, self._types.deserialize_cdr(data, connection.msgtype))
        except Exception as error:  # noqa: BLE001  # rosbags compiles a decoder per type: anything can come out of bad bytes
            return BagMessage(received, None, f"not a {connection.msgtype}: {_words(error)}")

    def _learn(self, connection: Connection) -> None:
        """Register the definition in the recording of a type that is not part of ROS 2."""
        if connection.msgtype in self._types.fielddefs:
            return
        definition = connection.msgdef
        if definition.format is MessageDefinitionFormat.NONE:
            raise InvalidInput(
                f"{self.path}: {connection.topic}: the recording holds no definition of {connection.msgtype}"
            )
        try:
            if definition.format is MessageDefinitionFormat.IDL:
                types = get_types_from_idl(definition.data)
            else:
                types = get_types_from_msg(definition.data, connection.msgtype)
            self._types.register(
                {name: fields for name, fields in types.items() if name not in self._types.fielddefs}
            )
        except Exception as error:  # noqa: BLE001  # the definition is compiled, and it may be anything
            raise InvalidInput(
                f"{self.path}: {connection.topic}: the definition of {connection.msgtype} in the recording cannot be used: "
                f"{_words(error)[:200]}"
            ) from None
        if connection.msgtype not in self._types.fielddefs:
            raise InvalidInput(f"{self.path}: {connection.topic}: the recording defines another type")

    def _open_parts(self) -> list[Path]:
        """The paths to read in order: the folder, or its files where the folder as a whole cannot be opened."""
        if not self.path.is_dir():
            return [self._readable(self.path)]
        for file in self.path.iterdir():  # a name in metadata.yaml may be that of any of them
            if not file.is_dir():
                check_regular(file)
                _check_database(file)
        error = "no metadata.yaml"
        if (self.path / "metadata.yaml").exists():
            error = _metadata_problem(self.path / "metadata.yaml") or _trial(self.path)
            if not error:
                return [self.path]
        files = sorted(
            f for f in self.path.iterdir() if f.suffix in BAG_SUFFIXES and f.is_file() and f.stat().st_size
        )
        if not files:
            raise InvalidInput(f"{self.path}: not a readable recording: {error}")
        self.damage = error
        return [self._readable(file) for file in files]

    def _readable(self, file: Path) -> Path:
        check_regular(file)
        _check_database(file)
        error = _trial(file)
        if not error:
            return file
        recovered = TruncatedMcap(file)
        if file.suffix == ".mcap" and recovered.end and not _trial(recovered):
            self.damage = f"{file.name}: truncated after byte {recovered.end} of {file.stat().st_size}; the rest is lost"
            return recovered
        hint = f"; sqlite3 {file} .recover may save a part" if "malformed" in error else ""
        raise InvalidInput(f"{file}: not a readable recording: {error}{hint}")


def _metadata_problem(path: Path) -> str:
    """Why the reader must not see this file, "" when it may: the reader has no bounds."""
    try:
        read_yaml(path)
    except InvalidInput as error:
        return str(error)
    return ""


def _check_database(file: Path) -> None:
    """Raise InvalidInput for a database that computes what is read from it, which may never end. Others pass, broken ones too."""
    with file.open("rb") as stream:
        if stream.read(len(_SQLITE)) != _SQLITE:
            return
    try:
        address = f"file:{quote(os.fspath(file.resolve()))}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as database:
            schema = database.execute("SELECT type, sql FROM sqlite_master").fetchall()
    except (sqlite3.Error, UnicodeError):
        return
    for kind, sql in schema:
        if kind not in ("table", "index") or _COMPUTED.search(str(sql)):
            raise InvalidInput(
                f"{file}: not a readable recording: its database defines a {kind} that computes values"
            )


def _trial(path: Path) -> str:
    """Why `path` cannot be opened as a recording, "" when it can."""
    try:
        with Reader(path) as reader:
            wrong = next((c for c in reader.connections if not _is_plausible(c)), None)
    except Exception as error:  # noqa: BLE001  # a broken file fails in any way the storages know
        return _words(error)
    return "" if wrong is None else f"{shown(wrong.msgcount)} messages of {shown(wrong.topic)}"


def _is_plausible(connection: Connection) -> bool:
    """Whether topic, type and number of messages, which metadata.yaml says, can be that."""
    texts = isinstance(connection.topic, str) and isinstance(connection.msgtype, str)
    return texts and type(connection.msgcount) is int and 0 <= connection.msgcount < 1 << 40


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
