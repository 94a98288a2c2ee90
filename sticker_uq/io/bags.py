# SPDX-License-Identifier: Apache-2.0
"""Reading rosbag2 recordings without ROS: mcap and sqlite3, complete or not.

What a recording declares (metadata.yaml, the statistics of its files) is compared with what is read. Less is a loss, which
:attr:`Bag.damage` and the last item of :meth:`Bag.messages` say; what loses nothing is a remark.
"""

from __future__ import annotations

import heapq
import re
import shutil
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore

from sticker_uq.io.bag_files import BagFile, Channel, open_bag_file, unpack_message, words
from sticker_uq.io.reading import MIB, check_regular, read_yaml, show_value
from sticker_uq.io.topics import IMAGE_TYPES
from sticker_uq.scene import InvalidInput

BAG_SUFFIXES = (".mcap", ".db3")
MOST_STRUCTURED = 16 * MIB
"""Bytes of a message that is no image. In Python lists and objects take a hundred times as many."""
_METADATA = "metadata.yaml"
_PACKED = (".zstd", ".zst", ".gz", ".lz4", ".bz2", ".xz", ".active")
_STORAGES = ("mcap", "sqlite3")
_DDS_NAME = re.compile(r"(\w+)(?:/|::)(?:msg(?:/|::))?(?:dds_::)?(\w+?)_?")


@dataclass(frozen=True)
class BagMessage:
    """One message. ``received_ns``: when it was recorded; ``message`` is None where ``error`` says why; ``lost``:
    whether it stands for all that is lost of its topic.
    """

    received_ns: int
    message: Any
    error: str = ""
    lost: bool = False


