# SPDX-License-Identifier: Apache-2.0
"""The files of rosbag2 recordings, recognised by what they hold: mcap and sqlite3, also compressed as a whole. Without ROS.

The readers of rosbags 0.11.9 are not used, only its decoder of messages. They give messages of a topic only where its QoS and
type hash are the same in metadata.yaml and in the file; put a path into an SQLite address as it is and read neither write-ahead
log nor journal; refuse an mcap file whose profile is not "ros2" or whose messages lie unindexed out of order; find nothing where
a summary does not repeat the channels or has no message index; take the order of files from metadata.yaml; and unpack without
a limit. A file that is cut off, or a chunk that is broken, here costs what it held and no more. Nor is the library mcap 1.6.0
used: of chunks with padded records, which the format allows, it loses messages without a word; lz4 it unpacks without a limit.
"""

import heapq
import os
import shutil
import sqlite3
import struct
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Set
from contextlib import closing
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from re import IGNORECASE
from re import compile as pattern
from tempfile import gettempdir
from typing import Any, BinaryIO
from urllib.parse import quote
from zlib import crc32

from lz4.frame import LZ4FrameDecompressor
from rosbags.rosbag2 import storage_mcap

from sticker_uq.io.reading import MIB, check_regular
from sticker_uq.scene import InvalidInput

MOST_UNPACKED = 1024 * MIB
"""Bytes of an unpacked chunk or message. A chunk that rosbag2 writes has less than 1 MiB or one message."""
LEFT_ON_DISK = 1024 * MIB
"""Bytes that an unpacked file leaves free on the disk of temporary files."""
_LOOSE = MIB
"""Bytes of messages outside chunks that are sorted together."""

_zstd: Any = storage_mcap.zstd
_ZSTD = b"\x28\xb5\x2f\xfd"
_SQLITE = b"SQLite format 3\0"
_MCAP = b"\x89MCAP0\r\n"
_HEADER, _FOOTER, _SCHEMA, _CHANNEL, _MESSAGE, _CHUNK = range(1, 7)
_CHUNK_INDEX, _STATISTICS, _DATA_END = 8, 11, 15
_FOREIGN = {
    b"#ROSBAG V": "a recording of ROS 1; convert it: rosbags-convert --src {file} --dst FOLDER",
    b"#ROSRECORD": "a recording of an early ROS 1; update it with ROS 1's `rosbag fix`, then convert it with rosbags-convert",
    b"\x89MCAP": "an mcap file of another version; expected version 0",
    b"\x1f\x8b": "compressed with gzip; unpack it: gunzip {file}",
    b"BZh": "compressed with bzip2; unpack it: bunzip2 {file}",
    b"\xfd7zXZ\0": "compressed with xz; unpack it: unxz {file}",
    b"\x04\x22\x4d\x18": "compressed with lz4; unpack it: unlz4 {file}",
    b"PK\x03\x04": "a zip archive; unpack it: unzip {file}",
    b"7z\xbc\xaf\x27\x1c": "a 7-Zip archive; unpack it",
    b"\x89HDF\r\n\x1a\n": "an HDF5 file; expected a recording of rosbag2",
    b"version https://git-lfs": "a pointer of Git LFS, not the file itself; get it: git lfs pull",
}
_COMPUTED = pattern(r"\bAS\s*\(|\bVIRTUAL\b", IGNORECASE)


@dataclass(frozen=True)
class Channel:
    """A topic in a file. ``encoding``: of its messages ("cdr"); ``schema``: the definition of its type, in the
    language ``schema_encoding`` ("ros2msg"), empty where the file has none.
    """

    topic: str
    msgtype: str
    encoding: str
    schema_encoding: str = ""
    schema: bytes = b""


