# SPDX-License-Identifier: Apache-2.0
"""Recordings as they lie on people's disks: what they declare is compared with what is read."""

import gzip
import re
import shutil
import sqlite3
import struct
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import yaml
from mcap.writer import CompressionType, IndexType
from mcap.writer import Writer as McapWriter
from rosbags.interfaces import Qos
from rosbags.rosbag2 import CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from sticker_uq.io import bags
from sticker_uq.io.bag_files import Channel
from sticker_uq.io.bags import Bag
from sticker_uq.io.sources import open_source
from sticker_uq.scene import InvalidInput
from test.helpers.bags import STORAGES, stamps, write_bag

TEXT = "std_msgs/msg/String"
TOPIC = {"name": "/chatter", "type": TEXT, "serialization_format": "cdr"}
TYPES = get_typestore(Stores.ROS2_JAZZY)


def text_bag(
    path: Path, times: Iterable[int], storage: StoragePlugin = StoragePlugin.MCAP, qos: Sequence[Qos] = ()
) -> Path:
    """A recording of /chatter with one message for each of ``times``, which it says."""
    with Writer(path, version=9, storage_plugin=storage) as writer:
        topic = writer.add_connection("/chatter", TEXT, typestore=TYPES, offered_qos_profiles=list(qos))
        for time in times:
            writer.write(topic, time, TYPES.serialize_cdr(TYPES.types[TEXT](f"{time}"), TEXT))
    return path


def texts(path: Path) -> list[int]:
    """The times that the messages of /chatter say; every item must be one."""
    return [int(item.message.data) for item in Bag(path).messages("/chatter")]


def lost(path: Path) -> str:
    """What the last item of /chatter says."""
    *_, last = Bag(path).messages("/chatter")
    assert last.lost
    return last.error


def edited(folder: Path, **values: object) -> Path:
    """The recording with other entries in its metadata.yaml."""
    file = folder / "metadata.yaml"
    told = yaml.safe_load(file.read_text())
    told["rosbag2_bagfile_information"].update(values)
    file.write_text(yaml.safe_dump(told))
    return folder


def joined(path: Path, **parts: Path) -> Path:
    """A folder with the only file of each of ``parts`` under its name and the suffix it had."""
    path.mkdir()
    for name, part in parts.items():
        (file,) = (f for f in part.iterdir() if f.name != "metadata.yaml")
        shutil.copy(file, path / f"{name}{file.suffix}")
    return path


@STORAGES
@pytest.mark.parametrize("listed", [["rec_10", "rec_2"], None])
@pytest.mark.parametrize(
    ("two", "ten"), [([1, 2], [3, 4]), ([3, 4], [1, 2]), ([1, 3], [2, 4]), ([7, 7], [7, 7])]
)
def test_files_are_read_in_order_of_time_then_of_their_numbers(tmp_path, storage, listed, two, ten):
    folder = joined(
        tmp_path / "rec",
        rec_2=text_bag(tmp_path / "a", two, storage),
        rec_10=text_bag(tmp_path / "b", ten, storage),
    )
    if listed:
        shutil.copy(tmp_path / "a" / "metadata.yaml", folder)
        suffix = ".mcap" if storage is StoragePlugin.MCAP else ".db3"
        edited(folder, relative_file_paths=[f"{name}{suffix}" for name in listed])
    assert texts(folder) == sorted([*two, *ten])


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("journal", ["wal", "journal"])
def test_what_a_killed_recorder_left_beside_the_database_is_read_or_named(tmp_path, alone, journal):
    source = next(text_bag(tmp_path / "bag", range(3), StoragePlugin.SQLITE3).glob("*.db3"))
    database = sqlite3.connect(source)
    database.execute(f"PRAGMA journal_mode={'WAL' if journal == 'wal' else 'PERSIST'}")
    database.execute("PRAGMA wal_autocheckpoint=0")
    for time in range(50, 53):
        row = (time, TYPES.serialize_cdr(TYPES.types[TEXT](f"{time}"), TEXT))
        database.execute("INSERT INTO messages(topic_id, timestamp, data) VALUES (1, ?, ?)", row)
        database.commit()
    killed = tmp_path / "killed"
    killed.mkdir()
    for suffix in ("", f"-{journal}"):
        shutil.copy(f"{source}{suffix}", f"{killed / 'rec_0.db3'}{suffix}")
    database.close()
    path = killed / "rec_0.db3" if alone else killed
    assert texts(path) == [0, 1, 2, 50, 51, 52]
    assert f"rec_0.db3: read together with rec_0.db3-{journal}" in Bag(path).remarks
    assert Bag(path).damage == ""


