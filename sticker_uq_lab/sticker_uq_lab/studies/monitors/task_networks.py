# SPDX-License-Identifier: Apache-2.0
"""Networks trained for one decision against one that estimates the probability (Ullah, Fan and Wongpiromsarn, "Design and
Evaluation of Object Classifiers for Probabilistic Decision-Making in Autonomous Systems").

The question is whether the probability that a crop is a removable sticker exceeds a threshold t. A task network learns just
that, from labels 1[p > t] (Section IV-B of the paper); the probabilistic one learns p and is compared with t afterwards. The
paper gave its two networks different optimisers, losses and budgets. Here they share architecture, first weights, order of
the crops, dropout masks, optimiser, epochs and loss (cross entropy), and differ in nothing but the labels.
"""

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sticker_uq.evaluation.metrics.statistics import Interval, area_under_roc, cluster_bootstrap
from sticker_uq.evaluation.reporting.document import Table, as_markdown
from sticker_uq.perception.monitors.crop_network import CropTraining, class_vectors, train_classifier
from sticker_uq.scene import FloatArray, IntArray, InvalidInput
from sticker_uq_lab.studies.monitors.material import Material, Tell

KERNELS = (0, 3, 7, 11)
"""Side of the Gaussian kernel of each blur level, px; 0: not blurred (Section V-C of the paper and its code)."""
STICKER_LABELS = (1.0, 0.9, 0.7, 0.5)
OTHER_LABELS = (0.0, 0.1, 0.2, 0.3)
"""Probability of sticker at each blur level, of what is a sticker and of what is not, the paper's for pedestrians."""
_SIGMA = 3.0  # px, at every kernel


@dataclass(frozen=True)
class LabelledCrops:
    """``crops`` (N, C, h, w) float32 0..1 and P(sticker) (N,); those of equal ``sources`` (N,) are from one picture."""

    crops: FloatArray
    probabilities: FloatArray
    sources: IntArray


def sticker_class(material: Material) -> int:
    if "sticker" not in material.classes:
        raise InvalidInput(f"{material.name} has no stickers, expected cell or a COCO folder")
    return material.classes.index("sticker")


def blur_labels(material: Material) -> tuple[LabelledCrops, LabelledCrops]:
    """Every crop to train and to test with at every blur level, the probability by the level."""
    sticker = sticker_class(material)
    return (
        _blur_crops(material.train, material.train_labels == sticker),
        _blur_crops(material.test, material.test_labels == sticker),
    )


def _blur_crops(crops: FloatArray, stickers: FloatArray) -> LabelledCrops:
    pictures, probabilities = [], []
    for kernel, of_sticker, of_other in zip(KERNELS, STICKER_LABELS, OTHER_LABELS, strict=True):
        pictures.append(crops if kernel == 0 else np.stack([_blur(crop, kernel) for crop in crops]))
        probabilities.append(np.where(stickers, of_sticker, of_other))
    return LabelledCrops(
        np.concatenate(pictures), np.concatenate(probabilities), np.tile(np.arange(len(crops)), len(KERNELS))
    )


def _blur(crop: FloatArray, kernel: int) -> FloatArray:
    picture = np.ascontiguousarray(crop.transpose(1, 2, 0))
    blurred = cv2.GaussianBlur(picture, (kernel, kernel), _SIGMA)
    return np.asarray(blurred.reshape(picture.shape).transpose(2, 0, 1), np.float32)


THRESHOLDS = tuple(k / 10 for k in range(1, 10))
ASK_ABOVE, REMOVE_ABOVE = 0.3, 0.7
"""The cascade: above the higher one the sticker is removed, above the lower one a person is asked, else it is kept."""
TRAINING = CropTraining(epochs=30)


