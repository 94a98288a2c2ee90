# SPDX-License-Identifier: Apache-2.0
"""Selection of a detector: the paper's guideline (Lu et al., figure 6) on the results of the detector study."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from sticker_uq.scene import InvalidInput
from sticker_uq_lab.studies.detectors.analysis import analyse
from sticker_uq_lab.studies.detectors.measures import ACCURACY_FLOOR, CLEAN, in_order, label
from sticker_uq_lab.studies.detectors.study_report import accuracies, robustness_scores
from sticker_uq_lab.studies.detectors.study_run import Study

LATENCY = "latency"
REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "accuracy": ("map",),
    "label-uncertainty": ("variation_ratio", "shannon_entropy", "mutual_information"),
    "box-uncertainty": ("relative_total_variance", "relative_predictive_surface"),
    "robustness": ("rs_map", "rs_uqm"),
    LATENCY: (),
}
"""What can be asked for, and the measures that answer it."""
_SAME_TIME = 1.1  # A model is as quick as another when it takes at most so many times as long
_KEYS = ["dataset", "dropout_rate", "model", "image"]


@dataclass(frozen=True)
class RankedModel:
    """``score``: weighted mean of its tiers, 1 is best everywhere; ``tiers`` by requirement, means over measures and data sets;
    ``ms``: median time of encoding and T passes; ``tied``: other models with the same score; ``clean`` and ``attacked``: mean mAP
    on clean and on attacked images, NaN without attacks: what there was to lose, and what was left.
    """

    model: str
    score: float
    tiers: Mapping[str, float]
    ms: float
    tied: tuple[str, ...]
    clean: float
    attacked: float


@dataclass(frozen=True)
class Ranking:
    """The detectors, best first, and those that see too little, with their mean mAP on clean images."""

    candidates: list[RankedModel]
    too_weak: Mapping[str, float]


def rank(
    study: Study, weights: Mapping[str, float], rate: float, accuracy_floor: float = ACCURACY_FLOOR
) -> Ranking:
    """Rank the models of ``study`` at dropout rate ``rate``, the best first, for requirements with positive ``weights``.

    Tiers are those of the paired tests: models between which there is no significant and relevant difference share one, and so
    have the same score. Among models with one score the quicker comes first. A model with a mean mAP below ``accuracy_floor`` on
    the clean images is not ranked: one that sees nothing is sure and robust.
    """
    for name, weight in weights.items():
        if name not in REQUIREMENTS:
            raise InvalidInput(f"requirement {name!r}: expected one of {', '.join(REQUIREMENTS)}")
        if not weight > 0 or not np.isfinite(weight):
            raise InvalidInput(f"weight {weight:g} of {name}: expected a number above 0")
    if not weights:
        raise InvalidInput(f"no requirement, expected at least one of {', '.join(REQUIREMENTS)}")
    if rate not in study.settings.rates or rate == 0:
        known = ", ".join(f"{r:g}" for r in study.settings.rates if r)
        raise InvalidInput(f"dropout rate {rate:g}: expected one that was studied: {known}")
    accuracy = accuracies(study, rate)
    too_weak = {model: value for model, value in accuracy.items() if not value >= accuracy_floor}
    if len(too_weak) == len(accuracy):
        best = max(accuracy.values(), default=np.nan)
        raise InvalidInput(
            f"no model reaches a mean mAP of {accuracy_floor:g} on clean images, the best has {best:.2f}: train longer, or lower "
            "the floor (--min-map)"
        )
    images = study.images[~study.images["model"].isin(too_weak)]
    here = images[(images["dropout_rate"] == rate) & (images["variant"] == CLEAN)]
    scores = robustness_scores(images[images["dropout_rate"] == rate], study.settings.profile)
    if scores.empty and "robustness" in weights:
        raise InvalidInput(
            "robustness: the study has no attacked pictures, expected --adversarial of 1 or more"
        )
    table = here if scores.empty else here.merge(scores[[*_KEYS, "rs_map", "rs_uqm"]], on=_KEYS)
    found = analyse(table, study.settings.profile, resamples=0).tiers
    models = in_order(set(here["model"]))
    times = (here["encode_ms"] + here["decode_ms"]).groupby(here["model"]).median().to_dict()
    total = sum(weights.values())
    tiers = {model: {name: _tier(name, model, found, times) for name in weights} for model in models}
    score = {m: round(sum(w * tiers[m][n] for n, w in weights.items()) / total, 9) for m in models}
    order = sorted(models, key=lambda model: (score[model], times[model]))
    left = {} if scores.empty else scores.groupby("model")["map_adversarial"].mean().to_dict()

    def rank_model(model: str) -> RankedModel:
        tied = tuple(other for other in order if score[other] == score[model] and other != model)
        seen = accuracy[model], float(left.get(model, np.nan))
        return RankedModel(model, score[model], tiers[model], times[model], tied, *seen)

    return Ranking([rank_model(model) for model in order], too_weak)


def advice(ranking: Ranking) -> str:
    best = ranking.candidates[0]
    words = f"{label(best.model)} ({best.model})" if label(best.model) != best.model else best.model
    verb = "is" if len(best.tied) == 1 else "are"
    also = f"; {', '.join(best.tied)} {verb} statistically as good and slower or as quick."
    weak = ", ".join(f"{model} (mAP {value:.2f})" for model, value in ranking.too_weak.items())
    alone = ": no other model of the study is as good for this."
    said = f"Take {words}{also if best.tied else alone}"
    return said + (f" Not ranked, because they see too little: {weak}." if weak else "")


def parameters(study: Study, model: str, rate: float) -> dict[str, object]:
    (choice,) = (one for one in study.settings.models if one.label == model)
    if choice.weights and not Path(choice.weights).is_file():
        raise InvalidInput(f"{choice.weights}: expected the weights of {model} that the study looked with")
    return {
        "model": choice.name,
        "weights": str(Path(choice.weights).absolute()) if choice.weights else "",
        "min_size": choice.min_size,
        "dropout_site": choice.dropout_site,
        "dropout_rate": rate,
        "passes": study.settings.passes,
        "score_floor": study.settings.score_floor,
        "precision": study.settings.precision,
    }


def _tier(requirement: str, model: str, tiers: pd.DataFrame, times: Mapping[str, float]) -> float:
    if requirement == LATENCY:
        # the first tier is as quick as the quickest, the second as quick as the quickest of the rest, and so on
        left, number = sorted(times.values()), 1
        while times[model] > left[0] * _SAME_TIME:
            left = [time for time in left if time > left[0] * _SAME_TIME]
            number += 1
        return float(number)
    own = tiers[(tiers["model"] == model) & tiers["measure"].isin(REQUIREMENTS[requirement])]
    return float(own["tier"].mean()) if len(own) else 1.0
