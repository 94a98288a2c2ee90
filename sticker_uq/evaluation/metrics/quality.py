# SPDX-License-Identifier: Apache-2.0
"""The measures of probability quality, with intervals: of one detector on labelled images, or of any classifier's vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from sticker_uq.evaluation.metrics import probability_quality as pq
from sticker_uq.evaluation.metrics.matching import match
from sticker_uq.evaluation.metrics.statistics import cluster_bootstrap
from sticker_uq.io.coco import LabelledImage, pictures_of
from sticker_uq.io.reading import MIB, check_regular, show_value
from sticker_uq.scene import Detections, FloatArray, IntArray, InvalidInput, ObjectClass
from sticker_uq.uncertainty import observe

if TYPE_CHECKING:
    from sticker_uq.detection.detector import StochasticDetector

CLASSES = tuple(c.name.lower() for c in ObjectClass)
_BOOTSTRAP_SUBSETS = 200
OVERALL = "all"
WHOLE = ("accuracy", "brier", "nll", "ece", "ece_true_class")
BY_CLASS = ("eace", "vace", "brier")


MOST_VECTORS = 256 * MIB
"""Bytes of a file of vectors: a million objects of ten classes fit in."""


@dataclass(frozen=True)
class Vectors:
    """Classified objects: ``p`` (N, K), ``y`` (N,) true numbers of ``classes``, ``image`` (N,): which belong together;
    ``note``: what a reader must know of them.
    """

    name: str
    classes: tuple[str, ...]
    p: FloatArray
    y: IntArray
    image: IntArray
    note: str


@dataclass(frozen=True)
class Quality:
    """``rows``: detector, class ("all" or one), measure, value, low, high (95 % bootstrap over images); ``errors`` of the
    subsets; ``note``: as in :class:`Vectors`.
    """

    name: str
    classes: tuple[str, ...]
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


def vectors_of_detections(name: str, found: Sequence[Detections], items: Sequence[LabelledImage]) -> Vectors:
    """Vectors of ``found``, one for each of ``items``: a detection counts as the class of the labelled object that it lies on,
    or as background.
    """
    matched = match(found, items)
    if not len(matched.truth):
        raise InvalidInput(f"{name}: nothing was detected on {len(items)} pictures: nothing to measure")
    missed = ", ".join(f"{count} {label.name.lower()}s" for label, count in matched.missed.items())
    note = f"{name}: {len(matched.truth)} detections, {missed} without one, which no probability speaks of."
    return Vectors(name, CLASSES, matched.probabilities, matched.truth, matched.image, note)


def read_vectors(path: Path) -> Vectors:
    """Vectors of any classifier in a CSV file: a column ``p_CLASS`` per class, ``label``, and perhaps ``image``."""
    if check_regular(path) > MOST_VECTORS:
        raise InvalidInput(f"{path}: expected at most {MOST_VECTORS} bytes")
    try:
        table = pd.read_csv(path, dtype={"label": str, "image": str}, keep_default_na=False)
    except ValueError as error:  # pandas' own errors, and text that is not UTF-8
        raise InvalidInput(f"{path}: expected a CSV table ({error})") from None
    columns = [name for name in map(str, table.columns) if name.startswith("p_")]
    classes = tuple(name[2:] for name in columns)
    if len(classes) < 2 or "label" not in table or table.empty:
        raise InvalidInput(
            f"{path}: columns {show_value(list(table.columns))}, {len(table)} rows: expected p_CLASS of two or more classes, "
            "label, and a row per object"
        )
    unknown = set(table["label"]) - set(classes)
    if unknown:
        raise InvalidInput(
            f"{path}: label {show_value(min(unknown))}: expected one of the columns p_CLASS: {show_value(classes)}"
        )
    p = table[columns].apply(pd.to_numeric, errors="coerce").to_numpy(np.float64)
    # as many programs round to four digits
    bad = ~((p >= 0).all(axis=1) & (np.abs(p.sum(axis=1) - 1) <= 1e-3))
    if bad.any():
        row = int(bad.argmax())
        raise InvalidInput(
            f"{path}: row {row + 1}: probabilities {show_value(table[columns].iloc[row].tolist())}: expected numbers from 0 to 1 "
            "with the sum 1"
        )
    y = np.array([classes.index(name) for name in table["label"]])
    images = pd.factorize(table["image"])[0] if "image" in table else np.arange(len(table))
    return Vectors(path.stem, classes, p, y, np.asarray(images), f"{path.stem}: {len(y)} objects.")


def vectors_table(classes: Sequence[str], p: FloatArray, y: IntArray) -> pd.DataFrame:
    """The table that :func:`read_vectors` reads."""
    table = pd.DataFrame(p, columns=[f"p_{name}" for name in classes])
    return table.assign(label=[classes[number] for number in y])


def measure_quality(
    vectors: Vectors, sampling: pq.Sampling = pq.PAPER, resamples: int = 200, seed: int = 0
) -> Quality:
    name, p, y = vectors.name, vectors.p, vectors.y
    errors = pq.class_errors(p, y, sampling, seed)
    values = _values(p, y, errors)
    fewer = replace(sampling, subsets=min(sampling.subsets, _BOOTSTRAP_SUBSETS))

    def resample(chosen: IntArray) -> FloatArray:
        return _values(p[chosen], y[chosen], pq.class_errors(p[chosen], y[chosen], fewer, seed))

    low, high = cluster_bootstrap(resample, vectors.image, resamples, seed)
    keys = [(OVERALL, measure) for measure in WHOLE]
    keys += [(subject, measure) for measure in BY_CLASS for subject in vectors.classes]
    rows = pd.DataFrame(keys, columns=["class", "measure"])
    rows = rows.assign(value=values, low=low, high=high)
    rows.insert(0, "detector", name)
    return Quality(name, vectors.classes, rows, errors, vectors.note)


def _values(p: FloatArray, y: IntArray, errors: pq.ClassErrors) -> FloatArray:
    whole = [
        pq.accuracy(p, y),
        pq.brier_score(p, y),
        pq.negative_log_likelihood(p, y),
        pq.expected_calibration_error(p, y),
        pq.expected_calibration_error(p, y, variant="true_class"),
    ]
    return np.array([*whole, *errors.eace, *errors.vace, *pq.class_brier_scores(p, y)])
