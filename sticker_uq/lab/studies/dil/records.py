"""What a detector says about every scene of the abnormal cases, kept so that a study does not look twice."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

import numpy as np
from scipy.special import expit, logit
from scipy.stats import entropy

from sticker_uq.detection import StochasticDetector
from sticker_uq.detection.weights import checksum
from sticker_uq.dil import LocalizationSettings, localize
from sticker_uq.dil.settings import Technique
from sticker_uq.evaluation.metrics.accuracy import DECISION_SCORE
from sticker_uq.io.coco import dataset_digest, read_picture
from sticker_uq.io.files import atomic_write
from sticker_uq.lab.datasets.abnormal_coco import AbnormalImage
from sticker_uq.novelty.head import NoveltyHead, novelty, novelty_map
from sticker_uq.novelty.network import NoveltyNetwork, novelty_maps
from sticker_uq.novelty.regions import missed_sticker_probability, scene_novelty, unexplained_novelty
from sticker_uq.scene import METRICS, Detections, FloatArray, ObjectClass, to_plain
from sticker_uq.uncertainty import iou_matrix, observe

FLOOR = 0.01
"""Score from which detections are kept, so that precision-recall curves are complete."""
SEEN_IOU = 0.3
"""IoU from which a predicted box shows that a sticker was seen, however badly it is drawn."""
MC_SIGNALS = (*METRICS, "unsureness", "unstable")
"""Monte-Carlo dropout's own signals of a scene: means of the metrics over its objects, 1 - the least score, unstable objects."""
PAPER = "gradcam"
"""Saliency technique of the DiL paper; CL and BL are those of its map."""
DIL_SIGNALS = (
    "complete_localization",
    "background_localization",
    *(f"dil_{technique}" for technique in get_args(Technique)),
    "unexplained_objectness",
)
"""What localization says of a scene: CL, BL, DiL by saliency technique, and the largest objectness that no box explains."""

DOUBT = "doubt"
"""Unexplained objectness and the doubt that the predicted boxes themselves leave, from the pass without dropout alone."""
STRANGENESS = "novelty"
"""What the novelty network or head says, of a detector that has one."""
OVERLOOKED = "overlooked"
"""Where there is a network: how novel the picture is where no predicted box lies."""
OVERSIGHT = "missed_sticker_probability"
"""Where there is a network: how probably a sticker is visible that no predicted box shows."""
OMISSION = "omission"
"""Oversight and overlooked together: the odds of the one times the root of those of the other, as a probability."""
_LEAST = 1e-4
INDECISION = "indecision"
"""Entropy of the class vectors of everything detected from UNDECIDED_FLOOR on, in bits, added up; without dropout."""
UNDECIDED_FLOOR = 0.1
SUSPICION = "suspicion"
"""Unexplained objectness, novelty and indecision together."""
_BITS = 3.0
"""Indecision that halves what is left of the certainty that a scene is as it should be."""


@dataclass(frozen=True)
class SceneRecord:
    """One scene as one detector saw it.

    ``case`` and ``source`` say which; ``missed``: stickers that no predicted box shows; ``stickers``: how many it has;
    ``signals``: by name, 0 where Monte-Carlo dropout found no object to measure; ``boxes`` (N, 4) and ``probabilities``
    (N, 3): detections without dropout from FLOOR on; ``regions`` (K, 4): unexplained regions px.
    """

    case: str
    source: str
    stickers: int
    missed: int
    signals: dict[str, float]
    boxes: list[list[float]]
    probabilities: list[list[float]]
    regions: list[list[float]]

    @property
    def detections(self) -> Detections:
        """The detections without dropout."""
        return Detections(
            np.asarray(self.boxes, np.float32).reshape(-1, 4),
            np.asarray(self.probabilities, np.float32).reshape(-1, 3),
        )

    def signal(self, name: str) -> float:
        """The signal ``name``: one of DIL_SIGNALS, MC_SIGNALS, DOUBT and INDECISION.

        Where there is a network or head also STRANGENESS and SUSPICION; with a network OVERLOOKED, OVERSIGHT and OMISSION.
        """
        if name == SUSPICION:
            certain = (1 - self.signals["unexplained_objectness"]) * (1 - self.signals[STRANGENESS])
            return 1 - certain * 2 ** (-self.indecision / _BITS)
        if name == INDECISION:
            return self.indecision
        if name == OMISSION:
            both = np.clip([self.signals[OVERSIGHT], self.signals[OVERLOOKED]], _LEAST, 1 - _LEAST)
            return float(expit(logit(both) @ [1.0, 0.5]))
        return self.doubt if name == DOUBT else self.signals[name]

    @property
    def indecision(self) -> float:
        """Bits that the class vectors of everything detected from UNDECIDED_FLOOR on leave open, added up.

        It grows with every box that the detector is not sure of, be it predicted or not.
        """
        found = self.detections
        vectors = found.probabilities[found.scores >= UNDECIDED_FLOOR].astype(np.float64)
        return float(entropy(vectors, base=2, axis=1).sum())

    @property
    def doubt(self) -> float:
        """The larger of what no box explains and what the least sure predicted box leaves unsaid, 0..1.

        A box explains what lies in it only as far as its score goes: 1 - score of it remains.
        """
        scores = self.detections.scores
        predicted = scores[scores >= DECISION_SCORE]
        weakest = float(1 - predicted.min()) if len(predicted) else 0.0
        return max(self.signals["unexplained_objectness"], weakest)


