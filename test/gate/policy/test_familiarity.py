# SPDX-License-Identifier: Apache-2.0
"""Scenes unlike those that a policy was made from go to a person, whatever the detector thinks of them."""

from dataclasses import replace

import numpy as np
import pytest

from sticker_uq.gate import Policy, judge
from sticker_uq.gate.answers import OperatorAnswers
from sticker_uq.gate.policy.familiarity import Familiarity, Usual
from sticker_uq.scene import Exposure, InvalidInput, Outcome, SceneAssessment
from sticker_uq.testing.scenes import assessment, object_at, rarely_seen

OPEN = Policy(max_dil=1.0, max_dil_clean=1.0)


def scene(rng: np.random.Generator, level: float = 100.0, unstable: int = 0) -> SceneAssessment:
    p = float(rng.uniform(0.9, 0.99))
    found = assessment(
        object_at(probabilities=(1 - p, 0.0, p)), unstable=[rarely_seen() for _ in range(unstable)]
    )
    return replace(found, exposure=Exposure(float(rng.normal(level, 10.0)), 0.0, 0.01))


def taken(sharpness: float, noise: float) -> SceneAssessment:
    return replace(assessment(), exposure=Exposure(100.0, 0.0, 0.0, noise, sharpness))


def novel_by(value: float) -> SceneAssessment:
    found = assessment(object_at())
    assert found.localization is not None
    return replace(found, localization=replace(found.localization, novelty=value))


@pytest.fixture(scope="module")
def made() -> Familiarity:
    rng = np.random.default_rng(0)
    return Familiarity.of([scene(rng, unstable=int(rng.integers(0, 3))) for _ in range(400)], 99.0)


def test_new_scenes_like_those_it_was_made_of_pass(made):
    rng = np.random.default_rng(1)
    novel = [bool(made.doubts(scene(rng, unstable=int(rng.integers(0, 3))))) for _ in range(1000)]
    assert np.mean(novel) < 0.02
    many = [scene(rng) for _ in range(1000)]
    strict = Familiarity.of(many[:500], 80.0)
    assert 0.01 < np.mean([bool(strict.doubts(one)) for one in many[500:]]) < 0.3


def test_a_novel_scene_goes_to_a_person_with_the_reason(made):
    policy = OPEN.model_copy(update={"familiarity": made})
    rng = np.random.default_rng(2)
    usual, bright = scene(rng), scene(rng, level=180.0)
    assert judge(usual, policy).outcome is Outcome.WORK
    decision = judge(bright, policy)
    assert decision.outcome is Outcome.ASK
    (reason,) = decision.reasons
    assert reason.code == "unfamiliar_scene"
    assert reason.value > reason.limit == made.max_distance
    values = dict(reason.values)
    assert values["signal"] == "mean_level"
    assert values["low"] < values["high"] < values["measured"]
    assert judge(scene(rng, unstable=9), policy).outcome is Outcome.ASK
    empty = replace(assessment(), exposure=bright.exposure)
    assert judge(empty, policy).outcome is Outcome.ASK, "nor is an unfamiliar lid called clean"
    checked = OperatorAnswers(scene_checked=True)
    assert judge(bright, policy, checked).outcome is Outcome.WORK, "a person has looked at it"


def test_what_was_not_measured_is_not_novel(made):
    assert made.distance(replace(assessment(), exposure=None, localization=None))[0] <= 1.0
    assert "background_saliency" in made.usual
    assert "shannon_entropy" not in made.usual, "it was NaN everywhere"


def test_the_distance_is_one_at_the_outer_quantiles():
    usual = Usual(low=10.0, middle=20.0, high=40.0)
    assert [usual.distance(v) for v in (20.0, 10.0, 40.0, 0.0, 80.0)] == [0.0, 1.0, 1.0, 2.0, 3.0]
    assert Usual(low=0.0, middle=0.0, high=1.0).distance(-5.0) == 0.0, (
        "it never went there: nothing to compare with"
    )
    assert usual.distance(float("nan")) == 0.0


def test_a_signal_with_a_long_tail_does_not_hide_the_others():
    rng = np.random.default_rng(3)
    scenes = [
        replace(
            taken(float(rng.normal(12.0, 2.0)), 2.0), unstable=(rarely_seen(),) * int(rng.geometric(0.5) - 1)
        )
        for _ in range(1000)
    ]
    made = Familiarity.of(scenes, 99.9)
    assert made.doubts(taken(2.0, 2.0)), "hardly an edge"
    assert made.usual["unstable"].high > 10
    assert 0.0 <= made.usual["unstable"].low <= made.usual["unstable"].middle


def test_noise_and_sharpness_are_compared_by_ratio():
    usual = Usual(low=4.0, middle=12.0, high=30.0)
    assert [usual.distance(v, ratio=True) for v in (4.0, 12.0, 30.0)] == pytest.approx([1.0, 0.0, 1.0])
    assert usual.distance(0.0, ratio=True) > 2.0, "a picture without any edge is novel, though 0 is near 4"
    rng = np.random.default_rng(0)
    scenes = [taken(float(rng.normal(12.0, 2.0)), float(rng.normal(2.0, 0.3))) for _ in range(400)]
    made = Familiarity.of(scenes, 99.9)
    assert made.doubts(taken(12.0, 2.0)) == []
    assert made.doubts(taken(float("nan"), float("nan"))) == [], "an old recording: not measured"
    for sharpness, noise, signal, measured in ((12.0, 20.0, "noise", 20.0), (1.0, 2.0, "sharpness", 1.0)):
        (reason,) = made.doubts(taken(sharpness, noise))
        assert reason.values[:2] == (("signal", signal), ("measured", measured))


def test_a_scene_with_something_never_seen_is_novel():
    rng = np.random.default_rng(0)
    scenes = [novel_by(float(rng.uniform(0.1, 0.6))) for _ in range(100)]
    made = Familiarity.of(scenes, 99.9)
    assert made.doubts(novel_by(0.5)) == []
    (reason,) = made.doubts(novel_by(0.99))
    assert reason.values[:2] == (("signal", "novelty"), ("measured", 0.99))


def test_a_policy_with_it_survives_its_file_and_nonsense_is_refused(made):
    policy = OPEN.model_copy(update={"familiarity": made})
    assert Policy.model_validate(policy.model_dump(mode="json")) == policy
    assert policy.hash != OPEN.hash
    with pytest.raises(ValueError, match="must not decrease"):
        Usual(low=1.0, middle=0.0, high=2.0)
    with pytest.raises(InvalidInput, match="3 scenes, expected at least 20"):
        Familiarity.of([assessment()] * 3, 99.0)
