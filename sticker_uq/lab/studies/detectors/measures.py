# SPDX-License-Identifier: Apache-2.0
"""The measures that the detector study compares: one name everywhere, the direction that is good, the names in other files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sticker_uq.detection.names import MODEL_NAMES
from sticker_uq.scene import METRICS, InvalidInput

Profile = Literal["paper", "simula_rp"]
"""``paper``: the definitions of Lu et al., correctly; ``simula_rp``: as their published code computes them, for regression."""


@dataclass(frozen=True)
class Measure:
    """A measure of the detector study, a column of results. ``short``: as the paper writes it; ``unit``: empty for a share."""

    name: str
    short: str
    higher_is_better: bool
    unit: str = ""


ACCURACY = Measure("map", "mAP", True)
_OF_METRICS = {name: Measure(name, metric.short, False, metric.unit) for name, metric in METRICS.items()}
UNCERTAINTY = tuple(
    _OF_METRICS[name]
    for name in (
        "variation_ratio",
        "shannon_entropy",
        "mutual_information",
        "total_variance",
        "predictive_surface",
    )
)
"""The paper's five uncertainty quantification metrics (UQMs)."""
RELATIVE = tuple(_OF_METRICS[metric.relative] for metric in METRICS.values() if metric.relative)
"""TV and PS divided by the area of the box, so that images of different sizes compare."""
ACCURACY_FLOOR = 0.3
"""Mean mAP on clean images below which a model sees too little for its certainty or robustness to mean anything: an attack cannot
disturb one that detects nothing."""
SCORES = (Measure("rs_map", "RS_mAP", True), Measure("rs_uqm", "RS_UQM", True))
"""Robustness scores (eq 14-16)."""
MEASURES = (ACCURACY, *_OF_METRICS.values(), *SCORES)
BY_NAME = {measure.name: measure for measure in MEASURES}

_ALIASES = {measure.short.lower(): measure.name for measure in MEASURES}
COLUMNS = {"image_name": "image", "dropout": "dropout_rate", **_ALIASES}
"""Other names of columns, in lower case."""


def check_profile(profile: str) -> Profile:
    """``profile`` if it is one of the detector study's; raises InvalidInput otherwise."""
    known: dict[str, Profile] = {"paper": "paper", "simula_rp": "simula_rp"}
    if profile in known:
        return known[profile]
    raise InvalidInput(f"profile {profile!r}: expected paper or simula_rp")


PAPER_MODELS = MODEL_NAMES[:6]
"""M1..M6 of the paper; a detector that came later has no number."""


def in_order(models: set[str]) -> list[str]:
    """``models`` of the detector study in the order of the paper (M1..M6), others after them by name."""
    known = [name for name in PAPER_MODELS if name in models]
    return known + sorted(models.difference(PAPER_MODELS))


def label(model: str) -> str:
    """A model's label in the detector study: M1..M6 for the paper's models, any other name as it is."""
    return f"M{PAPER_MODELS.index(model) + 1}" if model in PAPER_MODELS else model
