# SPDX-License-Identifier: Apache-2.0
"""The monitor study of Weiss et al. 2022 on any crops: Table I, Table II and error detection, over several seeds of the
classifier.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch.nn import functional as F

from sticker_uq.calibration.measuring import augrc
from sticker_uq.detection.kernels.devices import single_thread
from sticker_uq.evaluation.metrics.statistics import area_under_roc, clopper_pearson
from sticker_uq.evaluation.reporting.document import Table, as_markdown
from sticker_uq.io.setting_fields import Frozen
from sticker_uq.perception.monitors import MONITORS, Objects, measure_cost, monitor_named
from sticker_uq.perception.monitors.crop_network import (
    CropNetwork,
    CropTraining,
    class_vectors,
    parts_of,
    train_network,
)
from sticker_uq.scene import FloatArray, IntArray
from sticker_uq.uncertainty.metrics import entropy
from sticker_uq_lab.kept_pieces import fingerprint, read_or_make_document
from sticker_uq_lab.studies.ambiguity import raae
from sticker_uq_lab.studies.monitors.crop_changes import adversarial, corrupt
from sticker_uq_lab.studies.monitors.material import Material, Tell
from sticker_uq_lab.studies.monitors.paper_networks import ARCHITECTURES, CONVOLUTIONAL, builder


@single_thread()
@torch.no_grad()
def observe_crops(
    model: CropNetwork,
    crops: FloatArray,
    passes: int,
    seed: int,
    members: Sequence[CropNetwork] = (),
    labels: IntArray | None = None,
) -> Objects:
    """What the monitors read of ``crops``: ``passes`` passes with masks of ``seed``, an ensemble for ``members``."""
    logits, layers = [], []
    for part in parts_of(crops):
        *maps, hidden = model.activations(part, dropout=False)
        pooled = [F.adaptive_avg_pool2d(level, 2).flatten(1) for level in maps]
        layers.append([level.double().numpy() for level in (*pooled, hidden)])
        logits.append(model.last(hidden).double())
    samples = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for _ in range(passes):
            drawn = [torch.softmax(model(part, dropout=True), dim=1) for part in parts_of(crops)]
            samples.append(torch.cat(drawn).double().numpy())
    found = torch.cat(logits)
    levels = tuple(np.concatenate(level) for level in zip(*layers, strict=True))
    return Objects(
        probabilities=torch.softmax(found, dim=1).numpy(),
        logits=found.numpy(),
        samples=np.stack(samples),
        members=np.stack([class_vectors(member, crops) for member in members]) if members else None,
        features=levels[-1],
        layers=levels,
        crops=np.asarray(crops, np.float32),
        labels=labels,
    )


TABLE_1 = {"top_1": "Top-1", "top_2": "Top-2", "top_pair": "Top-Pair", "entropy": "entropy, bits"}
"""Columns of Weiss et al.'s Table I: shares 0..1, and the entropy; ``top_pair`` NaN where there is one class."""


def nominal_row(vectors: FloatArray, labels: IntArray) -> dict[str, float]:
    """Row of Weiss et al.'s Table I for class vectors (N, K) of crops of one class ``labels`` (N,) each."""
    ranked = np.argsort(-vectors, axis=1, kind="stable")
    hit = ranked[:, :2] == labels[:, None]
    shares = (hit[:, 0].mean(), hit.any(axis=1).mean(), math.nan, entropy(vectors).mean())
    return dict(zip(TABLE_1, map(float, shares), strict=True))


def ambiguous_row(vectors: FloatArray, pairs: IntArray, probabilities: FloatArray) -> dict[str, float]:
    """Row of Weiss et al.'s Table I for class vectors (N, K) of crops of ``pairs`` (N, 2) with ``probabilities`` (N, 2).

    The right class of Top-1 and Top-2 is the more probable one; Top-Pair: the two surest classes are the two.
    """
    right = pairs[np.arange(len(pairs)), probabilities.argmax(axis=1)]
    surest = np.sort(np.argsort(-vectors, axis=1, kind="stable")[:, :2], axis=1)
    both = (surest == np.sort(pairs, axis=1)).all(axis=1)
    return nominal_row(vectors, right) | {"top_pair": float(both.mean())}


def threshold_at(usual: FloatArray, alarms: float) -> float:
    """The score above which at most a share ``alarms`` of the ``usual`` crops or objects (N,) lies."""
    ordered = np.sort(np.where(np.isnan(usual), np.inf, usual))
    return float(ordered[max(0, int(np.ceil((1 - alarms) * len(ordered))) - 1)])


