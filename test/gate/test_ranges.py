# SPDX-License-Identifier: Apache-2.0
"""A value that cannot have been measured closes the gate; a signal that the policy limits must have been measured."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.gate import BlockReason, Policy
from sticker_uq.gate.plausibility import range_problem
from sticker_uq.gate.policy.policy_schema import SaliencyLimit
from sticker_uq.scene import METRICS, Exposure, SceneAssessment
from sticker_uq.testing.scenes import assessment, object_at
from test.helpers.gate import K, running

SHARES = (
    *("dil", "decision_threshold", "unexplained_objectness", "novelty"),
    *("missed_sticker_probability", "obstruction"),
)
NAN = float("nan")


def localized(**changes: float) -> SceneAssessment:
    scene = assessment(object_at())
    assert scene.localization is not None
    return replace(scene, localization=replace(scene.localization, **changes))


@pytest.mark.parametrize("dil", [0.1, None])
@pytest.mark.parametrize("value", [-1.0, float("-inf"), float("inf")])
def test_a_distance_that_no_scene_can_have_is_named_with_and_without_distinctive_localization(value, dil):
    problem = range_problem(assessment(object_at(), dil=dil, scene_distance=value))
    assert (problem.code, problem.subject) == ("value_out_of_range", "scene_distance")
    assert range_problem(assessment(object_at(), dil=dil, scene_distance=NAN)) is None


@pytest.mark.parametrize("name", [*SHARES, "complete_localization", "background_localization"])
@pytest.mark.parametrize("value", [-1.0, float("-inf"), float("inf")])
def test_a_value_outside_of_its_range_is_named(name, value):
    problem = range_problem(localized(**{name: value}))
    assert (problem.code, problem.subject) == ("value_out_of_range", name)
    assert dict(problem.values)["measured"] == value


@given(st.sampled_from(SHARES), st.floats(-1e-4, 1.0001))
def test_a_share_may_leave_its_range_by_rounding_alone(name, value):
    assert range_problem(localized(**{name: value})) is None


@pytest.mark.parametrize("name", ["detection_rate", "novelty", "single_pass", "close_up", "photo", *METRICS])
def test_metrics_of_objects_have_ranges_too(name):
    highest = METRICS[name].highest if name in METRICS else 1.0
    assert range_problem(assessment(object_at(**{name: min(highest, 1e9)}))) is None
    for value in (-0.5, highest + 0.5):
        assert range_problem(assessment(object_at(**{name: value}))).subject == name


def test_probabilities_and_exposure_have_ranges_too():
    for scene in (
        assessment(object_at(probabilities=(0.0, -1.0, 2.0))),
        replace(assessment(object_at()), exposure=Exposure(90.0, -0.5, 0.0)),
        replace(assessment(object_at()), exposure=Exposure(300.0, 0.0, 0.0)),
    ):
        assert range_problem(scene) is not None
    assert range_problem(replace(assessment(object_at()), exposure=Exposure(NAN, NAN, NAN))) is None


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("unexplained_objectness", Policy(max_unexplained_objectness=0.1)),
        ("unexplained_objectness", Policy(saliency=SaliencyLimit(signal="unexplained_objectness"))),
        ("novelty", Policy(max_novelty=0.9)),
        ("missed_sticker_probability", Policy(max_missed_sticker_probability=0.9)),
        ("obstruction", Policy(max_obstruction=0.9)),
    ],
)
def test_a_signal_that_the_policy_limits_must_have_been_measured(name, policy):
    problem = range_problem(localized(**{name: NAN}), policy)
    assert (problem.code, problem.subject) == ("not_measured", name)
    assert range_problem(localized(**{name: NAN}), Policy()) is None
    assert range_problem(localized(**{name: 0.5}), policy) is None


def test_no_localization_and_no_saliency_are_left_to_the_policy():
    policy = Policy(max_unexplained_objectness=0.1)
    assert range_problem(assessment(object_at(), dil=None), policy) is None
    assert range_problem(localized(dil=NAN, unexplained_objectness=NAN), policy) is None


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"novelty": -1.0}, "value_out_of_range"),
        ({"unexplained_objectness": -1.0}, "value_out_of_range"),
        ({"novelty": NAN}, "not_measured"),
        ({"unexplained_objectness": NAN}, "not_measured"),
    ],
)
def test_the_gate_closes_and_opens_again(changes, code):
    cell = running(policy=Policy(max_novelty=0.9, max_unexplained_objectness=0.1))
    cell.scene(object_at(), times=K, localization=localized(novelty=0.0).localization)
    assert cell.state.open
    cell.scene(object_at(), localization=localized(**{"novelty": 0.0, **changes}).localization)
    assert not cell.state.open
    assert cell.state.reasons & BlockReason.IMPLAUSIBLE_SCENE
    assert code in cell.details
