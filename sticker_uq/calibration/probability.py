# SPDX-License-Identifier: Apache-2.0
"""Maps from a detector's class probability to the share of such objects that really are of the class."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression, minimize_scalar
from scipy.special import expit, logit

from sticker_uq.calibration.outcomes import MATCH_IOU
from sticker_uq.calibration.records import Record, units_of
from sticker_uq.evaluation.metrics.matching import find_overlapping
from sticker_uq.gate.policy.policy_schema import Calibration, Isotonic, Temperature
from sticker_uq.scene import FloatArray, InvalidInput, ObjectClass

Kind = Literal["isotonic", "temperature", "none"]
KINDS: tuple[Kind, ...] = ("isotonic", "temperature", "none")
"""From the most flexible to the simplest."""
FOLDS = 5
_EDGE = 1e-6  # of a probability whose logarithm is taken
_DIGITS = 6
_LEAST = 10  # objects, below which nothing is learned


@dataclass(frozen=True)
class ChosenKind:
    """The kind of calibration to use in place of ``wanted``, and the negative log likelihood of each kind that was compared."""

    kind: Kind
    wanted: Kind
    losses: Mapping[Kind, float]

    def text(self) -> str:
        measured = ", ".join(f"{kind} {loss:.4f}" for kind, loss in self.losses.items())
        return (
            f"--calibration {self.wanted} makes the probabilities of held-out images worse, using {self.kind}: negative log "
            f"likelihood per object and class in cross-validation: {measured}"
        )


def choose_kind(records: Sequence[Record], wanted: Kind, match_iou: float = MATCH_IOU) -> ChosenKind:
    """``wanted``, unless it is worse than no calibration on laptops held out of ``records``; then the best of simpler kinds.

    Compared by the negative log likelihood of each class against the rest, in cross-validation over laptops. With fewer laptops
    than folds, or without objects in one of them, nothing can be compared and ``wanted`` stays.
    """
    units = units_of(records)
    if wanted == "none" or len(np.unique(units)) < FOLDS:
        return ChosenKind(wanted, wanted, {})
    fold = np.random.default_rng(0).permutation(np.arange(units.max() + 1) % FOLDS)[units]
    kinds = KINDS[KINDS.index(wanted) :]
    sums = dict.fromkeys(kinds, 0.0)
    count = 0
    for number in range(FOLDS):
        held = [r for r, f in zip(records, fold, strict=True) if f == number]
        learned = [r for r, f in zip(records, fold, strict=True) if f != number]
        for label in (ObjectClass.LOGO, ObjectClass.STICKER):
            p, right = class_observations(learned, label, match_iou)
            q, truth = class_observations(held, label, match_iou)
            if len(p) < _LEAST:
                return ChosenKind(wanted, wanted, {})
            count += len(q)
            for kind in kinds:
                sums[kind] += _loss(_map(kind, p, right), q, truth)
    losses = {kind: total / max(count, 1) for kind, total in sums.items()}
    worse = losses[wanted] > losses["none"]
    return ChosenKind(min(kinds, key=lambda kind: losses[kind]) if worse else wanted, wanted, losses)


def _map(kind: Kind, p: FloatArray, right: NDArray[np.bool_]) -> Callable[[float], float]:
    if kind == "none":
        return float
    return fit_isotonic(p, right) if kind == "isotonic" else fit_temperature(p, right)


def _loss(calibrate: Callable[[float], float], p: FloatArray, right: NDArray[np.bool_]) -> float:
    q = np.clip([calibrate(float(value)) for value in p], _EDGE, 1.0 - _EDGE)
    return float(-np.log(np.where(right, q, 1.0 - q)).sum())


def fit_calibration(
    records: Sequence[Record], kind: Kind, match_iou: float = MATCH_IOU
) -> Calibration | None:
    """Maps of logo and sticker, one against the rest, fitted on all clustered objects of ``records``.

    None for the kind "none". Raises :class:`InvalidInput` when there are fewer than ten objects.
    """
    if kind == "none":
        return None
    maps = {}
    for label in (ObjectClass.LOGO, ObjectClass.STICKER):
        probabilities, right = class_observations(records, label, match_iou)
        if len(right) < _LEAST:
            raise InvalidInput(
                f"calibration needs at least {_LEAST} detected objects, the images to fit on have {len(right)}"
            )
        fit = fit_isotonic if kind == "isotonic" else fit_temperature
        maps[label.name.lower()] = fit(probabilities, right)
    return Calibration(**maps)


def class_observations(
    records: Sequence[Record], label: ObjectClass, match_iou: float = MATCH_IOU
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Mean probability of ``label`` over all passes of each clustered object (N,), and whether it matches a labelled one (N,)."""
    probabilities, right = [], []
    for record in records:
        boxes = record.boxes[record.labels == label]
        for observed in record.assessment.objects:
            probabilities.append(float(observed.over_all_passes[label]))
            right.append(bool(find_overlapping(observed.box[None], boxes, match_iou)[0]))
    return np.array(probabilities, float), np.array(right, bool)


