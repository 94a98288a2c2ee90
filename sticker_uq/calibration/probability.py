"""Maps from a detector's class probability to the share of such objects that really are of the class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from sticker_uq.calibration.outcomes import MATCH_IOU
from sticker_uq.calibration.records import Record
from sticker_uq.evaluation.metrics.matching import overlapping
from sticker_uq.evaluation.metrics.recalibration import temperature
from sticker_uq.gate.policy.policy_schema import Calibration, Isotonic, Temperature
from sticker_uq.scene import FloatArray, InvalidInput, ObjectClass

Kind = Literal["isotonic", "temperature", "none"]
_DIGITS = 6
_LEAST = 10  # objects, below which nothing is learned


def fit_calibration(
    records: Sequence[Record], kind: Kind, match_iou: float = MATCH_IOU
) -> Calibration | None:
    """Calibration maps of logo and sticker, one against the rest, from every clustered object of ``records``.

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
    """For calibration maps: mean probability of ``label`` of each clustered object (N,),
    and whether it matches a labelled one (N,).
    """
    probabilities, right = [], []
    for record in records:
        boxes = record.boxes[record.labels == label]
        for observed in record.assessment.objects:
            probabilities.append(float(observed.probabilities[label]))
            right.append(bool(overlapping(observed.box[None], boxes, match_iou)[0]))
    return np.array(probabilities, float), np.array(right, bool)


def fit_isotonic(probabilities: FloatArray, right: NDArray[np.bool_]) -> Isotonic:
    """Isotonic regression of a class probability (pool adjacent violators) as lines between the middles of its blocks.

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
    """Temperature of a class probability with the highest likelihood, see
    :func:`~sticker_uq.evaluation.metrics.recalibration.temperature`.
    """
    return Temperature(temperature=round(temperature(np.asarray(probabilities, float), right), _DIGITS))
