# SPDX-License-Identifier: Apache-2.0
"""Networks trained for one decision against one that estimates the probability (Ullah, Fan and Wongpiromsarn, "Design and
Evaluation of Object Classifiers for Probabilistic Decision-Making in Autonomous Systems").

The question is whether the probability that a crop is a removable sticker exceeds a threshold t. A task network learns just
that, from labels 1[p > t] (Section IV-B of the paper); the probabilistic one learns p and is compared with t afterwards. The
paper gave its two networks different optimisers, losses and budgets. Here they share architecture, first weights, order of
the crops, dropout masks, optimiser, epochs and loss (cross entropy), and differ in nothing but the labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass, field, replace
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from sticker_uq.evaluation.metrics.statistics import Interval, area_under_roc, cluster_bootstrap
from sticker_uq.evaluation.reporting.document import Block, Table, as_markdown
from sticker_uq.lab.kept_pieces import Arrays, fingerprint, kept_arrays
from sticker_uq.lab.studies.ambiguity.raae import Raae, generate, train_raaes
from sticker_uq.lab.studies.monitors.material import Material
from sticker_uq.monitors.crop_network import Training, class_vectors, train_classifier
from sticker_uq.scene import FloatArray, IntArray, InvalidInput

KERNELS = (0, 3, 7, 11)
"""Side of the Gaussian kernel of each blur level, px; 0: not blurred (Section V-C of the paper and its code)."""
STICKER_LABELS = (1.0, 0.9, 0.7, 0.5)
OTHER_LABELS = (0.0, 0.1, 0.2, 0.3)
"""Probability of sticker at each blur level, of what is a sticker and of what is not, the paper's for pedestrians."""
ANNOTATORS = 5
_SIGMA = 3.0  # px, at every kernel


@dataclass(frozen=True)
class LabelledCrops:
    """``crops`` (N, C, h, w) float32 0..1 with their probability of sticker ``probabilities`` (N,).

    ``sources`` (N,): crops of the same number come from the same picture of an object.
    """

    crops: FloatArray
    probabilities: FloatArray
    sources: IntArray


TrainAndTest = tuple[LabelledCrops, LabelledCrops]


def sticker_class(material: Material) -> int:
    """Which of the classes is the sticker; InvalidInput where none is."""
    if "sticker" not in material.classes:
        raise InvalidInput(f"{material.name} has no stickers, expected cell or a COCO folder")
    return material.classes.index("sticker")


def blur_labels(material: Material) -> TrainAndTest:
    """Every crop at every blur level, the probability by the level."""
    sticker = sticker_class(material)
    return (
        _blurred(material.train, material.train_labels == sticker),
        _blurred(material.test, material.test_labels == sticker),
    )


