# SPDX-License-Identifier: Apache-2.0
"""When the gate opens, for what, and for how long: the count of agreeing scenes and the lease."""

from collections.abc import Callable
from typing import Any

import pytest

from sticker_uq.gate import BlockReason, Phase
from sticker_uq.gate.events import (
    Activated,
    ArmReady,
    CancelGoal,
    Deactivated,
    GoalAccepted,
    Hold,
    PublishGate,
    Release,
    SendGoal,
    WorkpieceChanged,
)
from sticker_uq.scene import Status
from sticker_uq.testing.scenes import ELSEWHERE, HERE, SECOND, THERE, assessment, observed
from test.helpers.gate import (
    NEARBY,
    SETTINGS,
    STICKER,
    UNSURE,
    Cell,
    K,
    permitted,
    running,
)


def test_starts_closed_and_says_why() -> None:
    cell = Cell()
    assert cell.phase is Phase.BLOCKED
    cell.tick()
    (gate,) = cell.sent(PublishGate)
    assert gate.reasons == BlockReason.NOT_ACTIVE | BlockReason.NO_SCENE
    cell.scene(STICKER, times=5)
    assert not cell.state.open


def test_k_agreeing_scenes_open_for_one_object_and_send_one_goal() -> None:
    cell = running()
    assert (cell.phase, cell.state.reasons) == (Phase.BLOCKED, BlockReason.NO_SCENE)
    cell.scene(STICKER, observed(THERE), times=K - 1)
    assert (cell.phase, cell.state.reasons) == (Phase.MONITORING, BlockReason.INCONSISTENT)
    cell.scene(NEARBY, observed(THERE))
    assert cell.phase is Phase.PERMITTED
    gate, goal = cell.last[:2]
    assert isinstance(gate, PublishGate)
    assert isinstance(goal, SendGoal)
    assert gate.open
    assert gate.target == goal.target
    assert goal.target.box == (105.0, 103.0, 185.0, 163.0)
    assert goal.target.decision_id == cell.state.decision.decision_id  # type: ignore[union-attr]
    assert goal.target.image_stamp_ns == cell.state.scene.stamp_ns  # type: ignore[union-attr]
    assert gate.valid_until_ns == cell.now + round(SETTINGS.lease_s * SECOND)
    cell.scene(STICKER, observed(THERE), times=4)
    assert len(cell.sent(SendGoal)) == 1


def test_without_an_arm_nothing_opens_until_it_is_ready() -> None:
    cell = running()
    cell.send(ArmReady(False))
    cell.scene(STICKER, times=K + 2)
    assert (cell.phase, cell.state.reasons) == (Phase.MONITORING, BlockReason.ARM_FAILED)
    cell.send(ArmReady(True))
    assert not cell.state.open
    cell.scene(STICKER, times=K)
    assert cell.phase is Phase.PERMITTED


@pytest.mark.parametrize(
    "between",
    [
        lambda cell: cell.scene(),
        lambda cell: cell.scene(UNSURE),
        lambda cell: cell.scene(observed(ELSEWHERE)),
        lambda cell: cell.scene(STICKER, dil=0.9),
        lambda cell: cell.scene(STICKER, status=Status.FAILED),
        lambda cell: cell.scene(STICKER, image_size=(800, 600)),
        lambda cell: cell.scene(STICKER, model_hash="other"),
        lambda cell: cell.scene(STICKER, age=0.5),
        lambda cell: cell.tick(12),
        lambda cell: (cell.send(Hold()), cell.send(Release())),
        lambda cell: cell.send(WorkpieceChanged("laptop-2", cell.now)),
        lambda cell: (cell.send(Deactivated()), cell.send(Activated())),
    ],
)
def test_any_interruption_begins_the_count_anew(between: Callable[[Cell], Any]) -> None:
    cell = running().scene(STICKER, times=K - 1)
    between(cell)
    cell.scene(STICKER, times=K - 1)
    assert not cell.state.open
    cell.scene(STICKER, times=2)
    assert cell.phase is Phase.PERMITTED


def test_images_from_before_the_workpiece_came_do_not_count() -> None:
    cell = running()
    cell.send(WorkpieceChanged("laptop-2", cell.now))
    cell.scene(STICKER, times=3, age=0.4)
    assert cell.state.streak.count == 0
    assert cell.state.decision is not None
    assert cell.state.decision.workpiece_id == ""
    cell.scene(STICKER)
    cell.scene(STICKER, times=K)
    assert cell.phase is Phase.PERMITTED
    assert cell.state.decision.workpiece_id == "laptop-2"


def test_the_object_must_be_the_same_from_scene_to_scene() -> None:
    cell = running()
    for box in (HERE, THERE, HERE, THERE):
        cell.scene(observed(box))
    assert not cell.state.open
    cell.scene(observed(HERE), observed(THERE))
    assert cell.phase is Phase.PERMITTED
    assert cell.state.permit is not None
    assert cell.state.permit.target.box == THERE


def test_ticks_renew_the_lease_only_while_the_scene_is_fresh() -> None:
    cell = permitted()
    stamp = cell.state.scene.stamp_ns  # type: ignore[union-attr]
    for _ in range(3):
        cell.tick()
        gate = cell.last[0]
        assert isinstance(gate, PublishGate)
        assert gate.valid_until_ns == cell.now + round(SETTINGS.lease_s * SECOND)
    cell.send(GoalAccepted(cell.goal))
    cell.tick(5)
    assert cell.last[0].valid_until_ns == stamp + SECOND  # type: ignore[union-attr]
    cell.tick(2)
    assert cell.phase is Phase.BLOCKED
    assert cell.state.reasons & BlockReason.STALE_SCENE


def test_a_permit_that_was_not_renewed_in_time_cannot_come_back() -> None:
    cell = permitted()
    cell.wait(SETTINGS.lease_s)
    cell.scene(STICKER)
    assert not cell.state.open
    assert cell.sent(CancelGoal) == [CancelGoal(1)]


def test_an_image_stamped_ahead_of_the_clock_is_fresh_no_longer_than_any_other() -> None:
    cell = running().scene(STICKER, age=-0.04)
    cell.tick(9)
    assert not cell.state.reasons & BlockReason.STALE_SCENE
    cell.tick()
    assert cell.state.reasons & BlockReason.STALE_SCENE


def test_a_clock_at_zero_opens_nothing_even_for_images_that_seem_fresh() -> None:
    cell = Cell()
    cell.now = 0
    cell.send(Activated())
    cell.send(ArmReady(True))
    for stamp in range(1, 2 * K + 1):
        cell.assess(assessment(STICKER, stamp_ns=stamp * 1000))
    assert cell.state.reasons & BlockReason.CLOCK
    assert not cell.sent(SendGoal)
