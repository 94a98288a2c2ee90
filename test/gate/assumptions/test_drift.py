# SPDX-License-Identifier: Apache-2.0
"""A stream like the reference raises no alarm but with the stated probability; another one does."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.stats import binom

from sticker_uq.gate.assumptions.drift import DriftTest, RankTest
from sticker_uq.gate.policy.reference import MISSING, SIGNALS, Reference, signal_value
from sticker_uq.scene import InvalidInput, SceneAssessment, Status
from sticker_uq.testing.scenes import assessment, object_at


def scene(rng: np.random.Generator, number: int, dil: float = 0.0, **means: float) -> SceneAssessment:
    """A scene of 0 to 3 stickers, as sure as chance will have it. ``means``: of noise, sharpness and novelty."""
    found = [
        object_at(probabilities=(p / 2, p / 2, 1 - p)) for p in rng.uniform(0.0, 0.3, int(rng.integers(0, 4)))
    ]
    made = assessment(*found, dil=dil + float(rng.uniform(0.1, 0.5)), image_digest=f"{number:032x}")
    noise, sharpness, novelty = (
        means.get(name, usual) * float(rng.uniform(0.8, 1.2))
        for name, usual in (("noise", 3.0), ("sharpness", 20.0), ("novelty", 0.05))
    )
    assert made.exposure is not None
    assert made.localization is not None
    return replace(
        made,
        exposure=replace(made.exposure, noise=noise, sharpness=sharpness),
        localization=replace(made.localization, novelty=novelty),
    )


def reference(size: int = 60) -> Reference:
    rng = np.random.default_rng(5)
    return Reference.of(scene(rng, number) for number in range(size))


@given(st.lists(st.integers(0, 4), max_size=30), st.integers(0, 4), st.floats(0, 1, exclude_max=True))
def test_a_p_value_is_a_rank_with_ties_broken(seen, value, tie_break):
    p = RankTest(seen).observe(value, tie_break)
    above, equal = sum(s > value for s in seen), sum(s == value for s in seen)
    assert p == pytest.approx((above + tie_break * (equal + 1)) / (len(seen) + 1))


def test_bets_are_fair():
    """The expected capital after one value among 999, its rank uniform, is 1 but for what is cut off at the poles."""

    def capital(p: float) -> float:
        number, tie_break = divmod(p * 1000, 1)
        test = RankTest(range(999))
        test.observe(998.5 - number, tie_break)
        return math.exp(test.log_evidence)

    def near_a_pole(s: float) -> float:  # p = s^10 smooths the pole at 0; the other end is its mirror image
        return 10 * s**9 * (capital(s**10) + capital(1 - s**10))

    widest = 0.5**0.1
    expected = np.mean([near_a_pole(s) for s in (np.arange(400) + 0.5) / 400 * widest]) * widest
    assert 0.9 <= expected <= 1.001


def test_nothing_is_won_by_breaking_ties():
    evidence = []
    for tie_break in (0.0, 1e-12, 0.4):
        test = RankTest(range(99))
        test.observe(1000, tie_break)
        evidence.append(test.log_evidence)
    assert evidence == pytest.approx([evidence[0]] * 3, abs=0.01)


def test_false_alarms_stay_below_their_probability_with_one_reference_for_the_whole_stream():
    rng = np.random.default_rng(4)
    alarms, streams, level = 0, 150, 0.2
    for _ in range(streams):
        test = RankTest(rng.normal(size=25))  # a small reference is off by chance: that must not count
        highest = 0.0
        for value in rng.normal(size=150):
            test.observe(value, rng.random())
            highest = max(highest, test.log_evidence)
        alarms += highest >= math.log(1 / level)
    assert alarms <= binom.ppf(0.999, streams, level)


@pytest.mark.parametrize(("shift", "most"), [(4.0, 8), (-4.0, 8), (1.5, 40)])
@pytest.mark.parametrize("calm", [0, 200])
def test_a_shift_is_found_in_either_direction_and_after_a_calm_time(shift, most, calm):
    rng = np.random.default_rng(6)
    test = RankTest(rng.normal(size=200))
    for value in rng.normal(size=calm):
        test.observe(value, rng.random())
    needed = 0
    while test.log_evidence < math.log(600):
        needed += 1
        assert needed <= most
        test.observe(rng.normal(shift), rng.random())


def test_scenes_like_the_reference_raise_no_alarm_and_others_do():
    rng = np.random.default_rng(7)
    same, other = DriftTest(reference()), DriftTest(reference())
    for number in range(100):
        same.observe(scene(rng, 1000 + number))
    assert same.strongest[1] < math.log(len(same) / 0.01)
    for number in range(12):
        other.observe(scene(rng, 2000 + number, dil=0.4))
    name, evidence = other.strongest
    assert name == "background_saliency"
    assert evidence > math.log(len(other) / 0.01)
    assert other.observed == 12


@pytest.mark.parametrize(("signal", "mean"), [("noise", 9.0), ("sharpness", 5.0), ("novelty", 0.5)])
def test_pictures_that_are_noisier_more_blurred_or_more_novel_are_noticed(signal, mean):
    rng, test = np.random.default_rng(10), DriftTest(reference())
    for number in range(12):
        test.observe(scene(rng, number, **{signal: mean}))
    name, evidence = test.strongest
    assert name == signal
    assert evidence > math.log(len(test) / 0.01)


def test_what_no_scene_of_a_reference_has_is_not_watched():
    """A detector that measured no novelty then says nothing about the novelty now."""
    rng = np.random.default_rng(11)
    scenes = [replace(scene(rng, number), exposure=None, localization=None) for number in range(25)]
    absent = {"mean_level", "saturated_share", "noise", "sharpness", "novelty", "background_saliency"}
    kept = Reference.of(scenes).signals
    assert absent.isdisjoint(kept)
    assert {"score", "objects", "unstable"} <= set(kept) <= set(SIGNALS)


def test_the_same_scenes_give_the_same_evidence():
    strongest = []
    for _ in range(2):
        rng, test = np.random.default_rng(8), DriftTest(reference())
        for number in range(5):
            test.observe(scene(rng, number))
        strongest.append(test.strongest)
    assert strongest[0] == strongest[1]


def test_what_could_not_be_measured_ranks_below_everything():
    empty = assessment(dil=None)
    assert {name: signal_value(name, empty) for name in ("score", "background_saliency", "objects")} == {
        "score": MISSING,
        "background_saliency": MISSING,
        "objects": 0.0,
    }
    assert RankTest([0.0] * 9).observe(MISSING, 0.5) == pytest.approx(0.95)


def test_a_reference_leaves_out_failed_scenes_and_says_when_too_few_remain():
    rng = np.random.default_rng(9)
    scenes = [scene(rng, number) for number in range(25)]
    broken = assessment(status=Status.FAILED)
    kept = Reference.of([*scenes, broken])
    assert kept.scenes == 25
    assert set(kept.signals) == set(SIGNALS) - {"shannon_entropy", "relative_total_variance"}
    with pytest.raises(InvalidInput, match="1 usable scenes, expected at least 20"):
        Reference.of([scenes[0], broken])


@pytest.mark.parametrize(
    ("signals", "message"),
    [
        ({}, "expected some of score"),
        ({"colour": (1.0,) * 20}, "unknown signals"),
        ({"objects": (1.0,) * 20, "score": (1.0,) * 21}, "the same number of each"),
        ({"objects": (1.0,) * 3}, "at least 20"),
        ({"objects": (math.nan,) * 20}, "finite"),
    ],
)
def test_an_unusable_reference_is_refused(signals, message):
    with pytest.raises(ValidationError, match=message):
        Reference(signals=signals)
