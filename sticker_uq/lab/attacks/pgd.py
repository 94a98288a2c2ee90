# SPDX-License-Identifier: Apache-2.0
"""Projected gradient descent (Madry et al., ICLR 2018) on the loss of a detector, for all six models.

Unlike Dense Adversary Generation, every iteration looks for the boxes anew, so that none that arises on the way is forgotten, and
moves every pixel by the sign of the gradient, within a largest change. As in the vanishing and mislabelling attacks of TOG (Chow
et al., TPS 2020), boxes on an object are to get the other class (mode swap), or all boxes the background (mode vanish). The loss
of a picture is the sum over its boxes of log(q / p), with q the probability that is to vanish and p that of the target class.
TOG's -log p pulls the less at a box the nearer it is to its target, and mAP, which only ranks detections, hardly falls while a
box keeps a few per cent of its class; log(q / p) pulls at all boxes alike until q is too small for a detection (Carlini and
Wagner 2017).

The accuracy that is left does not fall in every iteration. The result is the picture of all iterations on which the detector is
least sure of the objects, as in the attacks of AutoAttack (Croce and Hein 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torchvision.ops import box_iou

from sticker_uq.detection.detector import StochasticDetector
from sticker_uq.detection.selection import NonFiniteOutput
from sticker_uq.io.coco import LabelledImage
from sticker_uq.lab.attacks.targets import LEAST_IOU, boxes_of
from sticker_uq.lab.attacks.white_box import AttackSettings, AttackState
from sticker_uq.scene import ObjectClass

_LEAST_UNWANTED = 0.01
"""What is less probable is no detection at any score threshold in use; such boxes are not attacked."""
_LEAST_PROBABILITY = 1e-6
_RIGHT_IOU = 0.5
"""From this overlap on a detection counts as right in mAP@0.5."""


class PgdSettings(AttackSettings):
    method: Literal["pgd"] = "pgd"
    epsilon: float = Field(
        4.0, gt=0.0, le=64.0, description="highest change of a pixel in all, grey levels (L-inf)"
    )
    step: float = Field(1.0, gt=0.0, le=16.0, description="change of a pixel in one iteration, grey levels")
    iterations: int = Field(40, ge=1, le=10_000, description="highest number of iterations per picture")

    def begin(
        self, detector: StochasticDetector, items: Sequence[LabelledImage], seeds: Sequence[int]
    ) -> AttackState:
        return _PgdState(detector, items, self, seeds)

    def __str__(self) -> str:
        return (
            f"projected gradient descent, PGD; mode {self.mode}, at most {self.epsilon:g} grey levels in steps of "
            f"{self.step:g}, {self.iterations} iterations"
        )


class _PgdState(AttackState):
    def __init__(
        self,
        detector: StochasticDetector,
        items: Sequence[LabelledImage],
        settings: PgdSettings,
        seeds: Sequence[int],
    ) -> None:
        self._settings, self._items, self._done = settings, items, 0
        super().__init__(detector, items, settings.mode, seeds)
        self._best = self.now.clone()
        self._least = self.now.new_full((len(items),), float("inf"))

    def step(self) -> bool:
        pixels = self.now.requires_grad_(True)
        near = self._settings.mode == "swap"  # nothing else has a loss there
        found = boxes_of(self.detector, pixels, self._items, near)
        self._keep(pixels, found)
        losses = [
            _loss(*boxes, torch.from_numpy(item.labels).to(pixels.device), wanted)
            for boxes, item, wanted in zip(found, self._items, self.object_classes, strict=True)
        ]
        if not any(loss.requires_grad for loss in losses):
            self.now = pixels.detach()
            return False
        (gradient,) = torch.autograd.grad(torch.stack(losses).sum(), pixels)
        if not torch.isfinite(gradient).all():
            raise NonFiniteOutput("the gradient of the attack is not finite")
        # in the second half ever smaller steps: a large one for the sake of the last box brings others back
        step = self._settings.step * min(1.0, 2 * (1 - self._done / self._settings.iterations))
        self._done += 1
        moved = pixels.detach() - step * gradient.sign()
        moved = self.clean + (moved - self.clean).clamp(-self._settings.epsilon, self._settings.epsilon)
        moving = gradient.abs().amax(dim=(1, 2, 3)) > 0
        self.move(moved - pixels.detach(), moving)
        return bool(moving.any())

    @torch.no_grad()
    def kept(self) -> Tensor:
        """As of :class:`AttackState`: of each picture the best of all iterations."""
        self._keep(self.now, boxes_of(self.detector, self.now, self._items))
        return self._best

    def _keep(self, pixels: Tensor, found: Sequence[tuple[Tensor, Tensor, Tensor]]) -> None:
        """Keep those of ``pixels``, on which these boxes were ``found``, that are better than all before."""
        left = torch.stack(
            [
                _confidence(
                    boxes.detach(),
                    probabilities.detach(),
                    objects,
                    torch.from_numpy(item.labels).to(boxes.device),
                )
                for (boxes, probabilities, objects), item in zip(found, self._items, strict=True)
            ]
        )
        better = left < self._least
        self._least = torch.where(better, left, self._least)
        self._best = torch.where(better[:, None, None, None], pixels.detach(), self._best)

    def start(self, clean: Tensor, rng: np.random.Generator) -> Tensor:
        reach = self._settings.epsilon
        return clean + torch.from_numpy(rng.uniform(-reach, reach, tuple(clean.shape)).astype(np.float32)).to(
            clean
        )


def _loss(boxes: Tensor, probabilities: Tensor, objects: Tensor, labels: Tensor, wanted: Tensor) -> Tensor:
    """The loss of a picture: ``boxes`` (A, 4), their ``probabilities`` (A, 3), ``objects`` (K, 4) and what they are to become."""
    if not len(objects) or not len(boxes):
        return probabilities.new_zeros(())
    overlap, owner = box_iou(boxes.detach(), objects).max(dim=1)
    on_object = overlap > LEAST_IOU
    if (wanted == int(ObjectClass.BACKGROUND)).all():  # nothing at all may be detected
        goal, unwanted = torch.zeros_like(owner), 1 - probabilities[:, 0]
    else:  # a detection where nothing is lowers the accuracy as well
        goal, unwanted = wanted[owner], probabilities.gather(1, labels[owner][:, None])[:, 0] * on_object
    attacked = unwanted.detach() > _LEAST_UNWANTED
    reached = probabilities[attacked].gather(1, goal[attacked][:, None])[:, 0]
    return (_log(unwanted[attacked]) - _log(reached)).sum()


def _confidence(boxes: Tensor, probabilities: Tensor, objects: Tensor, labels: Tensor) -> Tensor:
    """How sure a detector still is of a picture's objects, 0..1: the mean of the highest probability of each one's class."""
    if not len(objects) or not len(boxes):
        return probabilities.new_zeros(())
    right = box_iou(boxes, objects) >= _RIGHT_IOU
    return (probabilities[:, labels] * right).amax(dim=0).mean()


def _log(probabilities: Tensor) -> Tensor:
    return probabilities.clamp_min(_LEAST_PROBABILITY).log()
