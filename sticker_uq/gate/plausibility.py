# SPDX-License-Identifier: Apache-2.0
"""Whether a scene can be what it claims to be: each impossible property closes the gate for a reason of its own."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from sticker_uq.gate.box_overlap import as_box, is_proper
from sticker_uq.gate.policy.limits import Before
from sticker_uq.gate.policy.policy import LIMITS, Policy
from sticker_uq.gate.policy.policy_schema import POLICY_REFUSALS
from sticker_uq.gate.policy.rules import at_least, within
from sticker_uq.gate.policy.signals import DIL, OF_ASSESSMENT, UNEXPLAINED, holder_of
from sticker_uq.gate.settings import GateSettings, nanoseconds
from sticker_uq.gate.state import BlockReason, GateState, SceneFacts, SeenPixels
from sticker_uq.geometry import ScenePoses
from sticker_uq.scene import (
    METRICS,
    Exposure,
    ImageCheck,
    Localization,
    ObjectClass,
    ObjectVerdict,
    ObservedObject,
    Outcome,
    Reason,
    SceneAssessment,
    SceneDecision,
    Verdict,
)

_EPOCH_NS = 10**18
"""September 2001: a clock that shows the time is past it, one that counts since the machine's start is not."""

Problem = tuple[BlockReason, Reason]
Problems = tuple[Problem, ...]


def may_be_removed(verdict: ObjectVerdict) -> bool:
    observed = verdict.object
    sticker = observed.label is ObjectClass.STICKER and not observed.unstable
    approved = verdict.verdict is Verdict.REMOVE and (sticker or verdict.by_operator)
    return approved and is_proper(as_box(observed.box))


def picture_of(facts: SceneFacts, before: SeenPixels | None) -> SeenPixels | None:
    """The pixels seen last, once the image of ``facts`` has come after ``before``; without pixels it changes nothing."""
    if not facts.image_digest:
        return before
    if before is None or before.digest != facts.image_digest:
        return SeenPixels(facts.image_digest, facts.stamp_ns)
    return replace(before, count=before.count + 1)


def problems_of(
    facts: SceneFacts,
    decision: SceneDecision,
    poses: ScenePoses,
    picture: SeenPixels | None,
    before: GateState,
    now_ns: int,
    settings: GateSettings,
) -> Problems:
    """Everything that is wrong with a scene that comes at ``now_ns`` in the state ``before``.

    ``picture`` are the pixels seen last, those of this scene included. A failed scene, or one that the policy refuses to
    judge, is not checked any further.
    """
    others = tuple(_publishers(facts.image_publishers))
    refused = next((reason for reason in decision.reasons if reason.code in POLICY_REFUSALS), None)
    if refused is not None and facts.usable:
        return (*others, (BlockReason.ASSUMPTION, refused))
    if not facts.usable or decision.outcome not in (Outcome.WORK, Outcome.ASK, Outcome.CLEAN):
        failed = decision.reasons[0] if decision.reasons else Reason("scene_not_judged")
        return (*others, (BlockReason.FAILED_SCENE, failed))
    previous_ns = before.scene.stamp_ns if before.scene is not None else None
    return (
        *others,
        *_content(facts, decision, settings),
        *_time(facts.stamp_ns, previous_ns, before, now_ns, settings),
        *_pixels(facts, picture, settings),
        *_origin(facts, before),
        *_places(decision, poses, settings),
    )


def _content(facts: SceneFacts, decision: SceneDecision, settings: GateSettings) -> Iterator[Problem]:
    if not facts.finite:
        yield BlockReason.IMPLAUSIBLE_SCENE, Reason("values_not_finite")
    if facts.invalid is not None:
        yield BlockReason.IMPLAUSIBLE_SCENE, facts.invalid
    if min(facts.image_size) <= 0:
        width, height = facts.image_size
        yield BlockReason.IMPLAUSIBLE_SCENE, Reason.of("image_without_size", width=width, height=height)
    if settings.frozen_images and not facts.image_digest:
        yield BlockReason.IMPLAUSIBLE_SCENE, Reason("image_without_digest")
    removable = decision.removable()
    if decision.outcome is Outcome.WORK and not (removable and all(map(may_be_removed, removable))):
        yield BlockReason.IMPLAUSIBLE_SCENE, Reason("decision_inconsistent")


def image_problems(check: ImageCheck, before: GateState, now_ns: int, settings: GateSettings) -> Problems:
    """Everything that is wrong with an image that arrives at ``now_ns``, whatever a model may make of it.

    An image that cannot be used, or comes from elsewhere than the ones before, is not checked any further.
    """
    others = tuple(_publishers(check.image_publishers))
    if check.problem:
        return (*others, (BlockReason.FAILED_SCENE, Reason.of("image_unusable", detail=check.problem)))
    source = (check.frame_id, check.image_size)
    if before.reference is not None and source != before.reference.source:
        return (*others, (BlockReason.SOURCE_CHANGED, _another_source(before.reference.source, source)))
    found = [
        *others,
        *_time(check.stamp_ns, check.previous_stamp_ns, before, now_ns, settings),
        *_light(check.exposure, settings),
    ]
    if check.stamp_ns > 0 and now_ns - check.stamp_ns >= nanoseconds(settings.max_scene_age_s):
        found.append((BlockReason.STALE_SCENE, lateness(check.stamp_ns, now_ns)))
    if settings.frozen_images and check.repeats >= settings.frozen_images:
        found.append((BlockReason.FROZEN_IMAGE, Reason.of("image_repeats", count=check.repeats)))
    return tuple(found)


