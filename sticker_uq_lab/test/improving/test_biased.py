# SPDX-License-Identifier: Apache-2.0
"""Guarantees from answers that the policy chose."""

import re
from dataclasses import replace

import numpy as np
import pytest

from sticker_uq.calibration.control import learn_then_test, p_values
from sticker_uq.evaluation.metrics.decisions import Count
from sticker_uq.evaluation.metrics.statistics import upper_bound
from sticker_uq_lab.improving.biased import BiasedTrial, Population, spot_checks_needed, too_few

DELTA = 0.1
SHARE_ASKED, BAD_ASKED, BAD_RELEASED = 0.5, 0.0, 0.12
RATE = SHARE_ASKED * BAD_ASKED + (1 - SHARE_ASKED) * BAD_RELEASED


def trial(asked=(0, 100), checked=(0, 50), of=(100, 50), population=(300, 300)) -> BiasedTrial:
    events, images = asked[0] + checked[0], asked[1] + checked[1]
    return BiasedTrial(0.5, images, events, Count(*asked), Count(*checked), *of, Population(*population))


def weeks(rng: np.random.Generator, laptops: int = 600) -> BiasedTrial:
    """A cell that asks about half of its laptops, and spot checks more of the others after every bad one that it found."""
    asked = rng.random(laptops) < SHARE_ASKED
    bad = rng.random(laptops) < np.where(asked, BAD_ASKED, BAD_RELEASED)
    checked, rate = np.zeros(laptops, bool), 0.05
    for number in np.flatnonzero(~asked):
        checked[number] = rng.random() < rate
        if checked[number]:
            rate = min(0.4, rate * 2) if bad[number] else max(0.05, rate * 0.9)
    counts = [(int((bad & one).sum()), int(one.sum())) for one in (asked, checked)]
    return trial(*counts, of=(counts[0][1], counts[1][1]), population=(int(asked.sum()), int((~asked).sum())))


def test_the_promised_level_holds_in_all_but_delta_of_repetitions_where_pooling_breaks_it():
    rng = np.random.default_rng(1)
    repetitions = 600
    found = [weeks(rng) for _ in range(repetitions)]
    violated = sum(one.bound(DELTA) < RATE for one in found)
    pooled = sum(upper_bound(one.events, one.images, DELTA) < RATE for one in found)
    assert violated <= DELTA * repetitions
    assert pooled > 0.5 * repetitions


def cleans(rng: np.random.Generator, laptops: int = 400) -> tuple[BiasedTrial, float]:
    """The same for laptops called clean, which are another share of either group."""
    called = (0.1, 0.6)
    asked = rng.random(laptops) < SHARE_ASKED
    clean = rng.random(laptops) < np.where(asked, *called)
    bad = rng.random(laptops) < np.where(asked, 0.02, 0.10)
    checked = ~asked & (rng.random(laptops) < 0.2)
    counts = [(int((bad & clean & one).sum()), int((clean & one).sum())) for one in (asked, checked)]
    weight = SHARE_ASKED * called[0] / (SHARE_ASKED * called[0] + (1 - SHARE_ASKED) * called[1])
    sizes = (int(asked.sum()), int(checked.sum()))
    population = (sizes[0], laptops - sizes[0])
    return trial(*counts, of=sizes, population=population), weight * 0.02 + (1 - weight) * 0.10


def test_the_rate_among_laptops_called_clean_is_bounded_as_well():
    rng = np.random.default_rng(2)
    found = [cleans(rng) for _ in range(400)]
    assert sum(one.bound(DELTA) < rate for one, rate in found) <= DELTA * len(found)


def test_more_spot_checks_prove_more_and_no_answer_proves_nothing():
    bounds = [trial(checked=(0, n), of=(100, n)).bound(DELTA) for n in (0, 20, 100, 1000)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > 0.5
    few = trial()
    needed = spot_checks_needed(few, 0.02, DELTA)
    assert few.bound(DELTA) > 0.02
    grown = trial((0, 20 * needed), (0, needed), (20 * needed, needed), (20 * needed, 20 * needed))
    assert grown.bound(DELTA) <= 0.02
    assert str(needed) in few.explain_shortfall(0.02, DELTA, "bad")
    # what is bad among the answered ones stays so, however many there are
    excluded = trial((60, 200), (0, 40), (200, 40), (200, 200))
    assert spot_checks_needed(excluded, 0.02, DELTA) == 0
    assert "so many bad ones among the answered laptops exclude it" in excluded.explain_shortfall(
        0.02, DELTA, "bad"
    )


def test_a_limit_is_proved_exactly_when_its_bound_is_within_the_level():
    one = trial((1, 300), (0, 200), (300, 200))
    level = one.bound(DELTA)
    assert p_values([one], level * 1.001)[0] <= DELTA < p_values([one], level * 0.98)[0]
    assert learn_then_test([one, replace(one, checked=Count(50, 200))], level * 1.001, DELTA).tolist() == [0]


@pytest.mark.parametrize(
    ("fitted", "asked", "checked", "told"),
    [
        (20, 300, 60, ""),
        (19, 300, 60, "^19 laptops to fit limits on, expected 20 or more$"),
        (20, 0, 60, "^0 answered and 60 spot checked laptops .* expected some of each"),
        (20, 300, 0, "^300 answered and 0 spot checked laptops .* expected some of each"),
        (12, 4, 13, r"^12 laptops .*; --alpha 0.1 cannot be proved even without .* about \d+ spot checks"),
    ],
)
def test_what_cannot_be_proved_of_so_many_laptops_is_said_before_the_work(fitted, asked, checked, told):
    said = too_few(fitted, asked, checked, Population(430, 170), 0.1, DELTA)
    assert re.search(told, said) if told else not said


@pytest.mark.parametrize(("laptops", "rate"), [(300, 0.1), (160, 0.3)])  # docs/howto/improve.md
def test_so_many_laptops_prove_ten_percent(laptops, rate):
    population = Population(2 * laptops // 5, 3 * laptops // 5)

    def proof(share):  # a fifth of the asked ones prove
        asked, checked = population.asked // 5, round(population.released * rate)
        return too_few(20, round(asked * share), round(checked * share), population, 0.1, DELTA)

    assert not proof(1)
    assert proof(0.7)


def test_a_cell_that_asked_about_every_laptop_needs_no_spot_check():
    assert trial((0, 300), (0, 0), (300, 0), (300, 0)).bound(DELTA) < 0.03
    assert trial((0, 300), (0, 0), (300, 0), (300, 300)).bound(DELTA) > 0.5
