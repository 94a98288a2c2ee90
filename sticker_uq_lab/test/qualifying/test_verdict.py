# SPDX-License-Identifier: Apache-2.0
"""Ready or not, and the exact arithmetic of what more labels prove."""

import math
from dataclasses import replace

from sticker_uq.calibration.fitting import Levels
from sticker_uq.calibration.proving import Attempt
from sticker_uq.evaluation.metrics.decisions import Count
from sticker_uq.perception.novelty.quality import Auroc
from sticker_uq_lab.qualifying.results import (
    AccuracyResult,
    CalibrationResult,
    NoveltyResult,
    PolicyTestResult,
    Requirement,
    requirements,
)

LEVELS = Levels(0.1, 0.2, 0.1)
NOVELTY = NoveltyResult(
    objects=Auroc(0.95, 0.9, 0.99), scenes=Auroc(0.99, 0.97, 1.0), pictures=20, weakness=""
)
PROVED = CalibrationResult(
    refused="",
    policy="abc",
    wrongful=Attempt(0.1, Count(0, 30), 0.074, Count(21, 34)),
    left=Attempt(0.2, Count(0, 12), 0.175, Count(12, 15)),
)
GOOD = PolicyTestResult(
    wrongful=Count(0, 16), removed=Count(12, 20), clean=Count(6, 7), left=Count(0, 6), asked=Count(3, 16)
)
SHARP = AccuracyResult(
    pictures=16,
    passes=20,
    map50=0.95,
    clusters_map50=0.94,
    rows=(("logo", 0.96, 0.9, 0.95), ("sticker", 0.92, 0.88, 0.9)),
)


def unmet(
    calibration: CalibrationResult = PROVED,
    tested: PolicyTestResult | None = GOOD,
    novelty: NoveltyResult = NOVELTY,
    lacking: str = "",
) -> list[str]:
    rows = requirements(LEVELS, 0.5, novelty, calibration, tested, lacking, SHARP)
    assert all(row.advice for row in rows if row.met is False)
    return [row.name for row in rows if row.met is False]


def test_all_met_is_ready():
    assert unmet() == []


def test_each_requirement_can_fail_by_itself():
    weak = NOVELTY.model_copy(update={"weakness": "AUROC 0.7"})
    assert unmet(novelty=weak) == ["novelty network: lower bound of AUROC of foreign scenes"]
    idle = GOOD.model_copy(update={"removed": Count(9, 20)})
    assert unmet(tested=idle) == ["stickers of the test part released"]
    nothing_to_remove = GOOD.model_copy(update={"removed": Count(0, 0)})
    assert unmet(tested=nothing_to_remove) == ["stickers of the test part released"]
    wrong = GOOD.model_copy(update={"wrongful": Count(6, 16)})  # lower bound 0.152
    assert unmet(tested=wrong) == ["test part: wrongful removals"]
    assert unmet(tested=GOOD.model_copy(update={"left": Count(5, 6)})) == ["test part: stickers left"]


def test_without_a_promise_of_stickers_left_nothing_about_them_is_required():
    alone = replace(LEVELS, beta=0.0)
    proved = PROVED.model_copy(update={"left": None})
    names = [row.name for row in requirements(alone, 0.5, NOVELTY, proved, GOOD, "", SHARP)]
    assert len(names) == 5
    assert not any("stickers left" in name for name in names)
    assert "no laptop is called clean without a person" in str(proved)
    for refused in (None, GOOD):
        rows = requirements(alone, 0.5, NOVELTY, CalibrationResult(refused="few"), refused, "", SHARP)
        assert not any("stickers left" in row.name for row in rows)


def test_a_few_mistakes_do_not_contradict_the_guarantee():
    assert unmet(tested=GOOD.model_copy(update={"wrongful": Count(3, 16)})) == []  # lower bound 0.040


def test_without_a_proof_nothing_that_follows_from_it_is_met():
    refused = CalibrationResult(refused="1 laptops called clean")
    rows = requirements(LEVELS, 0.5, NOVELTY, refused, None, "label more", SHARP)[1:]
    assert [row.met for row in rows] == [True, False, False, False, False, False]
    assert (rows[1].value, rows[1].advice) == ("nothing proved", "label more")
    few = Attempt(0.2, Count(0, 5), 0.369, Count(5, 20))
    half = refused.model_copy(update={"wrongful": PROVED.wrongful, "left": few})
    rows = requirements(LEVELS, 0.5, NOVELTY, half, None, "", SHARP)[1:]
    assert [row.met for row in rows[:3]] == [True, True, False]
    assert rows[2].advice == "1 laptops called clean"
    assert (
        rows[2].value
        == "36.9 % at best: finished alone 5 of 20 laptops with a sticker, 0 of them with one left"
    )


def test_a_proof_says_of_how_many_and_when_nothing_was_released():
    def value(proof: Attempt) -> str:
        seen = PROVED.model_copy(update={"wrongful": proof})
        return requirements(LEVELS, 0.5, NOVELTY, seen, GOOD, "", SHARP)[2].value

    assert PROVED.wrongful is not None
    assert value(PROVED.wrongful) == "7.4 % excluded: released 21 of 34 stickers, wrong on 0 of 30 laptops"
    idle = replace(PROVED.wrongful, done=Count(0, 34))
    assert value(idle) == "7.4 % excluded: none of 34 stickers released, so that nothing could go wrong"
    assert "12 of 15 laptops with a sticker finished alone" in str(PROVED)


def test_a_weak_detector_is_told_and_not_required():
    def detector(precision: float, recall: float) -> Requirement:
        seen = SHARP.model_copy(update={"rows": (("sticker", 0.4, precision, recall),)})
        return requirements(LEVELS, 0.5, NOVELTY, PROVED, GOOD, "", seen)[0]

    assert (detector(0.88, 0.9).met, detector(0.88, 0.9).advice) == (None, "")
    weak = detector(0.41, 0.49)
    assert weak.met is None
    assert weak.value == "49 %, 41 %"
    assert "59 % of what it calls a sticker is none and it does not find 51 % of the stickers" in weak.advice
    assert "it does not find" not in detector(0.41, 0.9).advice
    assert detector(math.nan, math.nan).advice == ""
    assert "of the stickers 90 % found, of those found 88 % right" in str(SHARP)


def test_levels_are_not_confused():
    rows = requirements(replace(LEVELS, alpha=0.05), 0.5, NOVELTY, PROVED, GOOD, "", SHARP)
    assert [row.name for row in rows if row.met is False] == ["proof: wrongful removals"]