def count_missed(wrong: NDArray[np.bool_], scores: FloatArray, threshold: float) -> tuple[int, int]:
    caught = np.where(np.isnan(scores), np.inf, scores) > threshold
    return int((wrong & ~caught).sum()), int(wrong.sum())


SETS = ("ambiguous", "adversarial", "corrupted", "invalid")
PUBLISHED = f"ambiguous, delta_max {raae.TEST_DELTA:g}"
"""The row of Table I of ambiguous crops that are as ambiguous as those of the paper."""
_FORMAT = 9
_TESTING = 1000  # seed of the autoencoders that draw what is tested with


class MonitorStudySettings(Frozen):
    """``architectures``: kinds of classifier, each trained with every seed; ``training``: None as the material says."""

    seeds: int = Field(5, ge=1, description="number of classifiers to train and monitor")
    members: int = Field(5, ge=1, description="members of each classifier's ensemble")
    passes: int = Field(50, ge=1, description="stochastic passes per crop")
    ambiguous: int = Field(1800, ge=1, description="ambiguous crops for training; half as many for testing")
    delta_max: float = Field(0.15, gt=0, le=1)
    """highest difference of the two probabilities of a test crop"""
    alarms: float = Field(0.05, gt=0, lt=1, description="share of nominal crops that a threshold may reject")
    swapped: bool = Field(
        True,
        description="train the autoencoders' discriminator with swapped labels too; no: as the paper does",
    )
    training: CropTraining | None = None
    architectures: tuple[str, ...] = (CONVOLUTIONAL,)

    @model_validator(mode="after")
    def _are_known(self) -> Self:
        for name in self.architectures:
            if name not in ARCHITECTURES:
                raise ValueError(f"--architecture {name}: expected one of {', '.join(ARCHITECTURES)}")
        return self


SeedResult = dict[str, Any]
"""What one seed found, as it is kept: ``accuracy``, ``counts`` of crops, rows of ``table_1``; by monitor ``auc`` by set, None
where a set is not for it, ``augrc``, ``missed`` (wrong crops that the threshold let through, and wrong crops) and ``cost_ms``.
"""


@dataclass(frozen=True)
class StudyResult:
    """``clean_accuracy``: of a classifier that saw no ambiguous crop."""

    material: str
    settings: MonitorStudySettings
    seeds: list[SeedResult]
    clean_accuracy: float


def run_study(
    material: Material,
    settings: MonitorStudySettings,
    out: Path | None = None,
    tell: Tell = lambda stage: None,
) -> StudyResult:
    """Finished seeds stay in ``out``, and the same study goes on from them."""
    ambiguous = cache(partial(ambiguous_crops, material, settings, tell))
    results, clean = [], []
    for architecture in settings.architectures:
        for seed in range(settings.seeds):
            stage = f"{architecture}, seed {seed + 1} of {settings.seeds}"
            tell(stage)
            within = partial(_tell_within, tell, stage)
            results.append(_read_or_compute(material, settings, ambiguous, seed, out, architecture, within))
        tell(f"{architecture} without ambiguous crops")
        clean.append(_clean_accuracy(material, settings, architecture, out))
    return StudyResult(material.name, settings, results, float(np.mean(clean)))


def _tell_within(tell: Tell, stage: str, step: str) -> None:
    tell(f"{stage}: {step}")


@dataclass(frozen=True)
class AmbiguousCrops:
    """Crops to train with, to test with, and as ambiguous as those that the paper tested with.

    Those to test with come from other autoencoders than those to train with: a classifier learns by heart which class is the
    likelier one in the pictures of an autoencoder that it knows.
    """

    training: raae.AmbiguousImages
    testing: raae.AmbiguousImages
    published: raae.AmbiguousImages


