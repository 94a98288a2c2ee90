# SPDX-License-Identifier: Apache-2.0
"""Detection accuracy: against cases whose figures are known, on the packaged weights, and through the command."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sticker_uq.cli import app
from sticker_uq.detection import DetectorSettings, load_detector
from sticker_uq.evaluation.metrics.accuracy import (
    as_json,
    evaluate_detector,
    evaluate_passes,
    mean_average_precision,
)
from sticker_uq.io.coco import LabelledImage, read_coco
from sticker_uq.scene import Detections, InvalidInput, ObjectClass
from test.helpers import laptops

LOGO, STICKER = ObjectClass.LOGO, ObjectClass.STICKER
BOXES = np.float32([[10, 10, 60, 40], [100, 20, 160, 90], [200, 100, 260, 150], [20, 120, 70, 170]])


def truth(labels: list[int], boxes: np.ndarray = BOXES) -> LabelledImage:
    count = len(labels)
    return LabelledImage(Path("x.png"), 1, 300, 200, boxes[:count], np.array(labels, np.int64))


def detections(labels: list[int], boxes: np.ndarray, scores: list[float]) -> Detections:
    rows = np.zeros((len(labels), 3), np.float32)
    for row, label, score in zip(rows, labels, scores, strict=True):
        row[label], row[0] = score, 1 - score
    return Detections(np.float32(boxes).reshape(-1, 4), rows)


@pytest.mark.parametrize(
    ("labels", "boxes", "scores", "there", "expected"),
    [
        ([1, 2, 2], BOXES[:3], [0.9, 0.8, 0.7], [1, 2, 2], {LOGO: (1, 1, 1), STICKER: (1, 1, 1)}),
        ([2, 1], BOXES[:2], [0.9, 0.9], [1, 2], {LOGO: (0, 0, 0), STICKER: (0, 0, 0)}),
        # COCO's 101 recall levels, 0 to 0.5 of them reached
        ([2, 2], BOXES[:2], [0.9, 0.8], [2, 2, 2, 2], {STICKER: (1, 0.5, 51 / 101)}),
        # a second box on the same object is a false one
        ([2, 2], np.stack([BOXES[0], BOXES[0] + 1]), [0.9, 0.8], [2], {STICKER: (0.5, 1, 1)}),
        # only sure detections count for precision and recall
        ([2, 2], BOXES[:2], [0.9, 0.4], [2, 2], {STICKER: (1, 0.5, 1)}),
    ],
)
def test_precision_recall_and_average_precision(labels, boxes, scores, there, expected):
    accuracy = mean_average_precision([detections(labels, boxes, scores)], [truth(there)])
    for label, (precision, recall, average_precision) in expected.items():
        row = accuracy.classes[label]
        assert row.objects == there.count(label)
        assert (row.precision, row.recall) == (precision, recall)
        assert row.average_precision == pytest.approx(average_precision)
    assert accuracy.map50 == pytest.approx(np.mean([ap for *_, ap in expected.values()]))


def test_a_detection_in_a_crowd_is_neither_right_nor_wrong():
    crowd = {"crowd": np.float32([[90, 90, 300, 200]]), "crowd_labels": np.array([2])}
    labelled = replace(truth([2]), **crowd)
    boxes = np.stack([BOXES[0], [100, 100, 120, 130], [200, 100, 260, 150]])
    row = mean_average_precision([detections([2, 2, 2], boxes, [0.7, 0.9, 0.8])], [labelled]).classes[STICKER]
    assert (row.objects, row.precision, row.recall) == (1, 1, 1)
    assert row.average_precision == pytest.approx(1)
    outside = mean_average_precision([detections([2, 2], BOXES[:2], [0.7, 0.9])], [labelled]).classes[STICKER]
    assert outside.precision == 0.5


def test_a_class_without_objects_is_not_measured_and_does_not_count():
    nothing = detections([], np.zeros((0, 4)), [])
    accuracy = mean_average_precision(
        [detections([1, 2], BOXES[:2], [0.9, 0.9]), nothing], [truth([2], BOXES[1:]), truth([])]
    )
    assert math.isnan(accuracy.classes[LOGO].average_precision)
    assert math.isnan(accuracy.classes[LOGO].recall)
    assert accuracy.map50 == pytest.approx(1)
    assert as_json(accuracy)["classes"]["logo"]["average_precision"] is None
    json.dumps(as_json(accuracy), allow_nan=False)


def test_without_objects_nothing_is_left_to_measure_and_detections_must_belong_to_pictures():
    assert math.isnan(mean_average_precision([detections([2], BOXES[:1], [0.9])], [truth([])]).map50)
    with pytest.raises(InvalidInput, match="1 pictures"):
        mean_average_precision([], [truth([2])])


@pytest.fixture(scope="module")
def scenes() -> Path:
    return laptops.FOLDER / "medium"


def test_the_packaged_weights_find_what_is_on_scenes_they_never_saw(scenes):
    items = read_coco(scenes)
    accuracy = evaluate_detector(load_detector(DetectorSettings(score_floor=0.01, threads=1)), items)
    assert accuracy.images == 6
    assert accuracy.map50 > 0.8
    assert accuracy.classes[STICKER].objects == sum(int((item.labels == STICKER).sum()) for item in items)


def test_clusters_of_stochastic_passes_are_measured_like_detections(scenes, small_packaged):
    items = read_coco(scenes)[:4]
    seen: list[None] = []
    measured = evaluate_passes(
        load_detector(DetectorSettings(passes=6, dropout_rate=0.2, threads=1)),
        items,
        progress=lambda: seen.append(None),
    )
    assert len(seen) == 4
    assert (measured.passes, measured.dropout_rate) == (6, 0.2)
    assert measured.accuracy.map50 > 0.5
    assert measured.objects_per_image > 0
    assert measured.uncertainty["total_variance"] > 0  # passes differ


def test_the_command_prints_and_writes_the_figures(scenes, small_packaged, tmp_path):
    file = tmp_path / "accuracy.json"
    result = CliRunner().invoke(
        app, ["evaluate", "--data", str(scenes), "--passes", "3", "--device", "cpu", "--json", str(file)]
    )
    assert result.exit_code == 0, result.output
    content = json.loads(file.read_text())
    assert f"{content['deterministic']['map50']:.3f}" in result.output
    assert f"{content['stochastic']['accuracy']['map50']:.3f}" in result.output
    assert content["model"] == "ssdlite320_mobilenet_v3_large"
    assert content["deterministic"]["classes"]["sticker"]["objects"] > 0