def _publishers(names: tuple[str, ...] | None) -> Iterator[Problem]:
    """Images of two publishers show two places, or two times: nothing follows from several of them in a row."""
    if names is not None and not names:
        yield BlockReason.SECOND_IMAGE_PUBLISHER, Reason("image_publishers_unknown")
    elif names is not None and len(names) > 1:
        several = Reason.of("image_publishers", names=", ".join(sorted(names)), count=len(names))
        yield BlockReason.SECOND_IMAGE_PUBLISHER, several


def lateness(stamp_ns: int, now_ns: int) -> Reason:
    """Why an image that arrived at ``now_ns`` is too old: how far its stamp is behind the clock."""
    if stamp_ns < _EPOCH_NS <= now_ns:
        return Reason.of("stamp_since_start", seconds=round(stamp_ns / 1e9, 1))
    return Reason.of("image_late", seconds=round((now_ns - stamp_ns) / 1e9, 1))


def why_stale(state: GateState, settings: GateSettings) -> Reason | None:
    """Why the newest scene is too old; None where no more is known than that none has come."""
    scene, limit_ns = state.scene, nanoseconds(settings.max_scene_age_s)
    if scene is None:
        return None
    if state.silent_ticks > settings.max_silent_ticks and state.now_ns - state.received_ns < limit_ns:
        return Reason("clock_stands")
    late = lateness(scene.stamp_ns, state.received_ns)
    is_late = 0 < scene.stamp_ns <= state.received_ns - limit_ns
    if is_late and late.code == "stamp_since_start":
        return late
    if state.usual_age_ns >= limit_ns:
        usual_s = round(state.usual_age_ns / 1e9, 1)
        return Reason.of("scenes_too_slow", seconds=usual_s, high=settings.max_scene_age_s)
    if is_late:
        return late
    if state.waited_ns >= limit_ns:
        apart_s = round(state.waited_ns / 1e9, 1)
        return Reason.of("images_apart", seconds=apart_s, limit=settings.max_scene_age_s)
    return None


def _time(
    stamp_ns: int, previous_ns: int | None, before: GateState, now_ns: int, settings: GateSettings
) -> Iterator[Problem]:
    if now_ns <= 0:
        yield BlockReason.CLOCK, Reason("clock_zero")
        return
    if stamp_ns == previous_ns and now_ns == before.received_ns == before.tick_ns:
        yield BlockReason.CLOCK, Reason("clock_stands")
    elif stamp_ns <= 0:
        yield BlockReason.STAMP_ORDER, Reason("stamp_invalid")
    elif previous_ns is not None and stamp_ns <= previous_ns:
        behind = (previous_ns - stamp_ns) / 1e9
        back = Reason.of("stamp_backwards", seconds=behind) if behind else Reason("stamp_unchanged")
        yield BlockReason.STAMP_ORDER, back
    if stamp_ns > now_ns + nanoseconds(settings.max_clock_skew_s):
        yield BlockReason.CLOCK, Reason.of("stamp_in_future", seconds=(stamp_ns - now_ns) / 1e9)


def _pixels(facts: SceneFacts, picture: SeenPixels | None, settings: GateSettings) -> Iterator[Problem]:
    if settings.frozen_images and picture is not None and picture.count > 1:
        age_ns = facts.stamp_ns - picture.since_ns
        if picture.count >= settings.frozen_images or age_ns >= nanoseconds(settings.max_scene_age_s):
            yield BlockReason.FROZEN_IMAGE, Reason.of("image_repeats", count=picture.count)
    yield from _light(facts.exposure, settings)


def _light(exposure: Exposure | None, settings: GateSettings) -> Iterator[Problem]:
    """Why an image of this brightness shows nothing; NaN passes no limit, as if it had not been measured."""
    darkest, brightest = settings.min_image_level, settings.max_image_level
    dark, saturated = settings.max_dark_share, settings.max_saturated_share
    if (darkest, brightest, dark, saturated) == (0.0, 255.0, 1.0, 1.0):
        return
    if exposure is None:
        yield BlockReason.EXPOSURE, Reason("not_measured", "mean_level")
        return
    checks = (
        at_least("mean_level", exposure.mean_level, darkest),
        within("mean_level", exposure.mean_level, brightest),
        within("dark_share", exposure.dark_share, dark),
        within("saturated_share", exposure.saturated_share, saturated),
    )
    yield from islice(((BlockReason.EXPOSURE, reason) for passed, reason in checks if not passed), 1)


