# SPDX-License-Identifier: Apache-2.0
"""Attacks that know the monitor of a study: they change the class, then lower the score (after Carlini and Wagner 2017)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from sticker_uq.detection.kernels.threads import single_thread
from sticker_uq.evaluation.metrics.statistics import area_under_roc
from sticker_uq.lab.studies.monitors.crop_observations import observe_crops
from sticker_uq.monitors import Monitor
from sticker_uq.monitors.autoencoder import Autoencoder
from sticker_uq.monitors.crop_network import CropNetwork
from sticker_uq.scene import FloatArray, IntArray, InvalidInput

ATTACKED = ("max_softmax", "mdsa", "autoencoder")
"""One of each family: monitors whose score has a gradient in the crop."""
EPSILON = 0.2
"""Largest change of one value, 0..1."""
_STEPS = 30
MOST = 2000
"""Crops that are attacked at most, the first ones: the share of those fooled is then known to about 2 %."""
_CHUNK = 512

Score = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Adaptive:
    """Share of the crops that an attack fooled the classifier with, and AUC-ROC of the monitor on those against nominal
    crops: of the attack that knows only the classifier, and of the one that also knows the monitor.
    """

    fooled: float
    auc: float
    fooled_adaptive: float
    auc_adaptive: float


def score_of(monitor: Monitor, model: CropNetwork) -> Score:
    """Attacked score of ``monitor`` on what ``model`` makes of crops (N, C, h, w), differentiable by torch,
    (N,).

    InvalidInput for a monitor that is not among :data:`ATTACKED`.
    """
    if isinstance(monitor, Autoencoder):
        drawer = monitor.drawer()
        return lambda crops: ((crops - drawer.reconstruct(crops)) ** 2).flatten(1).mean(dim=1)
    if monitor.name == "max_softmax":
        return lambda crops: 1 - torch.softmax(model(crops), dim=1).amax(dim=1)
    if monitor.name == "mdsa":
        return _mahalanobis(monitor, model)
    raise InvalidInput(f"monitor {monitor.name}: no gradient known, expected one of {', '.join(ATTACKED)}")


def _mahalanobis(monitor: Monitor, model: CropNetwork) -> Score:
    learned = {name: torch.from_numpy(value).double() for name, value in monitor.arrays().items()}

    def score(crops: Tensor) -> Tensor:
        hidden = model.activations(crops, dropout=False)[-1]
        predicted = model.last(hidden).argmax(dim=1)
        found = torch.zeros(len(crops), dtype=torch.float64)
        for label in predicted.unique().tolist():
            if f"mean.{label}" not in learned:
                continue
            rows = predicted == label
            centred = (hidden[rows].double() - learned[f"mean.{label}"]).T
            white = torch.linalg.solve_triangular(learned[f"lower.{label}"], centred, upper=False)
            found = found.index_put((torch.nonzero(rows)[:, 0],), (white**2).sum(dim=0))
        return found

    return score


@single_thread()
def targeted(
    model: CropNetwork, crops: FloatArray, labels: IntArray, score: Score | None
) -> tuple[FloatArray, IntArray]:
    """Attacked crops within :data:`EPSILON` that ``model`` takes for another class, and the numbers of their
    originals.

    Projected gradient descent towards the second class of each crop. With ``score``, a crop that is there already goes down the
    gradient of the score instead, back and forth over the boundary, and the one with the lowest score on the other side counts.
    Only crops that were classified rightly are attacked.
    """
    pictures = torch.from_numpy(np.ascontiguousarray(crops, np.float32))
    classes = torch.from_numpy(np.asarray(labels))
    made, numbers = [], []
    for rows in torch.arange(len(pictures)).split(_CHUNK):
        found, chosen = _targeted(model, pictures[rows], classes[rows], score)
        made.append(found.numpy())
        numbers.append(rows[chosen].numpy())
    return np.concatenate(made), np.concatenate(numbers)


def _targeted(
    model: CropNetwork, pictures: Tensor, classes: Tensor, score: Score | None
) -> tuple[Tensor, Tensor]:
    """Crops that :func:`targeted` made of ``pictures`` of ``classes``, and the numbers of their originals."""
    with torch.no_grad():
        logits = model(pictures)
        (right,) = torch.nonzero(logits.argmax(dim=1) == classes, as_tuple=True)
        aim = logits[right].topk(2, dim=1).indices[:, 1]
    start, own = pictures[right], classes[right]
    at, best = start, start.clone()
    lowest = torch.full((len(right),), torch.inf, dtype=torch.float64)
    for step in range(_STEPS + 1):
        leaf = at.clone().requires_grad_()
        with torch.enable_grad():
            logits = model(leaf)
            each = F.cross_entropy(logits, aim, reduction="none")
            there = logits.argmax(dim=1) != own
            value = each if score is None else score(leaf)
            loss = torch.where(there, value.to(each.dtype), each) if score is not None else each
            (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        better = there & (value.detach().double() < lowest)
        lowest = torch.where(better, value.detach().double(), lowest)
        best[better] = at[better]
        if step < _STEPS:
            moved = at - 2.5 * EPSILON / _STEPS * gradient.sign()
            at = torch.minimum(torch.maximum(moved, start - EPSILON), start + EPSILON).clamp(0, 1)
    fooled = torch.isfinite(lowest)
    return best[fooled], right[fooled]


def attack_monitor(monitor: Monitor, model: CropNetwork, crops: FloatArray, labels: IntArray) -> Adaptive:
    """What an attack that knows ``monitor`` makes of its AUC-ROC, beside one of the same bound and steps that
    does not. Only the first :data:`MOST` crops are attacked.
    """
    nominal = monitor.score(observe_crops(model, crops, 1, 0))
    crops, labels = crops[:MOST], labels[:MOST]
    right = int((observe_crops(model, crops, 1, 0).predicted == labels).sum())
    values: list[float] = []
    for score in (None, score_of(monitor, model)):
        made, _ = targeted(model, crops, labels, score)
        values.append(len(made) / max(right, 1))
        values.append(
            area_under_roc(nominal, monitor.score(observe_crops(model, made, 1, 0)))
            if len(made)
            else float("nan")
        )
    return Adaptive(*values)
