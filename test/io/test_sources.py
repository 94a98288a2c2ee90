# SPDX-License-Identifier: Apache-2.0
"""Images from recordings, folders and videos; what cannot be read is named and stops nothing."""

import operator
from pathlib import Path

import cv2
import numpy as np
import pytest
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from sticker_uq.io.images import encode_jpeg
from sticker_uq.io.sources import open_source
from sticker_uq.scene import InvalidInput

TYPES = get_typestore(Stores.ROS2_JAZZY)
RAW, COMPRESSED, TEXT = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage", "std_msgs/msg/String"


def picture(seed: int) -> np.ndarray:
    smooth = np.random.default_rng(seed).integers(0, 255, (6, 8, 3), np.uint8)
    return cv2.resize(smooth, (64, 48), interpolation=cv2.INTER_CUBIC)


def header(index: int):
    time = TYPES.types["builtin_interfaces/msg/Time"](7, index)
    return TYPES.types["std_msgs/msg/Header"](time, "camera")


def raw_message(image: np.ndarray, index: int, encoding: str = "bgr8", cut: int = 0):
    height, width, channels = image.shape
    data = image.reshape(-1)[: image.size - cut]
    return TYPES.types[RAW](header(index), height, width, encoding, 0, width * channels, data)


def compressed_message(image: np.ndarray, index: int):
    return TYPES.types[COMPRESSED](header(index), "jpeg", np.frombuffer(encode_jpeg(image), np.uint8))


def write_bag(path: Path, topics: dict[str, list], storage: StoragePlugin = StoragePlugin.MCAP) -> Path:
    with Writer(path, version=9, storage_plugin=storage) as writer:
        for topic, messages in topics.items():
            kind = messages[0].__msgtype__
            connection = writer.add_connection(topic, kind, typestore=TYPES)
            for index, message in enumerate(messages):
                writer.write(connection, 1000 + index, TYPES.serialize_cdr(message, kind))
    return path


@pytest.mark.parametrize("storage", list(StoragePlugin))
def test_raw_images_come_back_as_they_were_with_stamp_and_frame(tmp_path, storage):
    images = [picture(i) for i in range(4)]
    bag = write_bag(
        tmp_path / "bag", {"/cam/image": [raw_message(p, i) for i, p in enumerate(images)]}, storage
    )
    source = open_source(bag)
    assert len(source) == 4
    assert source.topic == "/cam/image"
    for _ in range(2):  # it starts again from the beginning
        items = list(source)
        assert [i.stamp_ns for i in items] == [7_000_000_000 + i for i in range(4)]
        assert {i.frame_id for i in items} == {"camera"}
        assert all(np.array_equal(i.image, p) for i, p in zip(items, images, strict=True))
        assert len({i.name for i in items}) == 4


def test_the_cells_own_pictures_and_a_compressed_twin_do_not_make_the_choice_hard(tmp_path):
    raw, jpeg = [raw_message(picture(0), 0)], [compressed_message(picture(0), 0)]
    bag = write_bag(
        tmp_path / "bag",
        {"/cell/image": raw, "/cell/image/compressed": jpeg, "/cell/annotated": raw, "/cell/saliency": raw}
        | {"/cell/annotated/compressed": jpeg},
    )
    assert open_source(bag).topic == "/cell/image"
    assert open_source(bag, "cell/image/compressed").topic == "/cell/image/compressed"


def test_topics_without_a_message_do_not_make_the_choice_hard(tmp_path):
    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        for name, kind in (("/cam/image", RAW), ("/left", RAW), ("/cam/image/compressed", COMPRESSED)):
            connection = writer.add_connection(name, kind, typestore=TYPES)
        writer.write(connection, 1, TYPES.serialize_cdr(compressed_message(picture(0), 0), COMPRESSED))
    assert open_source(tmp_path / "bag").topic == "/cam/image/compressed"


