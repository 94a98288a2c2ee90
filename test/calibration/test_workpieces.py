# SPDX-License-Identifier: Apache-2.0
"""Images of one laptop are one unit: from the Workpiece messages of a recording to the counts of a proof."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from builtin_interfaces.msg import Time
from rclpy.serialization import serialize_message
from sensor_msgs.msg import CompressedImage
from std_msgs.msg import Header

from sticker_uq.calibration.making import split
from sticker_uq.calibration.measuring import measure
from sticker_uq.calibration.outcomes import outcomes_of
from sticker_uq.calibration.proving import end_tests, removal_tests
from sticker_uq.calibration.records import Record, assess, units_of
from sticker_uq.cli.calibrate import _tell_of_workpieces
from sticker_uq.gate import Policy
from sticker_uq.io.bag_writer import BagWriter
from sticker_uq.io.images import encode_jpeg
from sticker_uq.io.json_store import JsonStore
from sticker_uq.io.labelled_images import LabelledSource
from sticker_uq.io.sources import ImageSource, SourceImage
from sticker_uq.perception.pipeline import image_digest
from sticker_uq.scene import InvalidInput, SceneAssessment
from sticker_uq.testing.scenes import HERE, assessment, object_at
from sticker_uq_msgs.msg import Workpiece
from test.helpers.recordings import declare_more

IMAGES = 6
ANNOUNCED = ((1, "a"), (3, "b"), (4, "b"), (5, "a"))
"""Second and name. The cell says "b" twice, and another laptop bears the name of the first."""


def header(second: float) -> Header:
    return Header(stamp=Time(sec=int(second), nanosec=int(second % 1 * 1e9)), frame_id="camera")


def recording(path: Path, announced: tuple[tuple[int, str], ...]) -> Path:
    with BagWriter(path) as bag:
        bag.add_topic("/cell/image/compressed", "sensor_msgs/msg/CompressedImage")
        bag.add_topic("/cell/workpiece", "sticker_uq_msgs/msg/Workpiece")
        # latched messages arrive when the recorder starts, long after they were sent
        for number, (second, name) in enumerate(announced):
            message = Workpiece(header=header(second), id=name, index=number)
            bag.write("/cell/workpiece", 10**9 * 100, serialize_message(message))
        for number in range(IMAGES):
            jpeg = encode_jpeg(np.full((16, 16, 3), 40 * number, np.uint8))
            message = CompressedImage(header=header(number + 0.5), format="jpeg", data=jpeg)
            bag.write("/cell/image/compressed", 10**9 * (101 + number), serialize_message(message))
    document = {
        "categories": [{"id": 1, "name": "sticker"}],
        "images": [{"id": n, "file_name": f"{n:06d}.jpg", "width": 16, "height": 16} for n in range(IMAGES)],
        "annotations": [],
    }
    (path / "annotations.json").write_text(json.dumps(document))
    return path


def look(images: ImageSource) -> Iterator[tuple[SourceImage, SceneAssessment]]:
    for item in images:
        assert item.image is not None
        yield item, replace(assessment(image_digest=image_digest(item.image)), stamp_ns=item.stamp_ns)


def test_a_recording_says_which_laptop_an_image_shows(tmp_path, capsys):
    bag = recording(tmp_path / "bag", ANNOUNCED)
    with JsonStore(tmp_path / "cache.sqlite") as cache:
        for _ in range(2):  # the second time all assessments come from the cache
            source = LabelledSource(bag)
            records = assess(source, look, cache, "model").records
            assert units_of(records).tolist() == [0, 1, 1, 2, 2, 3], (
                "the first image is older than any laptop"
            )
            assert len({r.workpiece for r in records}) == 4
    _tell_of_workpieces([source], records)
    assert "6 labelled images of 4 laptops, which count as 4" in capsys.readouterr().err


def test_a_recording_that_does_not_say_it_is_named(tmp_path, capsys):
    source = LabelledSource(recording(tmp_path / "bag", ()))
    with JsonStore(tmp_path / "cache.sqlite") as cache:
        records = assess(source, look, cache, "model").records
    assert units_of(records).tolist() == list(range(IMAGES))
    _tell_of_workpieces([source], records)
    said = capsys.readouterr().err
    assert str(tmp_path / "bag") in said
    assert "does not say which laptop is in the cell" in said


def test_a_recording_that_has_lost_images_is_not_matched_with_labels_by_number(tmp_path):
    path = recording(tmp_path / "bag", ANNOUNCED)
    metadata = path / "metadata.yaml"
    text = metadata.read_text()
    metadata.unlink()
    assert LabelledSource(path).remarks == ["no metadata.yaml; 1 file(s) read in order of time"]
    metadata.write_text(text)
    with pytest.raises(InvalidInput, match=r"images are lost, and annotations\.json .* 6 of 8 messages"):
        LabelledSource(declare_more(path))


def test_a_laptop_is_bad_when_one_of_its_images_is_and_its_last_one_is_its_end():
    sticker = np.array([HERE], np.float32), np.array([2])
    nothing = np.zeros((0, 4), np.float32), np.zeros(0, np.int64)
    seen = assessment(object_at())
    records = [
        Record("0", *sticker, seen, "a"),
        Record("1", *nothing, seen, "a"),  # the same object, but here it is none
        Record("2", *nothing, seen, "a"),
        Record("3", *sticker, seen, "b"),
        Record("4", *nothing, assessment(), "b"),
        Record("5", *sticker, assessment(), "b"),  # called clean, and is not
        Record("6", *nothing, assessment()),
        Record("7", *nothing, assessment()),
    ]
    policy = Policy(max_dil=1.0, max_dil_clean=1.0)
    outcomes = outcomes_of(records, policy)
    assert outcomes.images == 4
    objects, _ = outcomes.select_removable()
    (trial,) = removal_tests(objects, objects.signals["improbability"], outcomes.images, np.array([1.0]))
    assert (trial.events, trial.images) == (1, 4)
    (trial,) = end_tests(outcomes.ends, [1.0], 1.0)
    assert (trial.events, trial.images) == (1, 2)
    measured = measure(records, policy)
    assert (measured.wrongful.events, measured.wrongful.of) == (1, 4)
    assert (measured.left.events, measured.left.of) == (1, 2)


def test_the_images_of_a_laptop_stay_on_one_side_of_the_split():
    units = np.random.default_rng(0).integers(0, 20, 100)
    fit, proof = split(units, 0.4, 3)
    assert sorted(fit + proof) == list(range(100))
    assert not set(units[fit]) & set(units[proof])
    assert len(set(units[fit])) == 8
