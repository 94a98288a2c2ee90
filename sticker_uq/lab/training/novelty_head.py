# SPDX-License-Identifier: Apache-2.0
"""Training of the novelty head of a detector on clean labelled pictures with random shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from sticker_uq.detection import StochasticDetector
from sticker_uq.io.coco import LabelledImage, read_picture
from sticker_uq.lab.datasets.abnormal_shapes import exposed
from sticker_uq.novelty.head import NoveltyHead, cells_of
from sticker_uq.scene import InvalidInput

_CLEAN_EVERY = 4
"""One picture in this number is left unchanged."""
_COVERED, _FREE = 0.3, 0.02
"""Covered share above which a cell is positive, and below which it is negative; cells between are ignored."""
_BATCH = 512
_EPOCHS = 3
_RATE, _DECAY = 2e-3, 1e-3


def train_novelty_head(
    detector: StochasticDetector,
    items: Sequence[LabelledImage],
    seed: int = 0,
    on_picture: Callable[[], None] = lambda: None,
) -> NoveltyHead:
    """A novelty head for ``detector`` trained on clean labelled pictures, three of four with random shapes.

    The same seed and pictures give the same head up to rounding in torch's sums. Raises InvalidInput without pictures
    and for one that cannot be read.
    """
    if not items:
        raise InvalidInput("0 pictures to train novelty detection on, expected some hundreds")
    activations, covered = [], []
    for number, item in enumerate(items):
        rng = np.random.default_rng((seed, item.image_id))
        image, mask = read_picture(item), np.zeros((item.height, item.width), np.uint8)
        if number % _CLEAN_EVERY:
            image, mask = exposed(image, item.boxes, rng)[:2]
        features = detector.encode(image)
        cells = cells_of(detector.head_maps(features), features.padded)[0]
        # no cells in the padding of the network's input
        height, width = features.resized
        canvas = np.zeros(features.padded, np.float32)
        canvas[:height, :width] = cv2.resize(
            (mask > 127).astype(np.float32), (width, height), interpolation=cv2.INTER_AREA
        )
        share = cv2.resize(canvas, cells.shape[:0:-1], interpolation=cv2.INTER_AREA)
        activations.append(cells.flatten(1).T.half().cpu())
        covered.append(torch.from_numpy(share).flatten())
        on_picture()
    return _fitted(torch.cat(activations), torch.cat(covered), seed)


def _fitted(activations: Tensor, covered: Tensor, seed: int) -> NoveltyHead:
    """A head fitted to activations (N, C) half precision and the covered share of every cell (N,)."""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = NoveltyHead(activations.shape[1])
        sample = activations[:: max(1, len(activations) // 50_000)].float()
        head.mean.copy_(sample.mean(dim=0))
        head.scale.copy_(sample.std(dim=0) + 1e-3)
        teaches = torch.where((covered > _COVERED) | (covered < _FREE))[0]
        optimizer = torch.optim.AdamW(head.parameters(), lr=_RATE, weight_decay=_DECAY)
        batches = -(-len(teaches) // _BATCH) * _EPOCHS
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, max(1, batches))
        for _ in range(_EPOCHS):
            for rows in teaches[torch.randperm(len(teaches), generator=generator)].split(_BATCH):
                loss = F.binary_cross_entropy_with_logits(
                    head(activations[rows].float()), (covered[rows] > _COVERED).float()
                )
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
    return head.eval().requires_grad_(False)
