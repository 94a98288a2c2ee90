"""Dense Adversary Generation (Xie et al., ICCV 2017): a white-box attack on all boxes of objects, for all six models.

A dense set of targets is selected on the clean picture: proposals (suppressed at IoU 0.9 only) or anchors that overlap an object
and predict its class. The picture is then moved along the gradient of the target scores minus the true ones until no attacked box
predicts its class any more. The perturbation is applied in grey levels of the original picture, as it is stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from sticker_uq.detection.detector import StochasticDetector
from sticker_uq.detection.selection import NonFiniteOutput
from sticker_uq.io.coco import LabelledImage, read_picture
from sticker_uq.lab.attacks.dag_targets import Targets, find_targets, target_outputs
from sticker_uq.scene import InvalidInput, ObjectClass

Mode = Literal["swap", "vanish", "random"]
_OTHERS = {ObjectClass.LOGO: (0, 2), ObjectClass.STICKER: (0, 1)}


class DagSettings(BaseModel):
    """Settings of an attack. An invalid value raises pydantic's ``ValidationError``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Mode = Field(
        "swap",
        description="target class: swap (logo for sticker and sticker for logo), vanish (background), random "
        "(for each object one of these two)",
    )
    gamma: float = Field(
        0.5, gt=0.0, le=16.0, description="highest change of a pixel in one iteration, grey levels"
    )
    iterations: int = Field(150, ge=1, le=10_000, description="highest number of iterations per picture")
    confidence: float = Field(
        0.0,
        ge=0.0,
        lt=1.0,
        description="a target is attacked until its new class has this probability; 0: until its old class is no longer the "
        "most probable",
    )
    start: float = Field(
        1.0,
        ge=0.0,
        le=16.0,
        description="highest random change of each pixel at the start, grey levels",
    )


@dataclass(frozen=True)
class Adversarial:
    """An attacked picture, clipped and rounded, with the result of the attack.

    ``image`` (H, W, 3) uint8 BGR; ``linf`` and ``rms`` of its difference to the clean picture, grey levels; ``targets`` attacked,
    ``fooled`` of them on this picture as it is stored; ``iterations`` that changed it. Without targets, the clean picture.
    """

    image: NDArray[np.uint8]
    iterations: int
    linf: float
    rms: float
    targets: int
    fooled: int

    @property
    def success(self) -> float:
        """Share of the targets that are fooled, NaN without any."""
        return self.fooled / self.targets if self.targets else float("nan")


def attack(
    detector: StochasticDetector, items: Sequence[LabelledImage], settings: DagSettings, seeds: Sequence[int]
) -> list[Adversarial]:
    """Attack the pictures of ``items``, all of one size, at once; ``seeds``: one for each.

    The seed determines the random start and the target classes of mode random. The result of a picture does not depend on the
    others, up to rounding in torch's sums. Raises InvalidInput for pictures that cannot be read or differ in size, and
    NonFiniteOutput when the gradient is not finite.
    """
    *_, last = attack_steps(detector, items, settings, seeds)
    return last()