def test_a_compressed_topic_is_read_by_its_format_and_lost_colours_are_said_once(tmp_path):
    mosaic = np.random.default_rng(0).integers(0, 256, (8, 10), np.uint8)
    sent = {
        "/a/image_raw": [TYPES.types[RAW](header(0), 8, 10, "bayer_rggb8", 0, 10, mosaic.reshape(-1))],
        "/b/compressed": [("bayer_rggb8; png compressed ", ".png", mosaic)],
        "/c/compressed": [("yuv422_yuy2; jpeg compressed mono8", ".jpg", mosaic)] * 3,
        "/d/compressed": [("16UC1; png compressed ", ".png", mosaic.astype(np.uint16) * 20)],
    }
    topics = {
        topic: [
            TYPES.types[COMPRESSED](header(n), m[0], cv2.imencode(m[1], m[2])[1].reshape(-1))
            if isinstance(m, tuple)
            else m
            for n, m in enumerate(messages)
        ]
        for topic, messages in sent.items()
    }
    bag = write_bag(tmp_path / "bag", topics)
    (raw,), (compressed,) = open_source(bag, "/a/image_raw"), open_source(bag, "/b/compressed")
    assert np.array_equal(raw.image, compressed.image)
    assert not np.array_equal(raw.image[..., 0], raw.image[..., 2])
    grey = open_source(bag, "/c/compressed")
    for _ in range(2):
        assert [item.error for item in grey] == [""] * 3
    (said,) = grey.remarks
    assert "has lost the colours" in said
    (depth,) = open_source(bag, "/d/compressed")
    assert "'16UC1'" in depth.error


def test_what_is_in_a_folder_instead_of_pictures_is_said(tmp_path):
    write_bag(tmp_path / "rec_1", {"/image": [raw_message(picture(0), 0)]})
    with pytest.raises(InvalidInput, match="rec_1 in it is a recording: name that"):
        open_source(tmp_path)
    with pytest.raises(InvalidInput, match="describes a recording; name its folder"):
        open_source(tmp_path / "rec_1" / "metadata.yaml")


@pytest.mark.parametrize("name", ["REC.MCAP", "rec", "rec.mcap.active"])
def test_the_content_of_a_file_says_that_it_is_a_recording(tmp_path, name):
    bag = write_bag(tmp_path / "bag", {"/image": [raw_message(picture(0), 0)]})
    file = (bag / "bag.mcap").rename(tmp_path / name)
    assert len(open_source(file)) == 1


def test_two_cameras_need_a_choice_and_are_listed(tmp_path):
    bag = write_bag(
        tmp_path / "bag", {"/left": [raw_message(picture(0), 0)], "/right": [raw_message(picture(1), 0)]}
    )
    with pytest.raises(
        InvalidInput, match=r"choose one image topic with --topic; image topics there: /left, /right"
    ):
        open_source(bag)
    assert np.array_equal(next(iter(open_source(bag, "/right"))).image, picture(1))
    with pytest.raises(InvalidInput, match=r"no image topic /middle; image topics there: /left, /right"):
        open_source(bag, "/middle")


def test_a_recording_without_images_is_refused_with_its_topics(tmp_path):
    bag = write_bag(tmp_path / "bag", {"/chatter": [TYPES.types[TEXT]("hello")]})
    with pytest.raises(InvalidInput, match=r"no image topic; topics there: /chatter"):
        open_source(bag)


def test_a_folder_is_read_in_the_order_a_person_expects(tmp_path):
    for name in ("lid10.png", "lid2.PNG", "lid1.png", "notes.txt"):
        cv2.imwrite(str(tmp_path / "x.png"), picture(len(name)))
        (tmp_path / "x.png").rename(tmp_path / name)
    source = open_source(tmp_path)
    assert [(i.name, i.stamp_ns) for i in source] == [("lid1.png", 0), ("lid2.PNG", 1), ("lid10.png", 2)]
    assert len(source) == 3
    assert np.array_equal(next(iter(source)).image, picture(8))


