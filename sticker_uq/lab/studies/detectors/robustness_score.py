# SPDX-License-Identifier: Apache-2.0
"""Robustness scores of detectors (Lu et al., eq 14-16): how good on clean and attacked pictures, less how much attacks change
that.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from sticker_uq.lab.studies.detectors.measures import ACCURACY, RELATIVE, UNCERTAINTY, Measure, Profile
from sticker_uq.lab.studies.detectors.results import CLEAN
from sticker_uq.lab.studies.detectors.study_plan import ADVERSARIAL
from sticker_uq.scene import FloatArray

_CELL = ["dataset", "dropout_rate", "model", "image"]


def accuracy_score(clean: FloatArray, attacked: FloatArray) -> FloatArray:
    """Robustness score RS_mAP -1..1, ``clean`` (N,), ``attacked`` (N, K): mean of all K + 1 less mean change
    (eq 14).
    """
    everything = np.column_stack([clean, attacked])
    return np.asarray(everything.mean(axis=1) - np.abs(attacked - clean[:, None]).mean(axis=1))


def uncertainty_score(clean: FloatArray, attacked: FloatArray) -> FloatArray:
    """Robustness score of an uncertainty metric, -1..1: 1 minus mean and mean change of u / (1 + u) (eq 15).

    Higher is better.
    """
    squashed, moved = clean / (1 + clean), attacked / (1 + attacked)
    everything = np.column_stack([squashed, moved])
    return np.asarray(1 - (everything.mean(axis=1) + np.abs(moved - squashed[:, None]).mean(axis=1)))


def scored_measures(profile: Profile) -> tuple[Measure, ...]:
    """The uncertainty metrics behind the robustness score RS_UQM.

    In the profile ``paper`` TV and PS are relative to the area of the box: in px^2 they are so large that u / (1 + u) is always
    about 1, and two of five terms say nothing.
    """
    return UNCERTAINTY if profile == "simula_rp" else (*UNCERTAINTY[:3], *RELATIVE)


def robustness_scores(images: pd.DataFrame, profile: Profile) -> pd.DataFrame:
    """Scores per data set, rate, model, image: ``rs_map``, ``rs_`` of each metric, ``rs_uqm`` (eq 16), beside
    the clean
    and mean adversarial value of each measure. A score is NaN where the measure is undefined on one of the pictures, for instance
    because nothing was detected. Empty without adversarial variants.
    """
    attacked = images[images["variant"].str.startswith(ADVERSARIAL)]
    clean = images[images["variant"] == CLEAN].set_index(_CELL)
    if attacked.empty:
        return pd.DataFrame(columns=[*_CELL, "rs_map", "rs_uqm"])
    result = pd.DataFrame(index=clean.index)
    names = []
    for measure in (ACCURACY, *scored_measures(profile)):
        table = attacked.pivot(index=_CELL, columns="variant", values=measure.name).reindex(clean.index)
        own, moved = clean[measure.name].to_numpy(float), table.to_numpy(float)
        result[f"{measure.name}_clean"] = own
        result[f"{measure.name}_adversarial"] = moved.mean(axis=1)
        if measure is ACCURACY:
            result["rs_map"] = accuracy_score(own, moved)
        else:
            names.append(f"rs_{measure.name}")
            # the published PS of a degenerate hull is -1, for which u / (1 + u) has no value
            result[names[-1]] = uncertainty_score(
                np.where(own < 0, np.nan, own), np.where(moved < 0, np.nan, moved)
            )
    result["rs_uqm"] = result[names].mean(axis=1, skipna=False)
    return result.reset_index()