@dataclass(frozen=True)
class TaskScores:
    """What task networks of S seeds say about N crops whose probability of sticker is ``truth`` (N,).

    ``task`` (S, 9, N): the task network of each of THRESHOLDS says yes above 0.5; ``probabilistic`` (S, N): the estimated
    probability. ``sources`` (N,) as in LabelledCrops.
    """

    truth: FloatArray
    sources: IntArray
    task: FloatArray
    probabilistic: FloatArray

    def task_says(self, threshold: float) -> NDArray[np.bool_]:
        return np.asarray(self.task[:, THRESHOLDS.index(threshold)] > 0.5)

    def probabilistic_says(self, threshold: float) -> NDArray[np.bool_]:
        return np.asarray(self.probabilistic > threshold)


def train_and_score(
    training: LabelledCrops, crops: FloatArray, seed: int, settings: CropTraining
) -> tuple[FloatArray, FloatArray]:
    """What nine task networks (9, N) and the probabilistic one (N,) of ``seed`` say about ``crops`` (N, C, h, w)."""
    known: dict[bytes, FloatArray] = {}

    def says(targets: FloatArray) -> FloatArray:
        # thresholds with no label between them have the same labels, and the same network comes of those
        key = targets.tobytes()
        if key not in known:
            vectors = np.column_stack([1 - targets, targets])
            model = train_classifier(training.crops, vectors, seed, settings)
            known[key] = class_vectors(model, crops)[:, 1]
        return known[key]

    labels = [(training.probabilities > threshold).astype(np.float64) for threshold in THRESHOLDS]
    return np.stack([says(one) for one in labels]), says(np.asarray(training.probabilities, np.float64))


def run_tasks(
    material: Material, seeds: int = 3, training: CropTraining = TRAINING, progress: Tell = lambda stage: None
) -> TaskScores:
    learned, tested = blur_labels(material)
    task, probabilistic = [], []
    for seed in range(seeds):
        progress(f"seed {seed + 1} of {seeds}")
        one, other = train_and_score(learned, tested.crops, seed, training)
        task.append(one)
        probabilistic.append(other)
    return TaskScores(tested.probabilities, tested.sources, np.stack(task), np.stack(probabilistic))


def actions(ask: NDArray[np.bool_], remove: NDArray[np.bool_]) -> IntArray:
    """What a cascade does by its two decisions, 0 keep, 1 ask, 2 remove: the network for removals comes first."""
    return np.where(remove, 2, np.where(ask, 1, 0))


_RESAMPLES = 400
_WITH_INTERVAL = ("task_fnr", "probabilistic_fnr", "task_fpr", "probabilistic_fpr", "difference")


def rates_at(scores: TaskScores, threshold: float) -> dict[str, float]:
    """One threshold, all seeds together: a row of :func:`rate_table`.

    ``above``: the share of crops whose probability exceeds it; FNR (the paper calls it true negative rate) and FPR of both kinds
    of network, and ``difference``, how much larger the mean of FNR and FPR of the task network is (negative: it is better), each
    with the 95 % interval from resampling the pictures that the crops come from (``..._low``, ``..._high``). ``..._auc``: mean
    over the seeds of how well each one's output tells the crops above from the others, whatever the threshold.
    """
    above = scores.truth > threshold
    says = (scores.task_says(threshold), scores.probabilistic_says(threshold))

    def rates(rows: IntArray) -> FloatArray:
        fnr, fpr = (
            [_share(wrong, rows, among) for wrong in part]
            for part, among in (([~one for one in says], above), (says, ~above))
        )
        return np.array([*fnr, *fpr, (fnr[0] + fpr[0] - fnr[1] - fpr[1]) / 2])

    row = {"threshold": threshold, "above": float(above.mean())}
    for name, found in zip(_WITH_INTERVAL, _with_interval(rates, scores.sources), strict=True):
        row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
    outputs = (scores.task[:, THRESHOLDS.index(threshold)], scores.probabilistic)
    for name, output in zip(("task_auc", "probabilistic_auc"), outputs, strict=True):
        row[name] = float(np.mean([area_under_roc(one[~above], one[above]) for one in output]))
    return row


