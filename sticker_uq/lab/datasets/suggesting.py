# SPDX-License-Identifier: Apache-2.0
"""Which pictures to label next: uncertain or novel to the detector, and different from each other.

A greedy choice: each time the picture with the highest product of its score and its distance, in the detector's features, from
the nearest one that is labelled or chosen. Distance alone is the k-center algorithm (Gonzalez 1985, as in Sener and Savarese,
"Active learning for convolutional neural networks: a core-set approach", ICLR 2018). It takes no more pictures of a rare kind
than chance does, because these need not be far apart; the score alone takes many pictures of the same hard thing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from sticker_uq.detection.detector import StochasticDetector
from sticker_uq.io.images import Picture
from sticker_uq.io.sources import SourceImage
from sticker_uq.perception import Perception
from sticker_uq.scene import FloatArray, InvalidInput, SceneAssessment, Status

ASPECTS = (
    ("shannon_entropy", "mutual_information", "unstable_objects"),
    ("novelty", "missed_sticker_probability"),
    ("scene_distance",),
)
"""Signals that say the same kind of thing: uncertain objects, foreign or missed ones, an unfamiliar scene."""


@dataclass(frozen=True)
class PoolPicture:
    """A picture of the pool: its ``signals`` by name, NaN where one was not measured, and its ``features`` (D,)."""

    name: str
    signals: dict[str, float]
    features: FloatArray


@dataclass(frozen=True)
class Suggestion:
    """A picture to label. ``score`` 0..1; ``distance`` to the nearest one labelled or suggested before, NaN without any."""

    picture: PoolPicture
    score: float
    distance: float


def measured_pool(
    source: Iterable[SourceImage], perception: Perception, progress: Callable[[], None] = lambda: None
) -> tuple[list[PoolPicture], list[str]]:
    """Every picture of ``source`` that can be assessed, and for each of the others its name with the reason."""
    found, failed = [], []
    for item in source:
        reason = item.error
        if item.image is not None:
            try:
                scene = perception.assess(item.image, item.stamp_ns, item.frame_id)
                reason = scene.status_text if scene.status is Status.FAILED else ""
            except InvalidInput as error:
                reason = str(error)
        if reason or item.image is None:
            failed.append(f"{item.name}: {reason}")
        else:
            features = pooled_features(perception.detector, item.image)
            found.append(PoolPicture(item.name, signals_of(scene), features))
        progress()
    return found, failed


def signals_of(scene: SceneAssessment) -> dict[str, float]:
    """The signals of doubt about a picture: the highest of its objects (0 without any), and those of the
    scene.
    """
    objects = (*scene.objects, *scene.unstable)
    localization = scene.localization

    def highest(values: Iterable[float]) -> float:
        return max((value for value in values if math.isfinite(value)), default=0.0)

    unmeasured = bool(objects) and all(math.isnan(one.novelty) for one in objects)
    return {
        "shannon_entropy": highest(one.shannon_entropy for one in scene.objects),
        "mutual_information": highest(one.mutual_information for one in scene.objects),
        "unstable_objects": float(len(scene.unstable)),
        "novelty": math.nan if unmeasured else highest(one.novelty for one in objects),
        "scene_distance": math.nan if localization is None else localization.scene_distance,
        "missed_sticker_probability": math.nan
        if localization is None
        else localization.missed_sticker_probability,
    }


def pooled_features(detector: StochasticDetector, image: Picture) -> FloatArray:
    """Mean of every channel of the feature maps of ``image`` (H, W, 3) BGR that dropout reaches first, (D,)
    float64.
    """
    maps = detector.encode(image).maps
    return np.concatenate([m[0].float().mean(dim=(1, 2)).cpu().numpy() for m in maps]).astype(np.float64)


def scores_of(pool: Sequence[PoolPicture]) -> FloatArray:
    """The score of every picture, (N,) 0..1: the highest over :data:`ASPECTS` of its mean rank by their
    signals.

    A signal that was not measured on all pictures, or is the same on all, is left out. Not the mean over the aspects, because
    a scene of another world may show no object that anything could be uncertain about.
    """
    aspects = []
    for names in ASPECTS:
        ranks = []
        for name in names:
            values = np.array([picture.signals.get(name, math.nan) for picture in pool])
            if np.isfinite(values).all() and np.ptp(values) > 0:
                ranks.append((rankdata(values) - 1) / (len(pool) - 1))
        if ranks:
            aspects.append(np.mean(ranks, axis=0))
    return np.max(aspects, axis=0) if aspects else np.zeros(len(pool))


def suggested(
    pool: Sequence[PoolPicture], count: int, labelled: Sequence[FloatArray] = ()
) -> list[Suggestion]:
    """Suggestions of up to ``count`` pictures of ``pool`` to label, the most useful first; ``labelled``: features of labelled
    pictures.

    The first is the one with the highest score, or if some are labelled the one with the highest product of score and distance
    from those. Where all products are 0, of the surest picture and of copies, the distance alone counts. Features are scaled to
    unit variance over the pool; distances are root mean squares over them. Raises InvalidInput for an empty pool.
    """
    if not pool:
        raise InvalidInput("no picture of the pool can be assessed; expected pictures to choose from")
    scores = scores_of(pool)
    order = np.argsort(-scores, kind="stable")  # the first of equals has the highest score
    features = np.stack([pool[number].features for number in order])
    spread = features.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)

    def distances(center: FloatArray) -> FloatArray:
        return np.sqrt((((features - center) / scale) ** 2).mean(axis=1))

    nearest = np.full(len(pool), np.inf)
    for center in labelled:
        nearest = np.minimum(nearest, distances(center))
    chosen: list[Suggestion] = []
    free = np.ones(len(pool), bool)
    while free.any() and len(chosen) < count:
        far = np.where(np.isfinite(nearest), nearest, 1.0)
        worth = far * scores[order]
        place = int(np.argmax(np.where(free, worth if worth[free].any() else far, -1.0)))
        number = int(order[place])
        distance = float(nearest[place]) if np.isfinite(nearest[place]) else math.nan
        chosen.append(Suggestion(pool[number], float(scores[number]), distance))
        free[place] = False
        nearest = np.minimum(nearest, distances(features[place]))
    return chosen
