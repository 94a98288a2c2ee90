# SPDX-License-Identifier: Apache-2.0
"""Verdicts about a candidate bundle: worse, better, cannot tell yet, and how many more laptops would tell."""

import numpy as np
import pytest

from sticker_uq.evaluation.bundle_comparison import DIRTY, WRONGFUL, Compared, GroupedPairs, Pairs

NOTHING = Pairs(0, 0, 0, 200)
SAFE = GroupedPairs(NOTHING, NOTHING, (100, 300))


def compared(questions: Pairs, old=None, guaranteed=True, **risks: GroupedPairs) -> Compared:
    given = {WRONGFUL: risks.get("wrongful", SAFE), DIRTY: risks.get("dirty", SAFE)}
    return Compared(questions, given, old or {}, guaranteed, 0.02)


FEWER, MORE, ALIKE = Pairs(20, 1, 30, 400), Pairs(20, 30, 1, 400), Pairs(20, 4, 6, 400)


@pytest.mark.parametrize(
    ("case", "verdict"),
    [
        (compared(FEWER), "better"),
        (compared(MORE), "worse"),
        (compared(ALIKE), "cannot tell yet"),
        (compared(FEWER, guaranteed=False), "cannot tell yet"),
        (compared(FEWER, wrongful=GroupedPairs(Pairs(0, 90, 0, 200), NOTHING, (100, 300))), "worse"),
        (compared(FEWER, wrongful=GroupedPairs(Pairs(0, 30, 0, 200), NOTHING, (100, 300))), "cannot tell yet"),
        (compared(FEWER, old={DIRTY: Pairs(0, 30, 0, 200)}), "worse"),
        (compared(FEWER, guaranteed=False).grown(20), "better"),
    ],
)  # fmt: skip
def test_the_verdict_weighs_questions_and_risk(case, verdict):
    assert case.verdict()[0] == verdict
    assert case.verdict()[1]


def test_it_says_how_many_more_laptops_would_tell():
    few = compared(Pairs(3, 1, 4, 40))
    more = few.more_laptops()
    assert more
    assert few.verdict()[0] == "cannot tell yet"
    assert few.grown((40 + more) / 40).verdict()[0] == "better"
    assert compared(FEWER).more_laptops() == 0
    assert compared(Pairs(3, 0, 0, 40)).more_laptops() is None


def test_without_labels_of_one_kind_of_laptop_the_risk_is_unknown():
    unknown = GroupedPairs(NOTHING, Pairs(0, 0, 0, 0), (100, 300)).difference()
    assert unknown.high > 0.7
    assert unknown.low < -0.7


def test_what_is_not_measured_is_told_and_not_waited_for():
    unmeasured = GroupedPairs(NOTHING, Pairs(0, 0, 0, 0), (100, 300))
    case = compared(FEWER, guaranteed=False, wrongful=unmeasured)
    verdict, reasons = case.verdict()
    assert verdict == "cannot tell yet"
    assert f"{WRONGFUL} are unknown" in reasons[0]
    assert sum(WRONGFUL in reason for reason in reasons) == 1
    assert case.more_laptops() is None


def test_the_interval_of_a_grouped_difference_holds_as_often_as_it_says():
    rng = np.random.default_rng(0)
    truth = 0.3 * 0.05 + 0.7 * (0.04 - 0.02)
    held = 0
    for _ in range(300):
        asked = int(rng.binomial(300, 0.3))
        checked = int(rng.binomial(300 - asked, 0.3))
        one = Pairs(0, int(rng.binomial(asked, 0.05)), 0, asked)
        only = rng.multinomial(checked, [0.04, 0.02, 0.94])
        pairs = GroupedPairs(one, Pairs(0, int(only[0]), int(only[1]), checked), (asked, 300 - asked))
        found = pairs.difference()
        held += found.low <= truth <= found.high
    assert held >= 0.95 * 300
