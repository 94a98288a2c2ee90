# SPDX-License-Identifier: Apache-2.0
"""Verdicts: the published example, known effects, and what the gate's decisions mean for the laptop."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from lab_helpers.published import (
    MDS_DISTANCE,
    MDS_SOURCE,
    MDS_TARGET,
    mds_specification,
    paper_relation,
)
from sticker_uq.evaluation.metrics.statistics import clopper_pearson
from sticker_uq.gate import Policy, judge
from sticker_uq.io.coco import LabelledImage
from sticker_uq.scene import Detections, InvalidInput
from sticker_uq.testing.scenes import HERE, THERE, assessment, object_at, rarely_seen
from sticker_uq_lab.robustness.performance import Judged, Performance
from sticker_uq_lab.robustness.systems import (
    Action,
    SystemAnswer,
    act_on_decision,
    act_on_detections,
    consequence,
)
from sticker_uq_lab.robustness.verdicts import (
    Finding,
    Paired,
    RelationCheck,
    check_relations,
    overall_verdict,
)

BOX = np.float32([[10, 10, 60, 40]])
STICKER_THERE = LabelledImage(Path("x.png"), 1, 300, 200, BOX, np.array([2]))


def found(boxes: np.ndarray, score: float = 0.9) -> Detections:
    rows = np.tile(np.float32([1 - score, 0, score]), (len(boxes), 1))
    return Detections(np.float32(boxes).reshape(-1, 4), rows)


def test_the_published_system_violates_its_relation_by_all_five_metrics():
    spec = mds_specification()
    changes = {name: round(abs(MDS_TARGET[name] - MDS_SOURCE[name]), 3) for name in MDS_SOURCE}
    assert changes == {"precision": 0.066, "recall": 0.126, "ap50": 0.112, "ap75": 0.132, "ap": 0.094}
    assert {spec.epsilon(name, MDS_DISTANCE) for name in MDS_SOURCE} == {0.01}


def test_the_published_significances():
    found = {c.name: c.significance for c in mds_specification().circumstances}
    assert sorted(found.values(), reverse=True) == [20, 18, 18, 15, 12, 10, 9, 3]
    assert sum(c.frequency for c in mds_specification().circumstances) == pytest.approx(1)


def pairs(images: int, lost: int, distance: float = 0.1, gained: int = 0) -> Paired:
    """``images`` pictures with one sticker each, the first ``lost`` found only in the source, the last ``gained`` only later."""
    there = Judged(STICKER_THERE, SystemAnswer(found(BOX)))
    nothing = Judged(STICKER_THERE, SystemAnswer(found(np.zeros((0, 4)))))
    source = [nothing if i >= images - gained else there for i in range(images)]
    target = [nothing if i < lost else there for i in range(images)]
    return Paired(
        Performance(source, 0.5, 0.5),
        Performance(target, 0.5, 0.5),
        np.arange(images),
        np.full(images, distance),
    )


def check_relation(paired, metric, epsilon, **options) -> RelationCheck:
    return check_relations(paired, {metric: epsilon}, **options)[0]


@pytest.mark.parametrize(
    ("lost", "allowed", "expected"),
    [(4, 0.3, Finding.HOLDS), (30, 0.1, Finding.VIOLATED), (12, 0.18, Finding.UNDECIDED)],
)
def test_the_interval_decides(lost, allowed, expected):
    check = check_relation(pairs(60, lost), "recall", lambda d: allowed, resamples=400)
    assert check.finding is expected
    assert check.change == pytest.approx(-lost / 60)
    assert check.low < check.change < check.high
    low, high = clopper_pearson(lost, 60)
    assert check.low < -high < -low < check.high, "no narrower than the exact interval"


def test_no_change_in_few_images_is_no_proof():
    few = check_relation(pairs(20, 0), "recall", lambda d: 0.02, resamples=200)
    assert few.finding is Finding.UNDECIDED
    assert few.high == pytest.approx(1 - 0.025 ** (1 / 20))
    assert check_relation(pairs(200, 0), "recall", lambda d: 0.02, resamples=100).finding is Finding.HOLDS
    tiny = check_relation(pairs(5, 5), "recall", lambda d: 0.02, resamples=100)
    assert (tiny.finding, tiny.reason) == (Finding.UNDECIDED, "fewer than 10 source images")


@pytest.mark.parametrize(("images", "allowed"), [(150, 0.02), (185, 0.02), (73, 0.05), (60, 0.2)])
def test_the_chance_of_a_false_holds_is_what_was_promised(images, allowed):
    """By exact sums: of images which a change of just above epsilon befalls, at most 2.5 % of the samples may say "holds"."""
    most = int(images * allowed)
    found = [
        check_relation(pairs(images, lost), "recall", lambda d: allowed, resamples=400).finding
        for lost in range(most + 1)
    ]
    held = [finding is Finding.HOLDS for finding in found]
    assert held == sorted(held, reverse=True), "more evidence against it never helps"
    assert held[0] is bool(1 - 0.025 ** (1 / images) <= allowed)
    assert stats.binom.cdf(sum(held) - 1, images, allowed) <= 0.025


def test_epsilon_is_taken_at_each_resamples_own_distance():
    """The jump of the published relation at d = 0.25: d on both sides of it leaves the verdict open."""
    paired = pairs(40, 12)
    distances = np.where(np.arange(40) % 2, 0.05, 0.47)
    check = check_relation(replace(paired, distances=distances), "recall", paper_relation().epsilon)
    assert check.finding is Finding.UNDECIDED
    far = check_relation(replace(paired, distances=np.full(40, 0.6)), "recall", paper_relation().epsilon)
    assert far.finding is Finding.HOLDS
    set_wide = check_relation(replace(paired, distances=np.array([0.1])), "recall", paper_relation().epsilon)
    assert set_wide.finding is Finding.VIOLATED


def test_what_cannot_be_measured_is_undecided():
    unknown = check_relation(
        replace(pairs(20, 2), distances=np.array([np.nan])), "recall", paper_relation().epsilon
    )
    assert (unknown.finding, unknown.reason) == (Finding.UNDECIDED, "the distance is not known")
    bare = replace(STICKER_THERE, boxes=BOX[:0], labels=np.zeros(0, np.int64))
    empty = [Judged(bare, SystemAnswer(found(BOX[:0])))] * 20
    alone = Performance(empty, 0.5, 0.5)
    nothing = check_relation(
        Paired(alone, alone, np.arange(20), np.zeros(20)), "ap", lambda d: 0.1, resamples=100
    )
    assert (nothing.finding, nothing.reason) == (Finding.UNDECIDED, "there is nothing to measure it on")
    with pytest.raises(InvalidInput, match="origins"):
        replace(pairs(20, 2), origin=np.arange(19))


def check(name: str, finding: Finding) -> RelationCheck:
    return RelationCheck(name, "ap", 20, 0.9, 0.8, -0.1, -0.2, 0.0, 0.1, 0.1, finding)


def test_overall_is_the_worst_and_says_how_much_significance_each_finding_has():
    checks = [check("a", Finding.HOLDS), check("b", Finding.UNDECIDED), check("b", Finding.HOLDS)]
    verdict = overall_verdict(checks, {"a": 30, "b": 10})
    assert verdict["finding"] is Finding.UNDECIDED
    assert verdict["significance_shares"] == {
        Finding.HOLDS: 0.75,
        Finding.VIOLATED: 0.0,
        Finding.UNDECIDED: 0.25,
    }
    worse = overall_verdict([*checks, check("all", Finding.VIOLATED)], {"a": 30, "b": 10})
    assert worse["finding"] is Finding.VIOLATED
    assert worse["significance_shares"] == verdict["significance_shares"]
    assert overall_verdict([check("a", Finding.HOLDS)], {"a": 1})["finding"] is Finding.HOLDS


def test_performance_is_that_of_the_images():
    judged = [
        Judged(STICKER_THERE, SystemAnswer(found(BOX))),
        Judged(STICKER_THERE, SystemAnswer(found(BOX + 100))),
        Judged(STICKER_THERE, SystemAnswer.from_failure("time-out")),
    ]
    figures = Performance(judged, 0.5, 0.5).figures()
    assert [figures[n] for n in ("true_positives", "false_positives", "false_negatives")] == [1, 1, 2]
    assert (figures["precision"], figures["recall"]) == (0.5, pytest.approx(1 / 3))
    assert figures["ap50"] == pytest.approx(34 / 101, abs=0.01)
    assert figures["wrongly_removed"] == pytest.approx(1 / 3)
    assert figures["left_to_person"] == pytest.approx(1 / 3)
    assert figures["failures"] == 1
    with pytest.raises(InvalidInput, match="bravery"):
        Performance(judged, 0.5, 0.5).value("bravery")
    with pytest.raises(InvalidInput, match="no images"):
        Performance([], 0.5, 0.5)


def test_a_cell_without_gate_acts_on_whatever_it_detects():
    sure = act_on_detections(found(BOX, 0.6), 0.5)
    assert (sure.removed.tolist(), sure.asked, sure.clean) == (BOX.tolist(), False, False)
    doubtful = act_on_detections(found(BOX, 0.4), 0.5)
    assert (len(doubtful.removed), doubtful.clean) == (0, True)


def test_a_decision_becomes_what_the_cell_does():
    policy = Policy()
    work = act_on_decision(judge(assessment(object_at(HERE)), policy))
    assert (work.removed.tolist(), work.asked, work.clean) == ([list(HERE)], False, False)
    mixed = act_on_decision(judge(assessment(object_at(HERE), unstable=[rarely_seen(THERE, 6)]), policy))
    assert (len(mixed.removed), mixed.asked) == (1, True)
    doubtful_scene = act_on_decision(judge(assessment(object_at(HERE), dil=0.9), policy))
    assert (len(doubtful_scene.removed), doubtful_scene.asked) == (0, True)
    clean = act_on_decision(judge(assessment(), policy))
    assert (len(clean.removed), clean.asked, clean.clean) == (0, False, True)


def test_consequences():
    on, off = Action(BOX, False, False), Action(BOX + 100, False, False)
    clean = Action(np.zeros((0, 4), np.float32), False, True)
    nothing = np.zeros((0, 4), np.float32)
    assert consequence(on, BOX, False, 0.5) == (False, False, False)
    assert consequence(off, BOX, False, 0.5) == (True, False, False)
    assert consequence(on, nothing, False, 0.5) == (True, False, False)
    assert consequence(clean, BOX, False, 0.5) == (False, False, True)
    assert consequence(clean, nothing, True, 0.5) == (False, False, True)
    assert consequence(clean, nothing, False, 0.5) == (False, False, False)