def test_a_database_whose_journal_cannot_be_used_is_named_with_what_to_do(tmp_path):
    source = next(text_bag(tmp_path / "bag", range(3), StoragePlugin.SQLITE3).glob("*.db3"))
    database = sqlite3.connect(source)
    database.execute("PRAGMA cache_size=1")
    row = (1, TYPES.serialize_cdr(TYPES.types[TEXT]("9" * 100_000), TEXT))
    for _ in range(50):  # more than the cache holds: the database has pages of a transaction that did not end
        database.execute("INSERT INTO messages(topic_id, timestamp, data) VALUES (1, ?, ?)", row)
    killed = tmp_path / "killed"
    killed.mkdir()
    for suffix in ("", "-journal"):
        shutil.copy(f"{source}{suffix}", f"{killed / 'rec_0.db3'}{suffix}")
    database.close()
    with pytest.raises(
        InvalidInput, match=r"needs rec_0.db3-journal, which cannot be used .* run: sqlite3 rec_0.db3"
    ):
        Bag(killed)


@STORAGES
@pytest.mark.parametrize(
    "name", ["run #3", "lid 100%41", "ok?x=1", "a&b;c", "ümläut \udcff", "file:x", "[1]*"]
)
def test_any_path_is_read_and_no_other_recording(tmp_path, storage, name):
    folder = text_bag(tmp_path / "bag", [1, 2], storage)
    named = tmp_path / name
    text_bag(tmp_path / "lid 100A", [5], storage)
    folder.rename(named)
    (file,) = (f for f in named.iterdir() if f.name != "metadata.yaml")
    file = file.rename(named / f"{name}{file.suffix}")
    assert texts(file) == [1, 2]
    assert texts(edited(named, relative_file_paths=[file.name])) == [1, 2]
    (named / "metadata.yaml").unlink()
    assert texts(named) == [1, 2]


@STORAGES
@pytest.mark.parametrize(
    ("change", "remark"),
    [
        (None, "no metadata.yaml; 1 file(s) read in order of time"),
        ("{", "not a YAML file"),
        ("", "not the metadata of a recording"),
        ("a: &a [1]\nb: *a\n", "aliases"),
        ("rosbag2_bagfile_information: {version: 5}", "not the metadata of a recording"),
        ({"storage_identifier": ""}, "storage_identifier ''"),
        ({"version": 99}, ""),
        ({"compression_mode": "FILE", "compression_format": "zstd"}, ""),
        ({"topics_with_message_count": [{"topic_metadata": {"name": "/chatter"}, "message_count": -1}]}, "-1 messages"),
    ],
)  # fmt: skip
def test_missing_or_unusable_metadata_is_a_remark_and_no_message(tmp_path, storage, change, remark):
    folder = text_bag(tmp_path / "bag", range(3), storage)
    if isinstance(change, dict):
        edited(folder, **change)
    elif change is None:
        (folder / "metadata.yaml").unlink()
    else:
        (folder / "metadata.yaml").write_text(change)
    bag = Bag(folder)
    assert texts(folder) == [0, 1, 2]
    assert (bag.counts["/chatter"], bag.declared["/chatter"], bag.damage) == (3, 3, "")
    assert len(bag.remarks) == bool(remark)
    assert remark in "".join(bag.remarks)


MCAP_KINDS = [
    {"use_chunking": False}, {"repeat_channels": False}, {"repeat_schemas": False}, {"use_statistics": False},
    {"use_chunking": False, "use_statistics": False, "repeat_channels": False, "repeat_schemas": False},
    {"repeat_channels": False, "repeat_schemas": False, "use_statistics": False, "use_summary_offsets": False},
    {"index_types": IndexType.NONE}, {"index_types": IndexType.CHUNK}, {"index_types": IndexType.MESSAGE},
    {"enable_crcs": False}, {"compression": CompressionType.LZ4}, {"compression": CompressionType.NONE},
]  # fmt: skip


def written_mcap(path: Path, times: Sequence[int], profile: str = "", **options: Any) -> Path:
    """A recording that the library of mcap itself wrote, every second message in a second channel of the topic."""
    with path.open("wb") as stream:
        writer = McapWriter(stream, chunk_size=200, **options)
        writer.start(profile)
        schema = writer.register_schema(TEXT, "ros2msg", b"string data\n")
        channels = [writer.register_channel("/chatter", "cdr", schema, {"n": f"{n}"}) for n in range(2)]
        others = writer.register_schema("Text", "protobuf", b"\xff\x00")
        foreign = writer.register_channel("/other", "protobuf", others)
        for number, time in enumerate(times):
            data = bytes(TYPES.serialize_cdr(TYPES.types[TEXT](f"{time}"), TEXT))
            writer.add_message(channels[number % 2], time, data, time)
            writer.add_message(foreign, time, b"\x0a\x01a", time)
        writer.finish()
    return path