def _origin(facts: SceneFacts, before: GateState) -> Iterator[Problem]:
    reference = before.reference
    if reference is None:
        return
    if facts.source != reference.source:
        yield BlockReason.SOURCE_CHANGED, _another_source(reference.source, facts.source)
    elif facts.calibration and reference.calibration and facts.calibration != reference.calibration:
        yield BlockReason.SOURCE_CHANGED, Reason("calibration_changed")
    if facts.judges != reference.judges:
        codes = ("weights_changed", "settings_changed", "panel_changed", "policy_changed")
        for code, new, old in zip(codes, facts.judges, reference.judges, strict=True):
            if new != old:
                yield BlockReason.MODEL_CHANGED, Reason(code)


def _places(decision: SceneDecision, poses: ScenePoses, settings: GateSettings) -> Iterator[Problem]:
    if not settings.require_pose:
        return
    missing = [v.object.id for v in decision.removable() if v.object.id not in poses.poses]
    if poses.problem is not None:
        yield BlockReason.POSE, poses.problem
    elif missing:
        yield BlockReason.POSE, Reason.of("object_not_located", object=missing[0])


def _another_source(before: tuple[str, tuple[int, int]], after: tuple[str, tuple[int, int]]) -> Reason:
    old, new = (f"{frame_id!r} {width} x {height} px" for frame_id, (width, height) in (before, after))
    return Reason.of("image_source_changed", before=old, after=new)


_ROUNDING = 1e-3
"""By so much a share may leave its range through the rounding of sums in float32."""
_SHARE = (0.0, 1.0)
_AMOUNT = (0.0, math.inf)
_OF_SCENES = {
    limit.signal: (0.0, limit.off) for limit in LIMITS.values() if limit.before is not Before.REMOVAL
}
_SCENE = {name: ends for name, ends in _OF_SCENES.items() if name in OF_ASSESSMENT}
_LOCALIZATION = {
    **dict.fromkeys(("complete_localization", "background_localization"), _AMOUNT),
    **dict.fromkeys((DIL, "decision_threshold"), _SHARE),
    **{name: ends for name, ends in _OF_SCENES.items() if name not in OF_ASSESSMENT},
}
_EXPOSURE = {"mean_level": (0.0, 255.0), "dark_share": _SHARE, "saturated_share": _SHARE} | dict.fromkeys(
    ("noise", "sharpness"), _AMOUNT
)
_OBJECT = {
    "detection_rate": _SHARE,
    "novelty": _SHARE,
    "single_pass": _SHARE,
    "close_up": _SHARE,
    "photo": _SHARE,
    **{name: (0.0, metric.highest) for name, metric in METRICS.items()},
}
_Value = tuple[str, float, tuple[float, float]]
_Ranges = dict[str, tuple[float, float]]


def range_problem(assessment: SceneAssessment, policy: Policy | None = None) -> Reason | None:
    """The first value of ``assessment`` outside of its range, as a reason; None when there is none.

    NaN means "not measured" and is none, except for a signal of the scene that ``policy`` limits: a detector that measures it
    has a number for every image, and without one the limit would be passed over where an object is removed.
    """
    for name, value, (low, high) in _values(assessment):
        if value < low - _ROUNDING or value > high + _ROUNDING or math.isinf(value):
            return Reason.of("value_out_of_range", name, measured=value, low=low, high=high)
    localization = assessment.localization
    if policy is None or localization is None or math.isnan(localization.dil):
        return None  # without saliency or localization the policy asks anyway
    missing = (
        name for name in _check_ranges(policy) if math.isnan(getattr(holder_of(assessment, name), name))
    )
    return next((Reason("not_measured", name) for name in missing), None)


def _check_ranges(policy: Policy) -> Iterator[str]:
    """The signals of a scene that ``policy`` limits, but does not look at before something is removed."""
    for before in (Before.REST, Before.QUESTION):
        yield from (limit.signal for limit, _ in policy.limits_before(before))
    if policy.saliency is not None and policy.saliency.signal == UNEXPLAINED:
        yield UNEXPLAINED


def _values(assessment: SceneAssessment) -> Iterator[_Value]:
    for observed in (*assessment.objects, *assessment.unstable):
        for probability in observed.probabilities:
            yield "probability", float(probability), _SHARE
        yield from _with_ranges(observed, _OBJECT)
    yield from _with_ranges(assessment, _SCENE)
    if assessment.localization is not None:
        yield from _with_ranges(assessment.localization, _LOCALIZATION)
        for region in assessment.localization.unexplained:
            yield UNEXPLAINED, region.objectness, _SHARE
    if assessment.exposure is not None:
        yield from _with_ranges(assessment.exposure, _EXPOSURE)


def _with_ranges(
    part: SceneAssessment | ObservedObject | Localization | Exposure, ranges: _Ranges
) -> Iterator[_Value]:
    for name, limits in ranges.items():
        yield name, getattr(part, name), limits
