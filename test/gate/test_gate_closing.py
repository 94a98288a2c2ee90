# SPDX-License-Identifier: Apache-2.0
"""What closes the gate: everything that may go wrong, in the step in which it does."""

from collections.abc import Callable
from typing import Any

import pytest

from sticker_uq.gate import BlockReason, Phase, Policy
from sticker_uq.gate.events import (
    ArmLost,
    ArmReady,
    CancelGoal,
    Deactivated,
    Event,
    Fault,
    Hold,
    Impediment,
    Log,
    PublishGate,
    Release,
    RemovalCode,
    SceneUnreadable,
    SendGoal,
    Severity,
    WorkpieceChanged,
)
from sticker_uq.scene import InvalidInput, Reason, Status
from sticker_uq.testing.scenes import SECOND, THERE, observed, rarely_seen
from test.helpers.gate import (
    LOGO,
    SETTINGS,
    STICKER,
    UNSURE,
    Cell,
    K,
    Make,
    faulted,
    finish,
    permitted,
    removing,
    running,
    verifying,
)

CLOSING: dict[str, tuple[Callable[[Cell], Any], BlockReason]] = {
    "hold": (lambda cell: cell.send(Hold()), BlockReason.HELD),
    "fault": (lambda cell: cell.send(Fault()), BlockReason.FAULT),
    "deactivated": (lambda cell: cell.send(Deactivated()), BlockReason.NOT_ACTIVE),
    "arm silent": (lambda cell: cell.send(ArmReady(False)), BlockReason.ARM_FAILED),
    "arm gone": (lambda cell: cell.send(ArmLost()), BlockReason.ARM_FAILED),
    "other workpiece": (lambda cell: cell.send(WorkpieceChanged("x", cell.now)), BlockReason.CONTRADICTED),
    "failed scene": (lambda cell: cell.scene(status=Status.FAILED), BlockReason.FAILED_SCENE),
    "unknown status": (lambda cell: cell.scene(STICKER, status=Status.UNKNOWN), BlockReason.FAILED_SCENE),
    "unreadable scene": (
        lambda cell: cell.send(SceneUnreadable(Reason.of("scene_unreadable", detail="arrays do not fit"))),
        BlockReason.FAILED_SCENE,
    ),
    "NaN metric": (
        lambda cell: cell.scene(observed(shannon_entropy=float("nan"))),
        BlockReason.IMPLAUSIBLE_SCENE,
    ),
    "inf box": (lambda cell: cell.scene(observed((0, 0, float("inf"), 9))), BlockReason.IMPLAUSIBLE_SCENE),
    "NaN box of a rare object": (
        lambda cell: cell.scene(STICKER, unstable=[rarely_seen((0, 0, float("nan"), 9))]),
        BlockReason.IMPLAUSIBLE_SCENE,
    ),
    "other size": (lambda cell: cell.scene(STICKER, image_size=(320, 240)), BlockReason.SOURCE_CHANGED),
    "no size": (lambda cell: cell.scene(STICKER, image_size=(0, 0)), BlockReason.IMPLAUSIBLE_SCENE),
    "other frame": (lambda cell: cell.scene(STICKER, frame_id="x"), BlockReason.SOURCE_CHANGED),
    "other model": (lambda cell: cell.scene(STICKER, model_hash="x"), BlockReason.MODEL_CHANGED),
    "other settings": (lambda cell: cell.scene(STICKER, settings_hash="x"), BlockReason.MODEL_CHANGED),
    "stamp stands still": (
        lambda cell: cell.scene(STICKER, stamp_ns=cell.state.scene.stamp_ns),  # type: ignore[union-attr]
        BlockReason.STAMP_ORDER,
    ),
    "stamp goes back": (
        lambda cell: cell.scene(STICKER, stamp_ns=cell.state.scene.stamp_ns - 1),  # type: ignore[union-attr]
        BlockReason.STAMP_ORDER,
    ),
    "zero stamp": (lambda cell: cell.scene(STICKER, stamp_ns=0), BlockReason.STAMP_ORDER),
    "stamp in the future": (lambda cell: cell.scene(STICKER, age=-0.2), BlockReason.CLOCK),
    "old image": (
        lambda cell: cell.wait(0.2).scene(STICKER, stamp_ns=cell.now - SECOND),
        BlockReason.STALE_SCENE,
    ),
    "clock goes back": (lambda cell: cell.wait(-5.0).tick(), BlockReason.CLOCK),
    "clock stands at zero": (
        lambda cell: cell.wait(-cell.now / SECOND - 0.1).tick(),
        BlockReason.CLOCK,
    ),
    "no tick for long": (lambda cell: cell.wait(3600.0).tick(), BlockReason.STALE_SCENE),
    "logo at the place": (lambda cell: cell.scene(LOGO), BlockReason.CONTRADICTED),
    "uncertain now": (lambda cell: cell.scene(UNSURE), BlockReason.CONTRADICTED),
    "rarely seen now": (lambda cell: cell.scene(unstable=[rarely_seen()]), BlockReason.CONTRADICTED),
}


