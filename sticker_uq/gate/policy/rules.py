# SPDX-License-Identifier: Apache-2.0
"""What the policy decides about one object, before the operator's answers."""

import math
from collections.abc import Sequence

import numpy as np

from sticker_uq.gate.box_overlap import as_box, cover, is_proper
from sticker_uq.gate.policy.limits import Before
from sticker_uq.gate.policy.policy import Policy
from sticker_uq.gate.policy.signals import Signals
from sticker_uq.scene import ObjectClass, ObservedObject, Reason, Verdict

Finding = tuple[Verdict, tuple[Reason, ...]]
_Objects = Sequence[ObservedObject]


def judge_object(
    observed: ObservedObject, others: _Objects, policy: Policy, signals: Signals | None = None
) -> Finding:
    """The verdict about ``observed`` and at least one reason; an unstable object is never removable.

    ``others``: everything else that the scene shows; a possible logo among them protects its neighbourhood. ``signals``: what the
    risk score is made of. Whatever is not a number never passes a limit.
    """
    if not is_sound(observed):
        return Verdict.ASK, (Reason("measurement_invalid"),)
    if observed.unstable:
        verdict, reasons = _background(observed, policy)
        return verdict, (Reason.of("few_passes", count=observed.passes), *reasons)
    label = _effective_label(observed, policy)
    if label is ObjectClass.STICKER:
        return _sticker(observed, others, policy, signals or {})
    return _logo(observed, policy) if label is ObjectClass.LOGO else _background(observed, policy)


def _effective_label(observed: ObservedObject, policy: Policy) -> ObjectClass:
    """The label of ``observed``, but background for a sticker that need not be asked about, and for one by its close-up alone
    where the policy gives close-ups no weight, or a panel has judged it by the class that the passes give.
    """
    if observed.label is not ObjectClass.STICKER:
        return observed.label
    seen_closely = not math.isnan(observed.close_up)
    weighed = seen_closely and policy.close_up_weight > 0
    by_passes = ObjectClass(int(np.argmax(observed.probabilities)))
    by_close_up = seen_closely and by_passes is ObjectClass.BACKGROUND
    unheard = by_close_up and (not weighed or bool(observed.monitors))
    left = weighed and policy.sticker_probability(observed) < policy.notable_probability
    return ObjectClass.BACKGROUND if unheard or left else ObjectClass.STICKER


def is_sound(observed: ObservedObject) -> bool:
    """Whether ``observed`` can be judged: its box has an area, and box, probabilities and detection rate are finite."""
    return is_proper(as_box(observed.box)) and bool(np.isfinite(observed.over_all_passes).all())


def is_possible_logo(observed: ObservedObject, policy: Policy) -> bool:
    """Whether ``observed`` might be a logo. Of an object seen in few passes only its label is believed."""
    likely = not _probability(observed, ObjectClass.LOGO, policy) < policy.notable_probability
    return observed.label is ObjectClass.LOGO or (likely and not observed.unstable)


def within(subject: str, value: float, limit: float) -> tuple[bool, Reason]:
    """Whether ``value`` is at most ``limit``, and that as a reason. NaN is not."""
    passed = value <= limit
    return passed, _against("within_limit" if passed else "above_limit", subject, value, limit)


def at_least(subject: str, value: float, limit: float) -> tuple[bool, Reason]:
    """Whether ``value`` is at least ``limit``, and that as a reason. NaN is not."""
    passed = value >= limit
    return passed, _against("reaches_limit" if passed else "below_limit", subject, value, limit)


def _against(code: str, subject: str, value: float, limit: float) -> Reason:
    return Reason("not_measured" if math.isnan(value) else code, subject, value, limit)


def _sticker(observed: ObservedObject, others: _Objects, policy: Policy, signals: Signals) -> Finding:
    probability = _probability(observed, ObjectClass.STICKER, policy)
    checks = [at_least("sticker_probability", probability, policy.min_probability)]
    if policy.min_detection_rate > 0.0:
        checks.append(at_least("detection_rate", observed.detection_rate, policy.min_detection_rate))
    for limit, highest in policy.limits_before(Before.REMOVAL):
        value = getattr(observed, limit.measured_as or limit.signal)
        if not policy.releases_unmeasured(limit, value):
            checks.append(within(limit.signal, value, highest))
    if policy.risk is not None:
        risk = policy.risk(signals)
        checks.append(within("risk", risk, policy.risk.max_removal))
    if policy.panel is None or policy.panel.combination == "any":
        for one in observed.monitors:
            code = "monitor_objects" if one.objection else "monitor_agrees"
            checks.append((not one.objection, Reason(code, one.name, one.score, one.limit)))
    box = as_box(observed.box)
    overlap = max((cover(box, as_box(other.box)) for other in others), default=0.0)
    checks.append(within("logo_overlap", overlap, policy.max_logo_overlap))
    failed = tuple(reason for passed, reason in checks if not passed)
    if observed.duplicated and policy.ask_duplicated:
        failed += (Reason("detected_twice"),)
    if failed:
        return Verdict.ASK, failed
    return Verdict.REMOVE, tuple(reason for _, reason in checks)


def _logo(observed: ObservedObject, policy: Policy) -> Finding:
    logo = _probability(observed, ObjectClass.LOGO, policy)
    sure, reason = at_least("logo_probability", logo, policy.min_logo_probability)
    if sure:
        return Verdict.KEEP, (reason,)
    sticker = policy.sticker_probability(observed)
    if sticker < policy.notable_probability:
        return Verdict.KEEP, (_no_sticker(sticker, policy),)
    return Verdict.ASK, (reason, _maybe_sticker(sticker, policy))


def _background(observed: ObservedObject, policy: Policy) -> Finding:
    sticker = policy.sticker_probability(observed)
    if sticker < policy.notable_probability:
        return Verdict.KEEP, (_no_sticker(sticker, policy),)
    return Verdict.ASK, (_maybe_sticker(sticker, policy),)


def _no_sticker(sticker: float, policy: Policy) -> Reason:
    return Reason("no_sticker", "sticker_probability", sticker, policy.notable_probability)


def _maybe_sticker(sticker: float, policy: Policy) -> Reason:
    return Reason("possible_sticker", "sticker_probability", sticker, policy.notable_probability)


def _probability(observed: ObservedObject, label: ObjectClass, policy: Policy) -> float:
    return float(policy.probabilities(observed)[label])
