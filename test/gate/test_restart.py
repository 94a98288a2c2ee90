# SPDX-License-Identifier: Apache-2.0
"""Restarts and clocks: whatever time it is after a restart, what a person said stands; a clock that steps closes, and no more."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.gate import Answer, BlockReason, OperatorAnswer, Phase, Policy, SceneAnswer
from sticker_uq.gate import events as ev
from sticker_uq.gate.audit.chain import finite
from sticker_uq.gate.durable import DurableState
from sticker_uq.testing.scenes import ELSEWHERE, HERE, SECOND, object_at
from test.helpers import gate as helpers
from test.helpers.gate import (
    POLICY,
    SETTINGS,
    STICKER,
    Cell,
    K,
    answer,
    asking,
    codes,
    finish,
    removing,
)

HOUR = 3600.0
STEPS = st.sampled_from([-1.0, 1.0]).flatmap(
    lambda sign: st.floats(SETTINGS.max_clock_jump_s, 2 * HOUR).map(lambda seconds: sign * seconds)
)


@pytest.fixture(autouse=True, scope="module")
def long_after_the_epoch():
    """Clocks may be put back by hours and still tell a time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(helpers, "START", 10**18)
        yield


def restarted(before: Cell, seconds: float, policy: Policy | None = None) -> Cell:
    """The cell of the next supervisor, which begins ``seconds`` later by its clock: camera and arm are there."""
    kept = json.loads(json.dumps(finite(DurableState.of(before.state, before.core.policy.hash).to_plain())))
    cell = Cell(SETTINGS, policy or before.core.policy)
    cell.witness = before.witness
    cell.now = before.now + round(seconds * SECOND)
    event = ev.Restarted(DurableState.from_plain(kept), cell.core.policy.hash)
    effects = cell.core.handle(event, cell.now)
    cell.witness.see(before.state, event, cell.now, cell.state, effects, SETTINGS)
    cell.send(ev.Activated())
    cell.send(ev.ArmReady(True))
    return cell


@given(STEPS)
def test_a_clock_that_steps_closes_at_once_and_opens_by_itself(seconds):
    cell = removing().tick().leap(seconds).tick()
    assert not cell.state.open
    assert cell.state.reasons & (BlockReason.CLOCK | BlockReason.ARM_FAILED | BlockReason.NO_SCENE)
    finish(cell, ev.RemovalCode.PERMIT_REVOKED)
    assert not cell.state.open
    assert cell.scene(STICKER, times=K + 1).phase is Phase.PERMITTED


@given(st.floats(-2 * HOUR, 2 * HOUR), st.booleans())
def test_what_is_to_be_left_is_left_at_whatever_time_and_under_whatever_policy_the_next_one_starts(
    seconds, other
):
    cell = asking()
    assert answer(cell, OperatorAnswer(Answer.KEEP, HERE))
    later = restarted(cell, seconds, POLICY.model_copy(update={"max_dil": 0.55}) if other else None)
    later.scene(STICKER, object_at(ELSEWHERE, id=1), times=K + 2)
    assert later.phase is Phase.PERMITTED
    assert later.state.permit.target.box == ELSEWHERE
    later.send(ev.WorkpieceChanged("laptop-2", later.now))
    later.wait(0.1)
    later.send(ev.WorkpieceChanged("laptop-2", later.now))  # the second one counts where the clock went back
    assert later.state.memory.prohibitions().answers == ()


@pytest.mark.parametrize("seconds", [-HOUR, -0.001, 0.0, HOUR])
@pytest.mark.parametrize("scene", [SceneAnswer.SKIP_LAPTOP, SceneAnswer.CLEAN, SceneAnswer.FAULT])
def test_an_answer_about_the_laptop_stands_at_whatever_time_the_next_one_starts(seconds, scene):
    cell = asking()
    assert answer(cell, scene=scene, not_stickers=(HERE,) if scene is SceneAnswer.CLEAN else ())
    for _ in range(2):
        cell = restarted(cell, seconds)
        assert not cell.scene(STICKER, times=2 * K + 2).state.open
        assert cell.state.request is None or scene is SceneAnswer.CLEAN


@given(st.lists(st.sampled_from(["restart", "reset", "hold", "release", "end", "scenes"]), max_size=8))
def test_no_goal_is_sent_while_the_arm_owes_the_end_of_one(events):
    """A reset while the arm still moves after a restart cancels and waits again; only its end, or a lost arm, lets go."""
    cell = removing()
    goals, owed = cell.goal, True
    for name in events:
        match name:
            case "restart":
                cell = restarted(cell, 1.0)
            case "reset":
                cell.send(ev.Reset("Ada"))
            case "hold":
                cell.send(ev.Hold("Ada"))
            case "release":
                cell.send(ev.Release("Ada"))
            case "end" if owed:
                finish(cell, ev.RemovalCode.PERMIT_REVOKED)
                owed = False
            case "scenes":
                cell.scene(STICKER, times=K + 1)
        if owed:
            assert cell.goal == goals
            assert cell.state.permit is not None
        else:
            break


def test_another_camera_after_a_restart_holds_until_a_person_has_looked():
    cell = asking()
    assert answer(cell, OperatorAnswer(Answer.NOT_THERE, HERE))
    for frame in ("other", "camera"):
        cell = restarted(cell, 1.0).scene(STICKER, times=K + 2, frame_id=frame)
        assert codes(cell.state.details) == ["places_lost"]
    cell.send(ev.Release("Ada"))
    assert cell.scene(STICKER, times=K + 1).phase is Phase.PERMITTED
