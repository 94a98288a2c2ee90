# SPDX-License-Identifier: Apache-2.0
"""What benchmarks.better_uncertainty knows of a picture: every object that one pass detects, as each kind of passes sees it.

Measured once and kept as a file per picture, so that a new signal made of it costs no run of the detector.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from benchmarks import hard_scenes
from benchmarks.augmentation import TestTimeAugmentation
from benchmarks.hard_measure import head_signals
from benchmarks.hard_methods import MATCH_IOU, STICKER
from benchmarks.hard_scenes import NONE, SPLITS, STRENGTHS, Case, HardScene, Material, cases
from sticker_uq.detection import Features, StochasticDetector
from sticker_uq.detection.boxes import decoded
from sticker_uq.detection.detector import load_detector
from sticker_uq.detection.dropout import CounterDropout
from sticker_uq.detection.kernels.pixels import network_input
from sticker_uq.detection.models.family import anchor_candidates
from sticker_uq.detection.models.ssd import head_columns
from sticker_uq.detection.selection import Rows, keep_best, softmax_distribution
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.evaluation.metrics.matching import best_overlap
from sticker_uq.evaluation.replay.assessment_json import code_fingerprint
from sticker_uq.io.files import atomic_write
from sticker_uq.monitors.detections import pooled_layers, vectors_of
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.novelty import NoveltyEstimator
from sticker_uq.scene import FloatArray, ObservedObject, StochasticSamples
from sticker_uq.uncertainty import ClusterSettings, iou_matrix, observe
from sticker_uq.uncertainty.metrics import entropy

PASSES, VIEWS = 20, 5
SMALL = 40.0
"""Longer side in px of a 640x480 picture below which a sticker counts as small."""
SAME = 0.5
"""IoU from which a cluster shows the object that one pass detects, and from which a sticker counts as found."""
METRICS = (
    "variation_ratio",
    "shannon_entropy",
    "mutual_information",
    "relative_total_variance",
    "relative_predictive_surface",
)
PASS_SIGNALS = (
    "score",
    *METRICS,
    "missed",
    "score_all",
    "vr_all",
    "mi_all",
    "anchor_mi",
    "anchor_sd",
    "anchor_mean",
    "anchor_spread",
)
"""Of an object by one kind of passes: 1 - mean score, the metrics and the share of passes without it, of its cluster; the same
over all passes, one that does not show it counting as background; and of the class vectors of its own anchor, which neither
score floor nor suppression chose: mutual information, standard deviation and mean of the log odds of sticker, and spread of its
box / its size."""
ANCHOR_SIGNALS = PASS_SIGNALS[-4:]
NEIGHBOURS = ("neighbour_score", "neighbour_iou", "neighbour_spread")
"""Of the candidates that overlap an object before suppression: mean score, mean IoU with it, spread of their boxes / its size."""
CLUSTERINGS = {
    "epsilon 0.5": ClusterSettings(),
    "epsilon 0.6": ClusterSettings(epsilon=0.6),
    "epsilon 0.7": ClusterSettings(epsilon=0.7),
    "2 passes": ClusterSettings(min_cluster_size=2, min_samples=2),
}
"""Settings of the clustering that the recall of stickers is measured with, the packaged ones first."""
_FLOOR = 0.05  # candidates below are background
_SHIFTS_EACH = 2  # of a laptop, per strength
_EDGE = 1e-7

Place = Literal["inputs", "last layer", "outputs", "backbone", "views"]


@dataclass(frozen=True)
class Passes:
    """One way to several passes. ``place``: what dropout meets at ``rate``, whole ``channels`` of it or single elements.

    "inputs": the maps that enter the heads; "last layer": the input of each head's last layer; "outputs": that of the heads;
    "backbone": the input of the block that makes the finest map, from which all maps follow; "views": no dropout, but views of
    test-time augmentation.
    """

    place: Place
    rate: float = 0.0
    channels: bool = False

    @property
    def name(self) -> str:
        """How tables name it."""
        if self.place == "views":
            return "augmented views"
        return f"{self.place}{', channels' if self.channels else ''} {self.rate:g}"


_PLACES: tuple[tuple[Place, bool], ...] = (("inputs", True), ("last layer", False))
PACKAGED = Passes("inputs", 0.2)
"""As the cell computes them."""
VIEWED = Passes("views")
KINDS = (
    *(Passes("inputs", rate) for rate in (0.1, 0.2, 0.3, 0.5, 0.7)),
    *(Passes(place, rate, channels) for place, channels in _PLACES for rate in (0.1, 0.2, 0.5)),
    Passes("outputs", 0.2),
    *(Passes("backbone", rate, channels) for rate, channels in ((0.1, False), (0.2, False), (0.1, True))),
    VIEWED,
)


@dataclass(frozen=True)
class Picture:
    """The laptop of ``seed`` of ``split`` in ``case``."""

    split: str
    case: Case
    seed: int

    @property
    def name(self) -> str:
        """Of its file."""
        words = (self.split, self.case.part, self.case.name, self.case.strength, str(self.seed))
        return "-".join(words).replace(" ", "_").replace(":", "")


def plan(split: str, laptops: int, novelties: Sequence[str], first: int = 0) -> list[Picture]:
    """The pictures of ``laptops`` of ``split``, from its ``first`` on.

    Of each the unchanged picture, and to fit on also two that are weakly shifted, else two shifts of every strength and the
    ``novelties``. The shifts take turns, so that many laptops take part.
    """
    named: dict[str, list[Case]] = {}
    for case in cases(("shift",))[1:]:
        named.setdefault(case.strength, []).append(case)
    shown = STRENGTHS[:1] if split == "fit" else STRENGTHS
    found = []
    for number in range(first, first + laptops):
        own = [Case("shift", NONE, NONE)]
        for offset, strength in enumerate(shown):
            choice = named[strength]
            own += [
                choice[(_SHIFTS_EACH * number + k + 5 * offset) % len(choice)] for k in range(_SHIFTS_EACH)
            ]
        if split != "fit":
            own += [Case("novelty", name, NONE) for name in novelties]
        found += [Picture(split, case, SPLITS[split][number]) for case in own]
    return found


class Instrument:
    """Measures pictures with the packaged SSDLite and its novelty network."""

    def __init__(self) -> None:
        settings = PerceptionSettings(device="cpu", threads=1)
        self.detector = load_detector(DetectorSettings(device="cpu", threads=1))
        self._novelty = NoveltyEstimator(settings, self.detector)
        self._views = TestTimeAugmentation(self.detector)

    def objects(self, scene: HardScene, kinds: Sequence[Passes], seed: int) -> dict[str, np.ndarray]:
        """What is known of the N objects that one pass over ``scene`` detects, and of its stickers; ``seed`` draws the views.

        "boxes" (N, 4) px, "probabilities" and "logits" (N, 3), "level" (N,), "hidden" (N,) True where nobody can tell what is
        right, "right_class" (N,) the class there, "last" (N, F) input of the class head's last layer, "pooled" (N, G), one array
        (N,) per signal, and one (N, PASS_SIGNALS) per kind of passes. Of the M stickers "size" (M,) px, "found" (M,) by one
        pass, and per kind "seen KIND" (M, CLUSTERINGS), see `sticker_states`. Of the packaged passes "passes" (T, N, 3), logits
        of the objects' own anchors, and of the stickers what `sticker_views` says.
        """
        detector = self.detector
        features = detector.encode(scene.image)
        seen = detector.detect(features)
        single = heads_of(detector, [m[:1] for m in detector.head_maps(features)])
        anchors = source_anchors(detector, features, single, seen.boxes, seen.probabilities)
        label, hidden = truth(scene, seen.boxes)
        level, last = last_inputs(detector, features, anchors)
        novelty = self._novelty.begin(scene.image)()
        stickers = scene.boxes[scene.labels == STICKER]
        found: dict[str, np.ndarray] = {
            "boxes": seen.boxes,
            "probabilities": seen.probabilities,
            "logits": single[0][0, anchors].numpy(),
            "right_class": label,
            "hidden": hidden,
            "level": level,
            "last": last.astype(np.float16),
            "pooled": np.concatenate(pooled_layers(detector, features, seen.boxes), axis=1).astype(
                np.float16
            ),
            "novelty": np.array([novelty.at(box) for box in seen.boxes]),
            "size": (stickers[:, 2:] - stickers[:, :2]).max(axis=1, initial=0.0),
            "found": _met(stickers, seen.boxes[seen.probabilities.argmax(axis=1) == STICKER]),
        }
        found |= head_signals(detector, features, seen.boxes, seen.probabilities)
        found |= neighbours(detector, features, single, seen.boxes)
        for kind in kinds:
            samples, outputs = self._passes(scene, features, kind, seed)
            found[kind.name] = pass_signals(seen.boxes, samples)
            if outputs is not None:
                found[kind.name][:, -len(ANCHOR_SIGNALS) :] = self._anchors(features, outputs, anchors)
            found[f"seen {kind.name}"] = sticker_states(stickers, samples, kind == PACKAGED)
            if outputs is not None and kind == PACKAGED:
                found["passes"] = outputs[0][:, anchors].numpy().astype(np.float16)
                found |= sticker_views(stickers, samples)
        return found

    def _passes(
        self, scene: HardScene, features: Features, kind: Passes, seed: int
    ) -> tuple[StochasticSamples, Outputs | None]:
        """Detections of the passes, and the outputs of the heads; None for views, whose anchors lie elsewhere."""
        if kind.place == "views":
            return self._views.sample(scene.image, VIEWS, seed), None
        with torch.no_grad():
            outputs = dropped(self.detector, features, scene.image, kind, PASSES)
        return samples_of(self.detector, features, outputs), outputs

    def _anchors(self, features: Features, outputs: Outputs, anchors: np.ndarray) -> FloatArray:
        """ANCHOR_SIGNALS of the N objects whose own anchors are ``anchors`` (N,), (N, ANCHOR_SIGNALS)."""
        if not len(anchors):
            return np.zeros((0, len(ANCHOR_SIGNALS)))
        own = softmax_distribution(outputs[0][:, anchors]).numpy().astype(float)
        boxes = np.stack(
            [all_boxes(self.detector, features, deltas[anchors], anchors) for deltas in outputs[1]]
        ).astype(float)
        sides = boxes.mean(axis=0)[:, 2:] - boxes.mean(axis=0)[:, :2]
        size = np.sqrt(np.maximum(np.prod(sides, axis=1), 1.0))
        return np.stack(
            [
                entropy(own.mean(axis=0)) - entropy(own).mean(axis=0),
                log_odds(own).std(axis=0),
                log_odds(own).mean(axis=0),
                np.sqrt(boxes.var(axis=0).sum(axis=1)) / size,
            ],
            axis=1,
        )


Outputs = tuple[Tensor, Tensor]
"""Logits (n, A, 3) and box deltas (n, A, 4) of the anchors in n passes."""


def heads_of(detector: StochasticDetector, maps: Sequence[Tensor]) -> Outputs:
    """The outputs of an SSD's heads for the ``maps`` (n, C, h, w) of its levels."""
    head = detector.model.head
    with torch.no_grad():
        return _outputs(
            head,
            [m(x) for m, x in zip(head.classification_head.module_list, maps, strict=True)],
            [m(x) for m, x in zip(head.regression_head.module_list, maps, strict=True)],
        )


