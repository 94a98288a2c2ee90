# SPDX-License-Identifier: Apache-2.0
"""The four attacks on classifiers that Weiss et al. 2022 used, all bounded by the largest change of one value (L-infinity)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from sticker_uq.detection.kernels.threads import single_thread
from sticker_uq.scene import FloatArray, IntArray

Model = Callable[[Tensor], Tensor]
EPSILONS = (0.0002, 0.0005, 0.0008, 0.001, 0.0015, 0.002, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 1.0)
"""Bounds that are tried, smallest first: those of the published code and 0.03."""


def fgsm(model: Model, crops: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    """Monitor study, attacked crops: one step of length ``epsilon`` along the sign of the gradient (Goodfellow et al. 2014)."""
    return (crops + epsilon * _direction(model, crops, labels)).clamp(0, 1)


def bim(model: Model, crops: Tensor, labels: Tensor, epsilon: float, steps: int = 10) -> Tensor:
    """Monitor study, attacked crops: ``steps`` steps of a fifth of ``epsilon``, never farther away (Kurakin et al. 2016)."""
    return _descend(model, crops, crops, labels, epsilon, 0.2 * epsilon, steps)


def pgd(model: Model, crops: Tensor, labels: Tensor, epsilon: float, steps: int = 40) -> Tensor:
    """Monitor study, attacked crops: as :func:`bim` from a random start, in smaller steps (Madry et al. 2018).

    The start follows from torch's seed.
    """
    start = (crops + epsilon * (2 * torch.rand_like(crops) - 1)).clamp(0, 1)
    return _descend(model, crops, start, labels, epsilon, epsilon / 30, steps)


def deepfool(model: Model, crops: Tensor, labels: Tensor, steps: int = 50, overshoot: float = 0.02) -> Tensor:
    """Monitor study, attacked crops: the nearest boundary of a linear model, until it is crossed (Moosavi-Dezfooli et al.
    2016).
    """
    found = crops.clone()
    for _ in range(steps):
        at = found.clone().requires_grad_()
        with torch.enable_grad():
            logits = model(at)
            rows = torch.arange(len(at))
            alive = logits.argmax(dim=1) == labels
            if not bool(alive.any()):
                break
            margins = logits - logits[rows, labels][:, None]
            slopes = torch.stack(
                [
                    torch.autograd.grad(margins[:, k].sum(), at, retain_graph=True)[0]
                    for k in range(logits.shape[1])
                ],
                dim=1,
            )
        length = slopes.flatten(2).abs().sum(dim=2).clamp_min(1e-12)
        away = (margins.detach().abs() + 1e-6) / length
        away[rows, labels] = torch.inf
        nearest = away.argmin(dim=1)
        step = away[rows, nearest].view(-1, 1, 1, 1) * slopes[rows, nearest].sign()
        moved = (found + (1 + overshoot) * step).clamp(0, 1)
        found = torch.where(alive.view(-1, 1, 1, 1), moved, found)
    return found


@single_thread()
def adversarial(
    model: Model, crops: FloatArray, labels: IntArray, seed: int, bounds: Sequence[float] = EPSILONS
) -> tuple[FloatArray, IntArray]:
    """Monitor study: attacked crops that ``model`` no longer takes for their class, and the numbers of those they were made
    of.

    Only crops that it classified rightly are attacked, each by one of the four attacks in turn, with the smallest of ``bounds``
    that works; what no bound changes is left out.
    """
    pictures, classes = (
        torch.from_numpy(np.ascontiguousarray(crops, np.float32)),
        torch.from_numpy(np.asarray(labels)),
    )
    with torch.no_grad():
        (right,) = torch.nonzero(model(pictures).argmax(dim=1) == classes, as_tuple=True)
    results, numbers = [], []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        bounded: list[Callable[[Model, Tensor, Tensor, float], Tensor] | None] = [fgsm, bim, pgd, None]
        for place, attack in enumerate(bounded):
            rows = right[place :: len(bounded)]
            if attack is None:
                tried = [deepfool(model, pictures[rows], classes[rows])]
            else:
                tried = [attack(model, pictures[rows], classes[rows], epsilon) for epsilon in bounds]
            left = torch.ones(len(rows), dtype=torch.bool)
            for attempt in tried:
                with torch.no_grad():
                    fooled = left & (model(attempt).argmax(dim=1) != classes[rows])
                results.append(attempt[fooled].numpy())
                numbers.append(rows[fooled].numpy())
                left &= ~fooled
    return np.concatenate(results), np.concatenate(numbers)


def _direction(model: Model, crops: Tensor, labels: Tensor) -> Tensor:
    at = crops.clone().requires_grad_()
    with torch.enable_grad():
        loss = F.cross_entropy(model(at), labels, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, at)
    return gradient.sign()


def _descend(
    model: Model, crops: Tensor, start: Tensor, labels: Tensor, epsilon: float, step: float, steps: int
) -> Tensor:
    found = start
    for _ in range(steps):
        found = found + step * _direction(model, found, labels)
        found = torch.minimum(torch.maximum(found, crops - epsilon), crops + epsilon).clamp(0, 1)
    return found
