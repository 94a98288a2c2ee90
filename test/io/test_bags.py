# SPDX-License-Identifier: Apache-2.0
"""Recordings as ROS 2 writes them, and as a killed recorder or a full disk leaves them."""

import os
import sqlite3
from pathlib import Path

import pytest
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from sticker_uq.io import bag_files, bags
from sticker_uq.io.bags import Bag
from sticker_uq.io.sources import open_source
from sticker_uq.scene import InvalidInput
from test.helpers.bags import OWN_TYPE, STORAGES, stamps, write_bag


@STORAGES
@pytest.mark.parametrize("compression", [None, CompressionMode.FILE, CompressionMode.MESSAGE])
def test_reads_folders_of_both_storages_in_order(tmp_path, storage, compression):
    bag = Bag(write_bag(tmp_path / "bag", storage, compression=compression))
    assert bag.topics == {
        "/image": "sensor_msgs/msg/Image",
        "/chatter": "std_msgs/msg/String",
        "/lid": OWN_TYPE,
    }
    assert bag.counts == {"/image": 8, "/chatter": 8, "/lid": 8}
    assert stamps(bag) == list(range(8))
    assert [len(item.message.corners) for item in bag.messages("/lid")] == list(range(8)), "a type of others"
    assert bag.damage == ""


def test_a_topic_that_is_not_there_is_answered_with_those_that_are(tmp_path):
    bag = Bag(write_bag(tmp_path / "bag", StoragePlugin.MCAP))
    with pytest.raises(InvalidInput, match=r"no topic /imag; topics in it: /chatter, /image, /lid"):
        next(bag.messages("/imag"))


@pytest.mark.parametrize("share", [0.35, 0.6, 0.9, 0.995])
@pytest.mark.parametrize("in_folder", [True, False])
def test_a_cut_off_mcap_gives_its_complete_images_and_says_where_it_ends(tmp_path, share, in_folder):
    folder = write_bag(tmp_path / "bag", StoragePlugin.MCAP, images=20)
    file = folder / "bag.mcap"
    whole = file.read_bytes()
    file.write_bytes(whole[: int(len(whole) * share)])
    bag = Bag(folder if in_folder else file)
    *images, last = bag.messages("/image")
    readable = [item.message.header.stamp.nanosec for item in images]
    assert readable == list(range(len(readable)))
    assert 20 * share - 5 < len(readable) <= 20
    assert bag.counts["/image"] == len(readable)
    assert last.message is None
    assert f"of {int(len(whole) * share)}; the rest is lost" in last.error


def test_a_damaged_chunk_costs_its_own_messages_only(tmp_path):
    file = (
        write_bag(tmp_path / "bag", StoragePlugin.MCAP, images=20, compression=CompressionMode.STORAGE)
        / "bag.mcap"
    )
    whole = bytearray(file.read_bytes())
    frame = whole.index(b"\x28\xb5\x2f\xfd", len(whole) // 2)  # zstd's magic number
    whole[frame : frame + 4] = bytes(4)
    file.write_bytes(whole)
    *images, last = Bag(file).messages("/image")
    read = [item.message.header.stamp.nanosec for item in images]
    assert read == sorted(read)
    assert read[-1] == 19
    assert 14 < len(read) < 20
    assert last.error.startswith(
        f"{len(read)} of 20 messages of /image can be read; bag.mcap: the chunk at byte "
    )
    source = open_source(file)
    assert len(list(source)) == len(read) + 1
    assert source.lost == last.error


def test_a_cut_off_database_is_refused_with_what_to_do(tmp_path):
    folder = write_bag(tmp_path / "bag", StoragePlugin.SQLITE3, images=20)
    file = folder / "bag.db3"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) * 7 // 10])
    with pytest.raises(
        InvalidInput, match=r"bag.db3: not a readable recording: .*malformed.*sqlite3 .*recover"
    ):
        Bag(folder)


@pytest.mark.parametrize("name", ["bag.mcap", "bag.db3"])
@pytest.mark.parametrize("content", [b"", b"not a recording at all", b"\x89MCAP0\r\n"])
def test_a_file_that_is_no_recording_is_refused(tmp_path, name, content):
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(InvalidInput, match="not a readable recording"):
        Bag(file)


@pytest.mark.parametrize("metadata", ["", "rosbag2_bagfile_information: {version: 9}", "{ broken"])
def test_a_folder_with_broken_metadata_and_nothing_else_is_refused(tmp_path, metadata):
    (tmp_path / "metadata.yaml").write_text(metadata)
    with pytest.raises(InvalidInput, match="not a readable recording"):
        Bag(tmp_path)


