# SPDX-License-Identifier: Apache-2.0
"""While a hand or a gripper is in front of the laptop, nothing is called clean and nobody is asked, for a while."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.gate import OperatorAnswers, Phase, Policy
from sticker_uq.gate.events import DeclareDone, OpenIntervention
from sticker_uq.gate.judge import judge
from sticker_uq.scene import ObjectClass, Outcome, Reason, SceneAssessment
from sticker_uq.testing.scenes import ELSEWHERE, assessment, object_at
from test.helpers.gate import SETTINGS, UNSURE, Cell, K, running

POLICY = Policy(max_obstruction=0.5)
NAN = float("nan")
THINGS = (object_at(), UNSURE, object_at(ELSEWHERE, ObjectClass.LOGO))


def in_front(value: float, *objects: object) -> SceneAssessment:
    scene = assessment(*objects)
    assert scene.localization is not None
    return replace(scene, localization=replace(scene.localization, obstruction=value))


def cell(value: float, *objects: object, times: int = 1, here: Cell | None = None) -> Cell:
    localization = in_front(value).localization
    return (here or running(policy=POLICY)).scene(*objects, times=times, localization=localization)


@pytest.mark.parametrize("value", [0.9, NAN])
def test_nothing_is_called_clean_behind_a_hand(value):
    decision = judge(in_front(value), POLICY)
    assert decision.outcome is Outcome.ASK
    assert [reason.subject for reason in decision.reasons] == ["obstruction"]
    assert judge(in_front(value), Policy()).outcome is Outcome.CLEAN
    assert judge(in_front(0.5), POLICY).outcome is Outcome.CLEAN


def test_it_does_not_keep_the_arm_from_a_sticker_that_is_sure():
    assert judge(in_front(0.9, object_at()), POLICY).outcome is Outcome.WORK


def test_a_person_who_checked_the_picture_was_asked_already():
    assert judge(in_front(0.9), POLICY, OperatorAnswers().with_scene_checked()).outcome is Outcome.CLEAN


@given(
    st.lists(st.sampled_from(THINGS), max_size=3),
    st.floats(0, 1) | st.just(NAN),
    st.floats(0, 1, exclude_max=True),
)
def test_the_limit_only_ever_asks(things, value, limit):
    scene = in_front(value, *things)
    free, limited = judge(scene, Policy()), judge(scene, Policy(max_obstruction=limit))
    assert limited.verdicts == free.verdicts
    assert limited.outcome in (free.outcome, Outcome.ASK)
    if limited.outcome is Outcome.CLEAN:
        assert value <= limit
    if free.outcome is Outcome.WORK:
        assert limited.outcome is Outcome.WORK


@pytest.mark.parametrize("things", [(), (UNSURE,)])
def test_the_cell_waits_for_a_free_view(things):
    here = cell(0.9, *things, times=4 * K)
    assert here.phase is Phase.MONITORING
    assert not here.sent(OpenIntervention)
    assert not here.sent(DeclareDone)
    assert [detail.subject for detail in here.state.details] == ["obstruction"]
    cell(0.1, *things, times=K, here=here)
    assert bool(here.sent(OpenIntervention)) is bool(things)
    assert [done.clean for done in here.sent(DeclareDone)] == [True] * (not things)


def test_what_stays_in_front_is_asked_about_after_a_while():
    here = cell(0.9, times=int(10 * SETTINGS.undecided_timeout_s))
    assert not here.sent(OpenIntervention)
    cell(0.9, times=2, here=here)
    (request,) = here.sent(OpenIntervention)
    assert request.reasons[0] == Reason("above_limit", "obstruction", 0.9, 0.5)
    assert not here.sent(DeclareDone)