def _outputs(head: Any, logits: list[Tensor], deltas: list[Tensor]) -> Outputs:
    return (
        head_columns(logits, head.classification_head.num_columns),
        head_columns(deltas, head.regression_head.num_columns),
    )


def dropped(
    detector: StochasticDetector, features: Features, image: np.ndarray, kind: Passes, passes: int
) -> Outputs:
    """The outputs of ``passes`` passes of an SSDLite with dropout where ``kind`` says; the masks follow from the pass."""
    masks = CounterDropout(kind.rate, detector.settings.seed, range(passes), detector.device)

    def drop(maps: Tensor) -> Tensor:
        if not kind.channels:
            return masks(maps)
        return masks.masks(maps[..., :1, :1]).div_(masks.keep) * maps

    head = detector.model.head
    plain = detector.head_maps(features)
    branches = (head.regression_head, head.classification_head)
    if kind.place == "inputs":
        return heads_of(detector, [drop(m) for m in plain])
    if kind.place == "backbone":
        return heads_of(detector, _backbone(detector, image, drop))
    made: list[list[Tensor]] = []
    for branch in branches:
        blocks = list(zip(branch.module_list, plain, strict=True))
        if kind.place == "outputs":
            made.append([drop(block(m)) for block, m in blocks])
        else:
            made.append([block[1](drop(block[0](m))) for block, m in blocks])
    return _outputs(head, made[1], made[0])


