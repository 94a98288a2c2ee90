# SPDX-License-Identifier: Apache-2.0
"""The benchmark of learning: what its person answers, and that its interval is that of the same laptops seen twice."""

import numpy as np
import pytest

from benchmarks.answers import answered
from benchmarks.equal_risk import Answers, fewer_asked
from benchmarks.learning import difference, rate
from sticker_uq.calibration.records import Record
from sticker_uq.gate import Policy
from sticker_uq.scene import ObjectClass
from sticker_uq.testing.scenes import assessment, observed

LOGO, STICKER = int(ObjectClass.LOGO), int(ObjectClass.STICKER)
UNSURE = Policy(min_probability=1.0, max_dil=1.0, max_dil_clean=1.0)


def record(seen, *truth):
    boxes = np.array([box for box, _ in truth], np.float32).reshape(-1, 4)
    return Record("1", boxes, np.array([label for _, label in truth], np.int64), assessment(*seen))


def test_the_person_tells_the_truth_about_what_is_asked_and_draws_what_was_missed():
    there, nothing, missed, logo = (
        (100.0, 100.0, 200.0, 180.0), (300.0, 100.0, 380.0, 180.0), (400.0, 300.0, 480.0, 360.0), (500.0, 100.0, 580.0, 160.0),
    )  # fmt: skip
    seen = [observed(box, id=number) for number, box in enumerate((there, nothing, logo))]
    boxes = answered(record(seen, (there, STICKER), (missed, STICKER), (logo, LOGO)), UNSURE)
    assert boxes is not None
    assert {box.box: box.label for box in boxes} == {
        there: ObjectClass.STICKER, logo: ObjectClass.LOGO, missed: ObjectClass.STICKER,
    }  # fmt: skip


def test_of_two_boxes_around_one_sticker_one_remains():
    there, beside = (100.0, 100.0, 200.0, 180.0), (100.0, 100.0, 200.0, 205.0)
    boxes = answered(record([observed(there), observed(beside, id=1)], (there, STICKER)), UNSURE)
    assert boxes is not None
    assert [box.box for box in boxes] == [there]


def test_where_nothing_is_asked_there_is_no_answer():
    assert answered(record([]), UNSURE) is None


def test_the_interval_is_that_of_laptops_seen_by_both():
    rng = np.random.default_rng(0)
    objects = rng.integers(2, 9, 200).astype(float)
    easy = np.zeros((200, 7))
    easy[:, 0], easy[:, 1], easy[:, 5] = np.round(objects / 2), objects, 1
    after = easy.copy()
    after[:, 0] -= 1  # one question less about every laptop, however many objects it has
    change, low, high = difference([easy], [after], "objects asked per laptop")
    assert (change, low, high) == pytest.approx((-1.0, -1.0, -1.0))
    change, low, high = difference([easy], [after, after], "objects asked")
    assert low < change < high < 0
    assert change == pytest.approx(-200 / objects.sum())
    assert rate(easy, "objects asked") == pytest.approx(easy[:, 0].sum() / objects.sum())


def decided(risks, wrong):
    """Laptops with one object each, of these risks; the removal of those of ``wrong`` is wrongful."""
    risks, order = np.array(risks, float), np.argsort(risks)
    worst = np.where(np.isin(np.arange(len(risks)), wrong), risks, np.inf)
    return Answers(np.ones(len(risks)), np.zeros(len(risks)), order, risks[order], worst)


def test_the_limit_lies_below_the_first_wrongful_removal_that_is_one_too_many():
    laptops = decided(np.arange(100) / 100, [50, 60])
    assert laptops.asked(0.0) == pytest.approx(0.5)  # 0 to 49 are removed
    assert laptops.asked(0.01) == pytest.approx(0.4)  # 50 too
    assert laptops.asked(0.02) == 0.0
    without = np.ones(100)
    without[50] = 0  # a resample without that laptop
    assert laptops.asked(0.0, without) == pytest.approx(39 / 99 + 1 / 99)


def test_less_is_asked_at_the_same_risk_where_doubt_tells_right_from_wrong():
    rng = np.random.default_rng(0)
    wrong = rng.choice(1000, 50, replace=False)
    blind, sharp = rng.uniform(size=1000), rng.uniform(size=1000)
    sharp[wrong] += 0.9
    change, low, high = fewer_asked([decided(blind, wrong)], [decided(sharp, wrong)], 0.01)
    assert low < change < high < 0
    change, low, high = fewer_asked([decided(blind, wrong)], [decided(blind, wrong)] * 2, 0.01)
    assert (change, low, high) == pytest.approx((0.0, 0.0, 0.0))
