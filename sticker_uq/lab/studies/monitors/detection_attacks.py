# SPDX-License-Identifier: Apache-2.0
"""An attack on a detector that knows the monitor of its objects: the class changes, and the monitor notices less.

Dense Adversary Generation with a second term (after Carlini and Wagner 2017): while a target still believes in its class the
picture moves along the gradient of the classes, otherwise down the gradient of the monitor's score of the attacked objects.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchvision.ops import roi_align

from sticker_uq.detection import StochasticDetector
from sticker_uq.detection.features import Features
from sticker_uq.io.coco import LabelledImage, read_picture
from sticker_uq.io.crops import crop_square
from sticker_uq.lab.attacks.targets import TargetOutputs, Targets, find_targets, target_outputs
from sticker_uq.monitors import Monitor
from sticker_uq.monitors.autoencoder import Autoencoder
from sticker_uq.monitors.detections import CROP_SIZE, LEVELS
from sticker_uq.scene import FloatArray, IntArray, InvalidInput

ATTACKED = ("max_softmax", "mdsa", "autoencoder")
"""One of each family: monitors whose score has a gradient in the picture."""
EPSILON = 8.0
"""Largest change of a pixel, grey levels."""
_FOOLED = 0.9  # of the targets, from which on the monitor is attacked

Score = Callable[[Tensor, Features, list[Tensor], TargetOutputs], Tensor]


def attacked_picture(
    detector: StochasticDetector, item: LabelledImage, monitor: Monitor | None, steps: int
) -> NDArray[np.uint8]:
    """Picture of ``item``, attacked against detector and monitor within :data:`EPSILON`, (H, W, 3) uint8 BGR,
    as stored.

    Every logo is to be taken for a sticker and the other way round. With ``monitor``, the picture with its lowest mean score
    among those that fool enough targets; without, the first of those. The clean picture where there is nothing to attack.
    InvalidInput for a monitor that is not among :data:`ATTACKED`.
    """
    clean_image = read_picture(item)
    rgb = np.ascontiguousarray(clean_image[..., ::-1].transpose(2, 0, 1))
    clean = torch.from_numpy(rgb).to(detector.device, torch.float32)[None]
    with torch.no_grad():
        targets = find_targets(detector, clean, [item])
    if not len(targets.labels):
        return clean_image
    numbers = torch.unique(targets.object)
    boxes = item.boxes[numbers.cpu().numpy()]
    wanted = 3 - targets.labels
    score = None
    if monitor is not None:
        score = score_of(detector, monitor, boxes, 3 - item.labels[numbers.cpu().numpy()], targets)
    now, best, lowest = clean.clone(), clean, math.inf
    rows = torch.arange(len(wanted), device=clean.device)
    for _ in range(steps):
        pixels = now.clone().requires_grad_(True)
        outputs, features, maps = target_outputs(detector, pixels, targets)
        believing = outputs.probabilities.argmax(dim=1) == targets.labels
        fooled = float(1 - believing.float().mean())
        if fooled >= _FOOLED:
            if score is None:
                best = now
                break
            value = score(pixels, features, maps, outputs)
            reached = float(value.detach())
            if reached < lowest:
                best, lowest = now, reached
            loss = value
        else:
            gain = outputs.logits[rows, wanted] - outputs.logits[rows, targets.labels]
            loss = -gain[believing].sum()
            if math.isinf(lowest):
                best = now  # the nearest to success so far
        (gradient,) = torch.autograd.grad(loss, pixels)
        now = now - 2.5 * EPSILON / steps * gradient.sign()
        now = torch.minimum(torch.maximum(now, clean - EPSILON), clean + EPSILON).clamp(0, 255).detach()
    stored = best[0].detach().round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    return np.ascontiguousarray(stored[..., ::-1])


def score_of(
    detector: StochasticDetector,
    monitor: Monitor,
    boxes: FloatArray,
    classes: IntArray,
    targets: Targets,
) -> Score:
    """Mean score of the attacked ``monitor`` at ``boxes`` (N, 4) px taken for ``classes`` (N,), differentiable."""
    if isinstance(monitor, Autoencoder):
        drawer = monitor.drawer().to(detector.device)
        squares = [crop_square(box) for box in boxes]
        places = torch.tensor([[x, y, x + side, y + side] for x, y, side in squares], dtype=torch.float32)

        def drawn(pixels: Tensor, features: Features, maps: list[Tensor], outputs: TargetOutputs) -> Tensor:
            crops = roi_align(pixels[:, [2, 1, 0]] / 255, [places.to(pixels)], CROP_SIZE, aligned=True)
            return ((crops - drawer.reconstruct(crops)) ** 2).mean()

        return drawn
    if monitor.name == "max_softmax":
        return lambda pixels, features, maps, outputs: (1 - outputs.probabilities.amax(dim=1)).mean()
    if monitor.name == "mdsa":
        return _mahalanobis(monitor, boxes, classes)
    raise InvalidInput(f"monitor {monitor.name}: no gradient known, expected one of {', '.join(ATTACKED)}")


def _mahalanobis(monitor: Monitor, boxes: FloatArray, classes: IntArray) -> Score:
    learned = monitor.arrays()
    known = [(row, label) for row, label in enumerate(classes.tolist()) if f"mean.{label}" in learned]

    def score(pixels: Tensor, features: Features, maps: list[Tensor], outputs: TargetOutputs) -> Tensor:
        width, height = features.image_size
        scale = np.array([features.resized[1] / width, features.resized[0] / height] * 2, np.float32)
        rows = [torch.from_numpy(np.asarray(boxes, np.float32) * scale).to(pixels)]
        layers = [
            roi_align(level, rows, (2, 2), level.shape[-1] / features.padded[1], 2, True).mean(dim=(2, 3))
            for level in maps[:LEVELS]
        ]
        flat = torch.cat(layers, dim=1).double()
        found = []
        for row, label in known:
            mean = torch.from_numpy(learned[f"mean.{label}"]).to(flat)
            lower = torch.from_numpy(learned[f"lower.{label}"]).to(flat)
            white = torch.linalg.solve_triangular(lower, (flat[row] - mean)[:, None], upper=False)
            found.append((white**2).sum())
        return torch.stack(found).mean() if found else flat.sum() * 0

    return score
