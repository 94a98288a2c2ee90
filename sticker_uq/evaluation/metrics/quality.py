# SPDX-License-Identifier: Apache-2.0
"""Every measure of probability quality of one detector on labelled images, with intervals, before and after calibration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sticker_uq.evaluation.metrics import probability_quality as pq
from sticker_uq.evaluation.metrics.matching import MatchedDetections, match
from sticker_uq.evaluation.metrics.statistics import cluster_bootstrap
from sticker_uq.io.coco import LabelledImage, read_picture
from sticker_uq.io.files import atomic_write
from sticker_uq.scene import Detections, FloatArray, IntArray, InvalidInput, ObjectClass
from sticker_uq.uncertainty import ClusterSettings, observe

if TYPE_CHECKING:
    from sticker_uq.detection.detector import StochasticDetector

CLASSES = tuple(c.name.lower() for c in ObjectClass)
Progress = Callable[[], None]


@dataclass(frozen=True)
class ScoredDetections:
    """What calibration errors of a detector are computed from, for the same objects as the vectors, (N,) each.

    ``label``: class of the score; ``right`` and ``iou`` as in :class:`MatchedDetections`.
    """

    label: IntArray
    right: NDArray[np.bool_]
    iou: FloatArray


@dataclass(frozen=True)
class Vectors:
    """Classified objects: ``p`` (N, K) probabilities, ``y`` (N,) true classes, ``units`` (N,) numbers of their images.

    ``classes``: K names; ``detections`` where a detector made them.
    """

    name: str
    classes: tuple[str, ...]
    p: FloatArray
    y: IntArray
    units: IntArray
    detections: ScoredDetections | None = None

    def __post_init__(self) -> None:
        pq.check(self.p, self.y)
        if len(self.classes) != self.p.shape[1] or self.units.shape != self.y.shape:
            raise InvalidInput(
                f"{self.name}: {len(self.classes)} class names and {len(self.units)} images for probabilities "
                f"{self.p.shape}"
            )


def of_detections(name: str, matched: MatchedDetections) -> Vectors:
    """The probability vectors of a detector: one object per detection, of class background where nothing lies there."""
    scored = ScoredDetections(matched.labels, matched.right, matched.iou)
    return Vectors(name, CLASSES, matched.probabilities, matched.truth, matched.image, scored)


def write_vectors(vectors: Vectors, path: Path) -> None:
    """Write ``vectors`` to a CSV file with a column ``p_NAME`` per class, completely or not at all."""
    names, scored = np.array(vectors.classes), vectors.detections
    table = pd.DataFrame(vectors.p, columns=[f"p_{name}" for name in names])
    table.insert(0, "image", vectors.units)
    table["label"] = names[vectors.y]
    if scored is not None:
        table = table.assign(score_label=names[scored.label], right=scored.right.astype(int), iou=scored.iou)
    with atomic_write(path, "w") as stream:
        table.to_csv(stream, index=False, lineterminator="\n")


def one_pass_vectors(
    detector: StochasticDetector, items: Sequence[LabelledImage], name: str, progress: Progress = lambda: None
) -> tuple[Vectors, str]:
    """Probability vectors, for quality metrics, of the detections without dropout, called ``name``, and a sentence about them.

    ``progress`` is called after every picture. Raises InvalidInput for a picture that cannot be read, and when nothing is
    detected anywhere.
    """
    found = []
    for item in items:
        found.append(detector.detect(detector.encode(read_picture(item))))
        progress()
    return _vectors(name, found, items)


def cluster_vectors(
    detector: StochasticDetector, items: Sequence[LabelledImage], name: str, progress: Progress = lambda: None
) -> tuple[Vectors, str]:
    """Probability vectors, for quality metrics, of the objects that the stochastic passes cluster into, as
    :func:`one_pass_vectors`.

    Objects seen in too few passes to cluster are left out.
    """
    from sticker_uq.evaluation.metrics.accuracy import as_detections  # torch takes seconds to load

    settings = detector.settings
    found = []
    for number, item in enumerate(items):
        samples = detector.sample(
            detector.encode(read_picture(item)), settings.passes, settings.seed + number
        )
        found.append(as_detections(observe(samples, ClusterSettings())[0]))
        progress()
    return _vectors(name, found, items)


def _vectors(name: str, found: Sequence[Detections], items: Sequence[LabelledImage]) -> tuple[Vectors, str]:
    matched = match(found, items)
    if not len(matched.truth):
        raise InvalidInput(f"{name}: nothing was detected on {len(items)} pictures: nothing to measure")
    return of_detections(name, matched), _sentence(name, matched)


def _sentence(name: str, matched: MatchedDetections) -> str:
    missed = ", ".join(f"{count} {label.name.lower()}s" for label, count in matched.missed.items())
    return f"{name}: {len(matched.truth)} detections, {missed} without one, which no probability speaks of"


State = Literal["as is", "isotonic", "temperature"]
AS_IS: State = "as is"
_BOOTSTRAP_SUBSETS = 200
OVERALL = "all"

MEASURES = {
    "accuracy": "Accuracy",
    "brier": "Brier score",
    "nll": "NLL",
    "ece": "ECE",
    "ece_true_class": "ECE, true class",
    "eace": "EACE",
    "vace": "VACE",
    "class_ece": "class-wise ECE",
    "d_ece": "D-ECE",
    "laece": "LaECE",
}
"""What is measured and how a table calls it."""


@dataclass(frozen=True)
class QualitySettings:
    """Settings of probability quality: ``sampling`` of subsets for ACE, ``bins``, ``resamples`` of the bootstrap, ``seed``."""

    sampling: pq.Sampling = pq.PAPER
    bins: int = pq.BINS
    resamples: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        if self.bins < 2 or self.resamples < 0 or self.seed < 0:
            raise InvalidInput(
                f"bins {self.bins}, resamples {self.resamples}, seed {self.seed}: expected bins from 2, the others from 0"
            )


@dataclass(frozen=True)
class QualityRow:
    """One measure of probability quality with its 95 % bootstrap interval; ``subject``: a class or "all";
    ``count`` of objects.
    """

    name: str
    state: State
    subject: str
    measure: str
    value: float
    low: float
    high: float
    count: int


@dataclass(frozen=True)
class Quality:
    """Probability quality of ``vectors`` in one ``state``: ``errors`` of the subsets, ``diagrams`` by class and for all."""

    vectors: Vectors
    state: State
    rows: tuple[QualityRow, ...]
    errors: pq.ClassErrors
    diagrams: dict[str, tuple[pq.Bin, ...]]

    def value(self, measure: str, subject: str = OVERALL) -> float:
        """One measure of probability quality. Raises KeyError when it was not measured."""
        for row in self.rows:
            if (row.measure, row.subject) == (measure, subject):
                return row.value
        raise KeyError(f"{measure} of {subject}")


def measure_quality(
    vectors: Vectors, settings: QualitySettings, methods: Sequence[pq.Method] = ()
) -> list[Quality]:
    """The probability quality of ``vectors`` as they are, then as each of ``methods`` would calibrate them (cross-fitted).

    Raises :class:`InvalidInput` when there is no object, or too few images to calibrate.
    """
    if not len(vectors.y):
        raise InvalidInput(f"{vectors.name}: no objects to measure anything on")
    measured = [_measure(vectors, settings, AS_IS)]
    for method in methods:
        p = pq.cross_calibrated(vectors.p, vectors.y, vectors.units, method, pq.FOLDS, settings.seed)
        measured.append(_measure(replace(vectors, p=p), settings, method))
    return measured


def _measure(vectors: Vectors, settings: QualitySettings, state: State) -> Quality:
    keys = _keys(vectors)
    errors = pq.class_errors(vectors.p, vectors.y, settings.sampling, settings.seed)
    everything = np.arange(len(vectors.y))
    values = _values(vectors, everything, settings, errors)
    fewer = replace(settings.sampling, subsets=min(settings.sampling.subsets, _BOOTSTRAP_SUBSETS))

    def resampled(chosen: IntArray) -> FloatArray:
        drawn = pq.class_errors(vectors.p[chosen], vectors.y[chosen], fewer, settings.seed)
        return _values(vectors, chosen, settings, drawn)

    if settings.resamples:
        low, high = cluster_bootstrap(resampled, vectors.units, settings.resamples, settings.seed)
    else:
        low = high = np.full(len(values), np.nan)
    rows = []
    for number, (measure, subject) in enumerate(keys):
        value, lowest, highest = (float(one[number]) for one in (values, low, high))
        count = _count(vectors, measure, subject)
        rows.append(QualityRow(vectors.name, state, subject, measure, value, lowest, highest, count))
    return Quality(vectors, state, tuple(rows), errors, _diagrams(vectors, settings.bins))


def _foreground(vectors: Vectors) -> list[int]:
    return list(range(1, len(vectors.classes)))


def _keys(vectors: Vectors) -> list[tuple[str, str]]:
    keys = [(measure, OVERALL) for measure in ("accuracy", "brier", "nll", "ece", "ece_true_class")]
    for measure in ("eace", "vace", "brier", "class_ece"):
        keys += [(measure, name) for name in vectors.classes]
    if vectors.detections is not None:
        names = [vectors.classes[c] for c in _foreground(vectors)]
        keys += [("d_ece", OVERALL), *(("d_ece", name) for name in names)]
        keys += [("laece", OVERALL), *(("laece", name) for name in names)]
    return keys


def _values(
    vectors: Vectors, chosen: IntArray, settings: QualitySettings, errors: pq.ClassErrors
) -> FloatArray:
    p, y, bins = vectors.p[chosen], vectors.y[chosen], settings.bins
    values = [
        pq.accuracy(p, y),
        pq.brier_score(p, y),
        pq.negative_log_likelihood(p, y),
        pq.expected_calibration_error(p, y, bins),
        pq.expected_calibration_error(p, y, bins, "true_class"),
        *errors.eace,
        *errors.vace,
        *pq.class_brier_scores(p, y),
        *pq.class_calibration_errors(p, y, bins),
    ]
    scored = vectors.detections
    if scored is not None:
        label, right, iou = scored.label[chosen], scored.right[chosen], scored.iou[chosen]
        score = p[np.arange(len(y)), label]
        values.append(pq.calibration_error(score, right, bins))
        of_class = [label == c for c in _foreground(vectors)]
        values += [pq.calibration_error(score[own], right[own], bins) for own in of_class]
        aware = [
            pq.localization_aware_calibration_error(score[own], right[own], iou[own]) for own in of_class
        ]
        known = [value for value in aware if not np.isnan(value)]
        values += [float(np.mean(known)) if known else float("nan"), *aware]
    return np.array(values)


def _count(vectors: Vectors, measure: str, subject: str) -> int:
    if subject == OVERALL:
        return len(vectors.y)
    number = vectors.classes.index(subject)
    if measure in ("d_ece", "laece") and vectors.detections is not None:
        return int((vectors.detections.label == number).sum())
    return int((vectors.y == number).sum())


def _diagrams(vectors: Vectors, bins: int) -> dict[str, tuple[pq.Bin, ...]]:
    """Reliability of the predicted class, and of each class against the rest."""
    predicted = vectors.p.argmax(axis=1)
    sure = vectors.p[np.arange(len(predicted)), predicted]
    diagrams = {OVERALL: pq.reliability(sure, predicted == vectors.y, bins)}
    for number, name in enumerate(vectors.classes):
        diagrams[name] = pq.reliability(vectors.p[:, number], vectors.y == number, bins)
    return diagrams
