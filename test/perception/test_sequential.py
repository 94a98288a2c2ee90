"""Adaptive sampling stops when the decision is settled, says the same as all passes, and repeats byte for byte."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.nodes.perceiving import decision
from sticker_uq.perception import Perception, PerceptionSettings, pipeline
from sticker_uq.perception.sequential import joined, settled, step_after
from sticker_uq.scene import InvalidInput, StochasticSamples, SupervisorScore
from sticker_uq.supervision import Policy
from sticker_uq.supervision.sections import PanelRule, RiskScore, RiskTerm
from sticker_uq.uncertainty import observe
from test.helpers.assessments import assessment
from test.helpers.models import MIN_SIZE, picture, tiny_detector
from test.helpers.panels import settings as panel_settings
from test.helpers.panels import tiny_panel

SSDLITE = "ssdlite320_mobilenet_v3_large"
POLICY = Policy()
MOST = 20


def perception(decide=lambda scene: 0, **values):
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
    return settled(scene_of(drawn), drawn, MOST, 3, error, partial(decision, policy=policy))


@pytest.mark.parametrize("passes", [6, 12])
def test_a_sure_sticker_is_settled_soon(passes):
    assert is_settled(samples(0.97, 1.0, 12)) is True
    assert is_settled(samples(0.35, 1.0, passes)) is True  # surely to be asked about


def test_what_lies_on_a_limit_is_not_settled():
    drawn = samples(POLICY.min_probability, 1.0, 8)
    off = POLICY.min_probability + 0.002 - drawn.probabilities[:, 2].mean()
    moved = drawn.probabilities + np.array([-off, 0, off], np.float32)
    assert not is_settled(replace(drawn, probabilities=moved))
    assert not is_settled(samples(0.97, 0.7, 8, seed=3))


def test_a_rare_object_is_not_settled_where_it_may_become_a_removable_one():
    drawn = samples(0.95, 1.0, 8)
    rare = StochasticSamples(drawn.boxes[:2], drawn.probabilities[:2], drawn.pass_index[:2], 8)
    assert len(scene_of(rare).unstable) == 1
    assert is_settled(rare)  # it will never be seen often enough to be removed
    assert not is_settled(rare, policy=Policy(min_detection_rate=0.3))


def test_an_object_that_a_pass_saw_twice_is_not_settled():
    drawn = samples(0.97, 1.0, 12)
    twice = joined(drawn, drawn)
    twice = replace(twice, pass_index=twice.pass_index % 12, passes=12)
    assert scene_of(twice).objects[0].duplicated
    assert not is_settled(twice)


@pytest.mark.parametrize("combination", ["any", "risk"])
def test_where_a_supervisor_may_yet_change_the_decision_all_passes_are_made(combination):
    term = RiskTerm(signal="supervisor.mc_mutual_information", knots=(0.0, 1.0), log_odds=(0.0, 5.0))
    risk = RiskScore(intercept=-3.0, terms=(term,), max_removal=0.1) if combination == "risk" else None
    policy = Policy(panel=PanelRule(combination=combination), risk=risk)
    decide = partial(decision, policy=policy)
    limits = {"mc_mutual_information": 0.4}

    def at(drawn, score):
        scene = scene_of(drawn)
        votes = (SupervisorScore("mc_mutual_information", score, 0.4),)
        heard = replace(scene, objects=tuple(replace(o, supervisors=votes) for o in scene.objects))
        return settled(heard, drawn, MOST, 3, 0.05, decide, limits)

    sure = samples(0.97, 1.0, 12)
    assert settled(scene_of(sure), sure, MOST, 3, 0.05, partial(decision, policy=POLICY))
    # the score that it has now is no sign of the one that it will have
    assert not at(sure, 0.0)
    assert not at(sure, 0.9)
    assert not at(sure, float("nan"))
    # what is asked about anyway needs no supervisor, and where nothing lies there is nobody to object
    assert at(samples(0.35, 1.0, 12), 0.0)
    assert at(samples(0.9, 0.0, 6), 0.0)


def test_the_limits_of_the_panel_at_work_are_known(tmp_path, monkeypatch):
    document, _ = tiny_panel(tmp_path)
    told = []
    monkeypatch.setattr(pipeline, "settled", lambda *given: told.append(given[-1]))
    chosen = panel_settings(tmp_path, panel=str(tmp_path / "panel"), min_passes=3, adaptive=True)
    Perception(chosen, decide=lambda scene: 0).assess(picture(1))
    assert told == [{name: seat.limit for name, seat in document.supervisors.items()}]


def test_an_empty_scene_is_settled():
    none = samples(0.9, 0.0, 6)
    assert len(none) == 0
    assert is_settled(none)


@given(st.floats(0.3, 0.99), st.floats(0.5, 1.0), st.integers(0, 10**6))
def test_a_smaller_error_is_never_content_earlier(probability, rate, seed):
    drawn = samples(probability, rate, 8, seed=seed)
    if is_settled(drawn, 0.001):
        assert is_settled(drawn, 0.2)


def test_steps_reach_the_last_pass_exactly():
    taken, steps = 0, []
    while taken < MOST:
        steps.append(step_after(taken, 6, MOST))
        taken += steps[-1]
    assert (taken, steps[0]) == (MOST, 6)
    with pytest.raises(InvalidInput, match="20 passes"):
        step_after(20, 6, MOST)


def test_stops_when_settled_and_at_the_last_pass_otherwise(monkeypatch):
    asked = []

    def soon(scene, drawn, most, *_):
        asked.append((drawn.passes, most))
        return drawn.passes >= 9

    monkeypatch.setattr(pipeline, "settled", soon)
    early = perception().assess(picture(), 3, "camera")
    assert (early.passes, asked) == (9, [(6, MOST), (9, MOST)])
    monkeypatch.setattr(pipeline, "settled", lambda *_: False)
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
        "decode",
        "detect",
        "dil",
        "strangeness",
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
