# SPDX-License-Identifier: Apache-2.0
"""Objects of a data set as a detector sees them, which resizes every picture, and how well its default boxes fit them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchvision.models.detection.anchor_utils import DefaultBoxGenerator
from torchvision.models.detection.image_list import ImageList
from torchvision.ops import box_iou

from sticker_uq.detection.catalogue import build_model
from sticker_uq.detection.kernels.pixels import resized_size
from sticker_uq.detection.registry import detector_entry
from sticker_uq.detection.weights import Unfilled, network_settings, packaged_weights
from sticker_uq.io.coco import LabelledImage
from sticker_uq.scene import FloatArray

OVERLAP = 0.5
"""IoU from which a default box is trained to be an object."""
ENOUGH = 0.5
"""Share of the labelled boxes that default boxes should overlap so: each of the others gets its four nearest all the same."""
_SMALLEST = (0.2, 0.14, 0.1, 0.07, 0.05, 0.04, 0.03)
_LARGEST = 0.95
_MOST_BOXES = 1000
_AT_ONCE = 250
_SIZES = {True: (480, 640, 960), False: (640, 800, 1056, 1600)}
"""Input sizes to try by whether a detector has a fixed one."""


def covered_share(items: Sequence[LabelledImage], name: str, **options: Any) -> float:
    """Share of the boxes of ``items`` (of many some are drawn) that a default box of model ``name``, built with ``options``,
    overlaps by :data:`OVERLAP`, NaN without any.
    """
    model = _shapes(name, **options)
    generator = getattr(model, "anchor_generator", None) or model.rpn.anchor_generator
    return _share(items, model, generator)


def fit_scales(items: Sequence[LabelledImage], name: str, input_size: int) -> tuple[float, ...]:
    """Scales of an SSD's default boxes that fit the boxes of ``items``; none where its own fit half of them.

    Otherwise a geometric row from the largest of some first scales with which the share is within 2 % of the best.
    """
    model = _shapes(name, input_size=input_size)
    own = model.anchor_generator
    if not _share(items, model, own) < ENOUGH:
        return ()
    rows, shares = [], []
    for first in _SMALLEST:
        row = np.geomspace(first, _LARGEST, len(own.scales) - 1).round(3).tolist()
        rows.append((*row, 1.0))
        tried = DefaultBoxGenerator(own.aspect_ratios, scales=list(rows[-1]), steps=own.steps, clip=own.clip)
        shares.append(_share(items, model, tried))
    best = max(shares)
    return next(row for row, value in zip(rows, shares, strict=True) if value >= best - 0.02)


def own_scales(name: str, settings: Mapping[str, Any]) -> tuple[float, ...]:
    if given := tuple(settings.get("anchor_scales", ())):
        return given
    if not detector_entry(name).fixed_input_size:
        return ()
    return tuple(_shapes(name, input_size=settings.get("input_size", 0)).anchor_generator.scales)


@cache
def _shapes(name: str, **options: Any) -> Any:
    with Unfilled():
        return build_model(name, **options).eval()


def _share(items: Sequence[LabelledImage], model: Any, generator: Any) -> float:
    boxes: dict[tuple[int, int], list[NDArray[np.float32]]] = defaultdict(list)
    for item in items:
        height, width = resized_size(model.transform, item.height, item.width)
        factors = np.array([width / item.width, height / item.height] * 2, np.float32)
        boxes[height, width].append(item.boxes * factors)
    whole = sum(len(part) for parts in boxes.values() for part in parts)
    found = []
    for size, parts in boxes.items():
        here = np.concatenate(parts)
        wanted = -(-_MOST_BOXES * len(here) // max(whole, 1))
        if wanted < len(here):
            here = np.random.default_rng(0).permutation(here)[:wanted]
        anchors = _anchors(model, generator, size)
        for part in torch.from_numpy(here).split(_AT_ONCE):
            found.append(box_iou(part, anchors).amax(dim=1) >= OVERLAP)
    return float(torch.cat(found).float().mean()) if whole else float("nan")


def _packaged_options(name: str) -> dict[str, Any]:
    """Options of `build_model` for the packaged weights of model ``name``, which ``train`` starts from; none without them."""
    options = network_settings(path) if (path := packaged_weights(name)) else {}
    return {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}


def sides_in_view(items: Sequence[LabelledImage], model: str, min_size: int) -> FloatArray:
    """Shorter sides (N,) px of the objects after the resizing of ``model``, as packaged if it is, with ``min_size``."""
    transform = _shapes(model, min_size=min_size, **_packaged_options(model)).transform
    sides = []
    for item in items:
        height, width = resized_size(transform, item.height, item.width)
        corners = item.boxes[:, 2:] - item.boxes[:, :2]
        sides += (corners * (width / item.width, height / item.height)).min(axis=1).tolist()
    return np.array(sides, np.float64)


def default_box_advice(items: Sequence[LabelledImage], model: str, min_size: int) -> str:
    """What to say of objects that no default box of ``model``, as packaged if it is, fits; "" when half of them have one."""
    packaged = _packaged_options(model)
    share = covered_share(items, model, min_size=min_size, **packaged)
    if not share < ENOUGH:
        return ""
    fixed = detector_entry(model).fixed_input_size
    said = (
        f"a default box of {model} overlaps {share:.0%} of the labelled boxes by {OVERLAP:g} or more, so most are hard to "
        "learn: "
    )
    remedy = "let the lid fill the picture (a nearer camera, cropped pictures)"
    if fixed:
        said += f"`train{' --start torchvision' if packaged else ''}` takes smaller default boxes, which "
        share = _with_own_boxes(items, model, packaged.get("input_size", 0))
        said += f"overlap {share:.0%}; " if share < ENOUGH else f"overlap {share:.0%}"
        if not share < ENOUGH:
            return said
    for size in _SIZES[fixed]:
        if size <= min_size and not fixed:
            continue
        share = _with_own_boxes(items, model, size) if fixed else covered_share(items, model, min_size=size)
        if share >= ENOUGH:
            option = "--input-size" if fixed else "--min-size"
            return f"{said}{remedy}, or train with {option} {size} ({share:.0%}), which is slower"
    return said + remedy


def _with_own_boxes(items: Sequence[LabelledImage], model: str, size: int) -> float:
    scales = fit_scales(items, model, size)
    return covered_share(items, model, input_size=size, anchor_scales=scales)


def _anchors(model: Any, generator: Any, size: tuple[int, int]) -> Tensor:
    step = 1 if model.transform.fixed_size is not None else model.transform.size_divisible
    height, width = (-(-side // step) * step for side in size)
    shells = [torch.empty(()).expand(1, *shape) for shape in _map_shapes(model.backbone, height, width)]
    canvas = torch.empty(()).expand(1, 3, height, width)
    anchors: Tensor = generator(ImageList(canvas, [size]), shells)[0]
    return anchors


@cache
def _map_shapes(backbone: Any, height: int, width: int) -> list[torch.Size]:
    """Channels, height and width of each map, from a batch without pictures, for which nothing is computed."""
    with torch.no_grad():
        return [m.shape[1:] for m in backbone(torch.empty(0, 3, height, width)).values()]
