"""Intervals of a forecast hold what they promise, on objects whose passes are drawn from known distributions."""

from dataclasses import replace

import numpy as np
import pytest

from sticker_uq.perception.forecast import Forecast
from sticker_uq.scene import METRICS, StochasticSamples
from sticker_uq.uncertainty import observe

MOST = 20
NUMBERS = ("shannon_entropy", "mutual_information", "relative_total_variance", "relative_predictive_surface")


def drawn(seed, rate=1.0):
    """All passes over one sticker of 100x100 px, more or less sure and at rest."""
    rng = np.random.default_rng(seed)
    seen = np.flatnonzero(rng.random(MOST) < rate)
    boxes = np.array([50.0, 50.0, 150.0, 150.0]) + rng.normal(0, rng.uniform(0.5, 4), (len(seen), 4))
    logits = rng.uniform(0, 4) + rng.normal(0, rng.uniform(0.1, 1.0), len(seen))
    sticker = 1 / (1 + np.exp(-logits))
    vectors = np.stack([1 - sticker, np.zeros(len(seen)), sticker], axis=1)
    return StochasticSamples(boxes.astype(np.float32), vectors.astype(np.float32), seen, MOST)


def first(samples, passes):
    rows = samples.pass_index < passes
    return StochasticSamples(
        samples.boxes[rows], samples.probabilities[rows], samples.pass_index[rows], passes
    )


@pytest.mark.parametrize("passes", [4, 8, 14])
def test_four_of_five_values_after_all_passes_lie_within_two_deviations(passes):
    within = dict.fromkeys((*NUMBERS, "probability", "detection_rate"), 0)
    scenes = 60
    for seed in range(scenes):
        samples = drawn(seed, 0.97)
        (after,), _, _ = observe(samples)
        early = first(samples, passes)
        (before,), _, _ = observe(early)
        forecast = Forecast(before, early, MOST)
        low, high = (forecast.at(2.0, sure, True) for sure in (True, False))
        for name in NUMBERS:
            within[name] += getattr(low, name) <= getattr(after, name) + 1e-9 <= getattr(high, name) + 1e-8
        label = int(before.label)
        within["probability"] += (
            high.probabilities[label] <= after.probabilities[label] <= low.probabilities[label]
        )
        within["detection_rate"] += high.detection_rate <= after.detection_rate <= low.detection_rate
    assert min(within.values()) >= 0.8 * scenes, within


def test_wider_intervals_hold_narrower_ones():
    early = first(drawn(3), 6)
    (seen,), _, _ = observe(early)
    forecast = Forecast(seen, early, MOST)
    for name in (*METRICS, "detection_rate"):
        sign = -1 if name == "detection_rate" else 1
        ends = [
            sign * getattr(forecast.at(w, sure, True), name)
            for sure, w in ((True, 4.0), (True, 1.0), (False, 1.0), (False, 4.0))
        ]
        assert ends == sorted(ends), name
        assert np.isfinite(ends).all()


def test_an_object_that_becomes_a_clustered_one_may_have_any_uncertainty():
    early = first(drawn(5), 2)
    _, (seldom,), _ = observe(early)
    forecast = Forecast(seldom, early, MOST)
    assert forecast.most_seen(2.0) == MOST
    best, worst = (forecast.at(2.0, sure, True) for sure in (True, False))
    assert (best.unstable, best.shannon_entropy, worst.shannon_entropy) == (False, 0.0, 1e9)
    as_seldom = forecast.at(2.0, False, False)
    assert as_seldom.unstable
    assert np.isnan(as_seldom.shannon_entropy)


def test_an_object_none_of_whose_boxes_lies_at_its_mean_is_forecast_by_what_is_known_of_it():
    early = first(drawn(7), 6)
    (seen,), _, _ = observe(early)
    far = replace(seen, box=seen.box + np.float32(500))
    moved = Forecast(far, early, MOST).at(1.0, True, True)
    assert np.isfinite(moved.probabilities).all()
