# SPDX-License-Identifier: Apache-2.0
"""What is done to crops in a study: the four attacks on classifiers that Weiss et al. 2022 used, bounded by the largest
change of one value, and corruptions that leave the class alone, after MNIST-C (Mu and Gilmer 2019).
"""

from collections.abc import Callable, Sequence

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from sticker_uq.detection.kernels.devices import single_thread
from sticker_uq.scene import FloatArray, IntArray, Rng

Model = Callable[[Tensor], Tensor]
EPSILONS = (0.0002, 0.0005, 0.0008, 0.001, 0.0015, 0.002, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 1.0)
"""Bounds that are tried, smallest first: those of the published code and 0.03."""
_CHUNK = 256  # crops at once: all of MNIST, with the gradients of a deep network, fit into no memory


def fgsm(model: Model, crops: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    """One step of length ``epsilon`` along the sign of the gradient (Goodfellow et al. 2014)."""
    return (crops + epsilon * _direction(model, crops, labels)).clamp(0, 1)


def bim(model: Model, crops: Tensor, labels: Tensor, epsilon: float, steps: int = 10) -> Tensor:
    """``steps`` steps of a fifth of ``epsilon``, never farther away (Kurakin et al. 2016)."""
    return _descend(model, crops, crops, labels, epsilon, 0.2 * epsilon, steps)


def pgd(
    model: Model, crops: Tensor, labels: Tensor, epsilon: float, steps: int = 40, drawn: Tensor | None = None
) -> Tensor:
    """As :func:`bim` from a random start, in smaller steps (Madry et al. 2018); ``drawn``: uniform numbers for that start."""
    drawn = torch.rand_like(crops) if drawn is None else drawn
    start = (crops + epsilon * (2 * drawn - 1)).clamp(0, 1)
    return _descend(model, crops, start, labels, epsilon, epsilon / 30, steps)


def deepfool(model: Model, crops: Tensor, labels: Tensor, steps: int = 50, overshoot: float = 0.02) -> Tensor:
    """Towards the nearest boundary of a linear model, until it is crossed (Moosavi-Dezfooli et al. 2016)."""
    found = crops.clone()
    with torch.no_grad():
        alive = model(found).argmax(dim=1) == labels
    for _ in range(steps):
        (left,) = torch.nonzero(alive, as_tuple=True)  # what has crossed its boundary costs no more time
        if not len(left):
            break
        at, own = found[left].requires_grad_(), labels[left]
        rows = torch.arange(len(left))
        with torch.enable_grad():
            logits = model(at)
            margins = logits - logits[rows, own][:, None]
            slopes = torch.stack(
                [
                    torch.autograd.grad(margins[:, k].sum(), at, retain_graph=True)[0]
                    for k in range(logits.shape[1])
                ],
                dim=1,
            )
        length = slopes.flatten(2).abs().sum(dim=2).clamp_min(1e-12)
        away = (margins.detach().abs() + 1e-6) / length
        away[rows, own] = torch.inf
        nearest = away.argmin(dim=1)
        step = away[rows, nearest].view(-1, 1, 1, 1) * slopes[rows, nearest].sign()
        found[left] = (found[left] + (1 + overshoot) * step).clamp(0, 1)
        with torch.no_grad():
            alive[left] = model(found[left]).argmax(dim=1) == own
    return found


@single_thread()
def adversarial(
    model: Model, crops: FloatArray, labels: IntArray, seed: int, bounds: Sequence[float] = EPSILONS
) -> tuple[FloatArray, IntArray]:
    """Attacked crops that ``model`` no longer takes for their class, and the numbers of those they were made from.

    Only crops that it classified rightly are attacked, each by one of the four attacks in turn, with the smallest of ``bounds``
    that works; what no bound changes is left out.
    """
    pictures, classes = (
        torch.from_numpy(np.ascontiguousarray(crops, np.float32)),
        torch.from_numpy(np.asarray(labels)),
    )
    with torch.no_grad():
        predicted = torch.cat([model(part).argmax(dim=1) for part in pictures.split(_CHUNK)])
    (right,) = torch.nonzero(predicted == classes, as_tuple=True)
    results, numbers = [pictures[:0].numpy()], [right[:0].numpy()]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for place, attack in enumerate((fgsm, bim, pgd, None)):
            for rows in right[place::4].split(_CHUNK):
                left = torch.ones(len(rows), dtype=torch.bool)
                # what a smaller bound has fooled is attacked no more; PGD's starts do not depend on that
                for epsilon in bounds if attack is not None else (0.0,):
                    drawn = {"drawn": torch.rand_like(pictures[rows])[left]} if attack is pgd else {}
                    at = rows[left]
                    if not len(at):
                        continue
                    if attack is None:
                        attempt = deepfool(model, pictures[at], classes[at])
                    else:
                        attempt = attack(model, pictures[at], classes[at], epsilon, **drawn)
                    with torch.no_grad():
                        fooled = model(attempt).argmax(dim=1) != classes[at]
                    results.append(attempt[fooled].numpy())
                    numbers.append(at[fooled].numpy())
                    left[left.clone()] = ~fooled
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


Corruption = Callable[[FloatArray, Rng], FloatArray]


def _move(
    picture: FloatArray, a: float, b: float, c: float, d: float, x: float = 0.0, y: float = 0.0
) -> FloatArray:
    """The picture (h, w, C) under an affine map of coordinates around its centre."""
    h, w = picture.shape[:2]
    linear, centre = np.array([[a, b], [c, d]]), np.array([(w - 1) / 2, (h - 1) / 2])
    full = np.column_stack([linear, centre - linear @ centre + np.array([x, y]) * [w, h]])
    moved = cv2.warpAffine(picture, full, (w, h), borderMode=cv2.BORDER_REPLICATE)
    return np.reshape(moved, picture.shape)


def _impulse_noise(picture: FloatArray, rng: Rng) -> FloatArray:
    drawn = rng.random((*picture.shape[:2], 1))
    return np.where(drawn < 0.06, 0, np.where(drawn > 0.94, 1, picture))


def _rotate(picture: FloatArray, rng: Rng) -> FloatArray:
    angle = np.radians(rng.uniform(25, 45)) * rng.choice([-1, 1])
    return _move(picture, np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle))