class BagFile(ABC):
    """One file of a recording. ``channels``, ``counts`` (messages found) and ``declared`` (messages it says it has) go by the
    file's own numbers of its topics; ``start_ns``, ``end_ns``: first and last time of recording, -1 without messages;
    ``problems``: what of it is lost, which reading may add to; ``remarks``: what is unusual and loses nothing.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self.channels: dict[int, Channel] = {}
        self.counts: Counter[int] = Counter()
        self.declared: Counter[int] = Counter()
        self.start_ns = self.end_ns = -1
        self.problems: list[str] = []
        self.remarks: list[str] = []

    @abstractmethod
    def messages(self, wanted: Set[int]) -> Iterator[tuple[int, int, bytes]]:
        """Time of recording, channel and bytes of the messages in the channels ``wanted``, in order of time."""

    def _problem(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)


def open_bag_file(path: Path, temporary: Callable[[], Path]) -> BagFile:
    """The file at ``path``, unpacked into the folder that ``temporary`` makes where it is compressed as a whole.

    Raises InvalidInput, which says what the file is, when it is none or nothing in it can be read.
    """
    name, content = path.name, path
    remarks = []
    head = _head(path)
    if head.startswith(_ZSTD):
        content = _unpack_file(path, temporary())
        remarks = [f"{name}: unpacked from zstd"]
        head = _head(content)
    try:
        if head.startswith(_MCAP):
            file: BagFile = McapFile(content, name)
        elif head.startswith(_SQLITE):
            file = SqliteFile(content, name)
        else:
            raise InvalidInput(foreign_format(path, head) or "neither mcap nor sqlite3")
    except InvalidInput as error:
        raise InvalidInput(f"{path}: not a readable recording: {error}") from None
    except (sqlite3.Error, UnicodeError, OSError) as error:
        hint = f"; sqlite3 {path} .recover may save a part" if "malformed" in str(error) else ""
        raise InvalidInput(f"{path}: not a readable recording: {words(error)}{hint}") from None
    file.remarks[:0] = remarks
    return file


def foreign_format(path: Path, head: bytes | None = None) -> str:
    """What the file at ``path``, beginning with ``head``, is instead of a recording of rosbag2, and what to do; "" if unknown."""
    head = _head(path) if head is None else head
    for magic, text in _FOREIGN.items():
        if head.startswith(magic):
            return text.format(file=path)
    if head[257:262] == b"ustar":
        return f"a tar archive; unpack it: tar xf {path}"
    return "empty" if not head else ""


def is_bag_content(path: Path) -> bool:
    """Whether the regular file at ``path`` begins as one of a recording does, also compressed as a whole."""
    return _head(path).startswith((_MCAP, _SQLITE, _ZSTD))


def unpack_message(data: bytes) -> bytes:
    """``data`` of a message, unpacked where rosbag2 compressed it alone: CDR never begins with the number of zstd.

    Raises ValueError when it cannot be unpacked or is too large.
    """
    return _unpack(data, "zstd", MOST_UNPACKED) if data.startswith(_ZSTD) else data


def words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _head(path: Path) -> bytes:
    check_regular(path)
    with path.open("rb") as stream:
        return stream.read(512)


def _unpack_file(path: Path, temporary: Path) -> Path:
    unpacked = temporary / f"{len(list(temporary.iterdir()))}"
    try:
        with path.open("rb") as packed, _zstd.open(packed, "rb") as source, unpacked.open("wb") as target:
            while data := source.read(MIB):
                if shutil.disk_usage(gettempdir()).free < LEFT_ON_DISK + len(data):
                    raise ValueError(f"unpacked, it does not fit on the disk of {gettempdir()}")
                target.write(data)
    except (ValueError, EOFError, OSError, _zstd.ZstdError) as error:
        raise InvalidInput(
            f"{path}: not a readable recording: compressed with zstd: {words(error)}"
        ) from None
    return unpacked


def _unpack(data: bytes, compression: str, size: int) -> bytes:
    """``data`` unpacked, at most ``size`` bytes and one, so that too many show; raises ValueError."""
    if size > MOST_UNPACKED:
        raise ValueError(f"{size} bytes when unpacked, expected at most {MOST_UNPACKED}")
    try:
        if compression == "zstd":
            unpacked = bytes(_zstd.ZstdDecompressor().decompress(data, size + 1))
        elif compression == "lz4":
            unpacked = bytes(LZ4FrameDecompressor().decompress(data, size + 1))
        elif compression == "":
            unpacked = data
        else:
            raise ValueError(f"compression {compression!r}: expected zstd or lz4")
    except (RuntimeError, EOFError, MemoryError, _zstd.ZstdError) as error:
        raise ValueError(words(error)) from None
    if len(unpacked) > MOST_UNPACKED:
        raise ValueError(f"more bytes when unpacked than the {MOST_UNPACKED} expected at most")
    return unpacked


@dataclass
class _Segment:
    """Where messages of an mcap file lie: a chunk at byte ``at``, or ``length`` bytes of records outside chunks."""

    at: int
    length: int = 0
    start_ns: int = -1
    end_ns: int = -1
    counts: Counter[int] = field(default_factory=Counter)

    def add(self, channel: int, time_ns: int) -> None:
        self.start_ns = time_ns if self.start_ns < 0 else min(self.start_ns, time_ns)
        self.end_ns = max(self.end_ns, time_ns)
        self.counts[channel] += 1


class McapFile(BagFile):
    """An mcap file (https://mcap.dev/spec), with or without its summary, index or end."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path, name)
        self._schemas: dict[int, tuple[str, str, bytes]] = {}
        self._found: dict[int, tuple[int, str, str]] = {}
        self._segments: list[_Segment] = []
        with path.open("rb") as stream:
            self._size = os.fstat(stream.fileno()).st_size
            try:
                summarised = self._read_summary(stream)
            except (ValueError, struct.error):
                summarised = False
            if not summarised:
                self._segments.clear()
                self.declared.clear()
                self._scan(stream)
        for number, (schema_id, topic, encoding) in self._found.items():
            msgtype, language, text = self._schemas.get(schema_id, ("", "", b""))
            self.channels[number] = Channel(topic, msgtype, encoding, language, text)
        for segment in self._segments:
            self.counts.update(segment.counts)
        for number in self.counts.keys() - self.channels.keys():
            self._problem(f"{self.name}: {self.counts.pop(number)} messages of no topic")
        if self.counts:
            self.start_ns = min(segment.start_ns for segment in self._segments if segment.counts)
            self.end_ns = max(segment.end_ns for segment in self._segments)

    def messages(self, wanted: Set[int]) -> Iterator[tuple[int, int, bytes]]:
        """As of :class:`BagFile`; a broken chunk is a problem, and the next is read."""
        with self.path.open("rb") as stream:
            parts = [
                self._in_order(stream, part, wanted)
                for part in self._segments
                if not wanted.isdisjoint(part.counts)
            ]
            for time_ns, channel, data in heapq.merge(*parts, key=itemgetter(0)):
                if data is not None:
                    yield time_ns, channel, data

    def _in_order(
        self, stream: BinaryIO, segment: _Segment, wanted: Set[int]
    ) -> Iterator[tuple[int, int, bytes | None]]:
        yield segment.start_ns, 0, None  # the part is read when its time has come
        try:
            data = self._content(stream, segment)
            found = [
                (time_ns, channel, begin, end)
                for code, begin, end in _records(data)
                if code == _MESSAGE
                for channel, time_ns in [_message_head(data, begin, end)]
                if channel in wanted
            ]
        except (ValueError, struct.error) as error:
            self._problem(f"{self.name}: the chunk at byte {segment.at} cannot be read: {words(error)}")
            return
        for time_ns, channel, begin, end in sorted(found, key=itemgetter(0)):
            yield time_ns, channel, data[begin + 22 : end]

    def _content(self, stream: BinaryIO, segment: _Segment) -> bytes:
        stream.seek(segment.at)
        if segment.length:
            return stream.read(segment.length)
        code, length = struct.unpack("<BQ", stream.read(9))
        if code != _CHUNK or segment.at + 9 + length > self._size:
            raise ValueError("no chunk there")
        _, _, size, checksum = struct.unpack("<QQQI", stream.read(28))
        (characters,) = struct.unpack("<I", stream.read(4))
        compression = stream.read(min(characters, 16)).decode(errors="replace")
        (packed,) = struct.unpack("<Q", stream.read(8))
        if 40 + characters + packed > length:
            raise ValueError(f"{packed} bytes in a record of {length}")
        data = _unpack(stream.read(packed), compression, size)
        if len(data) != size:
            raise ValueError(f"expected {size} bytes when unpacked, got {len(data)}")
        if checksum and crc32(data) != checksum:
            raise ValueError("its checksum is wrong")
        return data

    def _read_summary(self, stream: BinaryIO) -> bool:
        """Read topics, counts and chunks from the summary; False unless it accounts for every message."""
        if self._size < len(_MCAP) + 37:
            return False
        end = stream.seek(-37, os.SEEK_END)
        tail = stream.read()
        start, _, checksum = struct.unpack("<QQI", tail[9:29])
        if tail[:9] != struct.pack("<BQ", _FOOTER, 20) or tail[29:] != _MCAP:
            return False
        if not len(_MCAP) < start < end or end - start > MOST_UNPACKED:
            return False
        stream.seek(start)
        data = stream.read(end - start)
        if checksum and crc32(data + tail[:25]) != checksum:
            return False
        stated = None
        for code, begin, after in _records(data):
            if code in (_SCHEMA, _CHANNEL):
                self._learn(code, data[begin:after])
            elif code == _CHUNK_INDEX:
                self._segments.append(_index_segment(data[begin:after]))
            elif code == _STATISTICS:
                stated = self._declare(data[begin:after])
        found = sum((segment.counts for segment in self._segments), Counter[int]())
        known = all(schema == 0 or schema in self._schemas for schema, _, _ in self._found.values())
        return stated == (found.total(), len(self._segments)) and known and found.keys() <= self._found.keys()

    def _scan(self, stream: BinaryIO) -> None:
        """Find topics and messages by reading the whole file; it may end anywhere."""
        at = len(_MCAP)
        loose: _Segment | None = None
        complete = ended = False
        while not ended:
            stream.seek(at)
            head = stream.read(9)
            code, length = struct.unpack("<BQ", head) if len(head) == 9 else (0, 0)
            if code == 0 or at + 9 + length > self._size:
                break
            if loose is not None and (at - loose.at > _LOOSE or code in (_CHUNK, _DATA_END, _FOOTER)):
                loose = None
            try:
                if code in (_SCHEMA, _CHANNEL):
                    self._learn(code, stream.read(length))
                elif code == _MESSAGE:
                    if loose is None:
                        loose = _Segment(at)
                        self._segments.append(loose)
                    loose.add(*_message_head(stream.read(min(length, 22)), 0, length))
                elif code == _CHUNK:
                    self._index_chunk(stream, at)
                elif code == _STATISTICS:
                    self._declare(stream.read(length))
            except (ValueError, struct.error) as error:
                what = "chunk" if code == _CHUNK else "record"
                self._problem(f"{self.name}: the {what} at byte {at} cannot be read: {words(error)}")
            complete, ended = complete or code == _DATA_END, code == _FOOTER
            at += 9 + length
            if loose is not None:
                loose.length = at - loose.at
        if at == len(_MCAP):
            raise InvalidInput("an mcap file without a single record")
        if ended:
            self._look_behind(stream, at + len(_MCAP))
            return
        if complete:
            self.remarks.append(f"{self.name}: cut off in its index, after the last message")
        else:
            self._problem(f"{self.name}: truncated after byte {at} of {self._size}; the rest is lost")

    def _look_behind(self, stream: BinaryIO, end: int) -> None:
        stream.seek(end)
        if stream.read(len(_MCAP)) == _MCAP:
            self._problem(
                f"{self.name}: a second mcap file begins at byte {end}, and is not read; cut it out: "
                f"tail -c +{end + 1} {self.path} > second.mcap"
            )
        elif end < self._size:
            self.remarks.append(f"{self.name}: {self._size - end} bytes after its end are not read")

    def _index_chunk(self, stream: BinaryIO, at: int) -> None:
        segment = _Segment(at)
        data = self._content(stream, segment)
        for code, begin, end in _records(data):
            if code in (_SCHEMA, _CHANNEL):
                self._learn(code, data[begin:end])
            elif code == _MESSAGE:
                segment.add(*_message_head(data, begin, end))
        self._segments.append(segment)

    def _learn(self, code: int, data: bytes) -> None:
        (number,) = struct.unpack_from("<H", data)
        if code == _SCHEMA:
            name, at = _bytes(data, 2)
            language, at = _bytes(data, at)
            self._schemas.setdefault(number, (name.decode(), language.decode(), _bytes(data, at)[0]))
            return
        (schema_id,) = struct.unpack_from("<H", data, 2)
        topic, at = _bytes(data, 4)
        self._found.setdefault(number, (schema_id, topic.decode(), _bytes(data, at)[0].decode()))

    def _declare(self, data: bytes) -> tuple[int, int]:
        """Numbers of messages and chunks in a Statistics record, whose counts are kept."""
        messages, _, _, _, _, chunks = struct.unpack_from("<QHIIII", data)
        counts, _ = _bytes(data, 42)
        self.declared.update(dict(struct.iter_unpack("<HQ", counts)))
        return messages, chunks


def _records(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Code, begin and end of the content of each record of mcap in ``data``; raises ValueError."""
    at = 0
    while at < len(data):
        if at + 9 > len(data):
            raise ValueError("its last record is cut off")
        code, length = struct.unpack_from("<BQ", data, at)
        begin, at = at + 9, at + 9 + length
        if at > len(data):
            raise ValueError(f"a record of {length} bytes is cut off")
        yield code, begin, at


def _message_head(data: bytes, begin: int, end: int) -> tuple[int, int]:
    """Channel and time of recording of a Message record of mcap."""
    if end - begin < 22:
        raise ValueError(f"a message of {end - begin} bytes")
    channel, _, time_ns = struct.unpack_from("<HIQ", data, begin)
    return channel, time_ns


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """The bytes behind their length at ``at``, and where they end."""
    (length,) = struct.unpack_from("<I", data, at)
    if at + 4 + length > len(data):
        raise ValueError("a text is cut off")
    return data[at + 4 : at + 4 + length], at + 4 + length


def _index_segment(data: bytes) -> _Segment:
    """The chunk that a ChunkIndex record of mcap describes; messages are counted by the length of their index."""
    start_ns, end_ns, at, length = struct.unpack_from("<QQQQ", data)
    offsets, after = _bytes(data, 32)
    (index_length,) = struct.unpack_from("<Q", data, after)
    places = sorted((offset, channel) for channel, offset in struct.iter_unpack("<HQ", offsets))
    ends = [offset for offset, _ in places[1:]] + [at + length + index_length]
    counts: Counter[int] = Counter()
    for (offset, channel), end in zip(places, ends, strict=True):
        count, rest = divmod(end - offset - 15, 16)
        if rest or count < 0:
            raise ValueError("an index of another length")
        counts[channel] += count
    return _Segment(at, 0, start_ns, end_ns, +counts)


class SqliteFile(BagFile):
    """An SQLite database, with its write-ahead log where there is one."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path, name)
        self._options = "mode=ro&immutable=1"
        for journal in (path.with_name(f"{path.name}{suffix}") for suffix in ("-wal", "-journal")):
            if journal.is_file() and journal.stat().st_size:
                self._use(journal)
        with closing(self._connect()) as database:
            self._check(database)
            definitions = {
                name: (language, text)
                for name, language, text in self._rows(
                    database,
                    "message_definitions",
                    "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions",
                )
            }
            for number, topic, kind, encoding in self._rows(
                database, "topics", "SELECT id, name, type, serialization_format FROM topics"
            ):
                if not all(isinstance(text, str) for text in (topic, kind, encoding)):
                    raise InvalidInput("a topic in it has no name")
                language, text = definitions.get(kind, ("", ""))
                definition = text.encode() if isinstance(text, str) else b""
                self.channels[number] = Channel(topic, kind, encoding, str(language), definition)
            spans = self._rows(
                database,
                "messages",
                "SELECT topic_id, COUNT(*), MIN(timestamp), MAX(timestamp) FROM messages GROUP BY topic_id",
            )
        for number, count, first, last in spans:
            if not isinstance(first, int) or not isinstance(last, int):
                raise InvalidInput("a message in it has no time")
            if number not in self.channels:
                self._problem(f"{self.name}: {count} messages of no topic")
                continue
            self.counts[number] = count
            self.start_ns = first if self.start_ns < 0 else min(first, self.start_ns)
            self.end_ns = max(last, self.end_ns)

    def messages(self, wanted: Set[int]) -> Iterator[tuple[int, int, bytes]]:
        """As of :class:`BagFile`; what the database does not give is a problem."""
        query = (
            "SELECT timestamp, topic_id, data FROM messages "
            f"WHERE topic_id IN ({','.join('?' * len(wanted))}) ORDER BY timestamp, id"
        )
        try:
            with closing(self._connect()) as database:
                for time_ns, number, data in database.execute(query, tuple(wanted)):
                    yield time_ns, number, data if isinstance(data, bytes) else b""
        except (sqlite3.Error, UnicodeError) as error:
            self._problem(f"{self.name}: {words(error)}; sqlite3 {self.path} .recover may save a part")

    def _connect(self) -> sqlite3.Connection:
        address = f"file:{quote(os.fsencode(self.path.resolve()))}?{self._options}"
        return sqlite3.connect(address, uri=True, check_same_thread=False)

    def _use(self, journal: Path) -> None:
        """Read what a killed recorder left in ``journal``; an immutable database has none. Raises InvalidInput."""
        self._options = "mode=ro"
        try:
            with closing(self._connect()) as database:
                database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            raise InvalidInput(
                f"it needs {journal.name}, which cannot be used ({words(error)}); in a folder that can be written to, run: "
                f"sqlite3 {self.name} 'SELECT COUNT(*) FROM messages'"
            ) from None
        self.remarks.append(f"{self.name}: read together with {journal.name}")

    def _rows(self, database: sqlite3.Connection, table: str, query: str) -> list[tuple[Any, ...]]:
        """All rows of ``query``; an early recording has no table of definitions."""
        there = database.execute(
            "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)
        )
        if there.fetchone()[0]:
            return database.execute(query).fetchall()
        if table == "message_definitions":
            return []
        raise InvalidInput(f"a database without rosbag2's table {table}")

    def _check(self, database: sqlite3.Connection) -> None:
        """Raise InvalidInput for a database that computes what is read from it, which may never end."""
        for kind, sql in database.execute("SELECT type, sql FROM sqlite_master").fetchall():
            if kind not in ("table", "index") or _COMPUTED.search(str(sql)):
                raise InvalidInput(f"its database defines a {kind} that computes values")
