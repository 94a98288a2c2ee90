"""Adversarial patches that hide a sticker from a detector: DPatch (Liu et al. 2019) with the objective of disappearance.

A patch is universal: trained over many scenes, places and sizes, it works on a sticker it has not seen. It is white-box: the
gradient of the detector's class probabilities goes through the whole network to the patch's pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from sticker_uq.datasets.abnormal import patch_place
from sticker_uq.datasets.coco import LabelledImage
from sticker_uq.detection.detector import StochasticDetector
from sticker_uq.detection.dropout import no_dropout
from sticker_uq.detection.sampling import read_picture
from sticker_uq.scene import InvalidInput, ObjectClass

PATCH_PIXELS = 32
"""Side of a patch; on a picture it is enlarged to the size of its place."""
_RATE = 0.1
_FLOOR = 0.02
"""Candidates below this score are hidden well enough."""
_LIGHT = (0.9, 1.1)


def craft_patch(
    detector: StochasticDetector,
    items: Sequence[LabelledImage],
    *,
    steps: int,
    seed: int,
    batch: int = 2,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> NDArray[np.uint8]:
    """An adversarial patch (PATCH_PIXELS, PATCH_PIXELS, 3) uint8 BGR against ``detector``, after ``steps`` of ``batch`` pictures.

    In each step Adam lowers the sum of -log(1 - p) over the candidates on an attacked sticker, p being the probability
    that a candidate is an object. ``on_step`` hears the number of the step and the mean of that over its pictures. The
    same seed gives the same patch but for rounding in torch's sums. Raises InvalidInput when ``steps`` or ``batch`` is
    below 1, no picture has a sticker, or one cannot be read.
    """
    if steps < 1 or batch < 1:
        raise InvalidInput(f"{steps} steps of {batch} pictures: expected at least 1 of each")
    stickers = [(item, box) for item in items for box in item.boxes[item.labels == ObjectClass.STICKER]]
    if not stickers:
        raise InvalidInput(f"none of {len(items)} pictures has a sticker, expected some to hide")
    rng = np.random.default_rng(seed)
    start = torch.from_numpy(rng.uniform(0.2, 0.8, (1, 3, PATCH_PIXELS, PATCH_PIXELS)).astype(np.float32))
    patch = start.to(detector.device).requires_grad_(True)
    optimizer = torch.optim.Adam([patch], lr=_RATE)
    for step in range(steps):
        optimizer.zero_grad()
        total = 0.0
        for index in rng.integers(0, len(stickers), batch):
            item, box = stickers[int(index)]
            loss = _visibility(detector, read_picture(item), box, patch, rng)
            if loss.requires_grad:
                (loss / batch).backward()
            total += loss.item() / batch
        optimizer.step()
        with torch.no_grad():
            patch.clamp_(0, 1)
        on_step(step + 1, total)
    pixels = patch.detach()[0].permute(1, 2, 0).cpu().numpy()
    return np.ascontiguousarray(np.rint(pixels[..., ::-1] * 255).astype(np.uint8))


def _visibility(
    detector: StochasticDetector,
    image: NDArray[np.uint8],
    box: NDArray[np.float32],
    patch: Tensor,
    rng: np.random.Generator,
) -> Tensor:
    """Sum of -log(1 - p) over the candidates whose centre lies in ``box`` px, with the patch on it; 0 when there is none."""
    left, top, side = patch_place(box, image.shape, rng)
    height, width = image.shape[:2]
    rgb = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
    picture = torch.from_numpy(rgb).to(detector.device).permute(2, 0, 1).float().div_(255)
    enlarged = F.interpolate(patch, (side, side), mode="bilinear", align_corners=False)[0]
    light = float(rng.uniform(*_LIGHT))
    inner = torch.zeros_like(picture)
    inner[:, top : top + side, left : left + side] = 1
    margins = (left, width - left - side, top, height - top - side)
    laid = picture * (1 - inner) + F.pad((enlarged * light).clamp(0, 1), margins)

    images, _ = detector.model.transform([laid])
    features = detector.family.encode(images, (width, height))
    maps = detector.family.head_maps(features, no_dropout)
    rows = detector.family.candidates(features, maps, no_dropout, _FLOOR)
    scale = rows.boxes.new_tensor([features.resized[1] / width, features.resized[0] / height])
    x1, y1, x2, y2 = (torch.from_numpy(box).to(scale) * scale.repeat(2)).unbind()
    x, y = ((rows.boxes[:, :2] + rows.boxes[:, 2:]) / 2).unbind(dim=1)
    on_it = (x > x1) & (x < x2) & (y > y1) & (y < y2)
    return -rows.probabilities[on_it, 0].clamp_min(1e-6).log().sum()