def ambiguous_crops(
    material: Material, settings: MonitorStudySettings, tell: Tell = lambda stage: None
) -> AmbiguousCrops:
    half = max(1, settings.ambiguous // 2)
    # what the paper's training leaves to chance has to be tried more often
    tries = material.raae.tries * (1 if settings.swapped else 10)
    autoencoders = replace(material.raae, swapped=settings.swapped, tries=tries)
    learned = (material.train, material.train_labels, material.pairs, autoencoders)
    raaes = []
    for what, seed in (("to train with", 0), ("to test with", _TESTING)):
        tell(f"autoencoders {what}")
        raaes.append(
            raae.train_raaes(
                *learned, seed, lambda done, wanted: tell(f"autoencoders: {done} of {wanted} accepted")
            )
        )
    return AmbiguousCrops(
        raae.generate(raaes[0], settings.ambiguous, raae.TRAINING_DELTA, seed=1),
        raae.generate(raaes[1], half, settings.delta_max, seed=2),
        raae.generate(raaes[1], half, raae.TEST_DELTA, seed=2),
    )


def train_members(
    material: Material,
    training: raae.AmbiguousImages,
    settings: MonitorStudySettings,
    seed: int,
    architecture: str = CONVOLUTIONAL,
    tell: Tell = lambda stage: None,
) -> list[Any]:
    """The classifier of ``seed`` and its ensemble, trained on nominal crops and on ambiguous ones with labels as drawn once."""
    crops = np.concatenate([material.train, training.images])
    one_hot = np.eye(len(material.classes))
    drawn = draw_labels(training.vectors(len(material.classes)), seed)
    vectors = one_hot[np.concatenate([material.train_labels, drawn])]
    chosen = settings.training or material.training
    build = builder(architecture, chosen.deep)
    networks = []
    for number in range(settings.members + 1):
        tell(f"network {number + 1} of {settings.members + 1}")
        networks.append(train_network(build, crops, vectors, 1000 * seed + number, chosen))
    return networks


def draw_labels(vectors: FloatArray, seed: int) -> IntArray:
    """A class for each probabilistic label (N, K), drawn by its probabilities, (N,)."""
    drawn = np.random.default_rng(seed).random((len(vectors), 1))
    # scaled, for a row that sums to a little less than 1 must have a class too
    return np.asarray((vectors.cumsum(axis=1) > drawn * vectors.sum(axis=1, keepdims=True)).argmax(axis=1))


def run_seed(
    material: Material,
    settings: MonitorStudySettings,
    ambiguous: AmbiguousCrops,
    seed: int,
    architecture: str = CONVOLUTIONAL,
    tell: Tell = lambda stage: None,
) -> SeedResult:
    """The study with one seed: attacks on the first classifier, monitors fitted on its crops, their scores."""
    training, testing, published = ambiguous.training, ambiguous.testing, ambiguous.published
    model, *members = train_members(material, training, settings, seed, architecture, tell)
    crops = np.concatenate([material.train, training.images])
    drawn = draw_labels(training.vectors(len(material.classes)), seed)
    labels = np.concatenate([material.train_labels, drawn])
    fitted_on = observe_crops(model, crops, 1, seed, members, labels)
    tell("attacks")
    attacked, _ = adversarial(model, material.test, material.test_labels, seed)
    sets = {
        "nominal": material.test,
        "ambiguous": testing.images,
        "adversarial": attacked,
        "corrupted": corrupt(material.test, seed),
        "invalid": material.invalid,
    }
    how = settings.passes, seed, members
    seen = {name: observe_crops(model, pictures, *how) for name, pictures in sets.items()}
    nominal = seen["nominal"]
    wrong = nominal.predicted != material.test_labels
    corrupted_wrong = seen["corrupted"].predicted != material.test_labels
    areas: dict[str, dict[str, float | None]] = {}
    risk, missed, cost = {}, {}, {}
    for name, kind in MONITORS.items():
        tell(f"monitor {name}")
        monitor = monitor_named(name).fit(fitted_on)
        scores = {key: monitor.score(objects) for key, objects in seen.items()}
        ensemble = "members" in kind.needs
        areas[name] = {
            # the attack is on one network, not on an ensemble
            key: None if ensemble and key == "adversarial" else area_under_roc(scores["nominal"], scores[key])
            for key in SETS
        }
        both_wrong = np.concatenate([wrong, corrupted_wrong])
        both = np.concatenate([scores["nominal"], scores["corrupted"]])
        risk[name] = augrc(both_wrong, np.where(np.isnan(both), np.inf, both))
        threshold = threshold_at(scores["nominal"], settings.alarms)
        missed[name] = list(count_missed(both_wrong, both, threshold))
        cost[name] = measure_cost(monitor, nominal, repeats=1)
    return {
        "accuracy": float(1 - wrong.mean()),
        "table_1": {
            "ambiguous": ambiguous_row(seen["ambiguous"].probabilities, testing.pairs, testing.probabilities),
            PUBLISHED: ambiguous_row(
                class_vectors(model, published.images), published.pairs, published.probabilities
            ),
            "nominal": nominal_row(nominal.probabilities, material.test_labels),
        },
        "auc": areas,
        "augrc": risk,
        "missed": missed,
        "cost_ms": cost,
        "counts": {name: len(pictures) for name, pictures in sets.items()},
    }


def _read_or_compute(
    material: Material,
    settings: MonitorStudySettings,
    ambiguous: Callable[[], AmbiguousCrops],
    seed: int,
    out: Path | None,
    architecture: str,
    progress: Tell,
) -> SeedResult:
    named = settings.model_dump() | {
        "seeds": 0,
        "architectures": architecture,
        "format": _FORMAT,
        "material": material.name,
        "pairs": material.pairs,
        "raae": asdict(material.raae),
        "training": asdict(settings.training or material.training),
    }
    labels = (material.train_labels, material.test_labels)
    arrays = (material.train, material.test, material.invalid, *labels)
    prefix = "" if architecture == CONVOLUTIONAL else f"{architecture}_"
    mark = fingerprint(named, *arrays)
    found: SeedResult = read_or_make_document(
        out and out / f"{prefix}seed_{seed}_{mark}.json",
        lambda: run_seed(material, settings, ambiguous(), seed, architecture, progress),
    )
    return found


def _clean_accuracy(
    material: Material, settings: MonitorStudySettings, architecture: str, out: Path | None
) -> float:
    training = settings.training or material.training

    def measure() -> float:
        one_hot = np.eye(len(material.classes))[material.train_labels]
        plain = train_network(builder(architecture, training.deep), material.train, one_hot, 0, training)
        return float((observe_crops(plain, material.test, 1, 0).predicted == material.test_labels).mean())

    mark = fingerprint([_FORMAT, architecture, asdict(training)], material.train, material.test)
    return float(read_or_make_document(out and out / f"clean_{mark}.json", measure))


def classifier_report(result: StudyResult) -> str:
    seeds, settings = result.seeds, result.settings
    counts = ", ".join(f"{count} {name}" for name, count in seeds[0]["counts"].items())
    return as_markdown(
        [
            f"# Monitors on {result.material}",
            f"{len(seeds)} seeds, mean and standard deviation. Ensembles of {settings.members}, {settings.passes} passes. "
            f"Crops: {counts}. Accuracy on nominal crops {_cell([s['accuracy'] for s in seeds])}, {result.clean_accuracy:.3f} "
            "without ambiguous crops in training. "
            f"Ambiguous crops: delta_max {settings.delta_max:g}, of other autoencoders than those trained with.",
            "## Table I: how ambiguous the crops are to the classifier",
            _by_name(seeds, "table_1", "crops", TABLE_1),
            "## Table II: AUC-ROC against nominal crops",
            _by_name(seeds, "auc", "monitor", {name: name for name in SETS}),
            "## Error detection on nominal and corrupted crops",
            f"FNR: share of the wrongly classified crops below the threshold that refuses {settings.alarms:.0%} of the nominal "
            "ones, all seeds together, with its 95 % interval (Clopper and Pearson; crops of different seeds are the same, so it "
            "is a little too narrow). AUGRC: lower is better.",
            Table(
                ("monitor", "AUGRC", "FNR", "ms per crop"),
                [
                    (
                        name,
                        _cell([seed["augrc"][name] for seed in seeds]),
                        missed_rate(*np.sum([seed["missed"][name] for seed in seeds], axis=0).tolist()),
                        f"{np.median([seed['cost_ms'][name] for seed in seeds]):.3f}",
                    )
                    for name in seeds[0]["augrc"]
                ],
            ),
        ]
    )


def _by_name(seeds: Sequence[SeedResult], part: str, head: str, columns: Mapping[str, str]) -> Table:
    rows = [
        (name, *(_cell([seed[part][name][column] for seed in seeds]) for column in columns))
        for name in seeds[0][part]
    ]
    return Table((head, *columns.values()), rows)


def missed_rate(missed: int, wrong: int) -> str:
    low, high = clopper_pearson(missed, wrong)
    return f"{missed / wrong if wrong else float('nan'):.2f} ({low:.2f} to {high:.2f})"


def _cell(values: Sequence[float | None]) -> str:
    numbers = [value for value in values if value is not None and np.isfinite(value)]
    if not numbers:
        return "n/a"
    if len(numbers) == 1:
        return f"{numbers[0]:.3f}"
    return f"{np.mean(numbers):.3f} ± {np.std(numbers, ddof=1):.3f}"
