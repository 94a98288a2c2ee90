# SPDX-License-Identifier: Apache-2.0
"""Mean ranks and the bars that join models which are tied."""

import numpy as np
import pandas as pd
import pytest

from sticker_uq.lab.studies.detectors.analysis import analyse
from sticker_uq.lab.studies.detectors.ranks import mean_ranks
from sticker_uq.lab.studies.detectors.study_charts import critical_differences, transfer_map

IMAGES = 30


def results(offsets: dict[str, tuple[float, ...]], rates=(0.1, 0.2)) -> pd.DataFrame:
    """mAP of every model: the same images with an offset for each rate, and a little noise of its own."""
    rng = np.random.default_rng(1)
    base = rng.uniform(0.3, 0.6, IMAGES)
    rows = [
        {
            "dataset": "lids",
            "dropout_rate": rate,
            "variant": "clean",
            "image": f"{number}",
            "model": model,
            "map": float(base[number] + offset + rng.normal(0, 0.02)),
        }
        for model, by_rate in offsets.items()
        for rate, offset in zip(rates, by_rate, strict=True)
        for number in range(IMAGES)
    ]
    return pd.DataFrame(rows)


def ranks_of(table: pd.DataFrame) -> pd.DataFrame:
    return mean_ranks(table, analyse(table, "paper", resamples=0), "paper").set_index("model")


def test_ranks_follow_the_means_and_a_bar_joins_what_is_tied() -> None:
    found = ranks_of(results({"best": (0.3, 0.3), "a": (0.0, 0.0), "b": (0.0, 0.0)}))
    assert found.loc["best", "rank"] == pytest.approx(1.0)
    assert found["rank"].sum() == pytest.approx(6.0)
    ((low, high),) = found.loc["best", "tied"]
    assert (low, high) == tuple(sorted(found.loc[["a", "b"], "rank"]))


def test_better_at_one_rate_only_is_a_tie() -> None:
    once = ranks_of(results({"a": (0.3, 0.0), "b": (0.0, 0.0)}))
    assert len(once.loc["a", "tied"]) == 1
    always = ranks_of(results({"a": (0.3, 0.3), "b": (0.0, 0.0)}))
    assert always.loc["a", "tied"] == []


def test_ranks_of_one_model_say_nothing() -> None:
    table = results({"a": (0.0, 0.0)})
    assert mean_ranks(table, analyse(table, "paper", resamples=0), "paper").empty


def test_the_plots_name_models_and_measures() -> None:
    found = ranks_of(results({"best": (0.3, 0.3), "a": (0.0, 0.0)})).reset_index()
    drawn = critical_differences(found, "lids")
    assert all(word in drawn for word in ("mAP", "best", "mean rank"))
    transfer = pd.DataFrame(
        {
            "dataset": "lids",
            "attacked": ["none", "a"],
            "dropout_rate": 0.0,
            "a": [0.9, 0.25],
            "b": [0.8, 0.75],
        }
    )
    drawn = transfer_map(transfer, "lids")
    assert all(word in drawn for word in ("0.25", "0.75", "none"))
