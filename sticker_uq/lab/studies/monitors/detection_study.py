# SPDX-License-Identifier: Apache-2.0
"""The study of monitors on the whole detections of one detector, on the pictures of a COCO folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sticker_uq.calibration.selective import augrc
from sticker_uq.detection import DetectorSettings, StochasticDetector
from sticker_uq.evaluation.metrics.matching import match
from sticker_uq.evaluation.metrics.statistics import area_under_roc
from sticker_uq.evaluation.reporting.document import Table, as_markdown
from sticker_uq.io.coco import LabelledImage, read_picture
from sticker_uq.lab.attacks.dag import DagSettings
from sticker_uq.lab.attacks.white_box import attack, batches, variant_seed
from sticker_uq.lab.corruptions import TRANSFORMATIONS, LabelledPicture, transform
from sticker_uq.lab.datasets.abnormal import add_foreign_objects
from sticker_uq.lab.studies.ambiguity.pasting import paste
from sticker_uq.lab.studies.ambiguity.raae import generate, train_raaes
from sticker_uq.lab.studies.monitors.classifier_study import missed_rate, missed_share, threshold_at
from sticker_uq.lab.studies.monitors.material import PAIRS, RAAE, crops_of
from sticker_uq.monitors import MONITORS, Objects, concatenate, measure_cost, monitor_named
from sticker_uq.monitors.detections import Probe, observe_boxes
from sticker_uq.scene import Detections, FloatArray, InvalidInput, ObjectClass
from sticker_uq.uncertainty import iou_matrix

CORRUPTIONS = (
    "motion_blur",
    "sensor_noise",
    "low_light",
    "defocus",
    "jpeg",
    "colour_cast",
    "overexposure",
    "salt_and_pepper",
    "lower_resolution",
)
"""Transformations that leave every object where it is, each at the third step of its ladder."""
SETS = ("ambiguous", "adversarial", "corrupted", "invalid")
Tell = Callable[[str], None]
Staged = tuple[NDArray[np.uint8], FloatArray, NDArray[np.int64], FloatArray | None]
"""Image, boxes and labels of its objects, boxes that the set is about."""
_BATCH = 8
_ABOUT = 0.4  # IoU with what was pasted: its box is not drawn as tightly as a labelled one
_NOWHERE = Path("picture")


@dataclass(frozen=True)
class DetectionSettings:
    """``passes``: T; ``min_score``: of the detections that are supervised; ``attacked``: pictures that DAG attacks as ``dag``
    says; ``each``: ambiguous objects per picture; ``alarms``: share of nominal detections that a threshold may refuse;
    ``seed`` of everything that is drawn.
    """

    passes: int = DetectorSettings().passes
    min_score: float = 0.3
    attacked: int = 24
    dag: DagSettings = field(default_factory=lambda: DagSettings(iterations=60, gamma=1.0))
    each: int = 2
    alarms: float = 0.05
    seed: int = 0


@dataclass(frozen=True)
class ObservedSet:
    """Detections of one set of pictures: ``objects``, whether each is ``right`` (N,), and how many of the objects that the set
    is about were ``asked`` for and not detected at all: no monitor sees those.
    """

    objects: Objects
    right: NDArray[np.bool_]
    asked: int
    missed: int


class ObjectObserver:
    """Runs a detector and an ensemble on a monitor study's pictures, and keeps the objects that monitors are to score."""

    def __init__(
        self, detector: StochasticDetector, members: Sequence[StochasticDetector], settings: DetectionSettings
    ) -> None:
        self._detector, self._members, self._settings = detector, members, settings
        self.probe: Probe | None = None

    def observe(self, image: NDArray[np.uint8], number: int, passes: int) -> tuple[Detections, Objects]:
        """The detections of a picture above the lowest score, and the same as objects."""
        detector = self._detector
        features = detector.encode(image)
        found = self._sure(detector.detect(features))
        samples = detector.sample(features, passes, self._settings.seed + number)
        others = [member.detect(member.encode(image)) for member in self._members]
        objects = observe_boxes(
            detector, image, features, found.boxes, found.probabilities, samples, self.probe, others
        )
        return found, objects

    def observe_set(
        self, pictures: Iterable[Staged], keep: Literal["all", "at", "wrong"], passes: int
    ) -> ObservedSet:
        """The detections in ``pictures`` (image, boxes, labels, boxes the set is about).

        ``keep``: "all" detections, those "at" the boxes the set is about, or the "wrong" ones on an object.
        """
        parts, right, asked, missed = [], [], 0, 0
        for number, (image, boxes, labels, about) in enumerate(pictures):
            found, objects = self.observe(image, number, passes)
            item = LabelledImage(
                path=_NOWHERE,
                image_id=number,
                width=image.shape[1],
                height=image.shape[0],
                boxes=np.asarray(boxes, np.float32),
                labels=np.asarray(labels, np.int64),
            )
            matched = match([found], [item])
            kept = np.ones(len(found), bool)
            if keep == "wrong":
                kept = (matched.truth != ObjectClass.BACKGROUND) & (matched.labels != matched.truth)
                asked += len(labels)
                missed += sum(matched.missed.values())
            elif keep == "at" and about is not None:
                overlaps = iou_matrix(found.boxes, np.asarray(about, np.float32))
                hit = overlaps >= _ABOUT
                kept = np.asarray(hit.any(axis=1))
                asked += len(about)
                missed += int((~hit.any(axis=0)).sum())
            objects = replace(objects, labels=matched.truth)
            parts.append(objects[kept])
            right.append(matched.right[kept])
        return ObservedSet(concatenate(parts), np.concatenate(right), asked, missed)

    def _sure(self, found: Detections) -> Detections:
        sure = found.probabilities[:, 1:].max(axis=1, initial=0.0) >= self._settings.min_score
        return Detections(found.boxes[sure], found.probabilities[sure])


