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
from benchmarks.hard import REFERENCE, SHIPPED, TABLES, cells, plan, shares, summary, table
from benchmarks.hard_measure import DROPOUT, SINGLE, Instrument, MeasuredScene, Seen, measure_photographs
from benchmarks.hard_methods import (
    NOTABLE,
    Decision,
    ObjectLimit,
    PolicyMethod,
    improbability,
    limit_for,
    notable,
    result,
    signal,
)
from benchmarks.hard_scenes import NONE, SPLITS, Case, cases
from sticker_uq.gate import Policy
from sticker_uq.gate.policy.policy_schema import RiskScore, RiskTerm
from sticker_uq.lab.rendering import render, sample_scene
from sticker_uq.scene import METRICS, Localization
from sticker_uq.testing.scenes import ELSEWHERE, HERE, THERE, assessment, observed
from test.helpers.models import small_weights

EMPTY = np.zeros((0, 4), np.float32)
STICKER, LOGO = (0.0, 0.0, 1.0), (0.0, 1.0, 0.0)
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
        for job in plan(["novelty"], split, 3, 3, 3):
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


def test_dirty_is_called_clean_only_where_nobody_is_asked():
    shown = scene(seen([], []), ((HERE, 2), (THERE, 2)))
    assert result(shown, released(HERE)).dirty_clean
    assert not result(shown, released(HERE, asked=True)).dirty_clean
    assert not result(shown, released(HERE, THERE)).dirty_clean
    assert not result(scene(seen([], []), ((HERE, 1),)), released()).dirty_clean


def test_a_limit_releases_what_is_within_it_and_asks_about_other_possible_stickers():
    found = seen([HERE, THERE, ELSEWHERE], [STICKER, STICKER, LOGO], doubt=[0.1, 0.5, 0.0])
    method = ObjectLimit("d", DROPOUT, signal(DROPOUT, "doubt"))
    decision = method.decide(scene(found), 0.3)
    assert decision.released.tolist() == [list(HERE)]
    assert decision.asked
    assert not method.decide(scene(found), 0.5).asked
    assert sorted(method.doubts(scene(found))) == [0.1, 0.5]
    unknown = scene(seen([HERE], [STICKER], doubt=[np.nan]))
    assert method.decide(unknown, np.inf).asked
    assert not len(method.decide(unknown, np.inf).released)
    twin = (HERE[0], HERE[1], HERE[2] + 10, HERE[3])
    twice = scene(seen([HERE, twin], [STICKER, (0.5, 0.0, 0.5)], doubt=[0.0, 0.0]))
    assert not method.decide(twice, 1.0).asked, "it is peeled with the other"
    rare = scene(seen([HERE], [STICKER], rate=[0.1], doubt=[0.5]))
    assert not method.decide(rare, 0.3).asked, "0.1 over all passes"
    faint = scene(seen([HERE], [(0.75, 0.0, 0.25)], doubt=[0.0]))
    assert method.decide(faint, 1.0).asked


def test_what_is_a_possible_sticker_is_fitted_to_the_stickers_that_were_seen():
    def shown(probability, at=HERE):
        return scene(seen([at], [(1 - probability, 0.0, probability)]), ((HERE, 2), (THERE, 2)))

    scenes = [shown(value) for value in np.linspace(0.1, 1, 100)] + [shown(0.01, ELSEWHERE)] * 50
    assert notable(scenes, DROPOUT) == pytest.approx(0.1)
    assert notable([shown(0.9, ELSEWHERE)], DROPOUT) == NOTABLE
    method = ObjectLimit("d", DROPOUT, lambda scene: np.ones(1), notable=0.1)
    assert method.decide(shown(0.15), 0.0).asked
    assert not method.decide(shown(0.05), 0.0).asked


def test_a_policy_is_asked_again_once_the_released_objects_are_gone():
    policy = Policy(max_dil=1.0, max_dil_clean=1.0, max_novelty=0.6, unmeasured_novelty="release")
    calm = Localization(1.0, 0.1, 0.1, 0.5, novelty=0.1)
    for novelty, asked in ((0.1, False), (0.7, True)):
        shown = assessment(observed(HERE), localization=Localization(1.0, 0.1, 0.1, 0.5, novelty=novelty))
        decision = PolicyMethod("p", policy).decide(scene(seen([], []), shown=shown), np.inf)
        assert decision.released.tolist() == [list(HERE)]
        assert decision.asked is asked
    both = assessment(observed(HERE), observed(THERE, probabilities=(0.3, 0.1, 0.6)), localization=calm)
    decision = PolicyMethod("p", policy).decide(scene(seen([], []), shown=both), np.inf)
    assert len(decision.released) == 1
    assert decision.asked


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
    nothing = shares(rows([0, 0], stickers=0), "right")[2]
    assert np.isnan(nothing.value)


def test_a_difference_is_taken_laptop_by_laptop():
    wrong = np.arange(40) % 2
    value = shares(rows(wrong), "wrong", rows(wrong))[2]
    assert (value.value, value.low, value.high) == (0, 0, 0)
    value = shares(rows(wrong), "wrong", rows(np.zeros(40, int)))[2]
    assert value.value == 0.5
    assert value.low > 0


