"""Adaptive sampling stops when the decision is should_stop, says the same as all passes, and repeats byte for byte."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.gate import Policy
from sticker_uq.gate.policy.policy_schema import PanelRule, RiskScore, RiskTerm, Validity
from sticker_uq.perception import Perception, PerceptionSettings, pipeline
from sticker_uq.perception.change_weights import WEIGHTS
from sticker_uq.perception.changes import chance
from sticker_uq.perception.factory import decision, load_perception
from sticker_uq.perception.sequential import StoppingRule, joined, should_stop, step_after
from sticker_uq.scene import InvalidInput, MonitorScore, Outcome, StochasticSamples
from sticker_uq.testing.scenes import assessment
from sticker_uq.uncertainty import observe
from test.helpers.models import MIN_SIZE, picture, tiny_detector, tiny_weights
from test.helpers.panels import settings as panel_settings
from test.helpers.panels import tiny_panel

SSDLITE = "ssdlite320_mobilenet_v3_large"
POLICY = Policy()
MOST = 20


def perception(decide=lambda scene: (0, {}), **values):
    settings = PerceptionSettings(model=SSDLITE, min_size=MIN_SIZE, passes=MOST, adaptive=True, **values)
    return Perception(settings, tiny_detector(SSDLITE, passes=MOST), decide)


def samples(probability, rate, passes, jitter=1.0, seed=0):
    """Passes over one sticker of 100x100 px, seen with ``rate``, its probability varying a little."""
    rng = np.random.default_rng(seed)
    seen = np.flatnonzero(rng.random(passes) < rate)
    boxes = np.array([50.0, 50.0, 150.0, 150.0]) + rng.normal(0, jitter, (len(seen), 4))
    sticker = np.clip(probability + rng.normal(0, 0.02, len(seen)), 0.01, 0.99)
    vectors = np.stack([1 - sticker, np.zeros(len(seen)), sticker], axis=1)
    return StochasticSamples(boxes.astype(np.float32), vectors.astype(np.float32), seen, passes)


def scene_of(drawn):
    objects, unstable, uncertainty = observe(drawn)
    return replace(
        assessment(), objects=objects, unstable=unstable, uncertainty=uncertainty, passes=drawn.passes
    )


def is_settled(drawn, error=0.05, policy=POLICY):
    return should_stop(scene_of(drawn), drawn, MOST, 3, error, partial(decision, policy=policy))


def expected(drawn, policy=POLICY):
    decide = partial(decision, policy=policy)
    return StoppingRule(scene_of(drawn), drawn, MOST, 3, decide).expected_changes()


@pytest.mark.parametrize("passes", [5, 11])
def test_a_sure_sticker_is_settled_soon(passes):
    assert is_settled(samples(0.97, 1.0, 11)) is True
    assert is_settled(samples(0.35, 1.0, passes)) is True  # surely to be asked about


def test_what_lies_on_a_limit_is_not_settled():
    drawn = samples(POLICY.min_probability, 1.0, 8)
    off = POLICY.min_probability + 0.002 - drawn.probabilities[:, 2].mean()
    near = replace(drawn, probabilities=drawn.probabilities + np.array([-off, 0, off], np.float32))
    assert not is_settled(near)
    assert expected(near) > 5 * expected(samples(0.97, 1.0, 8))
    seldom = samples(0.97, 0.75, 9, seed=1)
    assert scene_of(seldom).objects[0].passes == 6  # 67 %, and 70 % are asked for
    assert not is_settled(seldom)


def test_the_predictive_surface_that_will_grow_over_its_limit_is_foreseen():
    """Hulls only grow: what is a little below the limit after a few passes is above it after all."""
    drawn = samples(0.97, 1.0, 6, jitter=3.0, seed=1)
    surface = scene_of(drawn).objects[0].relative_predictive_surface
    policies = [POLICY.model_copy(update={"max_relative_predictive_surface": surface * f}) for f in (1.2, 20)]
    assert expected(drawn, policies[0]) > 10 * expected(drawn, policies[1])
    assert not is_settled(drawn, policy=policies[0])


def test_a_rare_object_is_not_settled_where_it_may_become_a_removable_one():
    drawn, rare = samples(0.95, 1.0, 8), rare_things()
    assert len(scene_of(rare).unstable) == 1
    often = Policy(
        min_unstable_detection_rate=1.0
    )  # what is seen seldom does not matter, unless it becomes more
    assert expected(rare, often) > 3 * expected(drawn, often)
    assert not is_settled(rare, policy=often)


def seen_twice(passes, shift):
    """Every fourth pass over a sticker draws a second box, ``shift`` px beside the first."""
    drawn = samples(0.97, 1.0, passes)
    again = drawn.pass_index % 4 == 0
    return StochasticSamples(
        np.concatenate([drawn.boxes, drawn.boxes[again] + np.float32(shift)]),
        np.concatenate([drawn.probabilities, drawn.probabilities[again]]),
        np.concatenate([drawn.pass_index, drawn.pass_index[again]]),
        passes,
    )


def test_what_a_pass_saw_twice_is_settled_later_than_what_none_did():
    """It may turn out to be two things; towards the last pass that is told."""
    early, late = seen_twice(5, 10), seen_twice(19, 10)
    assert scene_of(early).objects[0].duplicated
    assert expected(early) > 2 * expected(samples(0.97, 1.0, 5))
    assert expected(late) < expected(early) / 2


def rare_things():
    drawn = samples(0.95, 1.0, 8)
    return StochasticSamples(drawn.boxes[:2], drawn.probabilities[:2], drawn.pass_index[:2], 8)


def test_weights_fit_their_features():
    """Every kind has a weight for each feature; and a scene with nothing in it still counts as one that something may enter."""
    kinds = set()
    near_limit = samples(0.97, 0.75, 9, seed=1)
    for drawn in (samples(0.97, 1.0, 6), near_limit, samples(0.9, 0.0, 6), rare_things(), seen_twice(5, 10)):
        look = StoppingRule(scene_of(drawn), drawn, MOST, 3, partial(decision, policy=POLICY))
        for kind, features in look.features():
            kinds.add(kind)
            assert features.shape == np.shape(WEIGHTS[kind])
            assert 0 < chance(kind, features) < 1
    assert kinds == set(WEIGHTS) == {"once", "limit", "twice", "seldom", "scene"}


def test_a_policy_that_was_made_elsewhere_is_waited_for(tmp_path):
    """Refused scenes are all decided alike: waiting for that would stop after the first look whatever is seen."""
    validity = Validity(model="other", model_hash="0" * 64, settings_hash="1" * 64)
    made = Policy(validity=validity)
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(made.model_dump(mode="json", exclude_none=True)))
    weights = str(tiny_weights(SSDLITE, tmp_path))
    settings = PerceptionSettings(
        model=SSDLITE,
        weights=weights,
        min_size=MIN_SIZE,
        adaptive=True,
        adaptive_policy=str(tmp_path / "policy.yaml"),
        dil=False,
    )
    drawn = samples(0.97, 1.0, 5)
    assert decision(scene_of(drawn), made)[0] is Outcome.BLOCKED
    decide = load_perception(settings)._decide
    assert decide(scene_of(drawn))[0] is not Outcome.BLOCKED


@pytest.mark.parametrize("combination", ["any", "risk"])
def test_where_a_supervisor_may_yet_change_the_decision_all_passes_are_made(combination):
    term = RiskTerm(signal="supervisor.mc_mutual_information", knots=(0.0, 1.0), log_odds=(0.0, 5.0))
    risk = RiskScore(intercept=-3.0, terms=(term,), max_removal=0.1) if combination == "risk" else None
    policy = Policy(panel=PanelRule(combination=combination), risk=risk)
    decide = partial(decision, policy=policy)
    limits = {"mc_mutual_information": 0.4}

    def at(drawn, score):
        scene = scene_of(drawn)
        votes = (MonitorScore("mc_mutual_information", score, 0.4),)
        heard = replace(scene, objects=tuple(replace(o, monitors=votes) for o in scene.objects))
        return should_stop(heard, drawn, MOST, 3, 0.05, decide, limits)

    sure = samples(0.97, 1.0, 11)
    assert should_stop(scene_of(sure), sure, MOST, 3, 0.05, partial(decision, policy=POLICY))
    # the score that it has now is no sign of the one that it will have
    assert not at(sure, 0.0)
    assert not at(sure, 0.9)
    assert not at(sure, float("nan"))
    # what is asked about anyway needs no supervisor, and where nothing lies there is nobody to object
    assert at(samples(0.35, 1.0, 11), 0.0)
    assert at(samples(0.9, 0.0, 6), 0.0)


def test_the_limits_of_the_panel_at_work_are_known(tmp_path, monkeypatch):
    document, _ = tiny_panel(tmp_path)
    told = []
    monkeypatch.setattr(pipeline, "should_stop", lambda *given: told.append(given[-1]))
    chosen = panel_settings(tmp_path, panel=str(tmp_path / "panel"), min_passes=3, adaptive=True)
    Perception(chosen, decide=lambda scene: (0, {})).assess(picture(1))
    assert told == [{name: seat.limit for name, seat in document.monitors.items()}]


def test_an_empty_scene_is_settled():
    none = samples(0.9, 0.0, 6)
    assert len(none) == 0
    assert is_settled(none)


@given(st.floats(0.3, 0.99), st.floats(0.5, 1.0), st.integers(0, 10**6))
def test_a_smaller_error_is_never_content_earlier(probability, rate, seed):
    drawn = samples(probability, rate, 8, seed=seed)
    if is_settled(drawn, 0.02):
        assert is_settled(drawn, 0.2)


def test_steps_reach_the_last_pass_exactly():
    taken, steps = 0, []
    while taken < MOST:
        steps.append(step_after(taken, 3, MOST))
        taken += steps[-1]
    assert (taken, steps[:2], steps[-1]) == (MOST, [3, 2], 1)
    with pytest.raises(InvalidInput, match="20 passes"):
        step_after(20, 3, MOST)


def test_stops_when_settled_and_at_the_last_pass_otherwise(monkeypatch):
    asked = []

    def soon(scene, drawn, most, *_):
        asked.append((drawn.passes, most))
        return drawn.passes >= 9

    monkeypatch.setattr(pipeline, "should_stop", soon)
    early = perception().assess(picture(), 3, "camera")
    assert (early.passes, asked) == (9, [(n, MOST) for n in (3, 5, 7, 9)])
    monkeypatch.setattr(pipeline, "should_stop", lambda *_: False)
    assert perception().assess(picture()).passes == MOST

    # stopping early changes no pass: the scene is that of so many fixed passes
    settings = PerceptionSettings(model=SSDLITE, min_size=MIN_SIZE, passes=9)
    fixed = Perception(settings, tiny_detector(SSDLITE, passes=9)).assess(picture(), 3, "camera")
    for a, b in zip(early.objects + early.unstable, fixed.objects + fixed.unstable, strict=True):
        np.testing.assert_allclose(a.box, b.box, atol=1e-2)
        assert (a.passes, a.label) == (b.passes, b.label)


def test_adaptive_scenes_repeat_byte_for_byte():
    decide = partial(decision, policy=POLICY)
    one, other = perception(decide), perception(decide)
    scene = one.assess(picture(), 5, "camera")
    one.assess(picture(1), 6, "camera")
    assert one.assess(picture(), 5, "camera").to_bytes() == scene.to_bytes()
    assert other.assess(picture(), 5, "camera").to_bytes() == scene.to_bytes()
    assert set(scene.timings) == {
        "encode",
        "sample",
        "detect",
        "dil",
        "novelty",
        "cluster",
        "decide",
        "total",
    }


def test_adaptive_passes_need_a_decision_to_wait_for():
    settings = PerceptionSettings(model=SSDLITE, min_size=MIN_SIZE, adaptive=True)
    with pytest.raises(InvalidInput, match="adaptive is true"):
        Perception(settings, tiny_detector(SSDLITE))


def test_joined_passes_are_numbered_on():
    first, then = samples(0.9, 1.0, 3), samples(0.9, 1.0, 2, seed=1)
    both = joined(first, then)
    assert (both.passes, both.pass_index.tolist()) == (5, [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(both.boxes[3:], then.boxes)


def test_settings_of_before_keep_their_hash():
    """A policy is valid for the settings that it was made with; options that came later must not void it."""
    plain = PerceptionSettings()
    assert PerceptionSettings(adaptive=True).hash != plain.hash
    assert PerceptionSettings(precision="bfloat16").hash != plain.hash
    assert PerceptionSettings(adaptive_policy="a.yaml").hash == plain.hash
