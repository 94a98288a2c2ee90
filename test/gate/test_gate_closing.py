# SPDX-License-Identifier: Apache-2.0
"""What does not close the gate, what is said of it and when, and settings that stay while a permit is out."""

from collections.abc import Callable
from typing import Any

import pytest

from sticker_uq.gate import BlockReason, Phase, Policy
from sticker_uq.gate.events import (
    ArmReady,
    Fault,
    Hold,
    Impediment,
    Log,
    PublishGate,
    Release,
    RemovalCode,
    Severity,
)
from sticker_uq.scene import InvalidInput, Reason
from sticker_uq.testing.scenes import THERE, observed
from test.helpers.gate import (
    SETTINGS,
    STICKER,
    Cell,
    K,
    faulted,
    finish,
    permitted,
    removing,
    running,
    verifying,
)


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


def test_a_removal_that_takes_too_long_is_stopped() -> None:
    cell = removing()
    for _ in range(49):
        cell.scene(STICKER)
    assert cell.phase is Phase.REMOVING
    cell.scene(STICKER, times=2)
    assert cell.state.reasons & BlockReason.ARM_FAILED


def test_settings_and_policy_are_frozen_while_a_permit_is_out() -> None:
    cell = permitted()
    before = cell.core.policy
    with pytest.raises(InvalidInput, match="hold the gate first"):
        cell.core.configure(Policy(max_dil=1.0, max_dil_clean=1.0), SETTINGS)
    assert cell.core.policy == before
    finish(cell.tick(), RemovalCode.STALE_PERMIT)
    cell.scene(STICKER, times=K - 1)
    cell.core.configure(Policy(min_probability=0.9), SETTINGS)
    cell.scene(STICKER)
    assert cell.state.reasons & BlockReason.MODEL_CHANGED
    cell.scene(STICKER, times=K - 1)
    assert not cell.state.open
    cell.scene(STICKER)
    assert cell.phase is Phase.PERMITTED


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