def ambiguess_labels(material: Material, count: int) -> TrainAndTest:
    """Sure crops, and ``count`` between sticker and another class by AmbiGuess's probability.

    Half as many to test with.
    """
    sticker = sticker_class(material)
    raaes = train_raaes(material.train, material.train_labels, material.pairs, material.raae)
    return (
        _with_ambiguous(material, material.train, material.train_labels == sticker, raaes, count, seed=1),
        _with_ambiguous(
            material, material.test, material.test_labels == sticker, raaes, max(1, count // 2), seed=2
        ),
    )


def annotator_labels(labelled: LabelledCrops) -> LabelledCrops:
    """The same crops, each with the share of ANNOTATORS who called it a sticker.

    No person was asked: each annotator says sticker with the crop's probability.
    """
    votes = np.random.default_rng(3).binomial(ANNOTATORS, labelled.probabilities)
    return replace(labelled, probabilities=votes / ANNOTATORS)


def _blurred(crops: FloatArray, stickers: FloatArray) -> LabelledCrops:
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


def _with_ambiguous(
    material: Material, crops: FloatArray, stickers: FloatArray, raaes: list[Raae], count: int, seed: int
) -> LabelledCrops:
    # any difference of the two probabilities, so that there are labels on both sides of every threshold
    made = generate(raaes, count, delta_max=1.0, seed=seed)
    probabilities = made.vectors(len(material.classes))[:, sticker_class(material)]
    everything = np.concatenate([np.asarray(crops, np.float32), made.images])
    return LabelledCrops(
        everything, np.concatenate([stickers.astype(np.float64), probabilities]), np.arange(len(everything))
    )


THRESHOLDS = tuple(k / 10 for k in range(1, 10))
ASK_ABOVE, REMOVE_ABOVE = 0.3, 0.7
"""The cascade: above the higher one the sticker is removed, above the lower one a person is asked, else it is kept."""
LABELS = ("blur", "ambiguess", "annotators")
"""Where the probabilities come from: the level of blur, AmbiGuess, or votes drawn by the probabilities of AmbiGuess."""
_FORMAT = 1


@dataclass(frozen=True)
class TaskSettings:
    """Settings of the study of task networks: ``seeds``; ``ambiguous``: crops of AmbiGuess to train and half as many to test
    with.
    """

    seeds: int = 3
    ambiguous: int = 900
    labels: tuple[str, ...] = LABELS
    training: Training = field(default_factory=lambda: Training(epochs=30))

    def __post_init__(self) -> None:
        for name in ("seeds", "ambiguous"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"--{name} {getattr(self, name)}: expected 1 or more")


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
        """Decisions (S, N) of the study's task networks of ``threshold``, one of THRESHOLDS."""
        return np.asarray(self.task[:, THRESHOLDS.index(threshold)] > 0.5)

    def probabilistic_says(self, threshold: float) -> NDArray[np.bool_]:
        """Decisions (S, N) of the study's probabilistic networks, beside the task networks."""
        return np.asarray(self.probabilistic > threshold)


def train_and_score(
    training: LabelledCrops, crops: FloatArray, seed: int, settings: Training
) -> tuple[FloatArray, FloatArray]:
    """What nine (9, N) and the probabilistic one (N,) of ``seed`` say about ``crops`` (N, C, h, w)."""
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
    material: Material,
    settings: TaskSettings,
    out: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> dict[str, TaskScores]:
    """Scores by kind of label. With ``out`` what is finished stays, and the same study goes on from it.

    InvalidInput when the material has no stickers or a kind of label is unknown.
    """
    sticker_class(material)
    for name in settings.labels:
        if name not in LABELS:
            raise InvalidInput(f"labels {name}: expected some of {', '.join(LABELS)}")
    tell = progress or (lambda _: None)
    found = {}
    for name in settings.labels:
        tell(f"labels: {name}")
        training, testing = _labelled(material, name, settings, out)
        scores = []
        for seed in range(settings.seeds):
            tell(f"{name}, seed {seed + 1} of {settings.seeds}")
            scores.append(_scores(training, testing, seed, settings, name, out))
        found[name] = TaskScores(
            testing.probabilities,
            testing.sources,
            np.stack([one["task"] for one in scores]),
            np.stack([one["probabilistic"] for one in scores]),
        )
    return found


def actions(ask: NDArray[np.bool_], remove: NDArray[np.bool_]) -> IntArray:
    """What their cascade does, 0 keep, 1 ask, 2 remove, by its two decisions: who removes is asked first."""
    return np.where(remove, 2, np.where(ask, 1, 0))


def _labelled(material: Material, name: str, settings: TaskSettings, out: Path | None) -> TrainAndTest:
    if name == "annotators":
        # tested against the probability that the votes were drawn by
        training, testing = _labelled(material, "ambiguess", settings, out)
        return annotator_labels(training), testing
    arrays = (material.train, material.train_labels, material.test, material.test_labels)
    named = [_FORMAT, name, settings.ambiguous, asdict(material.raae), material.pairs]

    def compute() -> Arrays:
        made = blur_labels(material) if name == "blur" else ambiguess_labels(material, settings.ambiguous)
        sets = zip(("train", "test"), made, strict=True)
        return {f"{part}_{key}": array for part, one in sets for key, array in vars(one).items()}

    mark = fingerprint(named, *arrays)
    kept = kept_arrays(out and out / f"labels_{name}_{mark}.npz", compute)
    training, testing = (
        LabelledCrops(kept[f"{part}_crops"], kept[f"{part}_probabilities"], kept[f"{part}_sources"])
        for part in ("train", "test")
    )
    return training, testing


def _scores(
    training: LabelledCrops,
    testing: LabelledCrops,
    seed: int,
    settings: TaskSettings,
    name: str,
    out: Path | None,
) -> Arrays:
    def compute() -> Arrays:
        task, probabilistic = train_and_score(training, testing.crops, seed, settings.training)
        return {"task": task, "probabilistic": probabilistic}

    digest = fingerprint(
        [_FORMAT, asdict(settings.training)], training.crops, training.probabilities, testing.crops
    )
    return kept_arrays(out and out / f"tasks_{name}_{seed}_{digest}.npz", compute)


_RESAMPLES = 400


@dataclass(frozen=True)
class Rates:
    """One threshold: ``above``, the share of crops whose probability exceeds it; FNR (the paper calls it true negative rate) and
    FPR of both kinds of network, and how much larger the mean of FNR and FPR of the task network is (negative: it is better).

    ``auc``: mean over the seeds of how well each one's output tells the crops above from the others, whatever the threshold.
    """

    threshold: float
    above: float
    task_fnr: Interval
    probabilistic_fnr: Interval
    task_fpr: Interval
    probabilistic_fpr: Interval
    difference: Interval
    task_auc: float
    probabilistic_auc: float


def rates_at(scores: TaskScores, threshold: float) -> Rates:
    """Rates, all seeds together; 95 % intervals from resampling the pictures that the crops come from."""
    above = scores.truth > threshold
    says = (scores.task_says(threshold), scores.probabilistic_says(threshold))

    def rates(rows: IntArray) -> FloatArray:
        found = [
            _share(wrong, rows, among) for one in says for wrong, among in ((~one, above), (one, ~above))
        ]
        return np.array([*found, (found[0] + found[1] - found[2] - found[3]) / 2])

    cells = _with_interval(rates, scores.sources)
    outputs = (scores.task[:, THRESHOLDS.index(threshold)], scores.probabilistic)
    areas = [
        float(np.mean([area_under_roc(one[~above], one[above]) for one in output])) for output in outputs
    ]
    return Rates(
        threshold, float(above.mean()), cells[0], cells[2], cells[1], cells[3], cells[4], areas[0], areas[1]
    )


@dataclass(frozen=True)
class Cascade:
    """Of one kind of network, shares: ``right``, of all crops those that get the right action; ``damaged``, of what must be kept
    what is removed; ``left``, of what must be removed what is kept; ``asked``, of all; ``contradicting``, of all those that the
    network of the higher threshold puts above it and that of the lower one does not.
    """

    right: Interval
    damaged: Interval
    left: Interval
    asked: Interval
    contradicting: float


def cascades(scores: TaskScores) -> tuple[Cascade, Cascade]:
    """Their cascade, and that of the probabilistic network with two thresholds."""
    wanted = actions(scores.truth > ASK_ABOVE, scores.truth > REMOVE_ABOVE)
    return (
        _cascade(scores.task_says(ASK_ABOVE), scores.task_says(REMOVE_ABOVE), wanted, scores.sources),
        _cascade(
            scores.probabilistic_says(ASK_ABOVE),
            scores.probabilistic_says(REMOVE_ABOVE),
            wanted,
            scores.sources,
        ),
    )


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


def as_csv(found: dict[str, TaskScores]) -> str:
    """The study of task networks as CSV: one line per kind of label, threshold and network."""
    lines = [
        "labels,threshold,network,share_above,fnr,fnr_low,fnr_high,fpr,fpr_low,fpr_high,auc,"
        "difference,difference_low,difference_high"
    ]
    for name, scores in found.items():
        for row in (rates_at(scores, threshold) for threshold in THRESHOLDS):
            for network in ("task", "probabilistic"):
                fnr, fpr = getattr(row, f"{network}_fnr"), getattr(row, f"{network}_fpr")
                numbers = (
                    row.above,
                    *astuple(fnr),
                    *astuple(fpr),
                    getattr(row, f"{network}_auc"),
                    *astuple(row.difference),
                )
                lines.append(
                    f"{name},{row.threshold:g},{network}," + ",".join(f"{number:.6g}" for number in numbers)
                )
    return "\n".join(lines) + "\n"


def task_report(material: str, found: dict[str, TaskScores]) -> str:
    """The study of task networks as Markdown: rates per threshold and cascades, one table of each per kind of label."""
    blocks: list[Block] = [
        f"# Task networks on {material}",
        "FNR: share of the crops above the threshold that the network puts below it (the paper calls it true negative rate); "
        "FPR: of those not above it, put above. 95 % intervals from resampling the pictures that the crops come from. "
        "Difference: mean of FNR and FPR, task network less probabilistic one; below 0 the task network is better.",
    ]
    head = [
        "t",
        "above t",
        "FNR, task",
        "FNR, probabilistic",
        "FPR, task",
        "FPR, probabilistic",
        "difference",
    ]
    for name, scores in found.items():
        rows = []
        for row in (rates_at(scores, threshold) for threshold in THRESHOLDS):
            cells = (row.task_fnr, row.probabilistic_fnr, row.task_fpr, row.probabilistic_fpr, row.difference)
            areas = (f"{area:.3f}" for area in (row.task_auc, row.probabilistic_auc))
            rows.append((f"{row.threshold:g}", f"{row.above:.2f}", *map(_cell, cells), *areas))
        shares = [
            (network, *map(_cell, (one.right, one.damaged, one.left, one.asked)), f"{one.contradicting:.3f}")
            for network, one in zip(("task", "probabilistic"), cascades(scores), strict=True)
        ]
        blocks += [
            f"## Labels: {name}",
            f"{len(scores.truth)} crops, {len(scores.task)} seeds.",
            Table([*head, "AUC, task", "AUC, probabilistic"], rows),
            f"Cascade: remove above {REMOVE_ABOVE:g}, ask above {ASK_ABOVE:g}, else keep.",
            Table(
                (
                    "network",
                    "right action",
                    "removed, must be kept",
                    "kept, must be removed",
                    "asked",
                    "contradicting",
                ),
                shares,
            ),
        ]
    return as_markdown(blocks)


def _cell(interval: Interval) -> str:
    known = np.isfinite(interval.value)
    return f"{interval.value:.3f} ({interval.low:.3f} to {interval.high:.3f})" if known else "n/a"
