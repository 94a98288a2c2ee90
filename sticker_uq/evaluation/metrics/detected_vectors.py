# SPDX-License-Identifier: Apache-2.0
"""Probability vectors of a detector on labelled images: of its detections, and of what T passes cluster into."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sticker_uq.detection.detector import StochasticDetector
from sticker_uq.evaluation.metrics.accuracy import as_detections
from sticker_uq.evaluation.metrics.matching import MatchedDetections, match
from sticker_uq.evaluation.metrics.probability_vectors import Vectors, of_detections
from sticker_uq.io.coco import LabelledImage, read_picture
from sticker_uq.scene import Detections, InvalidInput
from sticker_uq.uncertainty import ClusterSettings, observe

Progress = Callable[[], None]


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