def record_case(
    detector: StochasticDetector,
    localization: LocalizationSettings,
    images: Sequence[AbnormalImage],
    cache: Path,
    progress: Callable[[], None] = lambda: None,
    head: NoveltyNetwork | NoveltyHead | None = None,
) -> list[SceneRecord]:
    """Records of ``images``; from the file ``cache`` when that was made of the same pictures, detector, head and settings.

    The detector's settings decide the T passes. Raises InvalidInput for a picture that cannot be read.
    """
    key = {
        "pictures": dataset_digest([image.picture for image in images]),
        "weights": detector.weights_hash,
        "detector": detector.settings.model_dump(mode="json", exclude={"threads"}),
        "localization": localization.model_dump(mode="json"),
        "head": checksum(head.state_dict()) if head is not None else None,
    }
    if cache.is_file():
        content = json.loads(cache.read_text(encoding="utf-8"))
        if content["key"] == key:
            for _ in images:
                progress()
            return [SceneRecord(**row) for row in content["records"]]
    low = detector.settings.model_copy(update={"score_floor": FLOOR})
    sharp = StochasticDetector(detector.model, low, detector.weights_hash)
    records = []
    for number, image in enumerate(images):
        records.append(_record(detector, sharp, localization, image, number, head))
        progress()
    with atomic_write(cache, "w") as stream:
        json.dump({"key": key, "records": [asdict(record) for record in records]}, stream)
    return records


def _record(
    detector: StochasticDetector,
    sharp: StochasticDetector,
    localization: LocalizationSettings,
    image: AbnormalImage,
    number: int,
    head: NoveltyNetwork | NoveltyHead | None,
) -> SceneRecord:
    pixels = read_picture(image.picture)
    features = sharp.encode(pixels)
    # a look can be differentiated once
    looks = {technique: sharp.deterministic_pass(features) for technique in get_args(Technique)}
    places = {
        technique: localize(look, localization.model_copy(update={"technique": technique}))[0]
        for technique, look in looks.items()
    }
    found, place = looks[PAPER].detections[0], places[PAPER]
    samples = detector.sample(features, detector.settings.passes, detector.settings.seed + number)
    objects, unstable, means = observe(samples)
    signals = {
        "complete_localization": place.complete_localization,
        "background_localization": place.background_localization,
        **{f"dil_{technique}": _known(of.dil) for technique, of in places.items()},
        "unexplained_objectness": place.unexplained_objectness,
    }
    predicted = found.boxes[found.scores >= localization.decision_threshold]
    if isinstance(head, NoveltyNetwork):
        maps = novelty_maps(head, pixels)
        signals[STRANGENESS] = scene_novelty(maps)
        signals[OVERLOOKED] = unexplained_novelty(maps, predicted)
        signals[OVERSIGHT] = missed_sticker_probability(maps, predicted)
    elif head is not None:
        signals[STRANGENESS] = novelty(novelty_map(head, sharp.head_maps(features), features.padded)[0])
    signals |= {name: _known(getattr(means, name)) for name in METRICS}
    signals["unsureness"] = 1 - min((o.score for o in objects), default=1.0)
    signals["unstable"] = float(len(unstable))
    is_sticker = image.picture.labels == ObjectClass.STICKER
    seen = [_overlaps(boxes[is_sticker], predicted) for boxes in (image.picture.boxes, image.whole)]
    return SceneRecord(
        case=image.case,
        source=image.source,
        stickers=int(is_sticker.sum()),
        missed=int((~(seen[0] | seen[1])).sum()),
        signals=signals,
        boxes=to_plain(found.boxes),
        probabilities=to_plain(found.probabilities),
        regions=[to_plain(region.box) for region in place.unexplained],
    )


def _overlaps(boxes: FloatArray, predicted: FloatArray) -> np.ndarray:
    """Which of ``boxes`` (N, 4) a predicted box shows, (N,) bool."""
    if not len(predicted):
        return np.zeros(len(boxes), bool)
    return np.asarray(iou_matrix(boxes, predicted).max(axis=1, initial=0.0) >= SEEN_IOU)


def _known(value: float) -> float:
    """``value``, or 0 where it is undefined: Monte-Carlo dropout found nothing to be unsure of, or nothing is salient."""
    return 0.0 if math.isnan(value) else float(value)
