# SPDX-License-Identifier: Apache-2.0
"""Probability quality of detectors: what their boxes show, the report and the command."""

import csv
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from sticker_uq.cli import app
from sticker_uq.evaluation.metrics.matching import match
from sticker_uq.evaluation.metrics.probability_quality import PAPER
from sticker_uq.evaluation.metrics.quality import BY_CLASS, CLASSES, WHOLE, Quality, measure_quality
from sticker_uq.evaluation.reporting.quality_report import write_quality
from sticker_uq.io.coco import LabelledImage
from sticker_uq.scene import Detections, InvalidInput, ObjectClass
from test.helpers.scenes import rendered

BOXES = np.float32([[10, 10, 60, 40], [100, 20, 160, 90], [200, 100, 260, 150]])


def truth(labels: list[int]) -> LabelledImage:
    return LabelledImage(Path("x.png"), 1, 300, 200, BOXES[: len(labels)], np.array(labels, np.int64))


def detections(rows: list[tuple[np.ndarray, list[float]]]) -> Detections:
    return Detections(
        np.array([box for box, _ in rows], np.float32).reshape(-1, 4),
        np.array([p for _, p in rows], np.float32).reshape(-1, 3),
    )


def test_each_detection_gets_the_class_of_what_it_lies_on():
    found = detections(
        [
            (BOXES[0], [0.1, 0.1, 0.8]),  # the sticker there
            (BOXES[0] + 2, [0.3, 0.1, 0.6]),  # the same again
            (BOXES[1], [0.0, 0.3, 0.7]),  # a logo taken for a sticker
            (BOXES[1], [0.4, 0.5, 0.1]),  # the same logo as a logo, less sure
            (BOXES[2] + 90, [0.2, 0.2, 0.6]),  # nothing
        ]
    )
    matched = match([found, detections([])], [truth([2, 1, 2]), truth([1])])
    assert matched.truth.tolist() == [2, 0, 1, 0, 0]
    assert matched.right.tolist() == [True, False, False, True, False]
    assert matched.iou[[0, 3]] == pytest.approx([1.0, 1.0])
    assert matched.iou[[1, 2, 4]].tolist() == [0, 0, 0]
    assert matched.labels.tolist() == [2, 2, 2, 1, 2]
    assert matched.missed == {ObjectClass.LOGO: 1, ObjectClass.STICKER: 1}


def test_detections_for_other_pictures_are_refused():
    with pytest.raises(InvalidInput, match="detections of 0 images, expected 1"):
        match([], [truth([2])])


def some(name: str = "a", seed: int = 0, images: int = 12, resamples: int = 20) -> Quality:
    """Of detections whose score is their precision, three to an image."""
    rng = np.random.default_rng(seed)
    found, truths = [], []
    for _ in range(images):
        labels = [int(v) for v in rng.integers(1, 3, 3)]
        rows = []
        for number, label in enumerate(labels):
            score = float(rng.uniform(0.4, 0.95))
            vector = [1 - score, 0.0, 0.0]
            vector[label] = score
            rows.append((BOXES[number] + (0 if rng.random() < score else 100), vector))
        found.append(detections(rows))
        truths.append(truth(labels))
    return measure_quality(name, found, truths, resamples=resamples)


def test_everything_is_measured_overall_and_by_class_with_intervals():
    plain = some(images=60, resamples=50)
    assert {*WHOLE, *BY_CLASS} == set(plain.rows["measure"])
    shown = plain.rows[plain.rows["measure"].isin(["accuracy", "brier", "nll"])]
    assert ((shown["low"] < shown["value"]) & (shown["value"] < shown["high"])).all()
    assert 0 < plain.value("eace", "sticker") < 5
    assert sum(plain.value("brier", name) for name in CLASSES) == pytest.approx(plain.value("brier"))
    assert np.isnan(some(resamples=0).rows["low"]).all()
    with pytest.raises(InvalidInput, match="none: nothing was detected on 1 pictures"):
        measure_quality("none", [detections([])], [truth([2])])


def test_the_report_is_one_page_two_tables_and_charts_that_stand_alone(tmp_path):
    measured = [some(f"<{seed}>", seed) for seed in (0, 1)]
    write_quality(measured, PAPER, ["24 pictures."], tmp_path)
    page = (tmp_path / "quality.html").read_text()
    assert not re.search(r"<script|src=|href=\"(?!#)", page)
    assert "&lt;0&gt;" in page
    rows = list(csv.DictReader((tmp_path / "quality.csv").open()))
    assert len(rows) == sum(len(q.rows) for q in measured)
    assert float(rows[0]["value"]) == measured[0].value("accuracy")
    assert (tmp_path / "quality.md").read_text().count("| <0> |") == 4  # overall and for each class
    assert sorted(path.name for path in tmp_path.glob("*.svg")) == ["error_scatter.svg", "error_variance.svg"]
    for path in tmp_path.glob("*.svg"):
        ElementTree.parse(path)


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["quality", *map(str, arguments)])
    return result.exit_code, result.output


def test_the_command_looks_at_pictures_with_a_detector(tmp_path):
    rendered(tmp_path / "data", (11, 12), (480, 360), stickers=4)
    options = ("--passes", 3, "--bootstrap", 5, "--preset", "code", "--device", "cpu")
    status, output = run("--data", tmp_path / "data", "--out", tmp_path / "out", *options)
    assert status == 0, output
    text = (tmp_path / "out" / "quality.md").read_text()
    assert "| all | one pass |" in text
    assert "| sticker | 3 passes |" in text
