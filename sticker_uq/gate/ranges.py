# SPDX-License-Identifier: Apache-2.0
"""The gate's range check: whether the values of a scene can have been measured at all, by :mod:`sticker_uq.scene`."""

from __future__ import annotations

import math
from collections.abc import Iterator

from sticker_uq.gate.policy.policy import Policy
from sticker_uq.gate.policy.signals import MISSED, NOVELTY, UNEXPLAINED
from sticker_uq.scene import METRICS, Exposure, Localization, ObservedObject, Reason, SceneAssessment

_ROUNDING = 1e-3
"""By so much a share may leave its range through the rounding of sums in float32."""
_SHARE = (0.0, 1.0)
_AMOUNT = (0.0, math.inf)
_GREY_LEVEL = (0.0, 255.0)
_LOCALIZATION = {
    "complete_localization": _AMOUNT,
    "background_localization": _AMOUNT,
    "dil": _SHARE,
    "decision_threshold": _SHARE,
    UNEXPLAINED: _SHARE,
    NOVELTY: _SHARE,
    MISSED: _SHARE,
}
_EXPOSURE = {
    "mean_level": _GREY_LEVEL,
    "dark_share": _SHARE,
    "saturated_share": _SHARE,
    "noise": _AMOUNT,
    "sharpness": _AMOUNT,
}
_OBJECT = {
    "detection_rate": _SHARE,
    "novelty": _SHARE,
    **{name: (0.0, metric.highest) for name, metric in METRICS.items()},
}
_Value = tuple[str, float, tuple[float, float]]


def range_problem(assessment: SceneAssessment, policy: Policy | None = None) -> Reason | None:
    """The first value of ``assessment`` outside of its range, as a reason of the gate; None when there is none.

    NaN means "not measured" and is none, except for a signal of the scene that ``policy`` limits: a detector that measures it
    has a number for every image, and without one the limit would be passed over where an object is removed.
    """
    for name, value, (low, high) in _values(assessment):
        if value < low - _ROUNDING or value > high + _ROUNDING or math.isinf(value):
            return Reason.of("value_out_of_range", name, measured=value, low=low, high=high)
    localization = assessment.localization
    if policy is None or localization is None or math.isnan(localization.dil):
        return None  # without saliency or localization the policy asks anyway
    missing = (name for name in _limited(policy) if math.isnan(getattr(localization, name)))
    return next((Reason("not_measured", name) for name in missing), None)


def _limited(policy: Policy) -> Iterator[str]:
    """The signals of a scene that ``policy`` has a limit for; a limit of 1 is none."""
    for name in (UNEXPLAINED, NOVELTY, MISSED):
        if getattr(policy, f"max_{name}") < 1.0:
            yield name
    if policy.saliency is not None and policy.saliency.signal == UNEXPLAINED:
        yield UNEXPLAINED


def _values(assessment: SceneAssessment) -> Iterator[_Value]:
    for observed in (*assessment.objects, *assessment.unstable):
        yield from _of_object(observed)
    if assessment.localization is not None:
        yield from _of_localization(assessment.localization)
    if assessment.exposure is not None:
        yield from _of_exposure(assessment.exposure)


def _of_object(observed: ObservedObject) -> Iterator[_Value]:
    for probability in observed.probabilities:
        yield "probability", float(probability), _SHARE
    for name, limits in _OBJECT.items():
        yield name, getattr(observed, name), limits


def _of_localization(localization: Localization) -> Iterator[_Value]:
    for name, limits in _LOCALIZATION.items():
        yield name, getattr(localization, name), limits
    for region in localization.unexplained:
        yield UNEXPLAINED, region.objectness, _SHARE


def _of_exposure(exposure: Exposure) -> Iterator[_Value]:
    for name, limits in _EXPOSURE.items():
        yield name, getattr(exposure, name), limits
