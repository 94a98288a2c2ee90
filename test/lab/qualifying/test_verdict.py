# SPDX-License-Identifier: Apache-2.0
"""Ready or not, and the exact arithmetic of what more labels prove."""

import math
from dataclasses import replace

import pytest

from sticker_uq.calibration.control import smallest_level
from sticker_uq.calibration.fitting import Levels
from sticker_uq.calibration.planning import Units
from sticker_uq.lab.qualifying.results import (
    CalibrationResult,
    CurvePoint,
    NoveltyResult,
    PolicyTestResult,
    ProofResult,
)
from sticker_uq.lab.qualifying.verdict import Provable, next_gain, requirements

LEVELS = Levels(0.1, 0.2, 0.1)
NOVELTY = NoveltyResult(objects=(0.95, 0.9, 0.99), scenes=(0.99, 0.97, 1.0), pictures=20, weakness="")
PROVED = CalibrationResult(
    refused="",
    policy="abc",
    wrongful=ProofResult(level=0.1, images=30, events=0, bound=0.074),
    missed=ProofResult(level=0.2, images=12, events=0, bound=0.175),
)
GOOD = PolicyTestResult(wrongful=(0, 16), removed=(12, 20), missed=(0, 6), asked=(3, 16))


def unmet(
    calibration: CalibrationResult = PROVED,
    tested: PolicyTestResult | None = GOOD,
    novelty: NoveltyResult = NOVELTY,
    lacking: str = "",
) -> list[str]:
    rows = requirements(LEVELS, 0.5, novelty, calibration, tested, lacking)
    assert all(row.advice for row in rows if not row.met)
    return [row.name for row in rows if not row.met]


def test_all_met_is_ready() -> None:
    assert unmet() == []


def test_each_requirement_can_fail_by_itself() -> None:
    weak = NOVELTY.model_copy(update={"weakness": "AUROC 0.7"})
    assert unmet(novelty=weak) == ["novelty network: least lower bound of AUROC"]
    idle = GOOD.model_copy(update={"removed": (9, 20)})
    assert unmet(tested=idle) == ["stickers of the test part released"]
    nothing_to_remove = GOOD.model_copy(update={"removed": (0, 0)})
    assert unmet(tested=nothing_to_remove) == ["stickers of the test part released"]
    wrong = GOOD.model_copy(update={"wrongful": (6, 16)})  # lower bound 0.152
    assert unmet(tested=wrong) == ["test part: wrongful removals"]
    missed = GOOD.model_copy(update={"missed": (5, 6)})
    assert unmet(tested=missed) == ["test part: missed stickers"]


def test_a_few_mistakes_do_not_contradict_the_guarantee() -> None:
    assert unmet(tested=GOOD.model_copy(update={"wrongful": (3, 16)})) == []  # lower bound 0.040


def test_without_a_proof_nothing_that_follows_from_it_is_met() -> None:
    refused = CalibrationResult(refused="1 images called clean")
    rows = requirements(LEVELS, 0.5, NOVELTY, refused, None, "label more")
    assert [row.met for row in rows] == [True, False, False, False, False, False]
    assert rows[1].advice == "label more"
    half = refused.model_copy(update={"alpha": 0.09, "beta": 0.3})
    rows = requirements(LEVELS, 0.5, NOVELTY, half, None, "")
    assert [row.met for row in rows[:3]] == [True, True, False]
    assert rows[2].advice == "1 images called clean"


def test_a_hundred_more_labels_prove_what_the_binomial_says() -> None:
    now = Provable(Units(30, 10), 0.1)
    then = now.after(100)  # sixty of them prove, a third of these without a sticker
    assert then.units == Units(90, 30)
    assert then.levels == (smallest_level(90, 0.1), smallest_level(30, 0.1))
    assert (1 - then.levels[0]) ** 90 == pytest.approx(0.1)
    assert now.with_one_bad[0] > now.levels[0]
    assert Provable(Units(0, 0), 0.1).after(100).levels[1] == 1.0


def test_the_labels_that_lack_suffice_and_one_less_does_not() -> None:
    now = Provable(Units(30, 10), 0.1)
    # 45 in the proof prove 0.05, 22 without a sticker 0.1
    assert now.lacking(Levels(0.05, 0.21, 0.1), 50) == "label at least 25 more laptops in the calibrate part"
    assert now.lacking(Levels(0.05, 0.1, 0.1), 50).endswith(
        "25 more laptops in the calibrate part, at least 20 of them without a sticker"
    )
    assert "label at least 20 more laptops" in now.lacking(Levels(0.1, 0.1, 0.1), 50)
    assert now.lacking(Levels(0.1, 0.21, 0.1), 50) == ""
    assert "9 more laptops" in now.lacking(Levels(0.1, 0.21, 0.1), 40)  # 49 leave 20 to fit on


def test_the_gain_follows_the_power_law_through_the_last_two_trainings() -> None:
    points = [CurvePoint(pictures=n, map50=1 - 2 / n) for n in (25, 50, 100)]
    assert next_gain(points, 100) == pytest.approx((0.98, 0.99))
    assert next_gain(points[:1]) is None
    unknown = [*points[:2], points[2].model_copy(update={"map50": math.nan})]
    assert next_gain(unknown) is None


def test_levels_are_not_confused() -> None:
    other = replace(LEVELS, alpha=0.05)
    rows = requirements(other, 0.5, NOVELTY, PROVED, GOOD, "")
    assert [row.name for row in rows if not row.met] == ["proof: wrongful removals"]
