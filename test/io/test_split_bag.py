# SPDX-License-Identifier: Apache-2.0
"""A recording that goes on in further folders: nothing is lost, each can be replayed alone, only what was written is removed."""

import os
import shutil

import pytest
from rclpy.serialization import serialize_message
from rosbags.rosbag2 import Reader
from std_msgs.msg import String

from sticker_uq.io.bag_writer import BagWriter, folders_of, next_folder
from sticker_uq.scene import InvalidInput

TYPE = "std_msgs/msg/String"


def message(text):
    return serialize_message(String(data=text))


def bag_of(path, **settings):
    made = BagWriter(path, **settings)
    made.add_topic("/scene", TYPE)
    made.add_topic("/gate", TYPE, latched=True)
    return made


def written(folder):
    with Reader(folder) as reader:
        return [(connection.topic, bytes(data)) for connection, _, data in reader.messages()]


def test_every_message_is_in_one_folder_and_each_begins_with_the_newest_latched_state(tmp_path):
    bag = bag_of(tmp_path / "cell", split_bytes=3 * len(message("0")))
    sent = [("/gate" if number in (0, 4) else "/scene", message(str(number))) for number in range(9)]
    begun = [bag.write(topic, number, data) for number, (topic, data) in enumerate(sent)]
    bag.close()
    folders = folders_of(tmp_path / "cell")
    assert [folder.name for folder in folders] == ["cell", "cell_2", "cell_3", "cell_4"]
    assert begun == [False, False, False, True, False, True, False, True, False]
    first, *further = map(written, folders)
    assert first + [entry for found in further for entry in found[1:]] == sent
    assert [found[0] for found in further] == [
        ("/gate", message("0")),
        ("/gate", message("4")),
        ("/gate", message("4")),
    ]


def test_without_a_size_it_stays_one_folder_that_must_be_new(tmp_path):
    bag = bag_of(tmp_path / "cell")
    assert not any(bag.write("/scene", number, bytes(10**6)) for number in range(3))
    bag.close()
    assert [folder.name for folder in folders_of(tmp_path / "cell")] == ["cell"]
    with pytest.raises(InvalidInput, match="exists already"):
        BagWriter(tmp_path / "cell")
    BagWriter(tmp_path / "cell", numbered=True).close()
    assert (tmp_path / "cell_2" / "metadata.yaml").exists()


def test_the_oldest_folders_go_and_what_others_put_there_stays(tmp_path):
    foreign = tmp_path / "cell" / "notes.txt"
    bag = bag_of(tmp_path / "cell", split_bytes=1, keep=2)
    foreign.write_text("of a person")
    (tmp_path / "cell_old").mkdir()
    (tmp_path / "cell_7.txt").write_text("no recording")
    for number in range(5):
        bag.write("/scene", number, message(str(number)))
    bag.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cell",
        "cell_4",
        "cell_5",
        "cell_7.txt",
        "cell_old",
    ]
    assert list((tmp_path / "cell").iterdir()) == [foreign]
    assert [data for _, data in written(tmp_path / "cell_5")] == [message("4")]


def test_numbers_go_on_after_the_last_also_where_earlier_ones_are_gone(tmp_path):
    for name in ("a[1]_3", "a[1]_07", "a[1]_1", "a[1]b_9", "a[1]_20261127"):  # the last one is of that day
        (tmp_path / name).mkdir()
    assert next_folder(tmp_path / "a[1]").name == "a[1]_4"
    assert next_folder(tmp_path / "missing" / "a").name == "a"


def test_a_disk_that_is_full_at_a_new_folder_is_an_error_at_every_further_message(tmp_path, monkeypatch):
    bag = bag_of(tmp_path / "cell", split_bytes=1)
    bag.write("/scene", 0, message("0"))

    def full(self, folder):
        raise OSError("no space left on device")

    monkeypatch.setattr(BagWriter, "_open", full)
    for number in (1, 2):
        with pytest.raises(OSError, match="no space"):
            bag.write("/scene", number, message(str(number)))
    bag.close()
    bag.close()
    assert written(tmp_path / "cell") == [("/scene", message("0"))]


@pytest.mark.parametrize(
    "loss",
    [
        lambda file: file.unlink(),
        lambda file: shutil.rmtree(file.parent),
        lambda file: file.parent.rename(file.parent.with_name("away")),
        lambda file: os.truncate(file, 1),
        lambda file: (file.rename(file.with_suffix(".old")), file.write_bytes(b"other")),
    ],
    ids=["removed", "folder removed", "folder moved", "cut off", "replaced"],
)
def test_a_recording_that_is_gone_while_it_is_written_is_told_and_goes_on_in_a_new_folder(tmp_path, loss):
    bag = bag_of(tmp_path / "cell")
    bag.write("/gate", 1, message("held"))
    bag.write("/scene", 1, message("x" * 3_000_000))  # more than the writer's buffer holds
    bag.check()
    loss(next(bag.folder.glob("*.mcap")))
    with pytest.raises(OSError, match=r"mcap|No such file"):
        bag.check()
    bag.resume(2)
    bag.check()
    bag.write("/scene", 3, message("new"))
    bag.close()
    assert written(bag.folder) == [("/gate", message("held")), ("/scene", message("new"))]