def _backbone(
    detector: StochasticDetector, image: np.ndarray, drop: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """The maps of MobileNetV3 with dropout before the block that makes the finest one."""
    backbone = detector.model.backbone
    fine, coarse = backbone.features
    reached = network_input(detector.model.transform, image, detector.device).tensors
    reached = fine[-1](drop(fine[:-1](reached)))
    maps = [reached]
    for block in (coarse, *backbone.extra):
        maps.append(block(maps[-1]))
    return maps


def samples_of(detector: StochasticDetector, features: Features, outputs: Outputs) -> StochasticSamples:
    """The detections that the packaged settings make of ``outputs``, px of the picture."""
    settings, (logits, deltas) = detector.settings, outputs
    maps = detector.head_maps(features)
    rows = anchor_candidates(
        detector.model, features, maps, softmax_distribution(logits), deltas, settings.score_floor
    )
    rows = keep_best(rows, features.resized, settings.nms_threshold, settings.max_detections)
    return StochasticSamples(
        to_picture(features, rows), rows.probabilities.numpy(), rows.pass_index.numpy(), len(logits)
    )


def to_picture(features: Features, rows: Rows) -> FloatArray:
    """The boxes of ``rows``, which are px of the resized image, in px of the picture."""
    width, height = features.image_size
    scale = np.array([width / features.resized[1], height / features.resized[0]] * 2, np.float32)
    return np.minimum(rows.boxes.numpy() * scale, np.array([width, height] * 2, np.float32))


def all_boxes(
    detector: StochasticDetector, features: Features, deltas: Tensor, chosen: np.ndarray | None = None
) -> FloatArray:
    """The boxes (A, 4) of all anchors, or of those ``chosen``, with ``deltas`` (A, 4), px of the picture and cut at its edges."""
    anchors = features.anchors(detector.model.anchor_generator, detector.head_maps(features))
    width, height = features.image_size
    scale = np.array([width / features.resized[1], height / features.resized[0]] * 2, np.float32)
    anchors = anchors if chosen is None else anchors[chosen]
    boxes = decoded(detector.model.box_coder, deltas, anchors).numpy() * scale
    return np.clip(boxes, 0, [width, height, width, height]).astype(np.float32)


def source_anchors(
    detector: StochasticDetector, features: Features, single: Outputs, boxes: FloatArray, vectors: FloatArray
) -> np.ndarray:
    """The anchor (N,) that each detection ``boxes`` (N, 4) with class ``vectors`` (N, 3) of one pass comes from."""
    own = softmax_distribution(single[0][0]).numpy()
    strong = np.flatnonzero(own[:, 1:].max(axis=1) > detector.settings.score_floor / 2)
    places = all_boxes(detector, features, single[1][0])[strong]
    if not len(boxes):
        return np.zeros(0, np.int64)
    unlike = np.abs(boxes[:, None] - places[None]).sum(axis=2) / 100
    unlike += np.abs(vectors[:, None] - own[strong][None]).sum(axis=2)
    return strong[unlike.argmin(axis=1)]


def last_inputs(
    detector: StochasticDetector, features: Features, anchors: np.ndarray
) -> tuple[np.ndarray, FloatArray]:
    """Level and place among its cell's anchors, as 100 * level + place, of ``anchors`` (N,), and what the class head's last
    layer gets for each, (N, F), zeros where a level has fewer channels.
    """
    head = detector.model.head.classification_head
    counts = detector.model.anchor_generator.num_anchors_per_location()
    maps = detector.head_maps(features)
    ends = np.cumsum([m.shape[-1] * m.shape[-2] * a for m, a in zip(maps, counts, strict=True)])
    level = np.searchsorted(ends, anchors, side="right")
    inside = anchors - np.append(0, ends)[level]
    per_cell = np.array(counts)[level]
    found = np.zeros((len(anchors), max(m.shape[1] for m in maps)))
    for number in np.unique(level):
        own = level == number
        with torch.no_grad():
            hidden = head.module_list[number][0](maps[number])[0].flatten(1).T.numpy()
        found[own, : hidden.shape[1]] = hidden[inside[own] // per_cell[own]]
    return 100 * level + inside % per_cell, found


def truth(scene: HardScene, boxes: FloatArray) -> tuple[np.ndarray, np.ndarray]:
    """The class at each of ``boxes`` (N, 4), 0 where nothing labelled is, and whether only a hidden object is there."""
    place, _ = best_overlap(boxes, scene.boxes, MATCH_IOU)
    label = np.where(place >= 0, np.append(scene.labels, 0)[place], 0)
    return label, (place < 0) & (best_overlap(boxes, scene.hidden, MATCH_IOU)[0] >= 0)


def neighbours(
    detector: StochasticDetector, features: Features, single: Outputs, boxes: FloatArray
) -> dict[str, FloatArray]:
    """NEIGHBOURS of the detections ``boxes`` (N, 4) of one pass, (N,) each; NaN for an object without any."""
    vectors = softmax_distribution(single[0][0]).numpy()
    strong = np.flatnonzero(vectors[:, 1:].max(axis=1) > _FLOOR)
    if not len(strong) or not len(boxes):
        return {name: np.full(len(boxes), np.nan) for name in NEIGHBOURS}
    places, score = all_boxes(detector, features, single[1][0])[strong], vectors[strong, 1:].max(axis=1)
    overlap = iou_matrix(np.asarray(boxes, np.float32), places)
    near = (overlap >= SAME).astype(float)
    weight = near / np.maximum(near.sum(axis=1, keepdims=True), 1e-9)
    size = np.sqrt(np.prod(boxes[:, 2:] - boxes[:, :2], axis=1))
    mean = weight @ places
    spread = np.sqrt(
        np.maximum((weight @ places.astype(float) ** 2 - mean.astype(float) ** 2).sum(axis=1), 0)
    )
    return {
        "neighbour_score": -(weight @ score),
        "neighbour_iou": -(weight * overlap).sum(axis=1),
        "neighbour_spread": spread / np.maximum(size, 1.0),
    }


def log_odds(vectors: FloatArray) -> FloatArray:
    """Of sticker in class vectors (..., 3), (...)."""
    sticker = np.clip(vectors[..., STICKER], _EDGE, 1 - _EDGE)
    return np.log(sticker) - np.log1p(-sticker)


def pass_signals(boxes: FloatArray, samples: StochasticSamples) -> FloatArray:
    """PASS_SIGNALS of the N objects ``boxes`` (N, 4), (N, PASS_SIGNALS); NaN where no cluster shows the object, and for
    ANCHOR_SIGNALS.
    """
    found = np.full((len(boxes), len(PASS_SIGNALS)), np.nan)
    clustered, _, _ = observe(samples)
    if clustered and len(boxes):
        places, _ = best_overlap(boxes, np.array([o.box for o in clustered], np.float32), SAME)
        for row, place in enumerate(places.tolist()):
            if place >= 0:
                found[row, : 2 + len(METRICS)] = _of_cluster(clustered[place])
    vectors = vectors_of(boxes, samples, samples.passes)
    vectors = np.where(np.isnan(vectors), [1.0, 0.0, 0.0], vectors)
    vectors = vectors / vectors.sum(axis=2, keepdims=True)
    mean = vectors.mean(axis=0)
    votes = (vectors.argmax(axis=2)[..., None] == np.arange(3)).mean(axis=0)
    start = 2 + len(METRICS)
    found[:, start] = 1 - mean[:, STICKER]
    found[:, start + 1] = 1 - votes.max(axis=1, initial=0.0)
    found[:, start + 2] = entropy(mean) - entropy(vectors).mean(axis=0)
    return found


def _of_cluster(one: ObservedObject) -> list[float]:
    values = [getattr(one, name) for name in METRICS]
    return [1 - float(one.probabilities[STICKER]), *values, 1 - one.detection_rate]


def sticker_states(stickers: FloatArray, samples: StochasticSamples, every: bool) -> np.ndarray:
    """How the M ``stickers`` (M, 4) appear among the objects of ``samples``, (M, K) for CLUSTERINGS, the first unless ``every``.

    2: clustered and called sticker; 1: only unstable; 0: not at all; -1: clustered as something else.
    """
    columns = []
    for settings in itertools.islice(CLUSTERINGS.values(), None if every else 1):
        clustered, unstable, _ = observe(samples, settings)
        called = [o for o in clustered if o.probabilities.argmax() == STICKER]
        state = np.where(_met(stickers, _boxes(unstable)), 1, 0)
        state = np.where(_met(stickers, _boxes(clustered)), -1, state)
        columns.append(np.where(_met(stickers, _boxes(called)), 2, state))
    return np.stack(columns, axis=1)


def sticker_views(stickers: FloatArray, samples: StochasticSamples) -> dict[str, np.ndarray]:
    """Of the M ``stickers`` (M, 4): "views" (M,), how many passes show each as a sticker; "agreement" (M,), the mean IoU of the
    pairs of those boxes, one of each pass; NaN below two.
    """
    called = samples.probabilities.argmax(axis=1) == STICKER
    views, agreement = np.zeros(len(stickers)), np.full(len(stickers), np.nan)
    for number, sticker in enumerate(stickers):
        overlap = iou_matrix(sticker[None], samples.boxes)[0] * called
        best = [
            rows[overlap[rows].argmax()]
            for t in range(samples.passes)
            if len(rows := np.flatnonzero((samples.pass_index == t) & (overlap >= SAME)))
        ]
        views[number] = len(best)
        if len(best) > 1:
            pairs = iou_matrix(samples.boxes[best], samples.boxes[best])
            agreement[number] = pairs[np.triu_indices(len(best), 1)].mean()
    return {"views": views, "agreement": agreement}


def _boxes(objects: Sequence[ObservedObject]) -> FloatArray:
    return np.array([o.box for o in objects], np.float32).reshape(-1, 4)


def _met(boxes: FloatArray, others: FloatArray) -> np.ndarray:
    return best_overlap(boxes, others, SAME)[0] >= 0


def folder_of(cache: Path, instrument: Instrument, kinds: Sequence[Passes]) -> Path:
    """Where the measurements of this code, these weights and these ``kinds`` lie."""
    parts = [
        instrument.detector.weights_hash,
        code_fingerprint("lab/rendering", "lab/corruptions", "lab/datasets/abnormal.py"),
    ]
    parts += [kind.name for kind in kinds]
    parts += [Path(str(file)).read_text(encoding="utf-8") for file in (hard_scenes.__file__, __file__)]
    return cache / hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()


def material_in(cache: Path) -> Material:
    """The ambiguous objects, made once and kept in ``cache``; there are no patches."""
    cache.mkdir(parents=True, exist_ok=True)
    file = cache / "ambiguous.npy"
    if not file.is_file():
        with atomic_write(file) as stream:
            np.save(stream, hard_scenes.ambiguous_crops())
    return Material(np.load(file), {})


def measure(
    pictures: Sequence[Picture],
    cache: Path,
    instrument: Instrument,
    kinds: Sequence[Passes],
    material: Material,
    progress: Callable[[int], None] = lambda _: None,
) -> list[dict[str, np.ndarray]]:
    """What is known of each of ``pictures``, as `Instrument.objects`; those that ``cache`` does not hold are measured."""
    folder = folder_of(cache, instrument, kinds)
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for picture in pictures:
        file = folder / f"{picture.name}.npz"
        if not file.is_file():
            scene = picture.case.scene(picture.seed, material)
            with atomic_write(file) as stream:
                np.savez_compressed(stream, **instrument.objects(scene, kinds, picture.seed))  # type: ignore[arg-type]
        with np.load(file) as kept:
            found.append({name: kept[name] for name in kept})
        progress(1)
    return found