Observations = tuple[FloatArray, NDArray[np.bool_]]


def same_odds(limit: float, before: Observations, now: Observations) -> float:
    """The class probability of another detector at which an object is as likely of the class as it was at ``limit`` before.

    ``before``, ``now``: what two detectors say of the same pictures, as :func:`class_observations` returns it. Both are mapped by
    logistic regression on the log odds (Platt 1999). ``limit`` itself where not both see ten right
    and ten wrong objects, or the share of right ones does not rise with the probability.
    """
    from sklearn.linear_model import LogisticRegression  # takes a second to load

    lines = []
    for probabilities, right in (before, now):
        if min(right.sum(), (~right).sum()) < _LEAST:
            return limit
        odds = logit(np.clip(probabilities, _EDGE, 1 - _EDGE))[:, None]
        line = LogisticRegression(C=np.inf).fit(odds, right)
        lines.append((float(line.coef_[0, 0]), float(line.intercept_[0])))
    (slope, start), (own_slope, own_start) = lines
    if min(slope, own_slope) <= 0:
        return limit
    odds = slope * float(logit(np.clip(limit, _EDGE, 1 - _EDGE))) + start
    return round(float(expit((odds - own_start) / own_slope)), 3)


def fit_isotonic(probabilities: FloatArray, right: NDArray[np.bool_]) -> Isotonic:
    """Isotonic regression (pool adjacent violators), as lines between the middles of its blocks.

    Every block counts one right and one wrong object more than it has, so that few objects do not make certainty; blocks
    that then violate the order are pooled again.
    """
    order = np.argsort(probabilities, kind="stable")
    x, y = np.asarray(probabilities, float)[order], right[order].astype(float)
    blocks = isotonic_regression(y).blocks
    counts = np.diff(blocks).astype(float)
    smooth = (np.add.reduceat(y, blocks[:-1]) + 1.0) / (counts + 2.0)
    pooled = isotonic_regression(smooth, weights=counts)
    xs: list[float] = []
    ys: list[float] = []
    for start, end in zip(pooled.blocks[:-1], pooled.blocks[1:], strict=True):
        inside = x[blocks[start] : blocks[end]]
        for value in dict.fromkeys((round(float(inside[0]), _DIGITS), round(float(inside[-1]), _DIGITS))):
            if not xs or value > xs[-1]:
                xs.append(value)
                ys.append(round(float(pooled.x[start]), _DIGITS))
    return Isotonic(x=tuple(xs), y=tuple(ys))


def fit_temperature(probabilities: FloatArray, right: NDArray[np.bool_]) -> Temperature:
    """The most likely temperature of log odds of ``probabilities`` (N,), from 0.05 to 20 (Guo et al. 2017, section 4.2)."""
    odds = logit(np.clip(np.asarray(probabilities, float), _EDGE, 1 - _EDGE))
    sign = np.where(right, 1.0, -1.0)

    def loss(log_temperature: float) -> float:
        return float(np.logaddexp(0.0, -sign * odds / np.exp(log_temperature)).sum())

    found = minimize_scalar(loss, bounds=np.log([0.05, 20.0]), method="bounded").x
    return Temperature(temperature=round(float(np.exp(found)), _DIGITS))
