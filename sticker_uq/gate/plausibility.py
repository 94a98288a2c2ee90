"""Whether a scene can be what it claims to be: each thing that cannot be true closes the gate for a reason of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sticker_uq.gate.box_overlap import as_box, is_proper
from sticker_uq.gate.judge import POLICY_REFUSED
from sticker_uq.gate.settings import GateSettings, nanoseconds
from sticker_uq.gate.state import BlockReason, GateState, Picture, SceneFacts
from sticker_uq.geometry import ScenePoses
from sticker_uq.scene import Exposure, ImageCheck, ObjectClass, ObjectVerdict, Outcome, SceneDecision, Verdict

Problem = tuple[BlockReason, str]


def may_be_removed(verdict: ObjectVerdict) -> bool:
    """Whether an arm may be sent to this object: a stable sticker, or one that a person approved."""
    observed = verdict.object
    sticker = observed.label is ObjectClass.STICKER and not observed.unstable
    return (
        verdict.verdict is Verdict.REMOVE
        and (sticker or verdict.by_operator)
        and is_proper(as_box(observed.box))
    )


def picture_of(facts: SceneFacts, before: Picture | None) -> Picture | None:
    """The pixels seen last, once the image of ``facts`` has come after ``before``. A scene without pixels changes nothing."""
    if not facts.image_digest:
        return before
    if before is None or before.digest != facts.image_digest:
        return Picture(facts.image_digest, facts.stamp_ns)
    return replace(before, count=before.count + 1)


def problems_of(
    facts: SceneFacts,
    decision: SceneDecision,
    poses: ScenePoses,
    picture: Picture | None,
    before: GateState,
    now_ns: int,
    settings: GateSettings,
) -> tuple[Problem, ...]:
    """Everything that is wrong with a scene that comes at ``now_ns`` to a gate in the state ``before``, in words.

    ``picture`` are the pixels seen last, those of this scene included. A failed scene, or one that the policy refuses to
    judge, is asked nothing more.
    """
    refused = next((reason.text for reason in decision.reasons if reason.metric == POLICY_REFUSED), "")
    if refused and facts.usable:
        return ((BlockReason.ASSUMPTION, refused),)
    if not facts.usable or decision.outcome not in (Outcome.WORK, Outcome.ASK, Outcome.CLEAN):
        return ((BlockReason.FAILED_SCENE, facts.text or "the scene could not be judged"),)
    previous_ns = before.scene.stamp_ns if before.scene is not None else None
    found = (
        *_content(facts, decision, settings),
        *_time(facts.stamp_ns, previous_ns, now_ns, settings),
        *_pixels(facts, picture, settings),
        *_origin(facts, before),
        *_places(decision, poses, settings),
    )
    return found


def _content(facts: SceneFacts, decision: SceneDecision, settings: GateSettings) -> Iterator[Problem]:
    if not facts.finite:
        yield BlockReason.IMPLAUSIBLE_SCENE, "the scene holds values that are no finite numbers"
    if min(facts.image_size) <= 0:
        yield (
            BlockReason.IMPLAUSIBLE_SCENE,
            f"the image has the size {facts.image_size[0]} x {facts.image_size[1]}",
        )
    if settings.frozen_images and not facts.image_digest:
        yield (
            BlockReason.IMPLAUSIBLE_SCENE,
            "the scene does not tell its image from others: image_digest is empty",
        )
    removable = decision.removable()
    if decision.outcome is Outcome.WORK and not (removable and all(map(may_be_removed, removable))):
        text = "the decision allows the removal of something that is no stable sticker"
        yield BlockReason.IMPLAUSIBLE_SCENE, text


def image_problems(
    check: ImageCheck, before: GateState, now_ns: int, settings: GateSettings
) -> tuple[Problem, ...]:
    """Everything that is wrong with an image that arrives at ``now_ns``, whatever a model may make of it; in words.

    An image that cannot be used, or comes from elsewhere than the ones before, is asked nothing more.
    """
    if check.problem:
        return ((BlockReason.FAILED_SCENE, check.problem),)
    source = (check.frame_id, check.image_size)
    if before.reference is not None and source != before.reference.source:
        return (
            (BlockReason.SOURCE_CHANGED, f"{_source(*before.reference.source)} became {_source(*source)}"),
        )
    found = [
        *_time(check.stamp_ns, check.previous_stamp_ns, now_ns, settings),
        *_light(check.exposure, settings),
    ]
    if check.stamp_ns > 0 and now_ns - check.stamp_ns >= nanoseconds(settings.max_scene_age_s):
        found.append(
            (
                BlockReason.STALE_SCENE,
                f"the image was {(now_ns - check.stamp_ns) / 1e9:.3f} s old when it came",
            )
        )
    if settings.frozen_images and check.repeats >= settings.frozen_images:
        found.append(
            (BlockReason.FROZEN_IMAGE, f"{check.repeats} images in a row have exactly the same pixels")
        )
    return tuple(found)


def _time(stamp_ns: int, previous_ns: int | None, now_ns: int, settings: GateSettings) -> Iterator[Problem]:
    if stamp_ns <= 0:
        yield BlockReason.STAMP_ORDER, f"the stamp of the image is {stamp_ns}"
    elif previous_ns is not None and stamp_ns <= previous_ns:
        behind = (previous_ns - stamp_ns) / 1e9
        yield (
            BlockReason.STAMP_ORDER,
            f"the stamps go back by {behind:.3f} s" if behind else "the stamp stands still",
        )
    if stamp_ns > now_ns + nanoseconds(settings.max_clock_skew_s):
        yield (
            BlockReason.CLOCK,
            f"the stamp of the image lies {(stamp_ns - now_ns) / 1e9:.3f} s in the future",
        )


def _pixels(facts: SceneFacts, picture: Picture | None, settings: GateSettings) -> Iterator[Problem]:
    if settings.frozen_images and picture is not None and picture.count > 1:
        age_ns = facts.stamp_ns - picture.since_ns
        if picture.count >= settings.frozen_images or age_ns >= nanoseconds(settings.max_scene_age_s):
            text = f"{picture.count} images in a row have exactly the same pixels, for {age_ns / 1e9:.1f} s"
            yield BlockReason.FROZEN_IMAGE, text
    yield from _light(facts.exposure, settings)


def _light(exposure: Exposure | None, settings: GateSettings) -> Iterator[Problem]:
    if dazzled := _dazzled(exposure, settings):
        yield BlockReason.EXPOSURE, dazzled


def _dazzled(exposure: Exposure | None, settings: GateSettings) -> str:
    """Why nothing can be told from an image of this brightness; NaN passes no limit, as if it had not been measured."""
    limits = (settings.min_image_level, settings.max_image_level)
    shares = (settings.max_dark_share, settings.max_saturated_share)
    if (*limits, *shares) == (0.0, 255.0, 1.0, 1.0):
        return ""
    if exposure is None:
        return "its brightness was not measured"
    if not limits[0] <= exposure.mean_level <= limits[1]:
        return f"its mean grey level is {exposure.mean_level:.0f}"
    if not exposure.dark_share <= shares[0]:
        return f"{exposure.dark_share:.0%} of its pixels are dark"
    if not exposure.saturated_share <= shares[1]:
        return f"{exposure.saturated_share:.0%} of its pixels are saturated"
    return ""


def _origin(facts: SceneFacts, before: GateState) -> Iterator[Problem]:
    reference = before.reference
    if reference is None:
        return
    if facts.source != reference.source:
        yield BlockReason.SOURCE_CHANGED, f"{_source(*reference.source)} became {_source(*facts.source)}"
    elif facts.calibration and reference.calibration and facts.calibration != reference.calibration:
        yield BlockReason.SOURCE_CHANGED, "its calibration is another one"
    if facts.judges != reference.judges:
        names = ("weights", "perception settings", "panel of monitors", "policy")
        changed = [
            name for name, new, old in zip(names, facts.judges, reference.judges, strict=True) if new != old
        ]
        yield BlockReason.MODEL_CHANGED, f"other {' and '.join(changed)}"


def _places(decision: SceneDecision, poses: ScenePoses, settings: GateSettings) -> Iterator[Problem]:
    if not settings.require_pose:
        return
    missing = [v.object.id for v in decision.removable() if v.object.id not in poses.poses]
    if poses.problem:
        yield BlockReason.POSE, poses.problem
    elif missing:
        yield BlockReason.POSE, f"object {missing[0]} has no pose"


def _source(frame_id: str, image_size: tuple[int, int]) -> str:
    return f"{frame_id!r} {image_size[0]} x {image_size[1]}"