def test_tables_show_every_method_and_mark_what_differs():
    good, bad = np.zeros(40, int), np.ones(40, int)
    both = pd.concat(
        [
            rows(counts, method, **goal)
            for goal in ({}, {"goal": "wrong"})
            for counts, method in ((good, SHIPPED), (bad, REFERENCE))
        ]
    )
    found = {"summary": summary(both), "cells": cells(both), "ranking": []}
    lines = table(found, "wrong").splitlines()
    assert lines[0] == "| method | none, n = 40 |"
    assert lines[2:] == [f"| {SHIPPED} | 0* (0 to 9) |", f"| {REFERENCE} | 100 (91 to 100) |"]
    assert "| none | 0 of 40 | 40 of 40 |" in table(found, "cases")


def test_a_run_measures_once_and_judges_what_it_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(hard_scenes, "_NOVELTIES", dict([*hard_scenes._NOVELTIES.items()][:1]))
    # a fit takes twenty laptops; it is tested with `sticker-uq calibrate`
    monkeypatch.setattr(
        hard_methods, "fit_policy", lambda records, base: base.model_copy(update={"risk": RISK})
    )
    arguments = f"--cache {tmp_path / 'cache'} --part novelty --scenes 1 --fit 1 --limits 1".split()
    arguments += ["--weights", str(small_weights(tmp_path))]
    hard.main([*arguments, "--out", str(tmp_path / "one.json")])
    found = json.loads((tmp_path / "one.json").read_text())
    methods = {row["method"] for row in found["summary"]}
    assert {SHIPPED, REFERENCE, "mutual information", "novelty of the object"} <= methods
    groups = {row["group"] for row in found["summary"]}
    assert groups == {NONE, *(case.name for case in cases(["novelty"]) if case.part == "novelty")}
    assert all(row["wrong"][1] == 1 for row in found["summary"])
    for name in TABLES:
        assert table(found, name).startswith("| ")

    def measured_again(*_):
        raise AssertionError("measured again")

    monkeypatch.setattr(Case, "scene", measured_again)
    hard.main([*arguments, "--out", str(tmp_path / "two.json"), "--against", str(tmp_path / "one.json")])
    again = json.loads((tmp_path / "two.json").read_text())
    assert again.pop("against") == {"one": {"trade": found["trade"]}}
    assert again == {name: value for name, value in found.items() if name != "against"}


def test_weights_are_compared_where_they_ask_equally_often():
    def row(method: str, wrong: list[int], asked: int) -> dict[str, object]:
        counts = {
            "wrong": [[n, 2] for n in wrong],
            "asked": [[asked, 5]] * 4,
            "dirty_clean": [[asked, 5]] * 4,
        }
        return {"group": "weak shift", "method": method, "asked_for": 0.2} | counts

    mean = "mean score, T passes"
    found = {
        "trade": [row(REFERENCE, [1, 1, 0, 0], 1), row(mean, [0, 1, 0, 0], 2)],
        "against": {"0.2": {"trade": [row(REFERENCE, [2, 2, 1, 1], 1)]}},
    }
    names, _, values = (
        [cell.strip("| ") for cell in line.split(" | ")] for line in table(found, "trade").splitlines()
    )
    cells = dict(zip(names, values, strict=True))
    assert (cells["% of pictures"], cells["asked for"]) == ("weak shift", "20")
    said = {name: (value.split(" ")[0], value.split(" ")[-1]) for name, value in cells.items()}
    assert said[REFERENCE] == ("25.0", "20")
    assert said[mean] == ("12.5", "40")
    assert said[f"{REFERENCE}, 0.2"] == ("75.0", "20")
    assert said[f"{mean} minus {REFERENCE}"] == ("-12.5", "20")
    assert said[f"{REFERENCE} minus {REFERENCE}, 0.2"] == ("-50.0", "0")


def test_photographs_show_nothing_to_remove_and_are_divided_by_name(tmp_path):
    import cv2

    (tmp_path / "cats").mkdir()
    picture = np.random.default_rng(0).integers(0, 255, (120, 160, 3), np.uint8)
    for name in ("0", "cat"):  # one for each part
        cv2.imwrite(str(tmp_path / "cats" / f"{name}.png"), picture)
    instrument = Instrument(weights=str(small_weights(tmp_path)))
    parts = [measure_photographs(tmp_path, split, instrument) for split in ("development", "test")]
    assert [[s.seed for s in part] for part in parts] == [[0], [1]]
    assert all(not len(s.boxes) and s.case == "cats" for part in parts for s in part)
    assert set(parts[0][0].seen[DROPOUT].signals) == {*METRICS, "novelty"}
    method = ObjectLimit("score", SINGLE, improbability(SINGLE))
    for one in parts[0]:
        found = result(one, method.decide(one, 1.0))
        assert found.wrong == found.released


def test_torn_stickers_are_worn_and_peeled_and_the_lid_is_the_same():
    whole, size = sample_scene(7003, stickers=4), (320, 240)
    scene = hard_scenes.torn(whole, 0.8)
    assert all(sticker.wear >= 0.8 and sticker.peel >= 0.279 for sticker in scene.stickers)
    assert [s.centre for s in scene.stickers] == [s.centre for s in whole.stickers]
    before, after = render(whole, size), render(scene, size)
    stickers = np.isin(before.id_map, [s.id for s in whole.stickers])
    shown = np.isin(after.id_map, [s.id for s in whole.stickers])
    assert shown.sum() < 0.97 * stickers.sum()
    assert hard_scenes.torn(whole, 0.0) == whole