@dataclass(frozen=True)
class DetectionResult:
    """What a study of detections found; ``auc`` by monitor and set, ``augrc``, ``missed`` (wrong detections that the
    threshold let through, and wrong ones) and ``cost_ms`` by monitor; ``seen`` by set with "nominal" and "fitted".
    """

    seen: dict[str, tuple[int, int, int]]
    auc: dict[str, dict[str, float]]
    augrc: dict[str, float]
    missed: dict[str, tuple[int, int]]
    cost_ms: dict[str, float]
    alarms: float


def run_detections(
    detector: StochasticDetector,
    members: Sequence[StochasticDetector],
    items: Sequence[LabelledImage],
    settings: DetectionSettings,
    tell: Tell = lambda _: None,
) -> DetectionResult:
    """The monitor study on detections of ``items``: two thirds of the pictures, drawn with the seed, fit monitors, the others
    test them.

    Ambiguous objects are made of those of the first two thirds; DAG attacks ``settings.attacked`` of the others. Monitors
    of an ensemble are left out without ``members``; DAG attacks ``detector``, not the members.
    Raises InvalidInput for too few pictures or when nothing is detected in a set.
    """
    if len(items) < 6:
        raise InvalidInput(f"{len(items)} pictures, expected 6 or more to fit and to test with")
    order = np.random.default_rng(settings.seed).permutation(len(items))
    fitting, testing = ([items[i] for i in part] for part in np.split(order, [2 * len(items) // 3]))
    observer = ObjectObserver(detector, members, settings)
    tell("detections to fit on")
    fitted = observer.observe_set(unchanged_pictures(fitting), "all", passes=1)
    assert fitted.objects.labels is not None
    assert fitted.objects.features is not None
    observer.probe = Probe.fit(fitted.objects.features, fitted.objects.labels)
    fitted_on = replace(fitted.objects, logits=observer.probe.logits(fitted.objects.features))
    seen = {"fitted": fitted}
    stages: dict[str, tuple[Iterable[Staged], Literal["all", "at", "wrong"]]] = {
        "nominal": (unchanged_pictures(testing), "all"),
        "ambiguous": (_ambiguous(fitting, testing, settings), "at"),
        "adversarial": (_attacked(detector, testing, settings), "wrong"),
        "corrupted": (_corrupted(testing, settings), "all"),
        "invalid": (_invalid(testing, settings), "at"),
    }
    for name, (pictures, keep) in stages.items():
        tell(f"{name} pictures")
        seen[name] = observer.observe_set(pictures, keep, settings.passes)
    return _scored(seen, fitted_on, bool(members), settings)


def _scored(
    seen: dict[str, ObservedSet], fitted_on: Objects, ensemble: bool, settings: DetectionSettings
) -> DetectionResult:
    areas, risk, missed, cost = {}, {}, {}, {}
    nominal, corrupted = seen["nominal"], seen["corrupted"]
    wrong = ~np.concatenate([nominal.right, corrupted.right])
    for name, kind in MONITORS.items():
        if "members" in kind.needs and not ensemble:
            continue
        monitor = monitor_named(name).fit(fitted_on)
        usual = monitor.score(nominal.objects)
        areas[name] = {key: area_under_roc(usual, monitor.score(seen[key].objects)) for key in SETS}
        both = np.concatenate([usual, monitor.score(corrupted.objects)])
        risk[name] = augrc(wrong, np.where(np.isnan(both), np.inf, both))
        missed[name] = missed_share(wrong, both, threshold_at(usual, settings.alarms))
        cost[name] = measure_cost(monitor, nominal.objects)
    counts = {name: (len(one.objects), one.asked, one.missed) for name, one in seen.items()}
    return DetectionResult(counts, areas, risk, missed, cost, settings.alarms)


def unchanged_pictures(items: Sequence[LabelledImage]) -> Iterator[Staged]:
    for item in items:
        yield read_picture(item), item.boxes, item.labels, None


def _ambiguous(
    fitting: Sequence[LabelledImage], testing: Sequence[LabelledImage], settings: DetectionSettings
) -> Iterator[Staged]:
    crops, labels = crops_of(unchanged_pictures(fitting), settings.seed)
    raaes = train_raaes(crops, labels, PAIRS, RAAE, settings.seed)
    made = generate(raaes, settings.each * len(testing), seed=settings.seed)
    order = np.random.default_rng(settings.seed).permutation(len(made))
    for number, (image, boxes, labels_, _) in enumerate(unchanged_pictures(testing)):
        chosen = order[number * settings.each : (number + 1) * settings.each]
        scene = paste(image, boxes, made.images, chosen, np.random.default_rng([settings.seed, number]))
        yield scene.image, boxes, labels_, scene.boxes


def _attacked(
    detector: StochasticDetector, testing: Sequence[LabelledImage], settings: DetectionSettings
) -> Iterator[Staged]:
    with_objects = [item for item in testing if len(item.labels)][: settings.attacked]
    for batch in batches(with_objects, _BATCH):
        seeds = [variant_seed(settings.seed, 0, item.path.name) for item in batch]
        for item, result in zip(batch, attack(detector, batch, settings.dag, seeds), strict=True):
            yield result.image, item.boxes, item.labels, None


def _corrupted(testing: Sequence[LabelledImage], settings: DetectionSettings) -> Iterator[Staged]:
    for number, (image, boxes, labels, _) in enumerate(unchanged_pictures(testing)):
        name = CORRUPTIONS[number % len(CORRUPTIONS)]
        strength = TRANSFORMATIONS[name].ladder[2]
        changed = transform(LabelledPicture.of(image, boxes, labels), name, strength, settings.seed + number)
        yield changed.image, changed.boxes, changed.labels, None


def _invalid(testing: Sequence[LabelledImage], settings: DetectionSettings) -> Iterator[Staged]:
    for number, (image, boxes, labels, _) in enumerate(unchanged_pictures(testing)):
        rng = np.random.default_rng([settings.seed, number])
        scene = add_foreign_objects(image, boxes, labels, rng, stickers=False)
        yield scene.image, scene.boxes, scene.labels, scene.added


def detection_report(result: DetectionResult, title: str) -> str:
    return as_markdown(
        [
            f"# {title}",
            Table(
                ("pictures", "detections", "objects the set is about", "of these not detected"),
                [
                    (name, str(count), *((str(asked), str(lost)) if asked else ("n/a", "n/a")))
                    for name, (count, asked, lost) in result.seen.items()
                ],
            ),
            "No monitor scores what is not detected. Of the attacked pictures the detections of a wrong class count.",
            "## AUC-ROC against nominal detections, and error detection on nominal and corrupted ones",
            f"FNR: share of the wrong detections below the threshold that refuses {result.alarms:.0%} of the nominal ones, with "
            "its 95 % interval (Clopper and Pearson).",
            Table(
                ("monitor", *SETS, "AUGRC", "FNR", "ms per object"),
                [
                    (
                        name,
                        *(f"{found[key]:.3f}" for key in SETS),
                        f"{result.augrc[name]:.4f}",
                        missed_rate(*result.missed[name]),
                        f"{result.cost_ms[name]:.3f}",
                    )
                    for name, found in result.auc.items()
                ],
            ),
        ]
    )