@pytest.mark.parametrize(
    ("name", "content"), [("b.jpg", b""), ("b.png", b"nonsense"), ("b.bmp", b""), ("b.webp", b"RIFF")]
)
def test_a_broken_picture_stops_nothing(tmp_path, name, content):
    cv2.imwrite(str(tmp_path / "a.png"), picture(0))
    cv2.imwrite(str(tmp_path / "c.png"), picture(1))
    (tmp_path / name).write_bytes(content)
    items = list(open_source(tmp_path))
    assert [i.error == "" for i in items] == [True, False, True]
    assert items[1].error.startswith(f"{name}: ")


def test_a_video_gives_its_frames_with_the_time_since_its_start(tmp_path):
    file = tmp_path / "video.avi"
    writer = cv2.VideoWriter(str(file), cv2.VideoWriter_fourcc(*"MJPG"), 10, (64, 48))
    assert writer.isOpened()
    for level in (10, 90, 170):
        writer.write(np.full((48, 64, 3), level, np.uint8))
    writer.release()
    source = open_source(file)
    items = list(source)
    assert [round(i.image.mean() / 10) for i in items] == [1, 9, 17]
    assert [i.stamp_ns for i in items] == [0, 100_000_000, 200_000_000]
    assert operator.length_hint(source) == 3
    assert source.lost == ""
    with pytest.raises(TypeError):
        len(source)
    whole = file.read_bytes()
    file.write_bytes(whole[: whole.rindex(b"00dc", 0, whole.index(b"idx1")) + 20])
    cut = open_source(file)
    *frames, last = cut
    assert [frame.error for frame in frames] == ["", ""]
    assert last.error == cut.lost == "it ends after 0.2 of 0.3 s; the file may be cut off"


def test_nothing_there_is_said(tmp_path):
    with pytest.raises(InvalidInput, match=r"missing.mcap: no such file or folder"):
        open_source(tmp_path / "missing.mcap")
    with pytest.raises(InvalidInput, match=r"no pictures .* and no recording in this folder"):
        open_source(tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(InvalidInput, match="neither a recording, a picture"):
        open_source(tmp_path / "notes.txt")
    cv2.imwrite(str(tmp_path / "a.png"), picture(0))
    with pytest.raises(InvalidInput, match=r"--topic /image: .* is not a recording"):
        open_source(tmp_path, "/image")


def test_pictures_in_folders_of_a_folder_are_said(tmp_path):
    (tmp_path / "inner").mkdir()
    for name in ("a.png", "inner/b.PNG", ".hidden.png"):
        cv2.imwrite(str(tmp_path / name), picture(1))
    source = open_source(tmp_path)
    assert [image.name for image in source] == ["a.png"]
    (remark,) = source.remarks
    assert "1 pictures in its folders are not read, first" in remark
    (tmp_path / "a.png").unlink()
    with pytest.raises(InvalidInput, match="1 pictures in its folders are not read"):
        open_source(tmp_path)


def video(path: Path, code: str, frames: int = 40) -> Path:
    """Frames of noise at 10 Hz, which take the same number of bytes each."""
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*code), 10, (160, 120))
    assert writer.isOpened()
    draw = np.random.default_rng(1)
    for _ in range(frames):
        writer.write(draw.integers(70, 110, (120, 160, 3)).astype(np.uint8))
    writer.release()
    return path


@pytest.mark.parametrize(("name", "code"), [("a.webm", "VP80"), ("a.mkv", "MJPG"), ("a.mp4", "mp4v")])
def test_frames_missing_inside_a_video_are_lost(tmp_path, name, code):
    path = video(tmp_path / name, code)
    source = open_source(path)
    assert [frame.error for frame in source] == [""] * 40
    assert source.lost == ""
    data = bytearray(path.read_bytes())
    middle, size = len(data) // 2, len(data) // 8
    data[middle : middle + size] = bytes(size)
    path.write_bytes(data)
    damaged = open_source(path)
    frames = list(damaged)
    assert len([frame for frame in frames if not frame.error]) < 40
    assert damaged.lost
    assert frames[-1].error == damaged.lost


