# SPDX-License-Identifier: Apache-2.0
"""What closes the gate: cause, reason, and who opens it again. What must hold at every step is in the witness."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sticker_uq.gate import BlockReason as Why
from sticker_uq.gate import events as ev
from sticker_uq.scene import Exposure, Outcome, Reason, Status
from sticker_uq.testing.scenes import SECOND, object_at, rarely_seen
from test.helpers.gate import (
    CANCELLED,
    LOGO,
    SETTINGS,
    STICKER,
    UNSURE,
    Cell,
    K,
    finish,
    permitted,
    removing,
    set_to,
)

NAN = float("nan")
BROKEN = Reason.of("drift", "sharpness", count=9, rate=0.01)
FROZEN = {"image_digest": "f" * 32}
Act = Callable[[Cell], Any]


def scene(*objects: Any, **changes: Any) -> Act:
    return lambda cell: cell.scene(*(objects or (STICKER,)), **changes)


def image(**changes: Any) -> Act:
    return lambda cell: cell.image(**changes)


def send(*events: ev.Event) -> Act:
    return lambda cell: [cell.send(event) for event in events]


def decided(outcome: Outcome, *reasons: Reason, usable: bool = True) -> Act:
    """A newer scene about which a policy with other rules has decided this."""

    def happen(cell: Cell) -> None:
        known, decision = cell.state.scene, cell.state.decision
        assert decision is not None
        facts = replace(known, stamp_ns=known.stamp_ns + 1, image_digest="a" * 32, usable=usable)
        cell.send(ev.SceneReceived(replace(decision, outcome=outcome, reasons=reasons), facts))

    return happen


def stamp(cell: Cell) -> int:
    return cell.state.scene.stamp_ns


def jump_back(cell: Cell) -> None:
    cell.tick().steady += SECOND
    cell.tick()


def other_settings(cell: Cell) -> None:
    cell.core.settings = set_to(lease_s=0.5)  # past the lock, as a mistake in the program would
    cell.tick()


def stands(cell: Cell) -> None:
    while cell.state.open:
        cell.send(ev.Tick())


ITSELF: Act = lambda cell: cell.tick()  # noqa: E731  # the end of the goal and K good scenes
RESET, RELEASE = send(ev.Reset()), send(ev.Release())


def ended(reason: Why) -> Act:
    return send(ev.Impediment(reason, None))


IMPEDIMENTS = {
    Why.AUDIT: Reason.of("audit_write_failed", detail="no space left on device"),
    Why.SECOND_GATE_PUBLISHER: Reason.of("other_gate_publishers", names="a, b"),
    Why.UNKNOWN_GATE_PUBLISHER: Reason.of("other_gate_publishers", names="a, b"),
    Why.SECOND_SCENE_PUBLISHER: Reason.of("other_gate_publishers", names="a, b"),
    Why.UNCALIBRATED: Reason("uncalibrated"),
}
DAZZLED = {
    "black": (Exposure(9.0, 0.5, 0.0), Reason("below_limit", "mean_level", 9.0, 10.0)),
    "white": (Exposure(246.0, 0.0, 0.4), Reason("above_limit", "mean_level", 246.0, 245.0)),
    "mostly dark": (Exposure(30.0, 0.91, 0.0), Reason("above_limit", "dark_share", 0.91, 0.9)),
    "glare": (Exposure(150.0, 0.0, 0.51), Reason("above_limit", "saturated_share", 0.51, 0.5)),
    "no brightness": (None, Reason("not_measured", "mean_level")),
    "NaN level": (Exposure(NAN, 0.0, 0.0), Reason("not_measured", "mean_level", limit=10.0)),
    "NaN dark share": (Exposure(90.0, NAN, 0.0), Reason("not_measured", "dark_share", limit=0.9)),
    "NaN glare": (Exposure(90.0, 0.0, NAN), Reason("not_measured", "saturated_share", limit=0.5)),
}
TWO = ("/camera", "/usb_cam")

CAUSES: dict[str, tuple[Act, Why, str | Reason, Act]] = {
    # people, the supervisor and the arm
    "hold": (send(ev.Hold()), Why.HELD, "held", RELEASE),
    "fault": (send(ev.Fault()), Why.FAULT, "internal_error", RESET),
    "deactivated": (send(ev.Deactivated()), Why.NOT_ACTIVE, "not_active", send(ev.Activated())),
    "arm silent": (send(ev.ArmReady(False)), Why.ARM_FAILED, "arm_silent", send(ev.ArmReady(True))),
    "arm gone": (send(ev.ArmLost()), Why.ARM_FAILED, "arm_server_lost", send(ev.ArmReady(True))),
    "workpiece": (lambda c: c.send(ev.WorkpieceChanged("x", c.now)), Why.CONTRADICTED, "another_workpiece", ITSELF),
    "settings": (other_settings, Why.CONTRADICTED, "gate_settings_changed", ITSELF),
    "policy broken": (send(ev.AssumptionBroken(BROKEN)), Why.ASSUMPTION, BROKEN, RESET),
    **{
        str(reason.name): (send(ev.Impediment(reason, detail)), reason, detail, ended(reason))
        for reason, detail in IMPEDIMENTS.items()
    },
    # scenes
    "failed": (scene(status=Status.FAILED), Why.FAILED_SCENE, "perception_failed", ITSELF),
    "unknown status": (scene(status=Status.UNKNOWN), Why.FAILED_SCENE, "perception_failed", ITSELF),
    "unreadable": (
        send(ev.SceneUnreadable(Reason.of("scene_unreadable", detail="arrays do not fit"))),
        Why.FAILED_SCENE,
        "scene_unreadable",
        ITSELF,
    ),
    "unusable, to work": (decided(Outcome.WORK, usable=False), Why.FAILED_SCENE, "", ITSELF),
    "unusable, clean": (decided(Outcome.CLEAN, usable=False), Why.FAILED_SCENE, "", ITSELF),
    "undecided": (decided(Outcome.UNKNOWN), Why.FAILED_SCENE, "scene_not_judged", ITSELF),
    "blocked": (decided(Outcome.BLOCKED), Why.FAILED_SCENE, "scene_not_judged", ITSELF),
    "refused": (
        decided(Outcome.BLOCKED, Reason.of("policy_other_weights", expected="a", found="b")),
        Why.ASSUMPTION,
        "policy_other_weights",
        ITSELF,
    ),
    "NaN metric": (scene(object_at(shannon_entropy=NAN)), Why.IMPLAUSIBLE_SCENE, "", ITSELF),
    "inf box": (scene(object_at((0, 0, math.inf, 9))), Why.IMPLAUSIBLE_SCENE, "", ITSELF),
    "NaN box, rare": (scene(unstable=[rarely_seen((0, 0, NAN, 9))]), Why.IMPLAUSIBLE_SCENE, "", ITSELF),
    "no size": (scene(image_size=(0, 0)), Why.IMPLAUSIBLE_SCENE, "", ITSELF),
    "no digest": (scene(image_digest=""), Why.IMPLAUSIBLE_SCENE, "", ITSELF),
    "other size": (scene(image_size=(320, 240)), Why.SOURCE_CHANGED, "image_source_changed", ITSELF),
    "other frame": (
        scene(frame_id="x"),
        Why.SOURCE_CHANGED,
        Reason.of("image_source_changed", before="'camera' 640 x 480 px", after="'x' 640 x 480 px"),
        ITSELF,
    ),
    "other model": (scene(model_hash="x"), Why.MODEL_CHANGED, "weights_changed", ITSELF),
    "other passes": (scene(settings_hash="x"), Why.MODEL_CHANGED, "settings_changed", ITSELF),
    "other panel": (scene(panel_hash="x"), Why.MODEL_CHANGED, "panel_changed", ITSELF),
    "stamp again": (lambda c: c.scene(stamp_ns=stamp(c)), Why.STAMP_ORDER, "stamp_unchanged", ITSELF),
    "stamp back": (
        lambda c: c.scene(stamp_ns=stamp(c) - SECOND // 10),
        Why.STAMP_ORDER,
        Reason.of("stamp_backwards", seconds=0.1),
        ITSELF,
    ),
    "stamp 0": (scene(stamp_ns=0), Why.STAMP_ORDER, "stamp_invalid", ITSELF),
    "stamp ahead": (scene(age=-SETTINGS.max_clock_skew_s - 1e-9), Why.CLOCK, "stamp_in_future", ITSELF),
    "old": (scene(age=5.0), Why.STALE_SCENE, Reason.of("image_late", seconds=5.0), ITSELF),
    "frozen": (scene(times=3, **FROZEN), Why.FROZEN_IMAGE, Reason.of("image_repeats", count=3), ITSELF),
    "frozen, slowly": (
        lambda c: c.scene(STICKER, **FROZEN).wait(SETTINGS.max_scene_age_s - 0.1).scene(STICKER, **FROZEN),
        Why.FROZEN_IMAGE,
        "image_repeats",
        ITSELF,
    ),
    "of two cameras": (scene(image_publishers=TWO), Why.SECOND_IMAGE_PUBLISHER, "image_publishers", ITSELF),
    "of no camera": (scene(image_publishers=()), Why.SECOND_IMAGE_PUBLISHER, "image_publishers_unknown", ITSELF),
    "a logo there": (scene(LOGO), Why.CONTRADICTED, "logo_at_object", ITSELF),
    "uncertain now": (scene(UNSURE), Why.CONTRADICTED, "object_not_removable", ITSELF),
    **{f"scene: {name}": (scene(exposure=e), Why.EXPOSURE, why, ITSELF) for name, (e, why) in DAZZLED.items()},
    # images, before anything has looked at them
    "image: unusable": (image(problem="no data"), Why.FAILED_SCENE, "image_unusable", ITSELF),
    "image: frozen": (image(repeats=SETTINGS.frozen_images), Why.FROZEN_IMAGE, "image_repeats", ITSELF),
    "image: stamp 0": (image(stamp_ns=0), Why.STAMP_ORDER, "stamp_invalid", ITSELF),
    "image: stamp again": (
        lambda c: c.image(previous_stamp_ns=c.now - SECOND // 100),
        Why.STAMP_ORDER,
        "stamp_unchanged",
        ITSELF,
    ),
    "image: stamp back": (lambda c: c.image(previous_stamp_ns=c.now), Why.STAMP_ORDER, "stamp_backwards", ITSELF),
    "image: ahead": (image(age=-0.06), Why.CLOCK, "stamp_in_future", ITSELF),
    "image: old": (image(age=1.0), Why.STALE_SCENE, "image_late", ITSELF),
    "image: size": (image(image_size=(320, 240)), Why.SOURCE_CHANGED, "image_source_changed", ITSELF),
    "image: frame": (image(frame_id="lid"), Why.SOURCE_CHANGED, "image_source_changed", ITSELF),
    "image: two": (image(image_publishers=TWO), Why.SECOND_IMAGE_PUBLISHER, "image_publishers", ITSELF),
    "image: none": (image(image_publishers=()), Why.SECOND_IMAGE_PUBLISHER, "image_publishers_unknown", ITSELF),
    **{f"image: {name}": (image(exposure=e), Why.EXPOSURE, why, ITSELF) for name, (e, why) in DAZZLED.items()},
    # the clock
    "clock back": (lambda c: c.wait(-5.0).tick(), Why.CLOCK, "clock_back", ITSELF),
    "clock slow": (jump_back, Why.CLOCK, Reason.of("clock_back", seconds=1.0), ITSELF),
    "clock ahead": (
        lambda c: c.tick().leap(SETTINGS.max_clock_jump_s).tick(),
        Why.CLOCK,
        Reason.of("clock_ahead", seconds=0.2),
        ITSELF,
    ),
    "clock ahead, unnoticed": (lambda c: c.leap(100.0).send(ev.Tick()), Why.STALE_SCENE, "", ITSELF),
    "clock at zero": (lambda c: c.wait(-c.now / SECOND - 0.1).tick(), Why.CLOCK, "", ITSELF),
    "image: clock at zero": (lambda c: c.wait(-c.now / SECOND - 0.1).image(), Why.CLOCK, "clock_zero", ITSELF),
    "clock stands": (stands, Why.STALE_SCENE, "clock_stands", ITSELF),
    "no tick for long": (lambda c: c.wait(3600.0).tick(), Why.STALE_SCENE, "", ITSELF),
}  # fmt: skip


@pytest.mark.parametrize("name", CAUSES)
@pytest.mark.parametrize("make", [permitted, removing])
def test_it_closes_in_the_same_step_stops_the_arm_and_opens_again_only_as_it_may(make, name):
    happen, reason, detail, reopen = CAUSES[name]
    cell = make()
    happen(cell)
    assert not cell.state.open
    assert cell.state.reasons & reason, cell.state.reasons
    told = [*cell.state.details, *(code for line in cell.logged for code in map(Reason, line))]
    # as text, for NaN equals nothing
    assert not detail or repr(detail) in map(repr, told) or detail in [each.code for each in told], told
    assert cell.sent(ev.CancelGoal) == [ev.CancelGoal(1)]
    # nothing but the end of the goal makes way for another one
    cell.tick().scene(STICKER, times=K + 2)
    assert len(cell.sent(ev.SendGoal)) == 1
    finish(cell, CANCELLED)
    if reopen is not ITSELF:
        cell.image().scene(STICKER, times=K + 2)
        assert cell.state.reasons & reason
        assert len(cell.sent(ev.SendGoal)) == 1
        reopen(cell)
        assert not cell.state.open
    cell.scene(STICKER, times=K + 2)
    assert len(cell.sent(ev.SendGoal)) == 2
    assert cell.state.open


def test_every_reason_that_forbids_a_permit_has_a_cause_here():
    """The others say what the gate waits for: a scene, agreement, people, an arm's proof."""
    waiting = (
        Why.NO_SCENE | Why.INCONSISTENT | Why.UNCERTAIN | Why.NOTHING_TO_REMOVE | Why.WAITING_FOR_OPERATOR
        | Why.VERIFYING | Why.POSE | Why.UNEXPLAINED | Why.PANEL
    )  # fmt: skip
    named = Why.NONE
    for _, reason, _, _ in CAUSES.values():
        named |= reason
    assert named | waiting == Why(~0) & sum(Why)
    assert not named & waiting


def test_every_event_is_handled():
    from sticker_uq.gate.state_machine import _HANDLERS

    assert set(_HANDLERS) == {*ev.Event.__subclasses__(), *ev.Command.__subclasses__()} - {ev.Command}
