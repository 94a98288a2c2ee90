# SPDX-License-Identifier: Apache-2.0
"""The benchmark of hard scenes: seeds apart, what counts as wrong, limits at the same rate, intervals by laptop, a short run."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import hard, hard_methods, hard_scenes
from benchmarks.hard import BY_HAND, REFERENCE, plan, shares, table
from benchmarks.hard_measure import DROPOUT, SINGLE, MeasuredScene, Seen
from benchmarks.hard_methods import Decision, ObjectLimit, limit_for, result, signal
from benchmarks.hard_scenes import NONE, SPLITS, STRENGTHS, Case
from sticker_uq.gate.policy.policy_schema import RiskScore, RiskTerm
from sticker_uq.testing.scenes import ELSEWHERE, HERE, THERE, assessment
from test.helpers.models import small_weights

EMPTY = np.zeros((0, 4), np.float32)
STICKER = (0.0, 0.0, 1.0)
RISK = RiskScore(
    intercept=-3.0,
    terms=(RiskTerm(signal="improbability", knots=(0.0, 1.0), log_odds=(0.0, 6.0)),),
    max_removal=1.0,
)


def seen(boxes, probabilities, rate=None, **signals):
    count = len(boxes)
    return Seen(
        np.array(boxes, np.float32).reshape(-1, 4),
        np.array(probabilities, np.float32).reshape(-1, 3),
        np.ones(count) if rate is None else np.array(rate, float),
        np.zeros(count, bool),
        {name: np.array(values, float) for name, values in signals.items()},
    )


def scene(found, truth=((HERE, 2),), hidden=EMPTY, things=EMPTY, seed=0, shown=None, case=NONE, part="shift"):
    """A scene in which every sampler sees ``found``; ``truth``: boxes and labels."""
    return MeasuredScene(
        "development",
        part,
        case,
        NONE,
        seed,
        np.array([box for box, _ in truth], np.float32).reshape(-1, 4),
        np.array([label for _, label in truth], np.int64),
        np.array(hidden, np.float32).reshape(-1, 4),
        np.array(things, np.float32).reshape(-1, 4),
        shown or assessment(),
        {SINGLE: found, DROPOUT: found},
    )


def released(*boxes, asked=False):
    return Decision(np.array(boxes, np.float32).reshape(-1, 4), asked)


def test_the_laptops_of_the_splits_never_meet():
    sets = SPLITS.values()
    for one, other in itertools.combinations(sets, 2):
        assert not range(max(one.start, other.start), min(one.stop, other.stop))
    assert {job.split for job in plan(["shift"], "test", 2, 3, 4)} == {"fit", "limits", "test"}
    for split in ("development", "test"):
        for job in plan(["shift"], split, 3, 3, 3):
            assert job.seed in SPLITS[job.split]


def test_what_a_release_meets_decides_whether_it_is_wrong():
    there, beside = (300, 100, 400, 180), (240, 100, 340, 180)
    truth = ((HERE, 2), (there, 1))
    shown = scene(seen([], []), truth, hidden=[ELSEWHERE], things=[(0, 0, 40, 40)])
    found = result(shown, released(HERE, there, ELSEWHERE, (0, 0, 40, 44), (600, 0, 640, 40)))
    assert (found.wrong, found.on_logo, found.on_thing) == (3, 1, 1)
    assert (found.released, found.right, found.stickers) == (4, 1, 1)
    assert not found.dirty_clean
    # an overlap of a quarter does not meet it, and two boxes on one sticker are one
    assert result(shown, released(beside)).on_logo == 0
    assert result(shown, released(HERE, HERE)).right == 1


laptops = st.lists(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=3), min_size=1, max_size=8)


@given(laptops, st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_a_limit_keeps_its_goal_and_no_other_limit_comes_nearer(drawn, share):
    places = (HERE, THERE, ELSEWHERE)
    shown = [
        scene(
            seen(places[: len(objects)], [STICKER] * len(objects), doubt=[doubt for doubt, _ in objects]),
            tuple((place, 2) for place, (_, right) in zip(places, objects, strict=False) if right),
        )
        for objects in drawn
    ]
    method = ObjectLimit("d", DROPOUT, signal(DROPOUT, "doubt"))
    values = sorted({doubt for objects in drawn for doubt, _ in objects})

    def rate(limit, kind):
        found = [result(one, method.decide(one, limit)) for one in shown]
        return np.mean([one.asked if kind == "asked" else one.wrong > 0 for one in found])

    limit = limit_for(method, shown, ("asked", share))
    assert rate(limit, "asked") <= share
    assert all(rate(value, "asked") > share for value in values if value < limit)
    limit = limit_for(method, shown, ("wrong", share))
    assert np.isnan(limit) or rate(limit, "wrong") <= share
    assert all(rate(value, "wrong") > share for value in values if not value <= limit)


def rows(wrong, method="m", laptops=None, **more):
    """A table of results with one release each, ``wrong`` of them or not."""
    count = len(wrong)
    columns = {"goal": "asked", "method": method, "part": "shift", "case": NONE, "strength": NONE}
    columns |= {"on_logo": 0, "on_thing": 0, "released": 1, "right": 1, "stickers": 1, "asked": False}
    columns |= {"dirty_clean": False, "seed": range(count) if laptops is None else laptops} | more
    return pd.DataFrame(columns | {"wrong": wrong}, index=range(count))


def test_an_interval_counts_laptops_and_not_their_pictures():
    wrong = np.arange(40) % 4 == 0
    alone = shares(rows(wrong.astype(int)), "wrong")
    repeated = shares(rows(np.repeat(wrong, 25).astype(int), laptops=np.repeat(range(40), 25)), "wrong")
    assert alone[:2] == (10, 40)
    assert repeated[:2] == (250, 1000)
    assert (repeated[2].low, repeated[2].high) == pytest.approx((alone[2].low, alone[2].high))
    never = shares(rows(np.zeros(400, int), laptops=np.repeat(range(40), 10)), "wrong")[2]
    assert never.value == never.low == 0
    assert never.high == pytest.approx(1 - 0.025 ** (1 / 40))
    assert np.isnan(shares(rows([0, 0], stickers=0), "right")[2].value)


def test_a_difference_is_taken_laptop_by_laptop():
    wrong = np.arange(40) % 2
    value = shares(rows(wrong), "wrong", rows(wrong))[2]
    assert (value.value, value.low, value.high) == (0, 0, 0)
    value = shares(rows(wrong), "wrong", rows(np.zeros(40, int)))[2]
    assert value.value == 0.5
    assert value.low > 0


def test_the_figure_has_a_line_for_every_score_and_weights_and_a_star_for_every_policy():
    counts = {"wrong": [[1, 4], [0, 4]], "asked": [[2, 4], [1, 4]]}
    groups = [f"{strength} shift" for strength in STRENGTHS]
    all_of = itertools.product(hard.TRADED, groups, hard.AT)
    traded = [{"method": m, "group": g, "asked_for": share, **counts} for m, g, share in all_of]
    counts = {"wrong": [1, 4, 0.25], "asked": [2, 4, 0.5], "goal": "asked"}
    summary = [{"method": m, "group": g, **counts} for m, g in itertools.product(hard.POLICIES, groups)]
    drawn = hard.drawing({"trade": traded, "against": {"of old": {"trade": traded}}, "summary": summary})
    for label in (*hard.TRADED, *(f"{method}, of old" for method in hard.TRADED), *hard.POLICIES, *groups):
        assert f">{label}<" in drawn


def test_a_run_measures_once_and_judges_what_it_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(hard_scenes, "_SHIFTS", {"printed lid": hard_scenes._SHIFTS["printed lid"]})
    # a fit takes twenty laptops; it is tested with `sticker-uq calibrate`
    monkeypatch.setattr(
        hard_methods, "fit_policy", lambda records, base: base.model_copy(update={"risk": RISK})
    )
    arguments = f"--cache {tmp_path / 'cache'} --part shift --scenes 1 --fit 1 --limits 1".split()
    arguments += ["--weights", str(small_weights(tmp_path))]
    hard.main([*arguments, "--out", str(tmp_path / "one.json")])
    found = json.loads((tmp_path / "one.json").read_text())
    methods = {row["method"] for row in found["summary"]}
    assert {BY_HAND, REFERENCE, "mutual information", "novelty of the object"} <= methods
    groups = {row["group"] for row in found["summary"]}
    assert groups == {NONE, *(f"{strength} shift" for strength in STRENGTHS)}
    assert all(row["wrong"][1] == 1 for row in found["summary"])
    for name in (*hard.FIGURE_TABLES, *hard.OTHER_TABLES):
        assert table(found, name).startswith("| ")

    def measured_again(*_):
        raise AssertionError("measured again")

    monkeypatch.setattr(Case, "scene", measured_again)
    hard.main([*arguments, "--out", str(tmp_path / "two.json"), "--against", str(tmp_path / "one.json")])
    again = json.loads((tmp_path / "two.json").read_text())
    assert again.pop("against") == {"one": {"trade": found["trade"]}}
    assert again == {name: value for name, value in found.items() if name != "against"}