def _scale(picture: FloatArray, rng: Rng) -> FloatArray:
    size = rng.uniform(0.5, 0.7)
    return _move(picture, size, 0, 0, size)


def _fog(picture: FloatArray, rng: Rng) -> FloatArray:
    coarse = rng.uniform(0.2, 1.0, (3, 3)).astype(np.float32)
    cloud = cv2.resize(coarse, picture.shape[1::-1], interpolation=cv2.INTER_CUBIC)[..., None]
    return 0.5 * picture + 0.5 * cloud


def _stripe(picture: FloatArray, rng: Rng) -> FloatArray:
    w = picture.shape[1]
    found, width = picture.copy(), max(1, w // 8)
    at = int(rng.integers(w // 4, 3 * w // 4))
    if rng.random() < 0.5:
        found[:, at : at + width] = 1
    else:
        found[at : at + width] = 1
    return found


CORRUPTIONS: dict[str, Corruption] = {
    "shot_noise": lambda picture, rng: rng.poisson(picture * 8).astype(np.float32) / 8,
    "gaussian_noise": lambda picture, rng: picture + rng.normal(0, 0.2, picture.shape).astype(np.float32),
    "impulse_noise": _impulse_noise,
    "blur": lambda picture, rng: cv2.GaussianBlur(picture, (0, 0), 0.11 * picture.shape[1]),
    "rotate": _rotate,
    "shear": lambda picture, rng: _move(picture, 1, rng.choice([-1, 1]) * rng.uniform(0.4, 0.7), 0, 1),
    "scale": _scale,
    "translate": lambda picture, rng: _move(
        picture, 1, 0, 0, 1, *(rng.choice([-1, 1], 2) * rng.uniform(0.15, 0.25, 2))
    ),
    "contrast": lambda picture, rng: picture.mean() + 0.3 * (picture - picture.mean()),
    "fog": _fog,
    "stripe": _stripe,
}


def corrupt(crops: FloatArray, seed: int) -> FloatArray:
    """The crops (N, C, h, w) 0..1, each corrupted in one of the ways in turn; float32 0..1."""
    kinds = list(CORRUPTIONS.values())
    found = np.empty(crops.shape, np.float32)
    for number, crop in enumerate(crops):
        rng = np.random.default_rng([seed, number])
        picture = np.ascontiguousarray(crop.transpose(1, 2, 0), np.float32)
        changed = kinds[number % len(kinds)](picture, rng)
        found[number] = np.clip(changed, 0, 1).reshape(picture.shape).transpose(2, 0, 1)
    return found
