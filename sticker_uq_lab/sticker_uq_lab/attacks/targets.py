# SPDX-License-Identifier: Apache-2.0
"""The boxes that white-box attacks start from, and what each family of detectors outputs for them."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torchvision.ops import box_iou

from sticker_uq.detection.detector import StochasticDetector
from sticker_uq.detection.dropout import no_dropout
from sticker_uq.detection.features import Features
from sticker_uq.detection.models.family import anchors_of
from sticker_uq.detection.registry import detector_entry
from sticker_uq.detection.selection import check_finite, sigmoid_distribution, softmax_distribution
from sticker_uq.io.coco import LabelledImage
from sticker_uq.scene import InvalidInput

PROPOSAL_NMS = 0.9
"""IoU above which of two proposals one is dropped: a dense set survives the perturbation (Xie et al., section 3.2)."""
MOST_TARGETS = 3000
"""Highest number of proposals of a picture, or of targets among its anchors."""
LEAST_IOU = 0.1
"""A box overlaps an object by more than this to belong to it."""
_LEAST_PROBABILITY = 0.1


@dataclass(frozen=True)
class Targets:
    """N targets in n pictures of one size.

    ``image`` (N,): the picture of each, ascending; ``object`` (N,): the object in it; ``labels`` (N,): that object's class;
    ``rows`` (N,): the anchor or proposal; ``boxes``: per picture the (K, 4) of them, px of the resized picture.
    """

    image: Tensor
    object: Tensor
    labels: Tensor
    rows: Tensor
    boxes: tuple[Tensor, ...]
    pictures: int

    def counts(self) -> list[int]:
        return torch.bincount(self.image, minlength=self.pictures).tolist()


@dataclass(frozen=True)
class TargetOutputs:
    """Outputs for N targets: ``logits`` (N, 3) before softmax or sigmoid, ``probabilities`` (N, 3), rows sum to 1.

    RetinaNet has no background logit; it is 0 here, and raising it means lowering the object's.
    """

    logits: Tensor
    probabilities: Tensor


class AnchorView:
    """The anchors of a one-stage family of detectors, differentiable in the picture."""

    def __init__(self, read: Callable[[Tensor], TargetOutputs]) -> None:
        """``read``: logits (..., 3) of the classification head to outputs."""
        self._read = read

    def boxes(
        self, model: Any, features: Features, maps: list[Tensor]
    ) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """Candidate boxes (A, 4) px of each resized picture, and their class distributions (A, 3)."""
        logits, deltas = model.head.classification_head(maps), model.head.regression_head(maps)
        check_finite(logits, deltas)
        anchors = anchors_of(model, features, maps)
        boxes = [model.box_coder.decode_single(d, anchors) for d in deltas]
        return boxes, list(self._read(logits).probabilities)

    def outputs(self, model: Any, features: Features, maps: list[Tensor], targets: Targets) -> TargetOutputs:
        """``maps``: (n, C, h, w), what enters the heads."""
        return self._read(model.head.classification_head(maps)[targets.image, targets.rows])


class ProposalView:
    """The proposals of a two-stage family before suppression; methods as of :class:`AnchorView`."""

    def boxes(
        self, model: Any, features: Features, maps: list[Tensor]
    ) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        rpn = copy.copy(model.rpn)  # shares the weights; the model's own settings stay as they are
        rpn.nms_thresh = PROPOSAL_NMS
        rpn._post_nms_top_n = dict.fromkeys(model.rpn._post_nms_top_n, MOST_TARGETS)
        proposals, _ = rpn(features.image_list(len(maps[0])), _name_maps(model, maps))
        probabilities = _proposal_outputs(model, features, maps, proposals).probabilities
        return proposals, probabilities.split([len(p) for p in proposals])

    def outputs(self, model: Any, features: Features, maps: list[Tensor], targets: Targets) -> TargetOutputs:
        return _proposal_outputs(model, features, maps, list(targets.boxes))


def _softmax_outputs(logits: Tensor) -> TargetOutputs:
    return TargetOutputs(logits, softmax_distribution(logits))


def _sigmoid_outputs(logits: Tensor) -> TargetOutputs:
    foreground = logits[..., 1:]
    with_background = torch.cat([torch.zeros_like(foreground[..., :1]), foreground], dim=-1)
    return TargetOutputs(with_background, sigmoid_distribution(logits))


def _proposal_outputs(
    model: Any, features: Features, maps: list[Tensor], proposals: list[Tensor]
) -> TargetOutputs:
    heads = model.roi_heads
    sizes = [features.resized] * len(proposals)
    pooled = heads.box_roi_pool(_name_maps(model, maps), proposals, sizes)
    logits, _ = heads.box_predictor(heads.box_head(pooled))
    check_finite(logits)
    return _softmax_outputs(logits)


def _name_maps(model: Any, maps: list[Tensor]) -> dict[str, Tensor]:
    return dict(zip([*model.roi_heads.box_roi_pool.featmap_names, "pool"], maps, strict=True))


AttackView = AnchorView | ProposalView
VIEWS: dict[str, AttackView] = {
    "faster_rcnn": ProposalView(),
    "retinanet": AnchorView(_sigmoid_outputs),
    "ssd": AnchorView(_softmax_outputs),
    "ssdlite": AnchorView(_softmax_outputs),
}
"""Attack views by the family in a detector's registry entry."""