def test_a_message_that_cannot_be_decoded_is_an_error_and_the_next_is_read(tmp_path):
    types = get_typestore(Stores.ROS2_JAZZY)
    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        topic = writer.add_connection("/chatter", "std_msgs/msg/String", typestore=types)
        good = types.serialize_cdr(types.types["std_msgs/msg/String"]("hello"), "std_msgs/msg/String")
        for index, raw in enumerate((good, b"\x00\x01\x00\x00\xff\xff", good)):
            writer.write(topic, index, raw)
    first, bad, last = Bag(tmp_path / "bag").messages("/chatter")
    assert (first.message.data, last.message.data) == ("hello", "hello")
    assert bad.message is None
    assert "not a std_msgs/msg/String" in bad.error


def test_a_type_without_definition_is_refused_by_name(tmp_path):
    folder = write_bag(tmp_path / "bag", StoragePlugin.SQLITE3)
    with sqlite3.connect(folder / "bag.db3") as database:
        database.execute("DELETE FROM message_definitions")
    bag = Bag(folder)
    assert stamps(bag) == list(range(8))
    with pytest.raises(InvalidInput, match=f"no definition of {OWN_TYPE}"):
        next(bag.messages("/lid"))


def bomb(path: Path, compression: CompressionMode, bytes_: int) -> Path:
    """A recording with one message of zeros that unpacks to ``bytes_``."""
    types = get_typestore(Stores.ROS2_JAZZY)
    writer = Writer(path, version=9, storage_plugin=StoragePlugin.MCAP)
    writer.set_compression(compression, CompressionFormat.ZSTD)
    with writer:
        topic = writer.add_connection("/chatter", "std_msgs/msg/String", typestore=types)
        writer.write(topic, 1, bytes(bytes_))
    return path


@pytest.mark.parametrize("compression", list(CompressionMode)[1:])
def test_what_unpacks_to_gigabytes_is_an_error(tmp_path, monkeypatch, compression):
    monkeypatch.setattr(bag_files, "MOST_UNPACKED", 100_000)
    monkeypatch.setattr(bag_files, "LEFT_ON_DISK", 1 << 60)
    folder = bomb(tmp_path / "bag", compression, 1_000_000)
    assert sum(file.stat().st_size for file in folder.iterdir()) < 10_000
    try:
        said = [item.error for item in Bag(folder).messages("/chatter")]
    except InvalidInput as error:
        said = [str(error)]
    assert any("when unpacked" in text or "does not fit" in text for text in said)


def test_a_huge_message_that_is_no_image_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(bags, "MOST_STRUCTURED", 1000)
    bag = Bag(write_bag(tmp_path / "bag", StoragePlugin.MCAP, images=200))
    assert len(stamps(bag)) == 200
    said = [item.error for item in bag.messages("/lid")]
    assert said[0] == ""
    assert f"{OWN_TYPE} of" in said[-1]
    assert "expected at most 1000" in said[-1]


@pytest.mark.parametrize(
    "definition",
    ["cell_msgs/Lid[] inside", "(" * 5000, "absent_msgs/Type a", "string a=__import__('os')", "\ud7ff"],
)
def test_a_definition_that_cannot_be_used_is_refused(tmp_path, definition):
    folder = write_bag(tmp_path / "bag", StoragePlugin.SQLITE3)
    with sqlite3.connect(folder / "bag.db3") as database:
        database.execute(
            "UPDATE message_definitions SET encoded_message_definition = ? WHERE topic_type = ?",
            (definition, OWN_TYPE),
        )
    bag = Bag(folder)
    try:
        said = [item.error for item in bag.messages("/lid")]
    except InvalidInput as error:
        said = [str(error)]
    assert all(
        f"definition of {OWN_TYPE} in the recording cannot be used" in e or f"not a {OWN_TYPE}" in e
        for e in said
    )


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE VIEW messages AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT id, 1 AS topic_id,"
        " 1 AS timestamp, zeroblob(1000) AS data FROM n",
        "CREATE TABLE messages (id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB GENERATED ALWAYS"
        " AS (zeroblob(1000000000)))",
    ],
)
@pytest.mark.parametrize("alone", [True, False])
def test_a_database_that_computes_its_messages_is_refused(tmp_path, sql, alone):
    folder = write_bag(tmp_path / "bag", StoragePlugin.SQLITE3)
    with sqlite3.connect(folder / "bag.db3") as database:
        database.execute("DROP TABLE messages")
        database.execute(sql)
    with pytest.raises(InvalidInput, match=r"its database defines a (view|table) that computes values"):
        Bag(folder / "bag.db3" if alone else folder)


@pytest.mark.parametrize("name", ["bag.mcap", "metadata.yaml"])
def test_a_named_pipe_in_a_recording_is_refused(tmp_path, name):
    os.mkfifo(tmp_path / name)
    for path in (tmp_path, tmp_path / name) if name.endswith("mcap") else (tmp_path,):
        with pytest.raises(InvalidInput, match="is a named pipe"):
            Bag(path)
