# SPDX-License-Identifier: Apache-2.0
"""The signals and detections of every abnormal scene, cached so that it assesses each picture once."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from sticker_uq.detection import StochasticDetector
from sticker_uq.detection.weights import checksum
from sticker_uq.evaluation.metrics.matching import find_overlapping
from sticker_uq.io.coco import dataset_digest, read_picture
from sticker_uq.io.images import Picture
from sticker_uq.perception.dil import LocalizationSettings, localize
from sticker_uq.perception.dil.settings import Technique
from sticker_uq.perception.novelty.network import NoveltyNetwork, novelty_maps
from sticker_uq.perception.novelty.regions import missed_sticker_probability, scene_novelty
from sticker_uq.plain import to_plain
from sticker_uq.scene import METRICS, Detections, ObjectClass, StochasticSamples
from sticker_uq.uncertainty import observe
from sticker_uq.uncertainty.cluster import ClusterSettings
from sticker_uq_lab.datasets.abnormal import AbnormalImage
from sticker_uq_lab.kept_pieces import fingerprint, read_or_make_document
from sticker_uq_lab.studies.dil.bayes_od import bayes_od

FLOOR = 0.01
"""Score from which detections are kept, so that precision-recall curves are complete."""
SEEN_IOU = 0.3
"""IoU from which a predicted box shows that a sticker was seen, however badly it is drawn."""
MC_SIGNALS = (*METRICS, "least_confidence", "unstable")
"""Signals of Monte-Carlo dropout: means of the metrics over the objects, 1 - the lowest score, number of unstable objects."""
PAPER = "gradcam"
"""Saliency technique of the DiL paper; CL and BL are those of its map."""
_BY_TECHNIQUE = (f"dil_{technique}" for technique in get_args(Technique))
DIL_SIGNALS = ("complete_localization", "background_localization", *_BY_TECHNIQUE, "unexplained_objectness")
"""What localization says of a scene: CL, BL, DiL by saliency technique, and the largest objectness that no box explains."""

NOVELTY = "novelty"
"""Novelty of the scene, where there is a novelty network."""
ENSEMBLE_SIGNALS = tuple(f"ensemble {name}" for name in MC_SIGNALS)
"""The same of a deep ensemble, one deterministic pass of each member (Giloni et al., figure 4), where there is one."""
BAYES_OD_SIGNALS = ("bayes-od entropy", "bayes-od total_variance")
"""Of the objects that Bayes-OD fuses, for a one-stage detector with dropout before its heads."""
MISSED_STICKER_PROBABILITY = "missed_sticker_probability"
"""Probability that a sticker is visible that no predicted box shows, where there is a network."""


@dataclass(frozen=True)
class SceneRecord:
    """The signals and detections of one scene by one detector.

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
        return Detections(
            np.asarray(self.boxes, np.float32).reshape(-1, 4),
            np.asarray(self.probabilities, np.float32).reshape(-1, 3),
        )


def record_case(
    detector: StochasticDetector,
    localization: LocalizationSettings,
    images: Sequence[AbnormalImage],
    cache: Path,
    progress: Callable[[], None] = lambda: None,
    network: NoveltyNetwork | None = None,
    members: Sequence[StochasticDetector] = (),
) -> list[SceneRecord]:
    """The records of ``images``; from a file beside ``cache`` when made from the same pictures, detectors, network, settings.

    ``members``: of a deep ensemble, beside which the passes of ``detector`` are compared.
    """
    key = fingerprint(
        {
            "pictures": dataset_digest([image.picture for image in images]),
            "weights": detector.weights_hash,
            "detector": detector.settings.model_dump(mode="json", exclude={"threads"}),
            "localization": localization.model_dump(mode="json"),
            "network": checksum(network.state_dict()) if network is not None else None,
            "members": [member.weights_hash for member in members],
            "techniques": get_args(Technique),
            "others": BAYES_OD_SIGNALS,
        }
    )
    low = detector.settings.model_copy(update={"score_floor": FLOOR})
    sharp = StochasticDetector(detector.model, low, detector.weights_hash)

    def record() -> list[dict[str, Any]]:
        rows = []
        for number, image in enumerate(images):
            rows.append(asdict(_record(detector, sharp, localization, image, number, network, members)))
            progress()
        return rows

    rows = read_or_make_document(cache.with_name(f"{cache.stem}_{key}.json"), record)
    return [SceneRecord(**row) for row in rows]


def _record(
    detector: StochasticDetector,
    sharp: StochasticDetector,
    localization: LocalizationSettings,
    image: AbnormalImage,
    number: int,
    network: NoveltyNetwork | None,
    members: Sequence[StochasticDetector],
) -> SceneRecord:
    pixels = read_picture(image.picture)
    features = sharp.encode(pixels)
    # a pass can be differentiated once
    passes = {technique: sharp.deterministic_pass(features) for technique in get_args(Technique)}
    places = {
        technique: localize(look, localization.model_copy(update={"technique": technique}))
        for technique, look in passes.items()
    }
    found, place = passes[PAPER].detections, places[PAPER]
    samples = detector.sample(features, detector.settings.passes, detector.settings.seed + number)
    signals = {
        "complete_localization": place.complete_localization,
        "background_localization": place.background_localization,
        **{f"dil_{technique}": _zero_if_nan(of.dil) for technique, of in places.items()},
        "unexplained_objectness": place.unexplained_objectness,
    }
    predicted = found.boxes[found.scores >= localization.decision_threshold]
    if network is not None:
        maps = novelty_maps(network, pixels)
        signals[NOVELTY] = scene_novelty(maps)
        signals[MISSED_STICKER_PROBABILITY] = missed_sticker_probability(maps, predicted)
    signals |= dict(zip(MC_SIGNALS, _label_uncertainty(samples, None), strict=True))
    if not detector.family.two_stage and detector.settings.dropout_site == "in":
        fused = bayes_od(detector, features, detector.settings.seed + number)
        signals |= dict(zip(BAYES_OD_SIGNALS, fused.uncertainty(), strict=True))
    if members:
        together = _ensemble_samples(members, pixels)
        seen_by = ClusterSettings(min_cluster_size=min(2, len(members)))
        signals |= dict(zip(ENSEMBLE_SIGNALS, _label_uncertainty(together, seen_by), strict=True))
    is_sticker = image.picture.labels == ObjectClass.STICKER
    seen = [
        find_overlapping(boxes[is_sticker], predicted, SEEN_IOU)
        for boxes in (image.picture.boxes, image.whole)
    ]
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


def _label_uncertainty(samples: StochasticSamples, settings: ClusterSettings | None) -> list[float]:
    """The values of MC_SIGNALS."""
    objects, unstable, means = observe(samples, settings)
    least = 1 - min((o.score for o in objects), default=1.0)
    return [*(_zero_if_nan(getattr(means, name)) for name in METRICS), least, float(len(unstable))]


def _ensemble_samples(members: Sequence[StochasticDetector], pixels: Picture) -> StochasticSamples:
    """The detections of each member without dropout, as a pass each."""
    found = [member.detect(member.encode(pixels)) for member in members]
    return StochasticSamples(
        np.concatenate([one.boxes for one in found]),
        np.concatenate([one.probabilities for one in found]),
        np.repeat(np.arange(len(found)), [len(one) for one in found]),
        len(found),
    )


def _zero_if_nan(value: float) -> float:
    """``value``, or 0 where it is undefined: Monte-Carlo dropout found nothing to be unsure of, or nothing is salient."""
    return 0.0 if math.isnan(value) else float(value)
