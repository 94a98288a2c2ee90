# SPDX-License-Identifier: Apache-2.0
"""Distinctive localization of one image, and its objectness saliency: class activation maps of the summed objectness on the maps
that enter its heads.

The maps come without dropout from the features that the stochastic passes use too, and the gradient ends at them, so this
costs about one pass through the heads instead of one through the whole network and back. Unlike pytorch-grad-cam the levels
are not min-max scaled each: that would subtract a different background from every level and change BL / CL.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchvision.ops import clip_boxes_to_image, nms

from sticker_uq.detection import DeterministicPass, Features, NonFiniteOutput
from sticker_uq.detection.features import Maps
from sticker_uq.detection.kernels.devices import float32_products
from sticker_uq.detection.selection import top_ranked
from sticker_uq.detection.transfer import to_device, to_host
from sticker_uq.perception.dil.cam import library_map
from sticker_uq.perception.dil.score import dynamic_threshold, pixel_edges
from sticker_uq.perception.dil.settings import LocalizationSettings, Technique
from sticker_uq.perception.novelty.network import NoveltyMaps
from sticker_uq.perception.novelty.regions import missed_sticker_probability, unexplained_places
from sticker_uq.scene import FloatArray, IntArray, Localization, UnexplainedRegion
from sticker_uq.uncertainty import iou_matrix


def activation_maps(deterministic: DeterministicPass, technique: Technique = "layercam") -> list[Tensor]:
    """Class activation map of the summed objectness of every level (DiL paper, 3.1), (h, w) >= 0 each, fine to coarse.

    The unit is arbitrary; only ratios within one image mean something. A gradient can be asked of a pass only once.
    """
    gradients = objectness_gradients(deterministic)
    pairs = zip(deterministic.maps, gradients, strict=True)
    return [activation_map(m.detach(), g, technique)[0] for m, g in pairs]


def objectness_gradients(deterministic: DeterministicPass) -> Sequence[Tensor]:
    """The gradients (1, C, h, w) of :func:`sum_objectness` to the maps of ``deterministic``."""
    with torch.enable_grad(), float32_products(deterministic.tf32, deterministic.anchors.device):
        total = sum_objectness(deterministic.objectness, deterministic.two_stage)
        return torch.autograd.grad(total, deterministic.maps)


def sum_objectness(objectness: Sequence[Tensor], two_stage: bool) -> Tensor:
    """The scalar to differentiate, from the objectness (n, A, h, w) of every level.

    One-stage detectors: the sum over everything (DiL paper, eq 1). Two-stage ones: the sum over all places of the largest
    objectness of the boxes there (eq 2).
    """
    levels = [level.amax(dim=1) if two_stage else level for level in objectness]
    return torch.stack([level.sum() for level in levels]).sum()


def activation_map(activations: Tensor, gradients: Tensor, technique: Technique) -> Tensor:
    """Class activation maps of one level, (n, h, w) >= 0, from its activations and gradients (n, C, h, w).

    "layercam", the live one: every element has the weight of its own positive gradient (Jiang et al. 2021, eq 4-6). The others
    come from pytorch-grad-cam: "gradcam" (Selvaraju et al. 2017), "gradcam++" (Chattopadhay et al. 2018), and "eigencam", which
    sees the activations alone (Muhammad and Yeasin 2020).
    """
    if technique == "layercam":
        return gradients.relu().mul_(activations).sum(dim=1).relu_()
    return library_map(activations, gradients, technique)


def enlarge(levels: Sequence[Tensor], features: Features) -> FloatArray:
    """The sum of the maps (h, w) of all ``levels``, each enlarged bilinearly to the image, (H, W) float32.

    A map covers the padded input of the network; its part over the padding is left out. Places between the outermost cell
    centres and the edge take the value of the outermost cell.
    """
    width, height = features.image_size
    across, down = _extents(features)
    # Bilinear interpolation is rows x map x columns. Joined along the inner dimension the products of all levels, and their
    # sum, are a single matrix product.
    kind, device = levels[0].dtype, levels[0].device
    down_weights = torch.cat([_interpolation(height, level.shape[0], down) for level in levels], dim=1)
    rows = to_device(down_weights.to(kind), device)
    columns = torch.cat(
        [
            level @ to_device(_interpolation(width, level.shape[1], across).to(kind), device).T
            for level in levels
        ]
    )
    saliency: FloatArray = (rows @ columns).cpu().numpy()
    return saliency


def cell_sums(levels: Maps, features: Features, row_edges: IntArray, column_edges: IntArray) -> FloatArray:
    """Sums of the enlarged saliency over cells between pixel edges, (R, C) float64 for R + 1 and C + 1 rising edges.

    What :func:`enlarge` would give, summed, without making it: an image has a million pixels, and CL and BL are sums.
    """
    shapes = tuple(tuple(level.shape) for level in levels)
    rows, columns = _cumulate(features.image_size, _extents(features), shapes)
    rows, columns = np.diff(rows[row_edges], axis=0), np.diff(columns[column_edges], axis=0)
    values = torch.cat([level.flatten() for level in levels]).cpu().numpy()
    # the levels side by side along a diagonal: one product for all
    diagonal = np.zeros((rows.shape[1], columns.shape[1]))
    first, top, left = 0, 0, 0
    for height, width in shapes:
        part = values[first : first + height * width].reshape(height, width)
        diagonal[top : top + height, left : left + width] = part
        first, top, left = first + height * width, top + height, left + width
    total: FloatArray = rows @ diagonal @ columns.T
    return np.maximum(total, 0.0)


@lru_cache(maxsize=16)
def _cumulate(
    image_size: tuple[int, int], extents: tuple[float, float], shapes: tuple[tuple[int, int], ...]
) -> tuple[FloatArray, FloatArray]:
    """Sums of the weights of the first 0, 1, ... pixels, all levels of ``shapes`` (h, w) side by side.

    Of the rows (H + 1, sum of h) and of the columns (W + 1, sum of w).
    """
    (width, height), (across, down) = image_size, extents
    rows = torch.cat([_interpolation(height, h, down) for h, _ in shapes], dim=1).numpy()
    columns = torch.cat([_interpolation(width, w, across) for _, w in shapes], dim=1).numpy()
    return _sums_from_zero(rows), _sums_from_zero(columns)


def _sums_from_zero(weights: FloatArray) -> FloatArray:
    return np.concatenate([np.zeros((1, weights.shape[1])), np.cumsum(weights, axis=0)])


def _extents(features: Features) -> tuple[float, float]:
    """Width and height of the padded input of the network in pixels of the original image."""
    width, height = features.image_size
    return width * features.padded[1] / features.resized[1], height * features.padded[0] / features.resized[0]


def _interpolation(pixels: int, cells: int, extent: float) -> Tensor:
    """Weights (pixels, cells) of linear interpolation at pixel centres when ``cells`` equal cells span ``extent`` pixels."""
    position = np.clip((np.arange(pixels) + 0.5) * cells / extent - 0.5, 0.0, cells - 1.0)
    below = np.minimum(position.astype(np.int64), max(cells - 2, 0))
    weights = np.zeros((pixels, cells))
    weights[np.arange(pixels), below] = 1.0 - (position - below)
    if cells > 1:
        weights[np.arange(pixels), below + 1] = position - below
    return torch.from_numpy(weights)


EXPLAINED_IOU = 0.1
"""IoU with a predicted box above which an anchor is explained."""
EXPLAINED_PART = 0.5
"""Part of its area inside one predicted box above which an anchor is explained."""
MAX_REGIONS = 8
CONNECTED_IOU = 0.2
"""Overlap above which two places are one."""
_CANDIDATES = 200  # strongest unexplained anchors that can become regions
_ATTEMPTS = (256, 4096)
"""Of so many of the strongest anchors it is asked whether a box explains them, before it is asked of all."""
_PAIRS = 1 << 22
"""Pairs of an anchor and a predicted box that a GPU compares at once, some 100 MiB."""
_TINY = 1e-9


@dataclass(frozen=True)
class Unexplained:
    """Anchors that no predicted box explains.

    ``objectness``: the largest one, 0..1, 0 if every anchor is explained; ``boxes`` (K, 4) float32 px of the original image
    and ``values`` (K,) float32: the places that reach the asked objectness, by falling objectness, apart from each other.
    """

    objectness: float
    boxes: FloatArray
    values: FloatArray


def unexplained_anchors(
    deterministic: DeterministicPass, predicted: FloatArray, floor: float
) -> tuple[Tensor, Tensor]:
    """The strongest anchors that the ``predicted`` boxes (N, 4) px do not explain, not yet apart, without waiting for a device.

    Boxes (K, 4) px of the resized image, those that the detector itself makes of the anchors, and their objectness (K,), falling;
    on a device some may be negative: no anchors. BL asks which saliency lies outside of every box (DiL paper, eq 4). On the
    coarse maps of a detector saliency spreads beyond its object, so here it is asked of every anchor, before suppression: one
    that neither overlaps a predicted box nor lies in it is unexplained, and its objectness is evidence that no detection reports.
    """
    features, anchors = deterministic.features, deterministic.anchors
    boxes = torch.from_numpy(np.asarray(predicted, np.float32).reshape(-1, 4)).to(anchors.dtype)
    boxes = to_device(boxes * _scale(deterministic), anchors.device)
    values = deterministic.probability()
    if anchors.device.type == "cpu":
        rows = _strongest_unexplained(values, anchors, features.resized, boxes, max(floor, _TINY))
        if not len(rows) or float(values[rows[0]]) < max(floor, _TINY):
            return anchors.new_zeros((len(rows), 4)), values[rows]  # nobody asks where it is
    else:
        explained = _all_explained(clip_boxes_to_image(anchors, features.resized), boxes)
        values = values.masked_fill(explained, -1.0)
        rows = top_ranked(values[None], min(_CANDIDATES, len(values)))[0]
    return clip_boxes_to_image(deterministic.decode_boxes(rows).detach(), features.resized), values[rows]


def apart(deterministic: DeterministicPass, places: Tensor, objectness: Tensor, floor: float) -> Unexplained:
    """What :func:`unexplained_anchors` found, on the processor: places of ``floor`` or more, apart from each other."""
    largest = max(float(objectness[0]), 0.0) if len(objectness) else 0.0
    if largest < max(floor, _TINY):
        return Unexplained(largest, np.zeros((0, 4), np.float32), np.zeros(0, np.float32))
    proper = (places[:, 2:] - places[:, :2] >= 1).all(dim=1) & (objectness >= max(floor, _TINY))
    places, objectness = places[proper], objectness[proper]
    kept = nms(places, objectness, CONNECTED_IOU)[:MAX_REGIONS]
    return Unexplained(
        objectness=largest,
        boxes=(places[kept] / _scale(deterministic)).float().numpy(),
        values=objectness[kept].float().numpy(),
    )


def _scale(deterministic: DeterministicPass) -> Tensor:
    """Factors (4,) from coordinates of the original image to those of the resized one."""
    features = deterministic.features
    (height, width), (original_width, original_height) = features.resized, features.image_size
    scale = [width / original_width, height / original_height] * 2
    return torch.tensor(scale, dtype=deterministic.anchors.dtype)


def _strongest_unexplained(
    values: Tensor, anchors: Tensor, size: tuple[int, int], boxes: Tensor, floor: float
) -> Tensor:
    """Rows of the anchors (N, 4) that no box explains, by falling ``values`` (N,): those from ``floor`` on, at least one.

    ``size``: (height, width) px that the anchors are clipped to. A detector may have 200000 anchors, so the strongest are
    tried first, and more only while there are too few.
    """
    for count in (*(c for c in _ATTEMPTS if c < len(values)), len(values)):
        rows, least = _strongest(values.numpy(), count)
        found = rows[~_find_explained(clip_boxes_to_image(anchors[rows], size), boxes)]
        if len(found) >= _CANDIDATES or (len(found) and least < floor):
            break
    return found[: max(1, int((values[found[:_CANDIDATES]] >= floor).sum()))]


def _strongest(values: FloatArray, count: int) -> tuple[Tensor, float]:
    """Rows of the ``count`` largest ``values`` (N,), and of all as large, by falling value; and the least of those."""
    rows, least = np.arange(len(values)), -math.inf
    if count < len(values):
        least = float(np.partition(values, -count)[-count])
        rows = np.flatnonzero(values >= least)
    return torch.from_numpy(rows[np.argsort(-values[rows], kind="stable")]), least


def _all_explained(anchors: Tensor, boxes: Tensor) -> Tensor:
    """:func:`_find_explained` of all anchors: a GPU is faster at them than at being asked whether there are enough."""
    return torch.cat([_find_explained(part, boxes) for part in anchors.split(_PAIRS // max(1, len(boxes)))])


def _find_explained(anchors: Tensor, boxes: Tensor) -> Tensor:
    """Which of ``anchors`` (N, 4) one of ``boxes`` (K, 4) explains, (N,) bool."""
    if not len(boxes):
        return torch.zeros(len(anchors), dtype=torch.bool, device=anchors.device)
    low = torch.maximum(anchors[:, None, :2], boxes[None, :, :2])
    high = torch.minimum(anchors[:, None, 2:], boxes[None, :, 2:])
    shared = (high - low).clamp_min(0).prod(dim=2)
    of_anchors, of_boxes = ((b[:, 2:] - b[:, :2]).clamp_min(0).prod(dim=1) for b in (anchors, boxes))
    union = of_anchors[:, None] + of_boxes[None] - shared
    part = shared / of_anchors[:, None].clamp_min(_TINY)
    explained: Tensor = ((shared > EXPLAINED_IOU * union) | (part > EXPLAINED_PART)).any(dim=1)
    return explained


def localize(
    deterministic: DeterministicPass,
    settings: LocalizationSettings,
    keep_saliency: bool = False,
    novelty: NoveltyMaps | None = None,
) -> Localization:
    """How well the predicted boxes explain the objectness of the image of ``deterministic`` (DiL paper, eq 1-6).

    Predicted boxes are the detections whose score reaches the fixed decision threshold. The saliency map stays
    in the result if ``keep_saliency``. ``novelty``: output of the novelty network; what no box explains of
    it joins the unexplained places. Raises NonFiniteOutput when the saliency is NaN or infinite.
    """
    features, detections = deterministic.features, deterministic.detections
    maps, floor = activation_maps(deterministic, settings.technique), settings.region_objectness
    predicted = detections.boxes[detections.scores >= settings.decision_threshold]
    # everything at once: a GPU is waited for here and, where it is kept, for the saliency map
    *levels, places, objectness = to_host(*maps, *unexplained_anchors(deterministic, predicted, floor))
    found = apart(deterministic, places, objectness, floor)
    if novelty is not None:
        found = _join_regions(found, novelty, predicted)
    complete, background, shares = _sums(levels, features, predicted, found.boxes)
    if not math.isfinite(complete):
        raise NonFiniteOutput(f"the objectness saliency sums to {complete}, expected a finite number")
    dil = background / complete if complete > 0.0 else math.nan
    return Localization(
        complete_localization=complete,
        background_localization=background,
        dil=dil,
        decision_threshold=dynamic_threshold(dil, settings.decision_threshold, settings.alpha),
        unexplained_objectness=found.objectness,
        unexplained=tuple(map(UnexplainedRegion, found.boxes, found.values.tolist(), shares)),
        missed_sticker_probability=math.nan
        if novelty is None
        else missed_sticker_probability(novelty, predicted),
        saliency=enlarge(maps, features) if keep_saliency else None,
    )


def _join_regions(found: Unexplained, maps: NoveltyMaps, predicted: FloatArray) -> Unexplained:
    """``found`` and, after it, the places of ``maps`` that are not among them."""
    boxes, values = unexplained_places(maps, predicted)
    new = iou_matrix(boxes, found.boxes).max(axis=1, initial=0.0) <= CONNECTED_IOU
    return replace(
        found,
        boxes=np.concatenate([found.boxes, boxes[new]])[:MAX_REGIONS],
        values=np.concatenate([found.values, values[new]])[:MAX_REGIONS],
    )


def _sums(
    levels: Maps, features: Features, predicted: FloatArray, regions: FloatArray
) -> tuple[float, float, list[float]]:
    """CL, BL, and the share of BL in each of ``regions`` (K, 4), 0..1 (DiL paper, eq 3-4).

    The edges of all boxes cut the image into cells; each cell is summed as a whole.
    """
    width, height = features.image_size
    both = pixel_edges(np.concatenate([predicted, regions]), height, width)
    boxes, places = both[: len(predicted)], both[len(predicted) :]
    columns = np.array(sorted({0, width, *both[:, 0::2].ravel().tolist()}))
    rows = np.array(sorted({0, height, *both[:, 1::2].ravel().tolist()}))
    sums = cell_sums(levels, features, rows, columns)
    covered = np.zeros(sums.shape, np.bool_)
    for box in boxes:
        covered |= _cells(box, rows, columns)
    outside = np.where(covered, 0.0, sums)
    # Both sums add in the same order, so BL cannot exceed CL by rounding.
    complete, background = float(sums.sum()), float(outside.sum())
    inside = [float(np.where(_cells(place, rows, columns), outside, 0.0).sum()) for place in places]
    return complete, background, [part / background if background > 0.0 else 0.0 for part in inside]


def _cells(box: NDArray[np.int64], rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which cells between ``rows`` (R + 1,) and ``columns`` (C + 1,) lie in ``box`` (4,), (R, C)."""
    left, top, right, bottom = box
    down = (rows[:-1] >= top) & (rows[1:] <= bottom)
    across = (columns[:-1] >= left) & (columns[1:] <= right)
    return np.asarray(down[:, None] & across[None])
