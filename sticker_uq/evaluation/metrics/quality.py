# SPDX-License-Identifier: Apache-2.0
"""The measures of probability quality of one detector on labelled images, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from sticker_uq.evaluation.metrics import probability_quality as pq
from sticker_uq.evaluation.metrics.matching import match
from sticker_uq.evaluation.metrics.statistics import cluster_bootstrap
from sticker_uq.io.coco import LabelledImage, pictures_of
from sticker_uq.scene import Detections, FloatArray, IntArray, InvalidInput, ObjectClass
from sticker_uq.uncertainty import observe

if TYPE_CHECKING:
    from sticker_uq.detection.detector import StochasticDetector

CLASSES = tuple(c.name.lower() for c in ObjectClass)
_BOOTSTRAP_SUBSETS = 200
OVERALL = "all"
WHOLE = ("accuracy", "brier", "nll", "ece", "ece_true_class")
BY_CLASS = ("eace", "vace", "brier")


@dataclass(frozen=True)
class Quality:
    """``rows``: detector, class ("all" or one), measure, value, low, high (95 % bootstrap over images); ``errors`` of the
    subsets; ``note``: how many detections there are, and how many objects have none.
    """

    name: str
    rows: pd.DataFrame
    errors: pq.ClassErrors
    note: str

    def value(self, measure: str, subject: str = OVERALL) -> float:
        own = (self.rows["measure"] == measure) & (self.rows["class"] == subject)
        return float(self.rows.loc[own, "value"].iloc[0])


def both_kinds(
    detector: StochasticDetector, items: Sequence[LabelledImage], progress: Callable[[], None] = lambda: None
) -> dict[str, list[Detections]]:
    """What is measured of a detector, by name: detections without dropout, and the objects that T passes cluster into.

    Objects seen in too few passes to cluster are left out. Raises InvalidInput for a picture that cannot be read.
    """
    from sticker_uq.evaluation.metrics.accuracy import as_detections  # torch takes seconds to load

    settings, one, several = detector.settings, [], []
    for number, (_, picture) in enumerate(pictures_of(items, progress)):
        features = detector.encode(picture)
        one.append(detector.detect(features))
        samples = detector.sample(features, settings.passes, settings.seed + number)
        several.append(as_detections(observe(samples)[0]))
    return {"one pass": one, f"{settings.passes} passes": several}


def measure_quality(
    name: str,
    found: Sequence[Detections],
    items: Sequence[LabelledImage],
    sampling: pq.Sampling = pq.PAPER,
    resamples: int = 200,
    seed: int = 0,
) -> Quality:
    """The quality of the class probabilities of ``found``, one for each of ``items``: a detection counts as the class of the
    labelled object that it lies on, or as background.
    """
    matched = match(found, items)
    p, y = matched.probabilities, matched.truth
    if not len(y):
        raise InvalidInput(f"{name}: nothing was detected on {len(items)} pictures: nothing to measure")
    errors = pq.class_errors(p, y, sampling, seed)
    values = _values(p, y, errors)
    fewer = replace(sampling, subsets=min(sampling.subsets, _BOOTSTRAP_SUBSETS))

    def resampled(chosen: IntArray) -> FloatArray:
        return _values(p[chosen], y[chosen], pq.class_errors(p[chosen], y[chosen], fewer, seed))

    low, high = cluster_bootstrap(resampled, matched.image, resamples, seed)
    keys = [(OVERALL, measure) for measure in WHOLE]
    keys += [(subject, measure) for measure in BY_CLASS for subject in CLASSES]
    rows = pd.DataFrame(keys, columns=["class", "measure"])
    rows = rows.assign(value=values, low=low, high=high)
    rows.insert(0, "detector", name)
    missed = ", ".join(f"{count} {label.name.lower()}s" for label, count in matched.missed.items())
    note = f"{name}: {len(matched.truth)} detections, {missed} without one, which no probability speaks of."
    return Quality(name, rows, errors, note)


def _values(p: FloatArray, y: IntArray, errors: pq.ClassErrors) -> FloatArray:
    whole = [
        pq.accuracy(p, y),
        pq.brier_score(p, y),
        pq.negative_log_likelihood(p, y),
        pq.expected_calibration_error(p, y),
        pq.expected_calibration_error(p, y, variant="true_class"),
    ]
    return np.array([*whole, *errors.eace, *errors.vace, *pq.class_brier_scores(p, y)])