def attack_view(name: str) -> AttackView:
    family = detector_entry(name).family
    if family not in VIEWS:
        raise InvalidInput(
            f"{name!r} cannot be attacked: its family is {family!r}, expected one of {', '.join(VIEWS)}"
        )
    return VIEWS[family]


def find_targets(detector: StochasticDetector, pixels: Tensor, items: Sequence[LabelledImage]) -> Targets:
    """The targets in clean pictures ``pixels`` (n, 3, H, W) RGB 0..255 with the objects of ``items``.

    A box is a target of the object that it overlaps most among those that it overlaps by more than 0.1 and whose class it gives a
    probability of more than 0.1.
    """
    features, maps = _maps_of(detector, pixels)
    height, width = pixels.shape[-2:]
    scale = pixels.new_tensor([features.resized[1] / width, features.resized[0] / height]).repeat(2)
    view = attack_view(detector.name)
    candidates = zip(items, *view.boxes(detector.model, features, maps), strict=True)
    image, objects, labels, rows, boxes = [], [], [], [], []
    for number, (item, found, probabilities) in enumerate(candidates):
        classes = torch.from_numpy(item.labels).to(found.device)
        wanted = torch.from_numpy(item.boxes).to(pixels) * scale
        chosen, owner = _match(found, probabilities, wanted, classes)
        image.append(torch.full_like(chosen, number))
        objects.append(owner)
        labels.append(classes[owner])
        rows.append(chosen)
        boxes.append(found[chosen])
    return Targets(
        torch.cat(image), torch.cat(objects), torch.cat(labels), torch.cat(rows), tuple(boxes), len(items)
    )


def target_outputs(
    detector: StochasticDetector, pixels: Tensor, targets: Targets
) -> tuple[TargetOutputs, Features, list[Tensor]]:
    """Outputs for ``targets`` on other ``pixels`` (n, 3, H, W) RGB 0..255; features; maps (n, C, h, w) of the heads."""
    features, maps = _maps_of(detector, pixels)
    return attack_view(detector.name).outputs(detector.model, features, maps, targets), features, maps


def _maps_of(detector: StochasticDetector, pixels: Tensor) -> tuple[Features, list[Tensor]]:
    height, width = pixels.shape[-2:]
    images, _ = detector.model.transform(list(pixels / 255))
    features = detector.family.encode(images, (width, height))
    return features, detector.family.head_maps(features, no_dropout)


def _match(boxes: Tensor, probabilities: Tensor, wanted: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of ``boxes`` (A, 4) that are targets, the MOST_TARGETS most probable ones in order, and the object of each."""
    if not len(wanted) or not len(boxes):
        none = torch.zeros(0, dtype=torch.int64, device=boxes.device)
        return none, none
    overlap = box_iou(boxes, wanted)
    belief = probabilities[:, classes]
    fits = (overlap > LEAST_IOU) & (belief > _LEAST_PROBABILITY)
    best, owner = torch.where(fits, overlap, -1.0).max(dim=1)
    rows = (best > 0).nonzero().flatten()
    surest = belief[rows, owner[rows]].argsort(descending=True, stable=True)[:MOST_TARGETS]
    rows = rows[surest].sort().values
    return rows, owner[rows]
