# SPDX-License-Identifier: Apache-2.0
"""Probability quality of detectors: what their boxes show, the report and the command."""

import csv
import re
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from sticker_uq.cli import app
from sticker_uq.evaluation.metrics.matching import match
from sticker_uq.evaluation.metrics.probability_quality import PAPER, Sampling, class_errors
from sticker_uq.evaluation.metrics.quality import (
    BY_CLASS,
    CLASSES,
    WHOLE,
    Quality,
    measure_quality,
    read_vectors,
    vectors_of_detections,
    vectors_table,
)
from sticker_uq.evaluation.reporting.quality_report import write_quality
from sticker_uq.io.coco import LabelledImage
from sticker_uq.scene import Detections, InvalidInput, ObjectClass
from test.helpers.laptops import FOLDER

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
    return measure_quality(vectors_of_detections(name, found, truths), resamples=resamples)


def test_everything_is_measured_overall_and_by_class_with_intervals():
    plain = some(images=60, resamples=50)
    assert {*WHOLE, *BY_CLASS} == set(plain.rows["measure"])
    shown = plain.rows[plain.rows["measure"].isin(["accuracy", "brier", "nll"])]
    assert ((shown["low"] < shown["value"]) & (shown["value"] < shown["high"])).all()
    assert 0 < plain.value("eace", "sticker") < 5
    assert sum(plain.value("brier", name) for name in CLASSES) == pytest.approx(plain.value("brier"))
    assert np.isnan(some(resamples=0).rows["low"]).all()
    with pytest.raises(InvalidInput, match="none: nothing was detected on 1 pictures"):
        vectors_of_detections("none", [detections([])], [truth([2])])


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
    options = ("--passes", 3, "--bootstrap", 5, "--preset", "code", "--device", "cpu")
    status, output = run("--data", FOLDER / "medium", "--out", tmp_path / "out", *options)
    assert status == 0, output
    text = (tmp_path / "out" / "quality.md").read_text()
    assert "| all | one pass |" in text
    assert "| sticker | 3 passes |" in text


def test_two_networks_are_compared_by_class_from_files_of_their_vectors(tmp_path):
    for name, kind in (("cnn", "convolutional"), ("mlp", "dense")):
        arguments = ["monitors", "vectors", "--architecture", kind, "--epochs", "2"]
        made = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / f"{name}.csv")])
        assert made.exit_code == 0, made.output
    files = ("--vectors", tmp_path / "cnn.csv", "--vectors", tmp_path / "mlp.csv")
    status, output = run(*files, "--out", tmp_path / "out", "--ratio", 0.5, "--subsets", 7, "--bootstrap", 0)
    assert status == 0, output
    assert "EACE and VACE: 7 subsets of 50 %" in (tmp_path / "out" / "quality.md").read_text()
    table = pd.read_csv(tmp_path / "out" / "quality.csv", dtype=str)
    found = table[(table["measure"] == "eace") & (table["detector"] == "mlp")]
    assert found["class"].tolist() == [str(digit) for digit in range(10)]
    read = read_vectors(tmp_path / "mlp.csv")
    errors = class_errors(read.p, read.y, Sampling(7, 0.5))
    assert found["value"].astype(float).to_numpy() == pytest.approx(errors.eace)


@given(st.integers(2, 5), st.integers(1, 9), st.integers(0, 99))
def test_vectors_are_read_as_they_were_written(classes, objects, seed):
    rng = np.random.default_rng(seed)
    names = [f'a {number},"é' for number in range(classes)]
    p, y = rng.dirichlet(np.ones(classes), objects), rng.integers(0, classes, objects)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "v.csv"
        vectors_table(names, p, y).assign(image="one").to_csv(path, index=False)
        read = read_vectors(path)
    assert read.classes == tuple(names)
    assert np.allclose(read.p, p, atol=1e-12)
    assert read.y.tolist() == y.tolist()
    assert set(read.image) == {0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p_a,p_b,label\n0.7,0.2,a\n", r"row 1: probabilities \[0\.7, 0\.2\]: expected numbers .* sum 1"),
        ("p_a,p_b,label\n1,0,a\n-0.5,1.5,b\n", "row 2: probabilities"),
        ("p_a,p_b,label\n1,x,a\n", "row 1: probabilities"),
        ("p_a,p_b,label\n1,0,c\n", "label 'c': expected one of the columns"),
        ("p_a,label\n1,a\n", "expected p_CLASS of two or more classes"),
        ("p_a,p_b,label\n", "a row per object"),
        ("", "expected a CSV table"),
    ],
)
def test_a_file_that_holds_no_vectors_is_named_with_what_was_expected(tmp_path, text, message):
    (tmp_path / "v.csv").write_text(text)
    with pytest.raises(InvalidInput, match=message):
        read_vectors(tmp_path / "v.csv")
    assert run("--vectors", tmp_path / "v.csv", "--out", tmp_path / "out")[0] == 2
    assert not (tmp_path / "out").exists()


def test_vectors_of_other_classes_and_vectors_beside_pictures_are_refused(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(f"p_x,p_{name},label\n1,0,x\n")
    files = ("--vectors", tmp_path / "a.csv", "--vectors", tmp_path / "b.csv", "--out", tmp_path / "out")
    assert "with the same classes" in run(*files)[1]
    assert "either --data" in run(*files, "--data", tmp_path)[1]
    assert "expected at least one, and a ratio" in run(*files[2:], "--ratio", 0)[1]