@pytest.mark.parametrize(
    ("profile", "options"),
    [("ros2", {}), ("ros1", {}), ("other", {}), *(("", options) for options in MCAP_KINDS)],
    ids=str,
)
@pytest.mark.parametrize("times", [range(40), [*range(20, 40), *range(20)], range(40, 0, -1)])
def test_an_mcap_file_is_read_whatever_its_profile_summary_and_index(tmp_path, options, profile, times):
    path = written_mcap(tmp_path / "bag.mcap", times, profile, **options)
    bag = Bag(path)
    assert texts(path) == sorted(times)
    assert (bag.counts["/chatter"], bag.declared["/chatter"], bag.damage, bag.remarks) == (40, 40, "", [])
    assert bag.topics_in_words() == "/chatter; not readable: /other (protobuf Text)"


def test_messages_of_a_channel_that_an_mcap_file_does_not_describe_are_lost(tmp_path):
    options = {"use_chunking": False, "use_statistics": False, "index_types": IndexType.NONE}
    path = written_mcap(tmp_path / "bag.mcap", range(10, 14), **options)
    message = struct.pack("<BQ", 5, 22 + len(TYPES.serialize_cdr(TYPES.types[TEXT]("10"), TEXT)))
    second, other = (message + struct.pack("<H", number) for number in (2, 99))
    path.write_bytes(path.read_bytes().replace(second, other))
    assert Bag(path).counts["/chatter"] == 2
    assert lost(path) == "bag.mcap: 2 messages of no topic"


@pytest.mark.parametrize("with_metadata", [True, False])
def test_a_file_cut_off_behind_its_messages_loses_nothing(tmp_path, with_metadata):
    folder = text_bag(tmp_path / "bag", range(5))
    file = folder / "bag.mcap"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) - 20])
    if not with_metadata:
        (folder / "metadata.yaml").unlink()
    assert texts(folder) == list(range(5))
    assert any("cut off in its index" in remark for remark in Bag(folder).remarks)


@pytest.mark.parametrize(
    "name", ["sensor_msgs/Image", "sensor_msgs::msg::dds_::Image_", "sensor_msgs/msg/Image"]
)
def test_a_type_is_known_by_its_names_in_other_recorders(name):
    assert bags.type_name(Channel("/a", name, "cdr")) == "sensor_msgs/msg/Image"


@STORAGES
@pytest.mark.parametrize("mode", [CompressionMode.FILE, CompressionMode.MESSAGE])
@pytest.mark.parametrize("alone", [True, False])
def test_what_rosbag2_compressed_is_read_without_its_metadata(tmp_path, storage, mode, alone):
    folder = write_bag(tmp_path / "bag", storage, compression=mode)
    (folder / "metadata.yaml").unlink()
    (file,) = folder.iterdir()
    bag = Bag(file if alone else folder)
    assert stamps(bag) == list(range(8))
    assert (bag.damage, bag.counts["/image"]) == ("", 8)
    if mode is CompressionMode.FILE:
        assert f"{file.name}: unpacked from zstd" in bag.remarks
        file.write_bytes(file.read_bytes()[:-100_000])
        with pytest.raises(InvalidInput, match="compressed with zstd: "):
            Bag(file)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"#ROSBAG V2.0\n", "a recording of ROS 1; convert it: rosbags-convert --src"),
        (b"#ROSRECORD V1.1\n", "an early ROS 1"),
        (b"\x89MCAP1\r\n", "an mcap file of another version"),
        (gzip.compress(b"a", mtime=0), "gunzip"),
        (lz4.frame.compress(b"a"), "unlz4"),
        (b"PK\x03\x04", "a zip archive"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"a.mcap".ljust(257, b"\0") + b"ustar", "a tar archive"),
    ],
)
@pytest.mark.parametrize("name", ["x.bag", "x.mcap", "x.db3", "x"])
def test_what_is_no_recording_of_rosbag2_is_called_by_its_name(tmp_path, content, what, name):
    file = tmp_path / name
    file.write_bytes(content + bytes(1000))
    for path in (file, tmp_path):
        with pytest.raises(InvalidInput, match=re.escape(what)):
            open_source(path)


def test_another_database_is_no_recording(tmp_path):
    with closing(sqlite3.connect(tmp_path / "notes.db3")) as database:
        database.execute("CREATE TABLE notes (id INTEGER)")
    with pytest.raises(InvalidInput, match="a database without rosbag2's table topics"):
        Bag(tmp_path / "notes.db3")


