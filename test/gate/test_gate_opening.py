# SPDX-License-Identifier: Apache-2.0
"""When the gate opens, for what, and for how long: the count of agreeing scenes and the lease."""

from sticker_uq.gate import BlockReason, Phase
from sticker_uq.gate.events import (
    GoalAccepted,
    PublishGate,
    SendGoal,
    WorkpieceChanged,
)
from sticker_uq.testing.scenes import SECOND, THERE, observed
from test.helpers.gate import (
    NEARBY,
    SETTINGS,
    STICKER,
    K,
    permitted,
    running,
)


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


def test_an_image_stamped_ahead_of_the_clock_is_fresh_no_longer_than_any_other() -> None:
    cell = running().scene(STICKER, age=-0.04)
    cell.tick(9)
    assert not cell.state.reasons & BlockReason.STALE_SCENE
    cell.tick()
    assert cell.state.reasons & BlockReason.STALE_SCENE
