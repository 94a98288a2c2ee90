# SPDX-License-Identifier: Apache-2.0
"""How each family of detectors is trained: losses, first weights, optimiser and learning rate."""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models.detection.image_list import ImageList
from torchvision.ops import box_iou, distance_box_iou

from sticker_uq.detection.dropout import Dropout, no_dropout
from sticker_uq.detection.models.ssd import backbone_maps
from sticker_uq.detection.registry import detector_entry
from sticker_uq_lab.training.augmentation import Sample
from sticker_uq_lab.training.settings import Frozen

_WEIGHT_DECAY = 0.02
_WARM_UP = 300  # steps, or a tenth of the training if that is less
_AVERAGE = 0.998  # weight of the past in the averaged weights, reached gradually


def learning_rate(highest: float, step: int, steps: int) -> float:
    """The rate of step number ``step`` of ``steps``, from 0: linear warm-up, then half a cosine down to a hundredth."""
    warm_up = min(_WARM_UP, steps // 10)
    if step < warm_up:
        return highest * (step + 1) / warm_up
    part = (step - warm_up) / max(1, steps - warm_up)
    return highest * (0.01 + 0.99 * (1 + math.cos(math.pi * part)) / 2)


def ema_decay(step: int) -> float:
    """The weight of the past in the averaged weights after step number ``step``: lower at the beginning."""
    return min(_AVERAGE, (1 + step) / (10 + step))


def build_optimizer(model: nn.Module, rate: float) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019) over all parameters, decaying matrices and filters only."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]  # of biases and normalisation: no decay
    groups = [{"params": matrices, "weight_decay": _WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, fused=True)


def freeze(model: Any, what: Frozen) -> None:
    """Keep ``what`` of ``model`` from changing.

    Batch normalisation then uses its stored statistics, as in the detector: statistics from a few hundred
    pictures would replace them long before the weights have adapted.
    """
    if what == "nothing":
        return
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    if what == "backbone":
        model.backbone.requires_grad_(False)


def float_tensors(averaged: nn.Module, current: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    latest = current.state_dict()
    pairs = [(t, latest[name]) for name, t in averaged.state_dict().items() if t.is_floating_point()]
    return [mean for mean, _ in pairs], [now for _, now in pairs]


_LEAST = 1e-12  # lowest variance of a layer that is scaled
_Result = TypeVar("_Result")


def scale_to_variance(part: nn.Module, run: Callable[[], _Result], deviation: float = 1.0) -> _Result:
    """Scale each convolution of ``part`` to outputs with standard deviation ``deviation``, bias 0; what ``run`` returns.

    ``run`` passes a batch through ``part``. Convolutions are scaled in the order in which they are reached, each on what the
    scaled ones before it give. One whose output is constant keeps its filters.
    """
    scaled: set[nn.Module] = set()

    def scale(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        assert isinstance(layer, nn.Conv2d)
        if layer in scaled:
            return None
        scaled.add(layer)
        if layer.bias is not None:
            output = output - layer.bias.view(-1, 1, 1)
            layer.bias.zero_()
        variance = output.var(correction=0)
        if not variance > _LEAST:
            return output
        factor = deviation * variance.rsqrt()
        layer.weight.mul_(factor)
        return output * factor

    hooks = [m.register_forward_hook(scale) for m in part.modules() if isinstance(m, nn.Conv2d)]
    try:
        with torch.no_grad():
            return run()
    finally:
        for hook in hooks:
            hook.remove()


CLAIMED = 4
"""Lowest number of default boxes per object."""
_MATCH = 0.5  # IoU from which a default box is positive
_IGNORE = 0.4  # IoU from which a default box is not a negative
_NEARLY = 0.85  # share of the best IoU of an object from which a default box is not a negative
_NEGATIVES = 3  # per positive
_CODER = (10.0, 10.0, 5.0, 5.0)  # torchvision's box coder weights for the SSDs


def match(anchors: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
    """For each default box (A, 4) its object in ``boxes`` (N, 4) or -1, and whether it may be background."""
    count = len(anchors)
    if not len(boxes):
        nobody = torch.full((count,), -1, device=anchors.device)
        return nobody, torch.ones_like(nobody, dtype=torch.bool)
    iou = box_iou(boxes, anchors)
    best, owner = iou.max(dim=0)
    matched = torch.where(best >= _MATCH, owner, torch.full_like(owner, -1))
    # ties: many default boxes around a small object have the same IoU, so the distance of the centres decides
    claimed = distance_box_iou(boxes, anchors).topk(min(CLAIMED, count), dim=1).indices
    # worst first, so that an object keeps its best default box where objects overlap
    for rank in reversed(range(claimed.shape[1])):
        matched[claimed[:, rank]] = torch.arange(len(boxes), device=boxes.device)
    nearly = (iou >= _NEARLY * iou.amax(dim=1, keepdim=True)).any(dim=0)
    background = (matched < 0) & (best < _IGNORE) & ~nearly
    return matched, background


def encode(boxes: Tensor, anchors: Tensor) -> Tensor:
    """Regression targets (N, 4) of ``boxes`` with respect to ``anchors``, as torchvision's BoxCoder."""
    size, other = anchors[:, 2:] - anchors[:, :2], boxes[:, 2:] - boxes[:, :2]
    centre, wanted = anchors[:, :2] + size / 2, boxes[:, :2] + other / 2
    weights = anchors.new_tensor(_CODER)
    return torch.cat([(wanted - centre) / size, torch.log(other / size)], dim=1) * weights


def ssd_loss(deltas: Tensor, logits: Tensor, anchors: Tensor, targets: list[dict[str, Tensor]]) -> Tensor:
    """Localisation plus classification loss of a batch, per positive default box.

    ``deltas`` (n, A, 4), ``logits`` (n, A, classes), ``anchors`` (A, 4) px, ``targets`` n dicts of torchvision's
    ``boxes`` (px) and ``labels``.
    """
    classes = torch.zeros(logits.shape[:2], dtype=torch.int64, device=logits.device)
    may_be_background = torch.empty_like(classes, dtype=torch.bool)
    wanted, rows = [], []
    for i, target in enumerate(targets):
        matched, may_be_background[i] = match(anchors, target["boxes"])
        mine = (matched >= 0).nonzero()[:, 0]
        classes[i, mine] = target["labels"][matched[mine]]
        wanted.append(encode(target["boxes"][matched[mine]], anchors[mine]))
        rows.append(mine + i * len(anchors))
    positive = torch.cat(rows)
    found = max(1, len(positive))
    localisation = F.smooth_l1_loss(deltas.flatten(0, 1)[positive], torch.cat(wanted), reduction="sum")
    entropy = F.cross_entropy(logits.flatten(0, 1), classes.flatten(), reduction="none").view_as(classes)
    foreground = classes > 0
    negative = entropy.detach().masked_fill(~may_be_background, -1)
    wanted_negatives = (_NEGATIVES * foreground.sum(dim=1)).clamp_min(_NEGATIVES)
    rank = negative.argsort(dim=1, descending=True).argsort(dim=1)
    hard = (rank < wanted_negatives[:, None]) & may_be_background
    return (localisation + entropy[foreground | hard].sum()) / found


Targets = list[dict[str, Tensor]]
Loss = Callable[[Any, Sequence[Sample], Targets, torch.device, Dropout], Tensor]

_FIRST_LOGITS = 0.1
"""Standard deviation of the first logits of a network without normalisation: nearly nothing."""


def _own_losses(
    model: Any, samples: Sequence[Sample], targets: Targets, device: torch.device, dropout: Dropout
) -> Tensor:
    images = [
        torch.from_numpy(np.ascontiguousarray(s.image[..., ::-1])).to(device).permute(2, 0, 1).float() / 255
        for s in samples
    ]
    with ExitStack() as stack:
        if dropout is not no_dropout:
            # where the passes drop: the outputs of the pyramid's convolutions
            fpn = model.backbone.fpn
            for block in (*fpn.inner_blocks, *fpn.layer_blocks):
                hook = block.register_forward_hook(lambda _module, _inputs, output: dropout(output))
                stack.callback(hook.remove)
        losses: dict[str, Tensor] = model(images, targets)
    return torch.stack(list(losses.values())).sum()


def _ssd_losses(
    model: Any, samples: Sequence[Sample], targets: Targets, device: torch.device, dropout: Dropout
) -> Tensor:
    """SSD on pictures of one size, without torchvision's picture by picture preparation."""
    images = ssd_input(model, samples, device)
    maps = [dropout(m) for m in backbone_maps(model.backbone, images)]
    outputs = model.head(maps)
    size = (images.shape[2], images.shape[3])
    anchors = model.anchor_generator(ImageList(images, [size] * len(samples)), maps)[0]
    return ssd_loss(outputs["bbox_regression"], outputs["cls_logits"], anchors, targets)


@dataclass(frozen=True)
class Recipe:
    """How a family is trained.

    ``learning_rate``: the highest one; ``loss``: of a batch, a scalar; ``smaller_sizes``: until which part of the training a
    detector with a fixed input size gets pictures of which size px, before those of its own size (progressive resizing, Tan
    and Le 2021, EfficientNetV2: a step takes a third of the time, default boxes are relative to the picture); ``unit_variance``:
    whether random weights are scaled on the data, for a network without normalisation; ``replicas``: whether a step is divided
    among replicas on a processor; ``min_batch``: smallest batch that batch normalisation can be trained with.
    """

    learning_rate: float = 1e-4
    loss: Loss = _own_losses
    smaller_sizes: tuple[tuple[float, int], ...] = ()
    unit_variance: bool = False
    replicas: bool = False
    min_batch: int = 1


RECIPES = {
    "ssd": Recipe(2e-4, _ssd_losses, ((0.7, 128), (0.9, 208)), unit_variance=True, replicas=True),
    # the last map is one pixel, of which batch normalisation needs two
    "ssdlite": Recipe(2e-3, _ssd_losses, ((0.5, 192), (0.75, 256)), replicas=True, min_batch=2),
}
"""Recipes by the family in a detector's registry entry; all others are trained like torchvision's FPN models."""


def recipe_of(name: str) -> Recipe:
    return RECIPES.get(detector_entry(name).family, Recipe())


def input_size(name: str, model: Any, progress: float = 1.0) -> tuple[int, int] | None:
    """(width, height) of the pictures at ``progress`` (0..1) of the training; None where the model resizes by itself."""
    if not detector_entry(name).fixed_input_size:
        return None
    for end, size in recipe_of(name).smaller_sizes:
        if progress < end:
            return size, size
    width, height = model.transform.fixed_size
    return width, height


def batch_loss(
    name: str, model: Any, samples: Sequence[Sample], device: torch.device, dropout: Dropout = no_dropout
) -> Tensor:
    targets = [
        {
            "boxes": torch.from_numpy(sample.boxes).to(device),
            "labels": torch.from_numpy(sample.labels).to(device),
        }
        for sample in samples
    ]
    return recipe_of(name).loss(model, samples, targets, device, dropout)


def prepare_random(name: str, model: Any, samples: Sequence[Sample], device: torch.device) -> None:
    """Scale the random weights of an SSD without batch normalisation on ``samples`` of its own size."""
    if not recipe_of(name).unit_variance:
        return
    images = ssd_input(model, samples, device)
    maps = scale_to_variance(model.backbone, lambda: backbone_maps(model.backbone, images))
    scale_to_variance(model.head, lambda: model.head(maps), _FIRST_LOGITS)


def ssd_input(model: Any, samples: Sequence[Sample], device: torch.device) -> Tensor:
    """What enters an SSD's backbone: the pictures of ``samples``, all of one size, normalised, (n, 3, H, W)."""
    batch = torch.from_numpy(np.stack([sample.image for sample in samples])).to(device)
    # (n, H, W, 3) in memory is already what channels_last means
    images = batch.flip(-1).permute(0, 3, 1, 2).float()
    mean = images.new_tensor(model.transform.image_mean).view(1, 3, 1, 1)
    std = images.new_tensor(model.transform.image_std).view(1, 3, 1, 1)
    return (images / 255 - mean) / std
