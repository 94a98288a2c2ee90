# SPDX-License-Identifier: Apache-2.0
"""The published way to run a stochastic detector: a complete pass through torchvision's own model for every sample."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from sticker_uq.detection.kernels.devices import float32_products
from sticker_uq.detection.kernels.pixels import rgb_input
from sticker_uq.detection.registry import detector_entry
from sticker_uq.detection.selection import (
    Rows,
    keep_best,
    sigmoid_distribution,
    softmax_distribution,
    strongest,
)
from sticker_uq.detection.settings import DetectorSettings


@contextmanager
def masked(model: Any, settings: DetectorSettings, drop: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """``drop`` where the published models have dropout, called in the order in which torchvision calls the modules."""
    if not detector_entry(settings.model).fixed_input_size:
        fpn = model.backbone.fpn
        hooks = [
            b.register_forward_hook(lambda _m, _i, out: drop(out))
            for b in [*fpn.inner_blocks, *fpn.layer_blocks]
        ]
    elif settings.dropout_site == "in":
        hooks = [model.head.register_forward_pre_hook(lambda _m, inputs: ([drop(x) for x in inputs[0]],))]
    else:
        branches = (model.head.regression_head, model.head.classification_head)
        blocks = [block for branch in branches for block in branch.module_list]
        hooks = [block.register_forward_hook(lambda _m, _i, out: drop(out)) for block in blocks]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def thresholds(model: Any, settings: DetectorSettings) -> Iterator[None]:
    """torchvision's own post-processing with the thresholds of ``settings``."""
    owner = getattr(model, "roi_heads", model)
    wanted = {
        "score_thresh": settings.score_floor,
        "nms_thresh": settings.nms_threshold,
        "detections_per_img": settings.max_detections,
        "topk_candidates": 1000,
    }
    before = {name: getattr(owner, name) for name in wanted if hasattr(owner, name)}
    try:
        for name in before:
            setattr(owner, name, wanted[name])
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def published_pass(model: Any, settings: DetectorSettings, image: NDArray[np.uint8]) -> None:
    """One complete pass of torchvision's ``model`` over ``image`` with torch's own dropout, as the published code makes it.

    In float32; where the precision of ``settings`` is less than that, a GPU multiplies in TF32.
    """
    device = next(model.parameters()).device

    def drop(x: Tensor) -> Tensor:
        return functional.dropout(x, settings.dropout_rate, training=True)

    products = float32_products(settings.precision != "float32", device)
    with torch.no_grad(), products, masked(model, settings, drop), thresholds(model, settings):
        result = model([rgb_input(image, device)])[0]
        result["boxes"].cpu()


def complete_pass(
    model: Any, settings: DetectorSettings, image: NDArray[np.uint8], drop: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Boxes (N, 4) px and class distributions (N, 3) of one complete pass of torchvision's ``model`` over ``image``.

    The network is torchvision's from the pixels to the outputs of its heads, in float32, which a GPU multiplies as the precision
    of ``settings`` says; what follows, the choice of boxes with their
    distributions, is the engine's own code, so that equal outputs of the heads give equal boxes.
    """
    seen: dict[str, Any] = {}

    def keep(name: str) -> Any:
        return lambda _module, _inputs, output: seen.__setitem__(name, output)

    two_stage = hasattr(model, "roi_heads")
    hooks = [model.transform.register_forward_hook(keep("transform"))]
    if two_stage:
        hooks.append(model.rpn.register_forward_hook(keep("proposals")))
        hooks.append(model.roi_heads.box_predictor.register_forward_hook(keep("head")))
    else:
        hooks.append(model.anchor_generator.register_forward_hook(keep("anchors")))
        hooks.append(model.head.register_forward_hook(keep("head")))
    device = next(model.parameters()).device
    try:
        with (
            torch.no_grad(),
            float32_products(settings.precision == "tf32", device),
            masked(model, settings, drop),
        ):
            model([rgb_input(image, device)])
    finally:
        for hook in hooks:
            hook.remove()
    resized = seen["transform"][0].image_sizes[0]
    if two_stage:
        (logits, deltas), anchors = seen["head"], seen["proposals"][0][0]
        probabilities, coder = softmax_distribution(logits), model.roi_heads.box_coder
    else:
        outputs, anchors, coder = seen["head"], seen["anchors"][0], model.box_coder
        logits, deltas = outputs["cls_logits"][0], outputs["bbox_regression"][0]
        retinanet = detector_entry(settings.model).family == "retinanet"
        probabilities = (sigmoid_distribution if retinanet else softmax_distribution)(logits)
    passes, chosen = strongest(probabilities[None], settings.score_floor)
    vectors = probabilities[chosen]
    deltas = deltas.view(len(deltas), -1, 4)[chosen]
    deltas = deltas[torch.arange(len(deltas)), (vectors[:, 1:].argmax(dim=1) + 1) * two_stage]
    rows = Rows(coder.decode_single(deltas, anchors[chosen]), vectors, passes)
    rows = keep_best(
        rows.on_processor(settings.score_floor), resized, settings.nms_threshold, settings.max_detections
    )
    height, width = image.shape[:2]
    scale = rows.boxes.new_tensor([width / resized[1], height / resized[0]]).repeat(2)
    return (rows.boxes * scale).minimum(rows.boxes.new_tensor([width, height]).repeat(2)), rows.probabilities