def variant_seed(seed: int, variant: int, name: str) -> int:
    """The seed of one variant of the picture ``name`` under the user's ``seed``, independent of other pictures."""
    digest = hashlib.blake2b(f"{seed}:{variant}:{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def batches(items: Sequence[LabelledImage], most: int) -> Iterator[list[LabelledImage]]:
    """``items`` in order, in batches of at most ``most`` pictures of one size."""
    for _, run in groupby(items, key=lambda item: (item.width, item.height)):
        members = list(run)
        yield from (members[start : start + most] for start in range(0, len(members), most))


class Snapshot:
    """The pictures after an iteration, evaluated only when called."""

    def __init__(self, state: _AttackState, iteration: int) -> None:
        self.iteration = iteration
        self._state = state

    def __call__(self) -> list[Adversarial]:
        """The attacked pictures as they would be stored now."""
        return self._state.results()


def attack_steps(
    detector: StochasticDetector, items: Sequence[LabelledImage], settings: DagSettings, seeds: Sequence[int]
) -> Iterator[Snapshot]:
    """As :func:`attack`, with a snapshot before the first and after every iteration; call it before the next iteration."""
    state = _AttackState(detector, items, settings, seeds)
    yield Snapshot(state, 0)
    for iteration in range(1, settings.iterations + 1):
        if not state.step():
            return
        yield Snapshot(state, iteration)


class _AttackState:
    """The state of an attack on n pictures of one size."""

    def __init__(
        self,
        detector: StochasticDetector,
        items: Sequence[LabelledImage],
        settings: DagSettings,
        seeds: Sequence[int],
    ) -> None:
        sizes = {(item.width, item.height) for item in items}
        if len(sizes) != 1 or len(seeds) != len(items):
            raise InvalidInput(
                f"{len(items)} pictures of sizes {sorted(sizes)} with {len(seeds)} seeds, expected at least one, all of one "
                "size, and a seed for each"
            )
        self._detector, self._settings = detector, settings
        pictures = np.stack([read_picture(item) for item in items])
        rgb = np.ascontiguousarray(pictures[..., ::-1].transpose(0, 3, 1, 2))
        self._clean = torch.from_numpy(rgb).to(detector.device, torch.float32)
        with torch.no_grad():
            self._targets = find_targets(detector, self._clean, items)
        self._target_classes = _target_classes(self._targets, items, settings.mode, seeds, detector.device)
        self._now = torch.stack(
            [
                self._start(clean, seed, bool(count))
                for clean, seed, count in zip(self._clean, seeds, self._targets.counts(), strict=True)
            ]
        )
        self._iterations = [0] * len(items)

    def step(self) -> bool:
        """One iteration; False, and nothing done, when no target is left to attack."""
        pixels = self._now.requires_grad_(True)
        outputs, *_ = target_outputs(self._detector, pixels, self._targets)
        active = ~self._fooled(outputs.probabilities)
        if not active.any():
            self._now = pixels.detach()
            return False
        chosen = outputs.logits[active]
        rows = torch.arange(len(chosen), device=chosen.device)
        gain = chosen[rows, self._target_classes[active]] - chosen[rows, self._targets.labels[active]]
        (gradient,) = torch.autograd.grad(gain.sum(), pixels)
        steepest = gradient.abs().amax(dim=(1, 2, 3), keepdim=True)
        if not torch.isfinite(steepest).all():
            raise NonFiniteOutput("the gradient of the attack is not finite")
        moving = torch.zeros(len(pixels), dtype=torch.bool, device=pixels.device)
        moving[self._targets.image[active]] = True
        moving &= steepest.flatten() > 0
        change = torch.where(moving[:, None, None, None], gradient / steepest.clamp_min(1e-30), 0.0)
        # clipped to the range of a picture, which is how it is stored
        self._now = (pixels.detach() + self._settings.gamma * change).clamp_(0, 255)
        for image in moving.nonzero().flatten().tolist():
            self._iterations[image] += 1
        return bool(moving.any())

    @torch.no_grad()
    def results(self) -> list[Adversarial]:
        """The pictures clipped and rounded, measured as they are stored."""
        stored = self._now.detach().round().clamp(0, 255)
        counts = self._targets.counts()
        fooled = self._fooled(target_outputs(self._detector, stored, self._targets)[0].probabilities)
        hits = torch.bincount(self._targets.image[fooled], minlength=len(stored)).tolist()
        found = []
        for index, (picture, clean) in enumerate(zip(stored, self._clean, strict=True)):
            difference = (picture - clean).double()
            pixels = picture.to(torch.uint8).permute(1, 2, 0).cpu().numpy()
            found.append(
                Adversarial(
                    image=np.ascontiguousarray(pixels[..., ::-1]),
                    iterations=self._iterations[index],
                    linf=float(difference.abs().max()),
                    rms=float(difference.square().mean().sqrt()),
                    targets=counts[index],
                    fooled=hits[index],
                )
            )
        return found

    def _start(self, clean: Tensor, seed: int, attacked: bool) -> Tensor:
        if not self._settings.start or not attacked:
            return clean
        reach = self._settings.start
        noise = np.random.default_rng([seed, 1]).uniform(-reach, reach, tuple(clean.shape)).astype(np.float32)
        return (clean + torch.from_numpy(noise).to(clean)).clamp(0, 255)

    def _fooled(self, probabilities: Tensor) -> Tensor:
        """Whether each target is fooled, (N,) bool; ``probabilities`` (N, 3)."""
        if not self._settings.confidence:
            return probabilities.argmax(dim=1) != self._targets.labels
        rows = torch.arange(len(probabilities), device=probabilities.device)
        return probabilities[rows, self._target_classes] >= self._settings.confidence


def _target_classes(
    targets: Targets, items: Sequence[LabelledImage], mode: Mode, seeds: Sequence[int], device: torch.device
) -> Tensor:
    """The target class (N,) int64 of each target, the same for all targets of an object."""
    tables = []
    for item, seed in zip(items, seeds, strict=True):
        rng = np.random.default_rng([seed, 0])
        choices = {"vanish": [0] * len(item.labels), "swap": [1] * len(item.labels)}
        chosen = choices[mode] if mode != "random" else rng.integers(0, 2, len(item.labels)).tolist()
        tables.append([_OTHERS[ObjectClass(int(c))][k] for c, k in zip(item.labels, chosen, strict=True)])
    pairs = zip(targets.image.tolist(), targets.object.tolist(), strict=True)
    return torch.tensor([tables[image][number] for image, number in pairs], dtype=torch.int64, device=device)