class Bag:
    """One recording: a rosbag2 folder or a single file of one (mcap or sqlite3, also compressed with zstd).

    ``topics`` maps a topic to its type ("sensor_msgs/msg/Image"), ``counts`` to its messages that were found, ``declared`` to
    those that the recording says it has; ``unreadable`` maps a topic to the encoding and type that keep it from being read.
    ``damage`` says what is lost ("" when nothing is), ``remarks`` what is unusual. Raises InvalidInput when nothing can be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.remarks: list[str] = []
        self.topics: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self.declared: Counter[str] = Counter()
        self.unreadable: dict[str, str] = {}
        self._folder: Path | None = None
        self._types = get_typestore(Stores.ROS2_JAZZY)
        self._problems: list[str] = []
        self._lost: dict[str, str] = {}
        self._metadata = Metadata(path / _METADATA) if path.is_dir() else None
        self._files = self._open_files()
        self._read_topics()
        short = [text for topic in self.declared if (text := self._shortage(topic, self.counts[topic]))]
        uncounted = [] if self._has_counts else self._problems
        self.damage = "; ".join([*short, *(self._problems if short else uncounted)])
        if not self.damage:
            self.remarks += self._problems

    def messages(self, topic: str) -> Iterator[BagMessage]:
        """The messages of `topic` in the order of recording.

        A message that cannot be decoded is an item with an error; where messages are lost, a last item says so. Raises
        InvalidInput when the topic is not in the recording or its type is unknown.
        """
        if topic not in self.topics:
            raise InvalidInput(f"{self.path}: no topic {topic}; topics in it: {self.topics_in_words()}")
        wanted = {
            file: {number for number, channel in file.channels.items() if self._is(channel, topic)}
            for file in self._files
        }
        for file, numbers in wanted.items():
            for number in numbers:
                self._learn(file.channels[number])
        parts = [_in_time(file, numbers) for file, numbers in wanted.items() if numbers]
        received = read = 0
        for received, _, data in heapq.merge(*parts, key=itemgetter(0)):
            if data is not None:
                read += 1
                yield self._decode(topic, received, data)
        lost = self.loss(topic, read)
        if lost:
            self.damage = self.damage or lost
            self._lost[topic] = lost
            yield BagMessage(received, None, lost, lost=True)

    def topics_of(self, kind: str) -> list[str]:
        return [topic for topic, found in self.topics.items() if found == kind]

    def topics_in_words(self) -> str:
        """The topics in words, with those that cannot be read and why."""
        known = ", ".join(sorted(self.topics)) or "none"
        others = ", ".join(f"{topic} ({why})" for topic, why in sorted(self.unreadable.items()))
        return f"{known}{f'; not readable: {others}' if others else ''}{f'; {self.damage}' if self.damage else ''}"

    @property
    def _has_counts(self) -> bool:
        """Whether metadata.yaml says how many messages there are, so that what else is wrong may have lost none."""
        return self._metadata is not None and bool(self._metadata.counts)

    def _shortage(self, topic: str, read: int) -> str:
        declared = self.declared[topic]
        return "" if read >= declared else f"{read} of {declared} messages of {topic} can be read"

    def loss(self, topic: str, read: int | None = None) -> str:
        """What is lost of the messages of `topic`, of which `read` were read (default: as :meth:`messages` said, before it all
        that were found); "" when nothing is.
        """
        if read is None and topic in self._lost:
            return self._lost[topic]
        problems = dict.fromkeys([*self._problems, *(text for file in self._files for text in file.problems)])
        short = self._shortage(topic, self.counts[topic] if read is None else read)
        return "; ".join([short, *problems] if short else [] if self._has_counts else problems)

    def _is(self, channel: Channel, topic: str) -> bool:
        named = channel.topic == topic and type_name(channel) == self.topics[topic]
        return named and channel.encoding == "cdr"

    def _decode(self, topic: str, received: int, data: bytes) -> BagMessage:
        kind = self.topics[topic]
        try:
            data = unpack_message(data)
            if len(data) > MOST_STRUCTURED and kind not in IMAGE_TYPES.values():
                error = f"{kind} of {len(data)} bytes, expected at most {MOST_STRUCTURED}"
                return BagMessage(received, None, error)
            try:
                return BagMessage(received, self._types.deserialize_cdr(data, kind))
            except Exception:  # of up to 7 bytes that middleware pads with, rosbags takes 3
                if not data.endswith(bytes(4)):
                    raise
                return BagMessage(received, self._types.deserialize_cdr(data[:-4], kind))
        except Exception as error:  # noqa: BLE001  # rosbags compiles a decoder per type: anything can come out of bad bytes
            return BagMessage(received, None, f"not a {kind}: {words(error)}")

    def _learn(self, channel: Channel) -> None:
        """Register the definition in the recording of a type that is not part of ROS 2."""
        kind = type_name(channel)
        if kind in self._types.fielddefs:
            return
        if not channel.schema or channel.schema_encoding not in ("ros2msg", "ros2idl", "omgidl"):
            raise InvalidInput(f"{self.path}: {channel.topic}: the recording holds no definition of {kind}")
        try:
            text = channel.schema.decode()
            by_msg = channel.schema_encoding == "ros2msg"
            types = get_types_from_msg(text, kind) if by_msg else get_types_from_idl(text)
            new = {name: fields for name, fields in types.items() if name not in self._types.fielddefs}
            self._types.register(new)
        except Exception as error:  # noqa: BLE001  # the definition is compiled, and it may be anything
            raise InvalidInput(
                f"{self.path}: {channel.topic}: the definition of {kind} in the recording cannot be used: "
                f"{words(error)[:200]}"
            ) from None
        if kind not in self._types.fielddefs:
            raise InvalidInput(f"{self.path}: {channel.topic}: the recording defines another type")

    def _read_topics(self) -> None:
        """What the files hold, counted by topic and type, beside what metadata.yaml says."""
        found: dict[str, Counter[str]] = {}
        for file in self._files:
            for number, channel in file.channels.items():
                kind = type_name(channel)
                if channel.encoding != "cdr" or not kind:
                    self.unreadable[channel.topic] = f"{channel.encoding or 'no encoding'} {kind}".strip()
                    continue
                found.setdefault(channel.topic, Counter())[kind] += file.counts[number]
                self.declared[channel.topic] += max(file.declared[number], file.counts[number])
        for topic, kinds in found.items():
            (self.topics[topic], self.counts[topic]), *others = kinds.most_common()
            found[topic] = Counter(dict(kinds.most_common()))
            for kind, count in others:
                self.declared[topic] -= count
                self.remarks.append(f"{topic} holds {count} messages of {kind} too, which are not read")
        for (topic, kind), count in self._metadata.counts.items() if self._metadata is not None else ():
            if topic in self.unreadable or kind in list(found.get(topic, ()))[1:]:
                continue
            if count < self.counts[topic]:
                self.remarks.append(
                    f"{_METADATA} counts {count} messages of {topic}, the files hold {self.counts[topic]}"
                )
            self.declared[topic] = max(self.declared[topic], count)

    def _open_files(self) -> list[BagFile]:
        """The files to read, in order of time, or of the number in the name where the times are the same."""
        told = self._metadata
        files = [open_bag_file(self.path, self._temporary)] if told is None else self._open_files_of(told)
        for file in files:
            self.remarks += file.remarks
            self._problems += file.problems
        return files

    def _temporary(self) -> Path:
        """A folder for unpacked files, which goes with this recording."""
        if self._folder is None:
            self._folder = Path(mkdtemp(prefix="sticker_uq_"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    def _open_files_of(self, metadata: Metadata) -> list[BagFile]:
        there = sorted((file for file in self.path.iterdir() if is_bag_name(file)), key=natural)
        named = [file for file in there if file.name in metadata.files]
        opened, failures = {}, []
        for path in there:
            check_regular(path)
            if not path.stat().st_size:
                self.remarks.append(f"{path.name} is empty")
                continue
            try:
                opened[path] = open_bag_file(path, self._temporary)
            except InvalidInput as error:
                failures.append(str(error))
        if not opened:
            raise InvalidInput(
                "; ".join(failures)
                or f"{self.path}: not a readable recording: {metadata.problem or 'no file of one in it'}"
            )
        missing = [name for name in metadata.files if not (self.path / name).exists()]
        self._problems += failures + [f"{name}, which {_METADATA} names, is not there" for name in missing]
        files = [opened[path] for path in named if path in opened]
        self.remarks += metadata.remarks
        if metadata.problem:
            self.remarks.append(f"{metadata.problem}; {len(opened)} file(s) read in order of time")
        last = max((file.end_ns for file in files), default=-1)
        for path, file in opened.items():
            if path in named:
                continue
            if not metadata.files or missing or file.start_ns > last or not file.counts:
                if metadata.files:
                    self.remarks.append(f"{path.name}: not in {_METADATA}, read all the same")
                files.append(file)
            else:
                self._problems.append(
                    f"{path.name}: neither in {_METADATA} nor recorded after the files there, so it is not read; move it away, "
                    f"or remove {_METADATA} to read every file"
                )
                for number, channel in file.channels.items():
                    self.declared[channel.topic] += file.counts[number]
        return sorted(files, key=lambda file: (file.start_ns, natural(Path(file.name))))


class Metadata:
    """What metadata.yaml says: ``files`` by name, ``counts`` by topic and type; ``problem``: why nothing."""

    def __init__(self, path: Path) -> None:
        self.files: list[str] = []
        self.counts: Counter[tuple[str, str]] = Counter()
        self.problem = ""
        self.remarks: list[str] = []
        if not path.exists():
            self.problem = f"no {_METADATA}"
            return
        check_regular(path)
        try:
            self._read(path)
        except InvalidInput as error:
            self.problem = str(error)
        except (KeyError, TypeError, AttributeError) as error:
            self.problem = f"{path}: not the metadata of a recording: {words(error)}"
        if self.problem:
            self.files, self.counts = [], Counter()

    def _read(self, path: Path) -> None:
        told = read_yaml(path)["rosbag2_bagfile_information"]
        for name in told["relative_file_paths"]:
            # early recordings put the folder before it, those of Windows with another slash
            short = Path(name).name
            self.files.append(short if (path.parent / short).exists() else re.split(r"[/\\]", name)[-1])
        for entry in told["topics_with_message_count"]:
            topic, count = entry["topic_metadata"]["name"], entry["message_count"]
            if not isinstance(topic, str) or type(count) is not int or not 0 <= count < 1 << 40:
                raise InvalidInput(f"{path}: {show_value(count)} messages of {show_value(topic)}")
            self.counts[topic, str(entry["topic_metadata"].get("type"))] += count
        if (storage := told.get("storage_identifier")) not in _STORAGES:
            self.remarks.append(
                f"{path.name}: storage_identifier {show_value(storage)}, expected {' or '.join(_STORAGES)}"
            )


def type_name(channel: Channel) -> str:
    """The type of a topic as ROS 2 writes it: pkg/msg/Name, also where it is pkg/Name or pkg::msg::dds_::Name_."""
    match = _DDS_NAME.fullmatch(channel.msgtype)
    return f"{match[1]}/msg/{match[2]}" if match else channel.msgtype


def is_bag_name(path: Path) -> bool:
    """Whether a file is called as one of a recording: rec_0.mcap, rec_0.db3.zstd, rec.MCAP.active; not its journals."""
    name = path.name.lower()
    for packed in _PACKED:
        name = name.removesuffix(packed)
    return name.endswith(BAG_SUFFIXES) and not name.startswith(".") and not path.is_dir()


def natural(file: Path) -> list[tuple[int, str]]:
    """Sort key for files that puts image9 before image10."""
    parts = re.split(r"(\d+)", file.name)  # text and numbers alternate
    return [(int(part), "") if index % 2 else (0, part) for index, part in enumerate(parts)]


def _in_time(file: BagFile, numbers: set[int]) -> Iterator[tuple[int, int, bytes | None]]:
    yield file.start_ns, 0, None  # the file is opened when its time has come
    yield from file.messages(numbers)
