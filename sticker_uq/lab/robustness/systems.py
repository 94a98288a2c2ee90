# SPDX-License-Identifier: Apache-2.0
"""Systems under robustness assessment behind one interface: a detector, a detector with its gate, or results made elsewhere."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sticker_uq.detection.detector import StochasticDetector, load_detector
from sticker_uq.detection.features import Features
from sticker_uq.evaluation.metrics.accuracy import as_detections
from sticker_uq.gate import Policy, judge
from sticker_uq.io.images import Picture
from sticker_uq.io.reading import MOST_JSON, parse_json, read_text
from sticker_uq.lab.robustness.systems_interface import SystemAnswer, act_on_decision, no_detections
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.factory import load_perception
from sticker_uq.scene import CLASS_COUNT, Detections, FloatArray, InvalidInput, ObjectClass, Status

LOWEST_FLOOR = 0.01
"""Score floor of a detector under assessment, so that its precision-recall curve is complete."""


_Row = tuple[list[float], list[float]]
"""Corners and probabilities of one detection."""


class DetectorSystem:
    """A detector under robustness assessment, without dropout and gate. ``settings`` are a detector's;
    the score floor is lowered.
    """

    def __init__(self, settings: PerceptionSettings) -> None:
        lowered = settings.model_copy(update={"score_floor": LOWEST_FLOOR})
        self._detector = load_detector(lowered)
        self.name = f"{settings.model}, one pass, no gate"
        self.identity = (
            f"detector {self._detector.weights_hash} {lowered.hash_on(self._detector.device.type)}"
        )

    def answer(self, image: Picture, key: str) -> SystemAnswer:
        """The answer of an assessed system, a detector: detections by falling score, with the features of the backbone."""
        del key
        try:
            features = self._detector.encode(image)
            return SystemAnswer(self._detector.detect(features), None, pooled_features(features))
        except (InvalidInput, ArithmeticError) as error:
            return SystemAnswer.failed(str(error))

    def close(self) -> None:
        """Nothing to release in an assessed system that is a detector."""


class CellSystem:
    """A detector with gate under robustness assessment: T passes, clusters, uncertainty, distinctive localization,
    and the decision.
    """

    def __init__(self, settings: PerceptionSettings, policy: Policy) -> None:
        loaded = load_detector(settings)
        self._detector = _FeatureKeeper(loaded.model, loaded.settings, loaded.weights_hash)
        self._perception = load_perception(settings, self._detector)
        self._policy = policy
        self.name = f"{settings.model}, {settings.passes} passes, gate with policy {policy.hash[:8]}"
        self.identity = f"cell {loaded.weights_hash} {settings.hash_on(loaded.device.type)} {policy.hash}"

    def answer(self, image: Picture, key: str) -> SystemAnswer:
        """The answer of an assessed detector with gate: clustered objects, what the gate would do,
        and the features of the backbone.
        """
        del key
        try:
            assessment = self._perception.assess(image)
        except InvalidInput as error:
            return SystemAnswer.failed(str(error))
        if assessment.status is Status.FAILED:
            return SystemAnswer.failed(assessment.status_text)
        action = act_on_decision(judge(assessment, self._policy))
        features = self._detector.last
        return SystemAnswer(
            as_detections(assessment.objects), action, None if features is None else pooled_features(features)
        )

    def close(self) -> None:
        """Nothing to release in an assessed system that is a detector with gate."""


class ResultsSystem:
    """Detections made elsewhere under robustness assessment, in COCO results files: lists of image_id, category_id,
    bbox and score.

    ``files``: each file with the ids that the images of the assessment have in its data set, by their keys, and all ids of that
    data set; categories are 1 logo and 2 sticker, as those data sets say. An image of which a file says nothing has no
    detections. Raises InvalidInput naming the file and the entry that is wrong.
    """

    def __init__(self, files: Sequence[tuple[Path, Mapping[str, int], Collection[int]]]) -> None:
        self._by_key: dict[str, Detections] = {}
        digests = []
        for path, ids, known in files:
            rows, digest = _read_results(path, set(known))
            self._by_key |= {key: _detections(rows.get(identity, [])) for key, identity in ids.items()}
            digests.append(digest)
        self.name = f"detections in {', '.join(path.name for path, *_ in files)}"
        self.identity = f"results {' '.join(digests)}"

    def answer(self, image: Picture, key: str) -> SystemAnswer:
        del image
        found = self._by_key.get(key)
        return SystemAnswer.failed(f"no results for image {key}") if found is None else SystemAnswer(found)

    def close(self) -> None:
        """Nothing to release for assessed results files."""


def _read_results(path: Path, known: set[int]) -> tuple[dict[int, list[_Row]], str]:
    text = read_text(path, MOST_JSON, f"results {path}")
    entries = parse_json(text, f"results {path}")
    if not isinstance(entries, list):
        raise InvalidInput(f"results {path}: expected a list of detections, got {type(entries).__name__}")
    rows: dict[int, list[_Row]] = {}
    for number, entry in enumerate(entries):
        identity, box, probabilities = _result(entry, known, f"results {path}: entry {number}")
        rows.setdefault(identity, []).append((box, probabilities))
    return rows, hashlib.sha256(text.encode()).hexdigest()


def pooled_features(features: Features) -> FloatArray:
    """Features of a picture for the distances: spatial means (C,) float32 of the widest feature map.

    The map with the most channels is what the network has made of the image, as the last pooling layer of an Inception network
    has for the published FID.
    """
    widest = max(features.maps, key=lambda m: m.shape[1])
    return widest.mean(dim=(0, 2, 3)).float().cpu().numpy()


class _FeatureKeeper(StochasticDetector):
    """A detector that remembers the features of its last image, so that they are computed once."""

    last: Features | None = None

    def encode(self, image: Picture) -> Features:
        self.last = super().encode(image)
        return self.last


def _result(entry: Any, known: set[int], where: str) -> tuple[int, list[float], list[float]]:
    if not isinstance(entry, dict):
        raise InvalidInput(f"{where}: expected an object, got {type(entry).__name__}")
    identity, category = entry.get("image_id"), entry.get("category_id")
    if identity not in known:
        raise InvalidInput(f"{where}: image_id {identity!r} is not in the data set")
    if category not in (ObjectClass.LOGO, ObjectClass.STICKER):
        raise InvalidInput(f"{where}: category_id {category!r}, expected 1 (logo) or 2 (sticker)")
    box, score = entry.get("bbox"), entry.get("score")
    if not isinstance(box, list) or len(box) != 4 or not all(_is_number(v) for v in box) or min(box[2:]) < 0:
        raise InvalidInput(f"{where}: bbox {box!r}, expected x, y, width and height in px")
    if score is None or not _is_number(score) or not 0 <= score <= 1:
        raise InvalidInput(f"{where}: score {score!r}, expected 0 to 1")
    x, y, width, height = box
    probabilities = [0.0] * CLASS_COUNT
    probabilities[ObjectClass.BACKGROUND] = 1 - score
    probabilities[category] += score
    return int(identity), [x, y, x + width, y + height], probabilities


def _detections(rows: list[_Row]) -> Detections:
    if not rows:
        return no_detections()
    boxes, probabilities = zip(*rows, strict=True)
    return Detections(np.array(boxes, np.float32), np.array(probabilities, np.float32))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
