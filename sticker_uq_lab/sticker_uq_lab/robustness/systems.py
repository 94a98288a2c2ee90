# SPDX-License-Identifier: Apache-2.0
"""What a system under robustness assessment says about an image, and whether acting on it would have been right; the detector
and the cell with its gate as such systems.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sticker_uq.detection.detector import StochasticDetector, load_detector
from sticker_uq.detection.features import Features
from sticker_uq.evaluation.metrics.accuracy import as_detections
from sticker_uq.evaluation.metrics.matching import find_overlapping
from sticker_uq.gate import Policy, judge
from sticker_uq.io import coco, coco_entries
from sticker_uq.io.images import Picture
from sticker_uq.io.reading import MOST_JSON, parse_json, read_text, show_value
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.factory import load_perception
from sticker_uq.scene import (
    CLASS_COUNT,
    Detections,
    FloatArray,
    InvalidInput,
    ObjectClass,
    Outcome,
    SceneDecision,
    Status,
    Verdict,
)

Boxes = NDArray[np.float32]


@dataclass(frozen=True)
class Action:
    """``removed`` (R, 4) boxes px that the arm would be sent to; ``asked``: a person is called; ``clean``: passed on as clean."""

    removed: Boxes
    asked: bool
    clean: bool


@dataclass(frozen=True)
class SystemAnswer:
    """``action``: what its own gate decided, None for a system without one; ``features`` (D,) of its network, None where they are
    not known; ``failure``: why there is no answer, empty when there is one. A failed answer has no boxes and calls a person.
    """

    detections: Detections
    action: Action | None = None
    features: FloatArray | None = None
    failure: str = ""

    @classmethod
    def from_failure(cls, reason: str) -> SystemAnswer:
        """The system gave no answer: nothing was detected, nothing may be done, a person has to look."""
        nothing = np.zeros((0, 4), np.float32)
        nowhere = Detections(nothing, np.zeros((0, CLASS_COUNT), np.float32))
        return cls(nowhere, Action(nothing, True, False), None, reason)


class System(Protocol):
    """Answers an image with detections. ``name``: in reports; ``identity``: text that changes with whatever changes answers."""

    name: str
    identity: str

    def answer(self, image: Picture, path: Path = Path()) -> SystemAnswer:
        """About ``image`` (H, W, 3) uint8 BGR, the file ``path``. Does not raise for one that it cannot handle: that is a failed
        answer.
        """


def act_on_detections(detections: Detections, score: float) -> Action:
    """Without a gate: remove every sticker from ``score`` on, ask nobody, call the rest clean."""
    chosen = (detections.foreground_labels == ObjectClass.STICKER) & (detections.scores >= score)
    return Action(detections.boxes[chosen], False, not chosen.any())


def act_on_decision(decision: SceneDecision) -> Action:
    """In a doubtful scene nothing is removed."""
    removed = [v.region for v in decision.removable()] if decision.outcome is Outcome.WORK else []
    doubtful = any(v.verdict in (Verdict.ASK, Verdict.UNKNOWN) for v in decision.verdicts)
    asks = decision.outcome not in (Outcome.WORK, Outcome.CLEAN) or doubtful
    return Action(np.array(removed, np.float32).reshape(-1, 4), asks, decision.outcome is Outcome.CLEAN)


def consequence(
    action: Action, stickers: FloatArray, hidden_sticker: bool, iou: float
) -> tuple[bool, bool, bool]:
    """Whether ``action`` removes something else than a sticker, calls a person, passes a laptop with a sticker on as clean.

    ``stickers`` (N, 4) px are visible; a removal is right when it overlaps one by ``iou``.
    """
    wrong = not find_overlapping(action.removed, stickers, iou).all()
    return wrong, action.asked, action.clean and (len(stickers) > 0 or hidden_sticker)


LOWEST_FLOOR = 0.01
"""Score floor of a detector under assessment, so that its precision-recall curve is complete."""


class DetectorSystem:
    """A detector without dropout or gate; its score floor is lowered."""

    def __init__(self, settings: PerceptionSettings) -> None:
        lowered = settings.model_copy(update={"score_floor": LOWEST_FLOOR})
        self._detector = load_detector(lowered)
        self.name = f"{settings.model}, one pass, no gate"
        self.identity = (
            f"detector {self._detector.weights_hash} {lowered.hash_on(self._detector.device.type)}"
        )

    def answer(self, image: Picture, path: Path = Path()) -> SystemAnswer:
        try:
            features = self._detector.encode(image)
            return SystemAnswer(self._detector.detect(features), None, pool_features(features))
        except (InvalidInput, ArithmeticError) as error:
            return SystemAnswer.from_failure(str(error))


class CellSystem:
    """A detector with gate: T passes, clusters, uncertainty, distinctive localization, and the decision."""

    def __init__(self, settings: PerceptionSettings, policy: Policy) -> None:
        loaded = load_detector(settings)
        self._detector = FeatureKeeper(loaded.model, loaded.settings, loaded.weights_hash)
        self._perception = load_perception(settings, self._detector)
        self._policy = policy
        self.name = f"{settings.model}, {settings.passes} passes, gate with policy {policy.hash[:8]}"
        self.identity = f"cell {loaded.weights_hash} {self._perception.settings_hash} {policy.hash}"

    def answer(self, image: Picture, path: Path = Path()) -> SystemAnswer:
        self._detector.features = None
        try:
            assessment = self._perception.assess(image)
        except InvalidInput as error:
            return SystemAnswer.from_failure(str(error))
        if assessment.status is Status.FAILED:
            return SystemAnswer.from_failure(assessment.status_text)
        action = act_on_decision(judge(assessment, self._policy))
        features = self._detector.features
        return SystemAnswer(
            as_detections(assessment.objects), action, None if features is None else pool_features(features)
        )


class ResultsSystem:
    """A system that is only known by its outputs: COCO results of pictures that it was shown elsewhere.

    ``files``: each file of results with the COCO folder whose pictures they are about. A picture without an entry has no
    detections. The file is read whole first: InvalidInput names what is wrong with an entry.
    """

    def __init__(self, files: Sequence[tuple[Path, Path]]) -> None:
        self._found: dict[Path, Detections] = {}
        digest = hashlib.sha256()
        for results, folder in files:
            text = read_text(results, MOST_JSON, f"results {results}")
            digest.update(text.encode())
            self._found |= _of_pictures(results, parse_json(text, f"results {results}"), folder)
        self.name = f"results in {', '.join(results.name for results, _ in files)}"
        self.identity = f"results {digest.hexdigest()}"

    def answer(self, image: Picture, path: Path = Path()) -> SystemAnswer:
        return SystemAnswer(self._found[path])


def _of_pictures(results: Path, entries: Any, folder: Path) -> dict[Path, Detections]:
    """The detections of every picture in the COCO ``folder``, by its path."""
    if not isinstance(entries, list):
        raise InvalidInput(f"results {results}: expected a list of detections, got {show_value(entries)}")
    labels = coco_entries.category_labels(folder / coco.ANNOTATIONS, coco.load_annotations(folder))
    items = {item.image_id: item for item in coco.read_coco(folder)}
    rows: dict[int, list[tuple[list[float], list[float]]]] = {identity: [] for identity in items}
    for number, entry in enumerate(entries):
        where = f"results {results}: entry {number}"
        if not isinstance(entry, dict):
            raise InvalidInput(
                f"{where} is {show_value(entry)}: expected an object with image_id, category_id, bbox, score"
            )
        if entry.get("image_id") not in items:
            raise InvalidInput(f"{where}: image_id {show_value(entry.get('image_id'))} is not in {folder}")
        fault, label = coco_entries.label_of(entry, labels)
        box, score = entry.get("bbox"), entry.get("score")
        if fault:
            raise InvalidInput(f"{where}: {fault}")
        if not coco_entries.is_box(box) or min(box[2:]) < 0:
            raise InvalidInput(f"{where}: bbox {show_value(box)}: expected x, y, width and height in px")
        if not isinstance(score, int | float) or isinstance(score, bool) or not 0 <= score <= 1:
            raise InvalidInput(f"{where}: score {show_value(score)}: expected 0 to 1")
        if label is None:
            continue
        probabilities = [0.0] * CLASS_COUNT
        probabilities[ObjectClass.BACKGROUND] = 1 - score
        probabilities[label] += score
        x, y, width, height = box
        rows[entry["image_id"]].append(([x, y, x + width, y + height], probabilities))
    return {
        items[identity].path: Detections(
            np.array([box for box, _ in own], np.float32).reshape(-1, 4),
            np.array([vector for _, vector in own], np.float32).reshape(-1, CLASS_COUNT),
        )
        for identity, own in rows.items()
    }


def pool_features(features: Features) -> FloatArray:
    """Features of a picture for the distances: spatial means (C,) float32 of the widest feature map.

    The map with the most channels is what the network has made of the image, as the last pooling layer of an Inception network
    has for the published FID.
    """
    widest = max(features.maps, key=lambda m: m.shape[1])
    return widest.mean(dim=(0, 2, 3)).float().cpu().numpy()


class FeatureKeeper(StochasticDetector):
    """A detector that keeps the ``features`` of the next image once they are set to None: what it encodes after that is made of
    this image. So the features of an image are computed once.
    """

    features: Features | None = None

    def encode(self, image: Picture) -> Features:
        features = super().encode(image)
        if self.features is None:
            self.features = features
        return features