@dataclass(frozen=True)
class Cascade:
    """Shares of one kind of network: ``right``, of all crops those that get the right action; ``damaged``, of what must be kept
    what is removed; ``left``, of what must be removed what is kept; ``asked``, of all; ``contradicting``, of all those that the
    network of the higher threshold puts above it and that of the lower one does not.
    """

    right: Interval
    damaged: Interval
    left: Interval
    asked: Interval
    contradicting: float


def cascades(scores: TaskScores) -> tuple[Cascade, Cascade]:
    wanted = actions(scores.truth > ASK_ABOVE, scores.truth > REMOVE_ABOVE)
    task, probabilistic = (
        _cascade(says(ASK_ABOVE), says(REMOVE_ABOVE), wanted, scores.sources)
        for says in (scores.task_says, scores.probabilistic_says)
    )
    return task, probabilistic


def _cascade(
    ask: NDArray[np.bool_], remove: NDArray[np.bool_], wanted: IntArray, sources: IntArray
) -> Cascade:
    taken = actions(ask, remove)
    everything = np.ones(len(wanted), bool)

    def shares(rows: IntArray) -> FloatArray:
        return np.array(
            [
                _share(taken == wanted, rows, everything),
                _share(taken == 2, rows, wanted == 0),
                _share(taken == 0, rows, wanted == 2),
                _share(taken == 1, rows, everything),
            ]
        )

    right, damaged, left, asked = _with_interval(shares, sources)
    return Cascade(right, damaged, left, asked, float((remove & ~ask).mean()))


def _with_interval(statistic: Callable[[IntArray], FloatArray], sources: IntArray) -> list[Interval]:
    value = statistic(np.arange(len(sources)))
    low, high = cluster_bootstrap(statistic, sources, _RESAMPLES)
    return [Interval(float(a), float(b), float(c)) for a, b, c in zip(value, low, high, strict=True)]


def _share(hits: NDArray[np.bool_], rows: IntArray, among: NDArray[np.bool_]) -> float:
    """Share of ``hits`` (S, N) in those of ``rows`` that are ``among`` (N,), all seeds together; NaN of none."""
    chosen = rows[among[rows]]
    return float(hits[:, chosen].mean()) if len(chosen) else float("nan")


def rate_table(scores: TaskScores) -> pd.DataFrame:
    return pd.DataFrame([rates_at(scores, threshold) for threshold in THRESHOLDS])


def task_report(material: str, scores: TaskScores, rates: pd.DataFrame) -> str:
    rows = [
        (
            f"{row['threshold']:g}",
            f"{row['above']:.2f}",
            *(_cell(Interval(row[n], row[f"{n}_low"], row[f"{n}_high"])) for n in _WITH_INTERVAL),
            *(f"{row[name]:.3f}" for name in ("task_auc", "probabilistic_auc")),
        )
        for row in rates.to_dict("records")
    ]
    shares = [
        (network, *map(_cell, (one.right, one.damaged, one.left, one.asked)), f"{one.contradicting:.3f}")
        for network, one in zip(("task", "probabilistic"), cascades(scores), strict=True)
    ]
    measured = (name.replace("_", " ") for name in _WITH_INTERVAL)
    actions = ("right action", "removed, must be kept", "kept, must be removed", "asked", "contradicting")
    return as_markdown(
        [
            f"# Task networks on {material}",
            "FNR: share of the crops above the threshold that the network puts below it (the paper calls it true negative rate); "
            "FPR: of those not above it, put above. 95 % intervals from resampling the pictures that the crops come from. "
            "Difference: mean of FNR and FPR, task network less probabilistic one; below 0 the task network is better.",
            f"{len(scores.truth)} crops, {len(scores.task)} seeds.",
            Table(("t", "above t", *measured, "task auc", "probabilistic auc"), rows),
            f"Cascade: remove above {REMOVE_ABOVE:g}, ask above {ASK_ABOVE:g}, else keep.",
            Table(("network", *actions), shares),
        ]
    )


def _cell(interval: Interval) -> str:
    known = np.isfinite(interval.value)
    return f"{interval.value:.3f} ({interval.low:.3f} to {interval.high:.3f})" if known else "n/a"
