# SPDX-License-Identifier: Apache-2.0
"""The table of matches says what torchmetrics with faster-coco-eval says, for every image once and for any selection."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sticker_uq.evaluation.metrics.accuracy import (
    TORCHMETRICS_RECALLS,
    MatchTable,
    coco_summary,
    count_matches,
)
from sticker_uq.io.coco import LabelledImage
from sticker_uq.scene import Detections, InvalidInput


def random_case(seed: int, images: int = 6) -> tuple[list[Detections], list[LabelledImage]]:
    """Objects of all sizes, most of them found more or less well, and boxes where nothing is."""
    rng = np.random.default_rng(seed)
    detections, truths = [], []
    for index in range(images):
        count = int(rng.integers(0, 5))
        corner = rng.uniform(0, 200, (count, 2))
        size = np.exp(rng.uniform(np.log(8), np.log(160), (count, 2)))
        boxes = np.hstack([corner, corner + size]).astype(np.float32)
        labels = rng.integers(1, 3, count)
        found = boxes[rng.random(count) < 0.8]
        found = found + rng.normal(0, 6, found.shape)
        nowhere = np.tile(rng.uniform(0, 150, (2, 2)), 2) + np.array([0, 0, 40, 30])
        found = np.vstack([found, nowhere]).astype(np.float32)
        found[:, 2:] = np.maximum(found[:, 2:], found[:, :2] + 1)
        rows = rng.dirichlet((0.5, 1, 1), len(found)).astype(np.float32)
        detections.append(Detections(found, rows))
        truths.append(LabelledImage(Path("x.png"), index, 400, 400, boxes, labels))
    return detections, truths


@settings(max_examples=15)
@given(seed=st.integers(0, 10_000))
def test_every_figure_is_that_of_the_reference(seed):
    detections, truths = random_case(seed)
    reference = coco_summary(detections, truths)
    ap = MatchTable(detections, truths).average_precision()
    assert float(ap.mean()) == pytest.approx(reference["ap"], abs=1e-6, nan_ok=True)
    assert ap[0] == pytest.approx(reference["ap50"], abs=1e-6, nan_ok=True)
    assert ap[5] == pytest.approx(reference["ap75"], abs=1e-6, nan_ok=True)


@settings(max_examples=15)
@given(order=st.permutations([True] * 10 + [False] * 6))
def test_recalls_that_land_on_a_threshold_count_as_in_coco_or_as_in_torchmetrics(order):
    """Ten stickers: every recall is a threshold. Published figures have torchmetrics' thresholds, in single precision."""
    from torchmetrics.detection.mean_ap import (
        MeanAveragePrecision,
    )  # not before it is needed: each process collects all tests

    spots = np.arange(16)[:, None] * np.array([50, 0, 50, 0]) + np.array([0, 0, 40, 30])
    scores = np.linspace(0.95, 0.5, 16)
    found = Detections(spots.astype(np.float32), np.float32([[1 - s, 0, s] for s in scores]))
    there = spots[np.array(order)].astype(np.float32)
    truth = LabelledImage(Path("x.png"), 0, 1000, 100, there, np.full(10, 2))
    table = MatchTable([found], [truth])
    assert table.average_precision()[0] == pytest.approx(coco_summary([found], [truth])["ap50"], abs=1e-6)
    theirs = MeanAveragePrecision(iou_thresholds=[0.5], backend="faster_coco_eval")
    theirs.update(
        [
            {
                "boxes": torch.tensor(found.boxes),
                "scores": torch.tensor(found.scores),
                "labels": torch.tensor(truth.labels[:1]).repeat(16),
            }
        ],
        [{"boxes": torch.tensor(there), "labels": torch.tensor(truth.labels)}],
    )
    own = table.average_precision(recalls=TORCHMETRICS_RECALLS)[0]
    assert own == pytest.approx(float(theirs.compute()["map"]), abs=1e-6)


def test_a_weight_is_as_many_copies_of_the_image():
    detections, truths = random_case(4)
    weights = np.array([2.0, 0.0, 1.0, 3.0, 0.0, 1.0])
    copies = [i for i, count in enumerate(weights.astype(int)) for _ in range(count)]
    table = MatchTable(detections, truths)
    reference = coco_summary([detections[i] for i in copies], [truths[i] for i in copies])
    # copies have equal scores, between which COCO sees intermediate points that weights do not have
    assert table.average_precision(weights).mean() == pytest.approx(reference["ap"], abs=0.02)


def test_without_objects_nothing_is_measured():
    nothing = LabelledImage(Path("x.png"), 1, 100, 100, np.zeros((0, 4), np.float32), np.zeros(0, np.int64))
    found = Detections(np.float32([[0, 0, 10, 10]]), np.float32([[0, 0, 1]]))
    assert np.isnan(MatchTable([found], [nothing]).average_precision()).all()
    assert math.isnan(coco_summary([found], [nothing])["ap"])
    assert count_matches(found, nothing) == (0, 1, 0)


def test_as_many_detections_as_images_are_needed():
    with pytest.raises(InvalidInput, match="0 detections for 0 pictures"):
        MatchTable([], [])
