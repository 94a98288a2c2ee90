# SPDX-License-Identifier: Apache-2.0
"""A lid is called clean only if distinctive localization agrees; otherwise the cell looks again and calls a person."""

from dataclasses import replace

import numpy as np
import pytest

from sticker_uq.gate import BlockReason, Phase, Policy
from sticker_uq.gate.box_overlap import as_box
from sticker_uq.gate.events import Activated, ArmReady, DeclareDone, OpenIntervention, WorkpieceChanged
from sticker_uq.gate.judge import judge
from sticker_uq.scene import Localization, Outcome, Reason, Status, UnexplainedRegion
from sticker_uq.testing.scenes import assessment, object_at
from test.helpers.gate import SETTINGS, Cell, K

POLICY = Policy(max_unexplained_objectness=0.1)
REGIONS = (
    UnexplainedRegion(np.float32([20, 30, 60, 80]), 0.35, 0.6),
    UnexplainedRegion(np.float32([200, 30, 240, 80]), 0.08, 0.1),
)
MISSED = Localization(100.0, 20.0, 0.2, 0.46, None, 0.35, REGIONS)
QUIET = Localization(100.0, 20.0, 0.2, 0.46, None, 0.02)


def cell(policy: Policy = POLICY) -> Cell:
    made = Cell(SETTINGS, policy)
    for event in (Activated(), ArmReady(True), WorkpieceChanged("laptop-1", made.now)):
        made.send(event)
    return made


def test_a_clean_lid_with_something_unexplained_is_not_called_clean():
    assert judge(assessment(localization=QUIET), POLICY).outcome is Outcome.CLEAN
    decision = judge(assessment(localization=MISSED), POLICY)
    assert decision.outcome is Outcome.ASK
    (reason,) = decision.reasons
    assert reason == Reason("missed_place", "unexplained_objectness", 0.35, 0.1, box=(20.0, 30.0, 60.0, 80.0))


def test_a_place_that_is_not_known_is_a_doubt_too():
    for objectness in (0.35, float("nan")):
        nowhere = replace(QUIET, unexplained_objectness=objectness)
        decision = judge(assessment(localization=nowhere), POLICY)
        assert decision.outcome is Outcome.ASK
        assert [r.subject for r in decision.reasons] == ["unexplained_objectness"]


def test_the_limit_of_one_asks_nothing():
    assert judge(assessment(localization=MISSED), Policy()).outcome is Outcome.CLEAN


def test_a_missed_sticker_does_not_keep_the_arm_from_the_others():
    assert judge(assessment(object_at(), localization=MISSED), POLICY).outcome is Outcome.WORK


def test_the_scene_is_looked_at_again_before_a_person_is_called():
    here = cell().scene(localization=MISSED, times=2 * K - 1)
    assert here.phase is Phase.MONITORING
    assert here.state.reasons & BlockReason.UNEXPLAINED
    assert not here.sent(OpenIntervention)
    here.scene(localization=MISSED)
    assert here.phase is Phase.INTERVENTION
    assert here.state.reasons & BlockReason.UNEXPLAINED
    (request,) = here.sent(OpenIntervention)
    assert request.reasons[0].code == "missed_place"
    assert request.reasons[0].box == as_box(MISSED.unexplained[0].box)
    assert not here.sent(DeclareDone)


def test_a_flicker_of_one_scene_does_not_call_anybody():
    here = cell().scene(localization=MISSED).scene(localization=QUIET, times=K)
    assert not here.sent(OpenIntervention)
    assert here.sent(DeclareDone)[0].clean
    assert not here.state.reasons & BlockReason.UNEXPLAINED


NOVELTY_SIGNALS = {"novelty": "novel_place", "missed_sticker_probability": "missed_place"}


@pytest.mark.parametrize("name", NOVELTY_SIGNALS)
@pytest.mark.parametrize(
    ("value", "outcome"), [(0.8, Outcome.ASK), (float("nan"), Outcome.ASK), (0.3, Outcome.CLEAN)]
)
def test_a_lid_about_which_the_novelty_network_differs_is_not_called_clean(name, value, outcome):
    seen = assessment(localization=replace(QUIET, **{name: value}))
    decision = judge(seen, Policy.model_validate({f"max_{name}": 0.5}))
    assert decision.outcome is outcome
    assert [reason.subject for reason in decision.reasons] == [name] * (outcome is Outcome.ASK)
    assert judge(seen, Policy()).outcome is Outcome.CLEAN


@pytest.mark.parametrize("name", NOVELTY_SIGNALS)
def test_the_reasons_say_where_that_is(name):
    scene = assessment(localization=replace(QUIET, unexplained=REGIONS, **{name: 0.8}))
    whole, place = judge(scene, Policy.model_validate({f"max_{name}": 0.3})).reasons
    assert (whole.subject, whole.value, whole.box) == (name, 0.8, None)
    assert (place.code, place.subject, place.value, place.box) == (
        NOVELTY_SIGNALS[name],
        name,
        0.35,
        as_box(REGIONS[0].box),
    )


@pytest.mark.parametrize("name", NOVELTY_SIGNALS)
def test_it_keeps_the_arm_from_no_sticker_and_is_looked_at_twice(name):
    policy, seen = Policy.model_validate({f"max_{name}": 0.5}), replace(QUIET, **{name: 0.8})
    assert judge(assessment(object_at(), localization=seen), policy).outcome is Outcome.WORK
    here = cell(policy).scene(localization=seen, times=2 * K - 1)
    assert here.phase is Phase.MONITORING
    assert here.state.reasons & BlockReason.UNEXPLAINED
    here.scene(localization=seen)
    assert here.phase is Phase.INTERVENTION
    assert here.sent(OpenIntervention)[0].reasons[0].subject == name


def test_a_localization_that_failed_is_asked_about():
    failed = {"status": Status.DEGRADED, "status_text": "there is no objectness saliency"}
    assert cell().scene(localization=None, times=2 * K, **failed).phase is Phase.INTERVENTION
