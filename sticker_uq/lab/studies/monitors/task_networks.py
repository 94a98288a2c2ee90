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
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sticker_uq.lab.kept_pieces import Arrays, fingerprint, kept_arrays
from sticker_uq.lab.studies.monitors.material import Material
from sticker_uq.lab.studies.monitors.task_labels import (
    LabelledCrops,
    TrainAndTest,
    ambiguess_labels,
    annotator_labels,
    blur_labels,
    sticker_class,
)
from sticker_uq.monitors.crop_network import Training, class_vectors, train_classifier
from sticker_uq.scene import FloatArray, IntArray, InvalidInput

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
    """What nine (9, N) and the probabilistic one (N,) of ``seed`` say about ``crops`` (N, C, h,
    w).
    """
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
    """Scores by kind of label. With ``out`` what is finished stays,
    and the same study goes on from it.

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
    """What their cascade does, 0 keep, 1 ask, 2 remove, by its two decisions: who removes is asked
    first.
    """
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
