# SPDX-License-Identifier: Apache-2.0
"""The table of limits: whatever row it has is judged, checked for its range, told in words and part of the hash."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.evaluation.replay.findings import ADVICE
from sticker_uq.evaluation.replay.tables import IMAGE_SCHEMA
from sticker_uq.evaluation.report_model import SHORT
from sticker_uq.gate import Policy
from sticker_uq.gate.judge import judge
from sticker_uq.gate.plausibility import range_problem
from sticker_uq.gate.policy.limits import Before
from sticker_uq.gate.policy.policy import LIMITS, highest
from sticker_uq.gate.policy.signals import holder_of
from sticker_uq.io.reading import read_yaml
from sticker_uq.messages import text_of
from sticker_uq.scene import Outcome, SceneAssessment, Verdict
from sticker_uq.testing.scenes import assessment, object_at

NAN = math.nan
OF_OBJECTS = [name for name, limit in LIMITS.items() if limit.before is Before.REMOVAL]
OF_SCENES = [name for name in LIMITS if name not in OF_OBJECTS]
OPEN = Policy(**{name: highest(name) for name in LIMITS}, max_logo_overlap=1.0, unmeasured_novelty="release")
KEPT_BACK = {
    Before.START: Outcome.ASK,
    Before.QUESTION: Outcome.WORK,
    Before.CLEAN: Outcome.WORK,
    Before.REST: Outcome.WORK,
}


def scene(signal: str, value: float, *objects: object) -> SceneAssessment:
    made = assessment(*objects)
    if holder_of(made, signal) is made:
        return replace(made, **{signal: value})
    assert made.localization is not None
    return replace(made, localization=replace(made.localization, **{signal: value}))


def limited(name: str, value: float, novelty: str = "ask") -> Policy:
    return OPEN.model_copy(update={name: value, "unmeasured_novelty": novelty})


def test_every_highest_value_is_in_the_table():
    by_themselves = {"max_logo_overlap", "max_left_probability", "max_background_saliency"}
    assert {name for name in Policy.model_fields if name.startswith("max_")} == LIMITS.keys() | by_themselves
    assert LIMITS.keys() <= read_yaml(Path(__file__).parents[3] / "config" / "limits.yaml").keys()


@pytest.mark.parametrize("name", OF_SCENES)
def test_a_limit_of_a_scene_holds_before_what_its_row_says(name):
    limit = LIMITS[name]
    for value, outcome in ((0.3, Outcome.CLEAN), (math.nextafter(0.3, 1), Outcome.ASK), (NAN, Outcome.ASK)):
        seen = scene(limit.signal, value)
        decision = judge(seen, limited(name, 0.3))
        assert decision.outcome is outcome
        assert {reason.subject for reason in decision.reasons} == (
            {limit.signal} if outcome is Outcome.ASK else set()
        )
        assert all(text_of(reason) for reason in decision.reasons)
    assert judge(scene(limit.signal, 0.9, object_at()), limited(name, 0.3)).outcome is KEPT_BACK[limit.before]
    assert judge(scene(limit.signal, 0.9), OPEN).outcome is Outcome.CLEAN
    unmeasured = judge(scene(limit.signal, NAN), limited(name, 0.3, "release")).outcome
    assert unmeasured is (Outcome.CLEAN if limit.is_released_unmeasured else Outcome.ASK)


def test_every_signal_of_a_scene_is_in_the_tables_of_a_replay():
    for signal in {LIMITS[name].signal for name in OF_SCENES}:
        assert signal in SHORT
        assert signal in IMAGE_SCHEMA.names
        assert signal in ADVICE


@pytest.mark.parametrize("name", OF_OBJECTS)
def test_a_limit_of_an_object_holds_before_it_is_removed(name):
    limit = LIMITS[name]
    measured = limit.measured_as or limit.signal
    for value, verdict in ((0.3, Verdict.REMOVE), (math.nextafter(0.3, 1), Verdict.ASK), (NAN, Verdict.ASK)):
        (found,) = judge(assessment(object_at(**{measured: value})), limited(name, 0.3)).verdicts
        assert found.verdict is verdict
        reasons = [reason for reason in found.reasons if reason.subject == limit.signal]
        assert len(reasons) == 1
        assert text_of(reasons[0])


@pytest.mark.parametrize("name", OF_SCENES)
@given(st.floats(-100, -0.01) | st.floats(100, 1000) | st.just(math.inf))
def test_a_signal_of_a_scene_has_a_range(name, value):
    signal, (low, high) = LIMITS[name].signal, (0.0, LIMITS[name].off)
    problem = range_problem(scene(signal, value))
    assert (problem is None) is (low <= value <= high and math.isfinite(value))
    assert problem is None or (problem.code, problem.subject) == ("value_out_of_range", signal)


@pytest.mark.parametrize("name", OF_SCENES)
def test_what_is_not_looked_at_before_a_removal_must_have_been_measured(name):
    limit = LIMITS[name]
    problem = range_problem(scene(limit.signal, NAN, object_at()), limited(name, 0.3))
    looked_past = limit.before in (Before.QUESTION, Before.REST)
    assert (problem is not None and problem.code == "not_measured") is looked_past


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_that_limits_is_in_the_hash(name):
    assert limited(name, 0.3).hash != limited(name, 0.2).hash