@pytest.mark.parametrize("name", CLOSING)
@pytest.mark.parametrize("make", [permitted, removing])
def test_closes_in_the_same_step_and_stops_the_arm(make: Make, name: str) -> None:
    happen, reason = CLOSING[name]
    cell = make()
    happen(cell)
    assert not cell.state.open
    assert cell.state.reasons & reason, cell.state.reasons
    assert cell.sent(CancelGoal) == [CancelGoal(1)]
    # nothing but the end of the goal makes way for another one
    cell.tick().scene(STICKER, times=K + 2)
    assert len(cell.sent(SendGoal)) == 1


@pytest.mark.parametrize(
    "happen",
    [
        lambda cell: cell.scene(),
        lambda cell: cell.scene(observed(THERE)),
        lambda cell: cell.scene(STICKER, dil=0.9),
    ],
)
def test_what_the_arm_hides_is_no_contradiction_once_it_works(happen: Callable[[Cell], Any]) -> None:
    cell = permitted()
    happen(cell)
    assert cell.state.reasons & BlockReason.CONTRADICTED
    cell = removing()
    happen(cell)
    assert cell.phase is Phase.REMOVING


def test_an_arm_that_does_not_accept_is_given_up() -> None:
    cell = permitted()
    while cell.state.open:
        cell.scene(STICKER)
    assert cell.state.reasons & BlockReason.ARM_FAILED
    assert cell.sent(CancelGoal) == [CancelGoal(1)]


def test_a_removal_that_takes_too_long_is_stopped() -> None:
    cell = removing()
    for _ in range(49):
        cell.scene(STICKER)
    assert cell.phase is Phase.REMOVING
    cell.scene(STICKER, times=2)
    assert cell.state.reasons & BlockReason.ARM_FAILED


def test_settings_and_policy_are_frozen_while_a_permit_is_out() -> None:
    cell = permitted()
    with pytest.raises(InvalidInput, match="hold the gate first"):
        cell.core.configure(Policy(max_dil=1.0, max_dil_clean=1.0), SETTINGS)
    assert cell.core.policy == Policy()
    finish(cell.tick(), RemovalCode.STALE_PERMIT)
    cell.scene(STICKER, times=K - 1)
    cell.core.configure(Policy(min_probability=0.9), SETTINGS)
    cell.scene(STICKER)
    assert cell.state.reasons & BlockReason.MODEL_CHANGED
    cell.scene(STICKER, times=K - 1)
    assert not cell.state.open
    cell.scene(STICKER)
    assert cell.phase is Phase.PERMITTED


def test_every_event_is_handled() -> None:
    from sticker_uq.gate.state_machine import _HANDLERS

    assert set(_HANDLERS) == set(Event.__subclasses__())


# --- what is said, and when -------------------------------------------------------------------------------------------------


def test_what_does_not_change_is_neither_logged_nor_said_again() -> None:
    cell = removing()
    cell.scene(STICKER)
    assert not [e for e in cell.last if isinstance(e, Log | PublishGate)]
    cell.tick()
    assert [type(e) for e in cell.last] == [PublishGate]


def test_a_fault_and_a_full_disk_are_errors_in_the_log_and_anything_else_is_not() -> None:
    cell = faulted()
    assert cell.sent(Log)[-1].severity is Severity.ERROR
    cell = permitted()
    cell.send(
        Impediment(BlockReason.AUDIT, Reason.of("audit_write_failed", detail="No space left on device"))
    )
    assert cell.sent(Log)[-1].severity is Severity.ERROR
    cell = removing()
    cell.send(Hold())
    assert cell.sent(Log)[-1].severity is Severity.INFO


def test_the_first_fault_is_the_one_that_is_told() -> None:
    cell = running()
    first = (Reason.of("internal_error", detail="first"),)
    cell.send(Fault(first))
    cell.send(Fault((Reason.of("internal_error", detail="second"),)))
    assert cell.state.fault == first
    cell = running()
    cell.send(Fault())
    assert cell.state.fault == (Reason("internal_error"),)


def test_a_reason_without_details_is_told_in_its_words_alone() -> None:
    cell = running().scene(STICKER)
    cell.send(Hold())
    assert (cell.state.reasons, cell.state.details) == (BlockReason.HELD, ())
    assert cell.last[0].frame_id == "camera"  # type: ignore[union-attr]


def test_a_workpiece_that_is_done_says_nothing_about_what_is_seen_later() -> None:
    cell = running().scene(times=K)
    cell.scene(STICKER)
    assert cell.state.reasons == BlockReason.NOTHING_TO_REMOVE


def test_enough_agreeing_scenes_are_enough_though_the_arm_is_missing() -> None:
    cell = running()
    cell.send(ArmReady(False))
    cell.scene(STICKER, times=K)
    assert cell.state.reasons == BlockReason.ARM_FAILED


def test_what_closes_the_gate_begins_a_verification_anew() -> None:
    cell = verifying().scene(times=K - 1)
    cell.send(Hold())
    cell.send(Release())
    cell.scene(times=K - 1)
    assert cell.phase is Phase.VERIFYING
    assert cell.scene().phase is Phase.MONITORING