def split_bag(path: Path, storage: StoragePlugin, *parts: Sequence[int], named: int | None = None) -> Path:
    """A recording in several files, of which metadata.yaml names the first ``named`` and counts their messages."""
    bags_ = [text_bag(path.with_name(f"part_{n}"), times, storage) for n, times in enumerate(parts)]
    folder = joined(path, **{f"rec_{n}": bag for n, bag in enumerate(bags_)})
    files = sorted((f.name for f in folder.iterdir()), key=lambda name: int(name[4:].split(".")[0]))[:named]
    shutil.copy(bags_[0] / "metadata.yaml", folder)
    counted = [{"topic_metadata": TOPIC, "message_count": sum(map(len, parts[:named]))}]
    return edited(folder, relative_file_paths=files, topics_with_message_count=counted)


@STORAGES
def test_a_missing_file_is_a_loss_and_one_of_another_name_is_not(tmp_path, storage):
    folder = split_bag(tmp_path / "rec", storage, [0, 1, 2], [3, 4, 5])
    (second,) = folder.glob("rec_1.*")
    renamed = second.rename(folder / f"lid{second.suffix}")
    assert texts(folder) == list(range(6))
    assert Bag(folder).damage == ""
    assert any(f"{second.name}, which metadata.yaml names, is not there" in r for r in Bag(folder).remarks)
    renamed.unlink()
    assert "3 of 6 messages of /chatter can be read" in lost(folder)
    assert f"{second.name}, which metadata.yaml names, is not there" in Bag(folder).damage


@STORAGES
def test_a_file_that_cannot_be_read_is_a_loss_and_the_others_are_read(tmp_path, storage):
    folder = split_bag(tmp_path / "rec", storage, [0, 1, 2], [3, 4, 5])
    (second,) = folder.glob("rec_1.*")
    second.write_bytes(b"nonsense")
    for _ in range(2):
        *read, last = Bag(folder).messages("/chatter")
        assert len(read) == 3
        assert "neither mcap nor sqlite3" in last.error
        (folder / "metadata.yaml").unlink(missing_ok=True)


@STORAGES
def test_files_that_the_metadata_does_not_name(tmp_path, storage):
    grown = split_bag(tmp_path / "grown", storage, [0, 1], [2, 3], named=1)
    assert texts(grown) == [0, 1, 2, 3]
    assert Bag(grown).damage == ""
    assert any(r.startswith("rec_1.") and "read all the same" in r for r in Bag(grown).remarks)
    (tmp_path / "x").mkdir()
    doubled = split_bag(tmp_path / "x" / "doubled", storage, [0, 1], [1, 2], named=1)
    assert "2 of 4 messages of /chatter can be read" in lost(doubled)
    assert "it is not read; move it away" in lost(doubled)


@STORAGES
def test_fewer_messages_than_declared_is_a_loss_and_more_a_remark(tmp_path, storage):
    folder = text_bag(tmp_path / "bag", range(3), storage)
    edited(folder, topics_with_message_count=[{"topic_metadata": TOPIC, "message_count": 2}])
    assert texts(folder) == [0, 1, 2]
    assert "metadata.yaml counts 2 messages of /chatter, the files hold 3" in Bag(folder).remarks
    gone = {"topic_metadata": {"name": "/gone", "type": TEXT}, "message_count": 7}
    edited(folder, topics_with_message_count=[{"topic_metadata": TOPIC, "message_count": 5}, gone])
    assert lost(folder) == "3 of 5 messages of /chatter can be read"
    assert "0 of 7 messages of /gone can be read" in Bag(folder).damage


def test_messages_of_no_topic_are_a_loss(tmp_path):
    folder = text_bag(tmp_path / "bag", range(3), StoragePlugin.SQLITE3)
    with sqlite3.connect(folder / "bag.db3") as database:
        database.execute("UPDATE messages SET topic_id = 9 WHERE timestamp = 1")
    assert "2 of 3" in lost(folder)
    assert "1 messages of no topic" in lost(folder / "bag.db3")


def test_two_types_on_one_topic_are_not_added_up(tmp_path):
    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        one = writer.add_connection("/chatter", TEXT, typestore=TYPES)
        two = writer.add_connection("/chatter", "std_msgs/msg/Bool", typestore=TYPES)
        for time in range(3):
            writer.write(one, time, TYPES.serialize_cdr(TYPES.types[TEXT](f"{time}"), TEXT))
        bool_ = TYPES.types["std_msgs/msg/Bool"](True)
        writer.write(two, 9, TYPES.serialize_cdr(bool_, "std_msgs/msg/Bool"))
    bag = Bag(tmp_path / "bag")
    assert texts(tmp_path / "bag") == [0, 1, 2]
    assert (bag.counts["/chatter"], bag.declared["/chatter"]) == (3, 3)
    assert bag.remarks == ["/chatter holds 1 messages of std_msgs/msg/Bool too, which are not read"]
