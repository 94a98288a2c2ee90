# SPDX-License-Identifier: Apache-2.0
"""From the passes over an image to its rows, and what a process of a study keeps in memory."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sticker_uq.io.coco import LabelledImage
from sticker_uq.scene import StochasticSamples
from sticker_uq.uncertainty import observe
from sticker_uq_lab.studies.detectors.study_report import accuracy_score, robustness_scores, uncertainty_score
from sticker_uq_lab.studies.detectors.study_tasks import (
    box_quality,
    legacy_metrics,
    pairwise_pdq,
    perimeter_sum,
    score,
)
from test.helpers.samples import samples, seen

BOX = (40.0, 60.0, 140.0, 130.0)
STICKER_VECTOR = (0.02, 0.03, 0.95)
UNIT = st.floats(0, 1)


@given(arrays(float, 5, elements=UNIT), arrays(float, (5, 10), elements=UNIT))
def test_scores_as_the_paper_defines_them(clean, attacked):
    for n in range(5):
        m, changed = clean[n], attacked[n]
        by_hand = (m + changed.sum()) / 11 - sum(abs(m - v) for v in changed) / 10
        assert accuracy_score(clean, attacked)[n] == pytest.approx(by_hand)
        u, v = m / (1 + m), changed / (1 + changed)
        by_hand = 1 - ((u + v.sum()) / 11 + np.abs(u - v).mean())
        assert uncertainty_score(clean, attacked)[n] == pytest.approx(by_hand)


def row(variant: str, map_: float, entropy: float, surface: float) -> dict[str, object]:
    names = (
        "variation_ratio",
        "mutual_information",
        "total_variance",
        "relative_total_variance",
        "relative_predictive_surface",
    )
    where = {"dataset": "d", "dropout_rate": 0.2, "model": "m", "image": "i", "variant": variant}
    return (
        where
        | dict.fromkeys(names, 0.0)
        | {"map": map_, "shannon_entropy": entropy, "predictive_surface": surface}
    )


def test_profiles_differ_in_the_units_of_tv_and_ps():
    table = pd.DataFrame(
        [row("clean", 1.0, 0.0, 99.0), row("adv-00", 0.5, 0.0, 99.0), row("glare=1", 0.0, 0.0, 0.0)]
    )
    paper, legacy = (robustness_scores(table, p).iloc[0] for p in ("paper", "simula_rp"))
    assert paper["rs_map"] == legacy["rs_map"] == pytest.approx(0.25)
    assert paper["rs_uqm"] == pytest.approx(1.0)
    assert legacy["rs_uqm"] == pytest.approx(1 - 0.99 / 5)
    assert paper["map_adversarial"] == pytest.approx(0.5)


def test_what_was_not_measured_has_no_score():
    table = pd.DataFrame([row("clean", 1.0, 0.5, 9.0), row("adv-00", 0.0, np.nan, np.nan)])
    found = robustness_scores(table, "paper").iloc[0]
    assert found["rs_map"] == pytest.approx(-0.5)
    assert np.isnan(found["rs_uqm"])
    assert robustness_scores(table[:1], "paper").empty


def truth(*boxes: tuple[float, ...]) -> LabelledImage:
    labels = np.full(len(boxes), 2)
    return LabelledImage(Path("x.png"), 1, 480, 360, np.array(boxes, np.float32).reshape(-1, 4), labels)


def seen_well(noise: float = 0.3) -> StochasticSamples:
    return samples(seen(BOX, range(20), noise=noise, seed=1, probabilities=STICKER_VECTOR), 20)


def test_row_of_an_image():
    found, objects = score(seen_well(), truth(BOX, (300, 200, 380, 260)), "paper")
    assert found["ap_sticker"] == pytest.approx(51 / 101)  # one of two, 101 points of recall
    assert np.isnan(found["ap_logo"])
    assert found["map"] == found["ap_sticker"]
    assert (found["true_positives"], found["false_positives"], found["false_negatives"]) == (1, 0, 1)
    assert found["clusters"] == 1
    assert found["detection_rate"] == 1
    assert objects[0]["right"] is True


def test_an_image_without_detections_keeps_its_row():
    empty = samples([], 20)
    for profile in ("paper", "simula_rp"):
        found, objects = score(empty, truth(BOX), profile)
        assert found["map"] == 0
        assert np.isnan(found["shannon_entropy"])
        assert found["clusters"] == 0
        assert found["lrp"] == 1
        assert objects == []
    assert np.isnan(score(empty, truth(), "paper")[0]["lrp"])


def test_lrp_and_pdq_fall_with_wrong_boxes_and_spread():
    objects = observe(seen_well())[0]
    good = box_quality(objects, truth(BOX))
    assert good["lrp"] < 0.05
    assert 0.8 < good["pdq"] <= 1
    moved = tuple(v + 15 for v in BOX)
    assert box_quality(objects, truth(moved))["lrp"] > good["lrp"]
    assert box_quality(objects, truth(moved))["pdq"] < 0.3
    honest = observe(seen_well(noise=8.0))[0]
    assert pairwise_pdq(honest[0], np.array(moved), 2) > pairwise_pdq(objects[0], np.array(moved), 2)
    wrong = tuple(replace(o, probabilities=np.array([0, 0.9, 0.1], np.float32), label=1) for o in objects)
    assert box_quality(wrong, truth(BOX))["lrp"] == 1


def test_legacy_metrics_have_the_published_quirks():
    boxes = np.array(BOX) + np.random.default_rng(0).normal(0, 2, (20, 4))
    # a hull's perimeter, not its area
    assert perimeter_sum(boxes) == pytest.approx(
        sum(_perimeter(boxes[:, c]) for c in ((0, 1), (2, 1), (0, 3), (2, 3)))
    )
    assert perimeter_sum(np.repeat(boxes[:1], 5, axis=0)) == -1
    weak = samples(seen(BOX, range(20), noise=1.0, seed=1, probabilities=(0.2, 0.25, 0.55)), 20)
    assert legacy_metrics(weak)["clusters"] == 0
    found = legacy_metrics(seen_well())
    assert found["variation_ratio"] == 0
    assert found["shannon_entropy"] == round(found["shannon_entropy"], 5) or found["clusters"] > 1


def test_a_box_at_the_border_belongs_to_every_cluster_there_as_published():
    boxes = np.random.default_rng(0).normal(0, 2, (12, 4)) + np.repeat(
        [[0, 9, 50, 60], [0, 400, 90, 480]], 6, 0
    )
    boxes[:, 0] = 0  # clipped
    vectors = np.tile(np.float32([0.05, 0.05, 0.9]), (12, 1))
    found = legacy_metrics(StochasticSamples(boxes.astype(np.float32), vectors, np.tile(np.arange(6), 2), 6))
    assert found["clusters"] >= 2
    assert found["total_variance"] == pytest.approx(boxes.var(axis=0).sum(), rel=1e-3)


def _perimeter(points: np.ndarray) -> float:
    from scipy.spatial import ConvexHull

    return float(ConvexHull(points).area)  # in two dimensions this is the perimeter
