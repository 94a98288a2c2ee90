# SPDX-License-Identifier: Apache-2.0
"""The white-box attack on detectors: Dense Adversary Generation (Xie et al., ICCV 2017), for all six models.

A dense set of targets is selected on the clean picture: proposals (suppressed at IoU 0.9 only) or anchors that overlap an object
and predict its class. The picture is then moved, in grey levels as it is stored, along the gradient of the target scores minus
the true ones until no attacked box predicts its class any more.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sticker_uq.detection.detector import StochasticDetector
from sticker_uq.detection.selection import NonFiniteOutput
from sticker_uq.io.coco import LabelledImage, read_picture
from sticker_uq.scene import InvalidInput, ObjectClass, Rng
from sticker_uq_lab.attacks.settings import DagSettings, Mode
from sticker_uq_lab.attacks.targets import find_targets, target_outputs

_OTHERS = {ObjectClass.LOGO: (0, 2), ObjectClass.STICKER: (0, 1)}


@dataclass(frozen=True)
class Adversarial:
    """An attacked picture, clipped and rounded, with the result of the attack.

    ``image`` (H, W, 3) uint8 BGR; ``linf`` and ``rms`` of its difference to the clean picture, grey levels; ``targets`` attacked,
    ``fooled`` of them on this picture as it is stored; ``iterations`` that the attack took. Without targets, the clean picture.
    """

    image: NDArray[np.uint8]
    iterations: int
    linf: float
    rms: float
    targets: int
    fooled: int

    @property
    def success(self) -> float:
        return self.fooled / self.targets if self.targets else float("nan")


def attack(
    detector: StochasticDetector, items: Sequence[LabelledImage], settings: DagSettings, seeds: Sequence[int]
) -> list[Adversarial]:
    """Attack the pictures of ``items``, all of one size, at once; ``seeds``: one for each.

    The seed determines the random start and the target classes of mode random. The result of a picture does not depend on the
    others, up to rounding in torch's sums.
    """
    running = Attack(detector, items, settings, seeds)
    *_, _ = running.steps()
    return running.results()


def variant_seed(seed: int, variant: int, name: str) -> int:
    """The seed of one variant of the picture ``name`` under the user's ``seed``, independent of other pictures."""
    digest = hashlib.blake2b(f"{seed}:{variant}:{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


class Attack:
    """A running attack on n pictures of one size.

    ``clean`` and ``now`` (n, 3, H, W) RGB 0..255; ``targets``: boxes found on the clean pictures, by which success is measured;
    ``target_classes`` (N,): what each is to become.
    """

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
        self.detector, self.settings = detector, settings
        pictures = np.stack([read_picture(item) for item in items])
        rgb = np.ascontiguousarray(pictures[..., ::-1].transpose(0, 3, 1, 2))
        self.clean = torch.from_numpy(rgb).to(detector.device, torch.float32)
        with torch.no_grad():
            self.targets = find_targets(detector, self.clean, items)
        wanted = [_target_classes(item, settings.mode, s) for item, s in zip(items, seeds, strict=True)]
        pairs = zip(self.targets.image.tolist(), self.targets.object.tolist(), strict=True)
        chosen = [wanted[image][number] for image, number in pairs]
        self.target_classes = torch.tensor(chosen, dtype=torch.int64, device=detector.device)
        self.now = torch.stack(
            [
                # a generator apart from that of the target classes; nothing moves where there is nothing to attack
                self._start(clean, np.random.default_rng([seed, 1])).clamp(0, 255) if count else clean
                for clean, seed, count in zip(self.clean, seeds, self.targets.counts(), strict=True)
            ]
        )
        self._iterations = [0] * len(items)

    def steps(self) -> Iterator[int]:
        """The number of each iteration once it is done, 0 before the first; :meth:`results` are those after it."""
        yield 0
        for iteration in range(1, self.settings.iterations + 1):
            if not self._step():
                return
            yield iteration

    def _step(self) -> bool:
        """One iteration; False, and nothing done, when no target is left."""
        pixels = self.now.requires_grad_(True)
        outputs, *_ = target_outputs(self.detector, pixels, self.targets)
        active = ~self._is_reached(outputs.probabilities)
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
        now = pixels.detach()
        change = self.settings.gamma * (gradient / steepest.clamp_min(1e-30))
        self.now = torch.where(moving[:, None, None, None], now + change, now).clamp_(0, 255)
        for image in moving.nonzero().flatten().tolist():
            self._iterations[image] += 1
        return bool(moving.any())

    @torch.no_grad()
    def results(self) -> list[Adversarial]:
        """The adversarial pictures clipped and rounded, measured as they are stored."""
        stored = self.now.detach().round().clamp(0, 255)
        counts = self.targets.counts()
        fooled = self._is_reached(target_outputs(self.detector, stored, self.targets)[0].probabilities)
        hits = torch.bincount(self.targets.image[fooled], minlength=len(stored)).tolist()
        found = []
        for index, (picture, clean) in enumerate(zip(stored, self.clean, strict=True)):
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

    def _start(self, clean: Tensor, rng: Rng) -> Tensor:
        reach = self.settings.start
        change = rng.uniform(-reach, reach, tuple(clean.shape)).astype(np.float32)
        return clean + torch.from_numpy(change).to(clean)

    def _is_reached(self, probabilities: Tensor) -> Tensor:
        if not self.settings.confidence:
            return probabilities.argmax(dim=1) != self.targets.labels
        rows = torch.arange(len(probabilities), device=probabilities.device)
        return probabilities[rows, self.target_classes] >= self.settings.confidence


def _target_classes(item: LabelledImage, mode: Mode, seed: int) -> list[int]:
    rng = np.random.default_rng([seed, 0])
    choices = {"vanish": [0] * len(item.labels), "swap": [1] * len(item.labels)}
    chosen = choices[mode] if mode != "random" else rng.integers(0, 2, len(item.labels)).tolist()
    return [_OTHERS[ObjectClass(int(c))][k] for c, k in zip(item.labels, chosen, strict=True)]
