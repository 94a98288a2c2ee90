# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pandas as pd
import pytest

from sticker_uq.evaluation.metrics.statistics import holm
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.studies.detectors.analysis import analyse
from sticker_uq_lab.studies.detectors.measures import ACCURACY, BY_NAME
from sticker_uq_lab.studies.detectors.significance import (
    Row,
    best_everywhere,
    compare_pairs,
    correlations,
    friedman,
    pooled_correlation,
    recommend,
    signed_rank,
    tiers,
)


def test_holm_by_hand_and_undefined_counts():
    assert holm(np.array([0.01, 0.04, 0.03])) == pytest.approx([0.03, 0.06, 0.06])
    found = holm(np.array([np.nan, 0.01]))
    assert found[1] == pytest.approx(0.02)
    assert np.isnan(found[0])


def test_signed_rank_edges():
    assert signed_rank(np.zeros(5)) == 1.0
    assert math.isnan(signed_rank(np.zeros(0)))
    assert signed_rank(np.arange(1.0, 11.0)) == pytest.approx(2 / 2**10)


def test_friedman_needs_three_models():
    assert math.isnan(friedman(np.ones((10, 2)))["p"])
    assert math.isnan(friedman(np.ones((10, 3)))["p"])


def test_lower_is_better_for_uncertainty():
    rng = np.random.default_rng(0)
    values = np.stack([rng.uniform(0, 1, 40), rng.uniform(2, 3, 40)], axis=1)
    assert compare_pairs(values, ["a", "b"], ACCURACY, "paper")[0]["better"] == "b"
    assert compare_pairs(values, ["a", "b"], BY_NAME["total_variance"], "paper")[0]["better"] == "a"
    with pytest.raises(InvalidInput, match="not numbers"):
        compare_pairs(values * np.nan, ["a", "b"], ACCURACY, "paper")


def beaten(winner: str, loser: str) -> Row:
    return {"first": winner, "second": loser, "better": winner}


def test_tiers_do_not_depend_on_the_order_of_models():
    pairs = [beaten("c", "a"), beaten("c", "b"), beaten("a", "d")]
    for models in ("abcd", "dcba", "bdac"):
        assert [set(tier) for tier in tiers(list(models), pairs, "paper")] == [{"c"}, {"a", "b"}, {"d"}]


def test_models_that_beat_each_other_in_a_circle_are_tied():
    circle = [beaten("a", "b"), beaten("b", "c"), beaten("c", "a"), beaten("a", "d")]
    assert [set(tier) for tier in tiers(list("abcd"), circle, "paper")] == [{"a", "b", "c"}, {"d"}]


def test_best_and_recommended():
    assert best_everywhere([("a", "b"), ("b", "c")]) == ("b",)
    assert best_everywhere([("a",), ("b",)]) == ()
    assert recommend([("a",), ("b",), ("b",)]) == ("b",)


def test_correlations_leave_out_what_was_not_measured():
    accuracy = np.array([1.0, 0.8, 0.6, 0.4, np.nan])
    found = correlations(accuracy, [np.array([1.0, 2, 3, 4, 0]), np.full(5, 2.0)])
    assert found[0]["images"] == 4
    assert found[0]["rho"] == pytest.approx(-1)
    assert math.isnan(found[1]["rho"])
    assert found[0]["p_holm"] == pytest.approx(2 * found[0]["p"])


def test_cluster_bootstrap_is_wider_than_one_that_takes_rows_for_images():
    rng = np.random.default_rng(3)
    accuracy, metric = rng.normal(size=30), rng.normal(size=30)
    rows = [np.repeat(v, 9) + rng.normal(0, 0.05, 270) for v in (accuracy, metric)]
    by_image = pooled_correlation(*rows, np.repeat(np.arange(30), 9), 200)
    by_row = pooled_correlation(*rows, np.arange(270), 200)
    assert by_image["images"] == 30
    assert by_image["rho"] == by_row["rho"]
    assert by_image["high"] - by_image["low"] > 2 * (by_row["high"] - by_row["low"])


def made(shift: float) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    base = rng.uniform(0.2, 0.6, 30)
    return pd.DataFrame(
        [
            {
                "dataset": "d",
                "dropout_rate": 0.2,
                "variant": "clean",
                "image": f"{i}",
                "model": m,
                "map": value,
            }
            for k, m in enumerate(("a", "b", "c"))
            for i, value in enumerate(base + (shift if k == 2 else 0) + rng.normal(0, 0.01, 30))
        ]
    )


def test_friedman_gates_the_pairs_of_the_profile_paper_only():
    alike, apart = analyse(made(0.0), "paper", 0), analyse(made(0.2), "paper", 0)
    assert alike.best["map"].tolist() == ["a/b/c", "a/b/c"]
    assert not alike.pairs["opened"].any()
    assert apart.best["map"].tolist() == ["c", "c"]
    assert apart.pairs["opened"].all()
    assert analyse(made(0.0), "simula_rp", 0).pairs["opened"].all()


def test_images_without_detections_keep_their_rows():
    table = made(0.2)
    table["shannon_entropy"] = np.where(table["image"] == "3", np.nan, table["map"])
    found = analyse(table, "paper", 0)
    means = found.means.set_index(["measure", "model"])
    assert means.loc[("map", "a"), "measured"] == 30
    assert means.loc[("shannon_entropy", "a"), "measured"] == 29
    assert found.friedman.set_index("measure").loc["shannon_entropy", "left_out"] == 1
