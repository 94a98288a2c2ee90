"""The targets of Dense Adversary Generation, and the models' outputs for them, differentiable in the picture."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torchvision.ops import box_iou

from sticker_uq.detection.detector import StochasticDetector
from sticker_uq.detection.dropout import no_dropout
from sticker_uq.detection.features import Features
from sticker_uq.detection.models.family import anchors_of
from sticker_uq.detection.selection import check_finite, sigmoid_distribution, softmax_distribution
from sticker_uq.io.coco import LabelledImage

PROPOSAL_NMS = 0.9
"""IoU above which of two proposals one is dropped: a dense set survives the perturbation (Xie et al., section 3.2)."""
MOST_TARGETS = 3000
"""Highest number of proposals of a picture, or of targets among its anchors."""
_LEAST_IOU = 0.1
_LEAST_PROBABILITY = 0.1


@dataclass(frozen=True)
class Targets:
    """N targets in n pictures of one size.

    ``image`` (N,): the picture of each, ascending; ``object`` (N,): the object in it; ``labels`` (N,): that object's class;
    ``rows`` (N,): the anchor of a one-stage model; ``boxes``: per picture the (K, 4) proposals px of the resized picture of a
    two-stage model, empty for the others.
    """

    image: Tensor
    object: Tensor
    labels: Tensor
    rows: Tensor
    boxes: tuple[Tensor, ...]
    pictures: int

    def counts(self) -> list[int]:
        """Targets of each picture."""
        return torch.bincount(self.image, minlength=self.pictures).tolist()


@dataclass(frozen=True)
class TargetOutputs:
    """Outputs of a model for N boxes: ``logits`` (N, 3) before softmax or sigmoid, ``probabilities`` (N, 3), rows sum to 1.

    RetinaNet has no background logit; it is 0 here, and raising it means lowering the object's.
    """

    logits: Tensor
    probabilities: Tensor


def find_targets(detector: StochasticDetector, pixels: Tensor, items: Sequence[LabelledImage]) -> Targets:
    """The targets on clean pictures ``pixels`` (n, 3, H, W) RGB 0..255 with the objects of ``items``.

    A box is a target of the object with the highest IoU, among those with an IoU above 0.1 and a class probability above
    0.1. Raises NonFiniteOutput when the network's output is not finite.
    """
    features, maps = _features_and_maps(detector, pixels)
    height, width = pixels.shape[-2:]
    scale = pixels.new_tensor([features.resized[1] / width, features.resized[0] / height]).repeat(2)
    if detector.family.two_stage:
        proposals = _proposals(detector.model, features, maps)
        outputs = _two_stage_outputs(detector.model, features, maps, proposals)
        split = outputs.probabilities.split([len(p) for p in proposals])
        per_image = list(zip(proposals, split, strict=True))
    else:
        logits = detector.model.head.classification_head(maps)
        deltas = detector.model.head.regression_head(maps)
        check_finite(logits, deltas)
        anchors = anchors_of(detector.model, features, maps)
        decode = detector.model.box_coder.decode_single
        probabilities = _one_stage_outputs(detector, logits).probabilities
        per_image = [(decode(d, anchors), p) for d, p in zip(deltas, probabilities, strict=True)]
    image, objects, labels, rows, boxes = [], [], [], [], []
    for number, ((found, probabilities), item) in enumerate(zip(per_image, items, strict=True)):
        wanted = torch.from_numpy(item.boxes).to(found) * scale
        classes = torch.from_numpy(item.labels).to(found.device)
        chosen, owner = _match(found, probabilities, wanted, classes)
        image.append(torch.full_like(chosen, number))
        objects.append(owner)
        labels.append(classes[owner])
        rows.append(chosen)
        boxes.append(found[chosen] if detector.family.two_stage else found[:0])
    return Targets(
        torch.cat(image), torch.cat(objects), torch.cat(labels), torch.cat(rows), tuple(boxes), len(items)
    )


def evaluate(detector: StochasticDetector, pixels: Tensor, targets: Targets) -> TargetOutputs:
    """Outputs of the model for ``targets`` on other ``pixels`` (n, 3, H, W) RGB 0..255 of the same size."""
    return evaluate_with_maps(detector, pixels, targets)[0]


def evaluate_with_maps(
    detector: StochasticDetector, pixels: Tensor, targets: Targets
) -> tuple[TargetOutputs, Features, list[Tensor]]:
    """As :func:`evaluate`, with the features and the maps (n, C, h, w) that enter the heads."""
    features, maps = _features_and_maps(detector, pixels)
    return _outputs(detector, features, maps, targets), features, maps


def _outputs(
    detector: StochasticDetector, features: Features, maps: list[Tensor], targets: Targets
) -> TargetOutputs:
    if detector.family.two_stage:
        return _two_stage_outputs(detector.model, features, maps, list(targets.boxes))
    logits = detector.model.head.classification_head(maps)
    return _one_stage_outputs(detector, logits[targets.image, targets.rows])


def _features_and_maps(detector: StochasticDetector, pixels: Tensor) -> tuple[Features, list[Tensor]]:
    """Features of all pictures as one batch, with maps (n, C, h, w), and the maps that enter the heads."""
    height, width = pixels.shape[-2:]
    images, _ = detector.model.transform(list(pixels / 255))
    features = detector.family.encode(images, (width, height))
    return features, detector.family.head_maps(features, no_dropout)


def _one_stage_outputs(detector: StochasticDetector, logits: Tensor) -> TargetOutputs:
    if detector.name.startswith("retinanet"):
        foreground = logits[..., 1:]
        return TargetOutputs(
            torch.cat([torch.zeros_like(foreground[..., :1]), foreground], dim=-1),
            sigmoid_distribution(logits),
        )
    return TargetOutputs(logits, softmax_distribution(logits))


def _proposals(model: Any, features: Features, maps: list[Tensor]) -> list[Tensor]:
    rpn = copy.copy(model.rpn)  # shares the weights but not the settings
    rpn.nms_thresh = PROPOSAL_NMS
    rpn._post_nms_top_n = dict.fromkeys(model.rpn._post_nms_top_n, MOST_TARGETS)
    proposals, _ = rpn(features.image_list(len(maps[0])), _named(model, maps))
    return list(proposals)


def _two_stage_outputs(
    model: Any, features: Features, maps: list[Tensor], proposals: list[Tensor]
) -> TargetOutputs:
    heads = model.roi_heads
    sizes = [features.resized] * len(proposals)
    pooled = heads.box_roi_pool(_named(model, maps), proposals, sizes)
    logits, _ = heads.box_predictor(heads.box_head(pooled))
    check_finite(logits)
    return TargetOutputs(logits, softmax_distribution(logits))


def _named(model: Any, maps: list[Tensor]) -> dict[str, Tensor]:
    return dict(zip([*model.roi_heads.box_roi_pool.featmap_names, "pool"], maps, strict=True))


def _match(boxes: Tensor, probabilities: Tensor, wanted: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of ``boxes`` (A, 4) that are targets, the MOST_TARGETS most probable ones in order, and the object of each."""
    if not len(wanted) or not len(boxes):
        none = torch.zeros(0, dtype=torch.int64, device=boxes.device)
        return none, none
    overlap = box_iou(boxes, wanted)
    belief = probabilities[:, classes]
    fits = (overlap > _LEAST_IOU) & (belief > _LEAST_PROBABILITY)
    best, owner = torch.where(fits, overlap, -1.0).max(dim=1)
    rows = (best > 0).nonzero().flatten()
    surest = belief[rows, owner[rows]].argsort(descending=True, stable=True)[:MOST_TARGETS]
    rows = rows[surest].sort().values
    return rows, owner[rows]