@pytest.mark.parametrize(
    ("irregular", "lost"),
    [(False, "about 5 images are missing in 1 gap(s), the first after 0.6 s"), (True, "")],
)
def test_a_gap_counts_only_at_a_constant_rate(tmp_path, irregular, lost):
    places = [n * n if irregular else 33 * n + 165 * (n >= 20) for n in range(40)]
    messages = [compressed_message(picture(0), 1_000_000 * place) for place in places]
    source = open_source(write_bag(tmp_path / "bag", {"/image": messages}))
    for _ in range(2):
        assert len(list(source)) == 40
    assert source.lost == ""
    assert [remark for remark in source.remarks if "gap" in remark] == [lost] * bool(lost)


def test_a_picture_of_a_video_of_jpegs_that_lacks_data_fails(tmp_path):
    path = video(tmp_path / "a.avi", "MJPG", 9)
    data = bytearray(path.read_bytes())
    start = data.index(b"\xff\xd8\xff", data.index(b"\xff\xd8\xff") + 4)
    end = data.index(b"\xff\xd9", start)
    half = (start + end) // 2
    data[half : half + 2] = b"\xff\xd9"
    path.write_bytes(data)
    assert ["premature end" in frame.error for frame in open_source(path)] == [
        number == 1 for number in range(9)
    ]


def test_an_mp4_whose_recorder_was_killed_says_so(tmp_path):
    path = video(tmp_path / "a.mp4", "mp4v")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(
        InvalidInput, match=r"has no index \(moov\): its recorder was killed; untrunc may save it"
    ):
        open_source(path)


@pytest.mark.parametrize("padding", range(9))
def test_up_to_seven_zero_bytes_after_a_message_are_padding(tmp_path, padding):
    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connection = writer.add_connection("/image", RAW, typestore=TYPES)
        writer.write(
            connection, 1, bytes(TYPES.serialize_cdr(raw_message(picture(0), 0), RAW)) + bytes(padding)
        )
    (item,) = open_source(tmp_path / "bag")
    if padding > 7:
        assert "size mismatch" in item.error
    else:
        assert np.array_equal(item.image, picture(0))


@pytest.mark.parametrize("behind", ["a second file", "others"])
def test_what_follows_the_end_of_an_mcap_file_is_said(tmp_path, behind):
    files = [
        write_bag(tmp_path / name, {"/image": [raw_message(picture(0), n) for n in range(count)]})
        / f"{name}.mcap"
        for name, count in (("x", 6), ("y", 4))
    ]
    first, second = (file.read_bytes() for file in files)
    both = tmp_path / "xy.mcap"
    both.write_bytes(first + (second if behind == "a second file" else b"others"))
    source = open_source(both)
    images = list(source)
    if behind == "a second file":
        assert f"a second mcap file begins at byte {len(first)}, and is not read" in source.lost
        (tmp_path / "second.mcap").write_bytes(both.read_bytes()[len(first) :])  # what the message says
        assert len(list(open_source(tmp_path / "second.mcap"))) == 4
    else:
        assert source.lost == ""
        assert source.remarks == ["xy.mcap: 6 bytes after its end are not read"]
    assert len([image for image in images if not image.error]) == 6


def test_a_fuller_compressed_copy_of_the_chosen_topic_is_said(tmp_path):
    raw, jpeg = (
        [make(picture(0), n) for n in range(count)]
        for make, count in ((raw_message, 2), (compressed_message, 5))
    )
    bag = write_bag(tmp_path / "bag", {"/image": raw, "/image/compressed": jpeg})
    source = open_source(bag)
    assert source.topic == "/image"
    (said,) = source.remarks
    assert said.startswith("/image has 2 images, which are read, /image/compressed 5: --topic")
    assert open_source(bag, "/image").remarks == []
