# SPDX-License-Identifier: Apache-2.0
"""Adversarial patches against the detection of stickers: DPatch (Liu et al. 2019).

A patch is universal: trained over many scenes, positions and sizes, it works on unseen stickers. The attack is white-box: the
gradient of the class probabilities is propagated through the whole network to the patch's pixels. In DPatch's targeted form a
sticker is classified as a logo, which the cell does not touch; or the sticker vanishes.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from sticker_uq.detection.detector import StochasticDetector
from sticker_uq.detection.dropout import no_dropout
from sticker_uq.io.coco import LabelledImage, read_picture
from sticker_uq.scene import InvalidInput, ObjectClass, Rng
from sticker_uq_lab.datasets.abnormal import patch_place

PATCH_PIXELS = 32
"""Side of a patch, px; it is resized to its place in a picture."""
PatchMode = Literal["swap", "vanish", "forge"]
"""Target of a patch: the sticker becomes a logo (swap) or background (vanish), or a logo becomes a sticker (forge)."""
_RATE = 0.1  # initial learning rate, with cosine decay to 0
_FLOOR = 0.02  # candidates below this score are ignored
_AIMS: dict[PatchMode, tuple[ObjectClass, ObjectClass]] = {
    "swap": (ObjectClass.STICKER, ObjectClass.LOGO),
    "vanish": (ObjectClass.STICKER, ObjectClass.BACKGROUND),
    "forge": (ObjectClass.LOGO, ObjectClass.STICKER),
}
"""The class of the objects that carry the patch, and what they are to be taken for."""
_LIGHT = (0.9, 1.1)


def craft_patch(
    detector: StochasticDetector,
    items: Sequence[LabelledImage],
    *,
    steps: int,
    seed: int,
    mode: PatchMode = "swap",
    batch: int = 4,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> NDArray[np.uint8]:
    """An adversarial patch (PATCH_PIXELS, PATCH_PIXELS, 3) uint8 BGR against ``detector``, after ``steps`` of ``batch`` pictures.

    Every object of the attacked class has the patch. Each step of Adam minimises the sum of -log p per object over the
    candidates on them, where p is the probability of the target class by ``mode``. ``on_step`` is called with the number of the
    step and the mean loss over its pictures. The same seed gives the same patch up to rounding in torch's sums.
    """
    if steps < 1 or batch < 1:
        raise InvalidInput(f"{steps} steps of {batch} pictures: expected at least 1 of each")
    carrier, wanted = _AIMS[mode]
    attacked = [(item, item.boxes[item.labels == carrier]) for item in items]
    attacked = [(item, boxes) for item, boxes in attacked if len(boxes)]
    if not attacked:
        raise InvalidInput(
            f"none of {len(items)} pictures has a {carrier.name.lower()}, expected some to attack"
        )
    rng = np.random.default_rng(seed)
    start = torch.from_numpy(rng.uniform(0.2, 0.8, (1, 3, PATCH_PIXELS, PATCH_PIXELS)).astype(np.float32))
    patch = start.to(detector.device).requires_grad_(True)
    optimizer = torch.optim.Adam([patch], lr=_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(steps):
        optimizer.zero_grad()
        total = 0.0
        for index in rng.integers(0, len(attacked), batch):
            item, boxes = attacked[int(index)]
            loss = _resistance(detector, read_picture(item), boxes, patch, wanted, rng)
            if loss.requires_grad:
                (loss / batch).backward()
            total += loss.item() / batch
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            patch.clamp_(0, 1)
        on_step(step + 1, total)
    pixels = patch.detach()[0].permute(1, 2, 0).cpu().numpy()
    return np.ascontiguousarray(np.rint(pixels[..., ::-1] * 255).astype(np.uint8))


def _resistance(
    detector: StochasticDetector,
    image: NDArray[np.uint8],
    boxes: NDArray[np.float32],
    patch: Tensor,
    wanted: ObjectClass,
    rng: Rng,
) -> Tensor:
    """Mean over ``boxes`` (N, 4) px, each with the patch, of the sum of -log p(``wanted``) of the candidates centred there."""
    height, width = image.shape[:2]
    rgb = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
    laid = torch.from_numpy(rgb).to(detector.device).permute(2, 0, 1).float().div_(255)
    for box in boxes:
        left, top, side = patch_place(box, image.shape, rng)
        enlarged = F.interpolate(patch, (side, side), mode="bilinear", align_corners=False)[0]
        light = rng.uniform(*_LIGHT)
        margins = (left, width - left - side, top, height - top - side)
        outer = F.pad(torch.zeros_like(enlarged), margins, value=1.0)
        laid = laid * outer + F.pad((enlarged * light).clamp(0, 1), margins)

    images, _ = detector.model.transform([laid])
    features = detector.family.encode(images, (width, height))
    maps = detector.family.head_maps(features, no_dropout)
    rows = detector.family.candidates(features, maps, no_dropout, _FLOOR).above(_FLOOR)
    scale = rows.boxes.new_tensor([features.resized[1] / width, features.resized[0] / height])
    places = torch.from_numpy(boxes).to(scale) * scale.repeat(2)
    centres = ((rows.boxes[:, None, :2] + rows.boxes[:, None, 2:]) / 2).expand(-1, len(places), -1)
    on_one = ((centres > places[:, :2]) & (centres < places[:, 2:])).all(dim=2).any(dim=1)
    return -rows.probabilities[on_one, wanted].clamp_min(1e-6).log().sum() / len(boxes)
