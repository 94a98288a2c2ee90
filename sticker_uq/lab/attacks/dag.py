# SPDX-License-Identifier: Apache-2.0
"""Dense Adversary Generation (Xie et al., ICCV 2017), for all six models.

A dense set of targets is selected on the clean picture: proposals (suppressed at IoU 0.9 only) or anchors that overlap an object
and predict its class. The picture is then moved along the gradient of the target scores minus the true ones until no attacked box
predicts its class any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from sticker_uq.detection.detector import StochasticDetector
from sticker_uq.detection.selection import NonFiniteOutput
from sticker_uq.io.coco import LabelledImage
from sticker_uq.lab.attacks.targets import target_outputs
from sticker_uq.lab.attacks.white_box import AttackSettings, AttackState


class DagSettings(AttackSettings):
    method: Literal["dag"] = "dag"
    gamma: float = Field(
        0.5, gt=0.0, le=16.0, description="highest change of a pixel in one iteration, grey levels"
    )
    confidence: float = Field(
        0.0,
        ge=0.0,
        lt=1.0,
        description="a target is attacked until its new class has this probability; 0: until its old class is no longer the "
        "most probable",
    )
    start: float = Field(
        1.0, ge=0.0, le=16.0, description="highest random change of each pixel at the start, grey levels"
    )

    def begin(
        self, detector: StochasticDetector, items: Sequence[LabelledImage], seeds: Sequence[int]
    ) -> AttackState:
        return _DagState(detector, items, self, seeds)

    def __str__(self) -> str:
        until = f", until the new class has {self.confidence:g}" if self.confidence else ""
        return (
            f"Dense Adversary Generation, DAG; mode {self.mode}, at most {self.gamma:g} grey levels per iteration, at most "
            f"{self.iterations} iterations{until}"
        )


class _DagState(AttackState):
    def __init__(
        self,
        detector: StochasticDetector,
        items: Sequence[LabelledImage],
        settings: DagSettings,
        seeds: Sequence[int],
    ) -> None:
        self._settings = settings
        super().__init__(detector, items, settings.mode, seeds)

    def step(self) -> bool:
        """One iteration; False, and nothing done, when no target is left to attack."""
        pixels = self.now.requires_grad_(True)
        outputs, *_ = target_outputs(self.detector, pixels, self.targets)
        active = ~self.fooled(outputs.probabilities)
        if not active.any():
            self.now = pixels.detach()
            return False
        chosen = outputs.logits[active]
        rows = torch.arange(len(chosen), device=chosen.device)
        gain = chosen[rows, self.target_classes[active]] - chosen[rows, self.targets.labels[active]]
        (gradient,) = torch.autograd.grad(gain.sum(), pixels)
        steepest = gradient.abs().amax(dim=(1, 2, 3), keepdim=True)
        if not torch.isfinite(steepest).all():
            raise NonFiniteOutput("the gradient of the attack is not finite")
        moving = torch.zeros(len(pixels), dtype=torch.bool, device=pixels.device)
        moving[self.targets.image[active]] = True
        moving &= steepest.flatten() > 0
        self.move(self._settings.gamma * (gradient / steepest.clamp_min(1e-30)), moving)
        return bool(moving.any())

    def start(self, clean: Tensor, rng: np.random.Generator) -> Tensor:
        reach = self._settings.start
        return clean + torch.from_numpy(rng.uniform(-reach, reach, tuple(clean.shape)).astype(np.float32)).to(
            clean
        )

    def fooled(self, probabilities: Tensor) -> Tensor:
        """As of :class:`AttackState`; with a confidence, whether each target has it in its target class."""
        if not self._settings.confidence:
            return super().fooled(probabilities)
        rows = torch.arange(len(probabilities), device=probabilities.device)
        return probabilities[rows, self.target_classes] >= self._settings.confidence
