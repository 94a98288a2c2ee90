# SPDX-License-Identifier: Apache-2.0
"""What the detectors must compute, the slow way: whole torchvision models, masks through hooks, loops over boxes."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.naive import masked, thresholds
from sticker_uq.detection.kernels.pixels import rgb_input
from sticker_uq.detection.settings import DetectorSettings


@dataclass(frozen=True)
class CompletePass:
    """One pass through a whole torchvision model.

    ``logits`` (A, 3) and ``boxes`` (A, 3, 4): what the head says of each anchor or proposal, one box per
    class, px of the resized image; ``resized`` (h, w); ``stock``: torchvision's own result.
    """

    logits: Tensor
    boxes: Tensor
    resized: tuple[int, int]
    stock: dict[str, Tensor]


def complete_pass(
    model: Any, settings: DetectorSettings, image: NDArray[np.uint8], drop: Callable[[Tensor], Tensor] | None
) -> CompletePass:
    """``image`` through ``model``, with ``drop`` where the models have dropout unless it is None."""
    seen: dict[str, Any] = {}
    two_stage = hasattr(model, "roi_heads")
    sources = {"transform": model.transform}
    if two_stage:
        sources |= {"proposals": model.rpn, "head": model.roi_heads.box_predictor}
    else:
        sources |= {"proposals": model.anchor_generator, "head": model.head}
    with ExitStack() as stack, torch.no_grad():
        for name, module in sources.items():
            stack.callback(module.register_forward_hook(_keeper(seen, name)).remove)
        if drop is not None:
            stack.enter_context(masked(model, settings, drop))
        stack.enter_context(thresholds(model, settings))
        stock = model([rgb_input(image)])[0]
    if two_stage:
        (logits, deltas), proposals = seen["head"], seen["proposals"][0]
        boxes = model.roi_heads.box_coder.decode(deltas, [proposals])
    else:
        logits, deltas = seen["head"]["cls_logits"][0], seen["head"]["bbox_regression"][0]
        boxes = model.box_coder.decode_single(deltas, seen["proposals"][0])[:, None].expand(-1, 3, -1)
    return CompletePass(logits, boxes, seen["transform"][0].image_sizes[0], stock)


def expected(outputs: CompletePass, settings: DetectorSettings, image: NDArray[np.uint8]) -> NDArray[Any]:
    """Boxes and class distributions (N, 7) that ``outputs`` stand for, by falling score."""
    height, width = outputs.resized
    candidates = []
    for vector, boxes in zip(
        _distributions(outputs.logits, settings.model), outputs.boxes.numpy(), strict=True
    ):
        label = 1 if vector[1] >= vector[2] else 2
        if vector[label] <= settings.score_floor:
            continue
        box = np.clip(boxes[label], 0, [width, height, width, height])
        if min(box[2:] - box[:2]) >= 0.01:
            candidates.append((vector[label], label, box, vector))
    candidates.sort(key=lambda c: -c[0])
    kept: list[Any] = []
    for candidate in candidates[:1000]:
        if len(kept) == settings.max_detections:
            break
        others = [k for k in kept if k[1] == candidate[1]]
        if all(_iou(candidate[2], k[2]) <= settings.nms_threshold for k in others):
            kept.append(candidate)
    scale = np.array([image.shape[1] / width, image.shape[0] / height] * 2)
    return np.array([[*(box * scale), *vector] for _, _, box, vector in kept]).reshape(-1, 7)


def _keeper(seen: dict[str, Any], name: str) -> Any:
    def keep(_module: Any, _inputs: Any, output: Any) -> None:
        seen[name] = output[0] if name == "proposals" and isinstance(output, tuple) else output

    return keep


def _distributions(logits: Tensor, model: str) -> NDArray[Any]:
    if not model.startswith("retinanet"):
        return torch.softmax(logits, dim=1).numpy()
    p = torch.sigmoid(logits).numpy()
    vectors = np.stack([(1 - p[:, 1]) * (1 - p[:, 2]), p[:, 1], p[:, 2]], axis=1)
    return vectors / vectors.sum(axis=1, keepdims=True)


def _iou(a: NDArray[Any], b: NDArray[Any]) -> float:
    (left, top, right, bottom), (other_left, other_top, other_right, other_bottom) = a.tolist(), b.tolist()
    width, height = (
        min(right, other_right) - max(left, other_left),
        min(bottom, other_bottom) - max(top, other_top),
    )
    common = max(width, 0.0) * max(height, 0.0)
    areas = (right - left) * (bottom - top) + (other_right - other_left) * (other_bottom - other_top)
    return common / (areas - common)
