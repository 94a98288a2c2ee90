# SPDX-License-Identifier: Apache-2.0
"""The benchmark of second views: a view changes only what it changes, risk is equal where it is said to be, a short run."""

import json

import cv2
import numpy as np
import pytest

from benchmarks import second_view
from benchmarks.hard_scenes import MATERIAL, NONE, SPLITS
from benchmarks.second_view import METHODS, ONCE, SCALES, TABLES, at_equal_risk, looked_again, once, scaled
from benchmarks.second_view_measure import Laptop, Seen
from benchmarks.second_view_scenes import (
    AGAIN,
    AVERAGED,
    CIRCUMSTANCES,
    EXPOSURE,
    FIRST,
    LIGHT,
    TURN,
    VIEWS,
    stops_for,
    views,
)
from sticker_uq.calibration.records import Record
from sticker_uq.gate import Policy
from sticker_uq.gate.box_overlap import as_box, iou
from sticker_uq.gate.second_view import Places
from sticker_uq.lab.corruptions.light import linear
from sticker_uq.testing.scenes import HERE, THERE, assessment, observed

SEED = 220_000_003
PLAIN = Policy(max_unexplained_objectness=0.1)
ROW = list(METHODS)


@pytest.fixture(scope="module")
def pictures():
    return {circumstance: views(SEED, circumstance) for circumstance in CIRCUMSTANCES}


def light(view):
    return float(linear(view.image).mean())


@pytest.mark.parametrize("circumstance", CIRCUMSTANCES)
def test_every_view_shows_the_same_laptop(pictures, circumstance):
    shown = pictures[circumstance]
    assert list(shown) == list(VIEWS)
    first = shown[FIRST]
    assert len(first.boxes) == 6
    for view in shown.values():
        places = Places.of(view.to_first)
        assert view.labels.tolist() == first.labels.tolist()
        overlaps = [
            iou(places.in_first(as_box(now)), as_box(then))
            for now, then in zip(view.boxes, first.boxes, strict=True)
        ]
        assert min(overlaps) > 0.6
        assert view is first or not np.array_equal(view.image, first.image)
        if view is not shown[TURN]:
            assert np.array_equal(view.boxes, first.boxes)


def test_the_same_view_again_differs_by_noise_alone(pictures):
    shown = pictures[NONE]
    difference = shown[AGAIN].image.astype(float) - shown[FIRST].image
    assert abs(difference.mean()) < 0.5
    assert 0.5 < difference.std() < 20
    averaged = shown[AVERAGED].image.astype(float) - (shown[AGAIN].image / 2.0 + shown[FIRST].image / 2.0)
    assert np.abs(averaged).max() < 12
    assert abs(averaged.mean()) < 1


def test_another_exposure_goes_towards_middle_grey(pictures):
    assert light(pictures["overexposure"][EXPOSURE]) < light(pictures["overexposure"][FIRST])
    assert light(pictures["low_light"][EXPOSURE]) > light(pictures["low_light"][FIRST])
    black, white = np.zeros((4, 4, 3), np.uint8), np.full((4, 4, 3), 255, np.uint8)
    assert (stops_for(black), stops_for(white)) == (2.0, -2.0)
    assert stops_for(np.full((4, 4, 3), 117, np.uint8)) == -1.0  # well exposed


def test_a_lamp_stays_when_the_laptop_turns_and_moves_when_the_light_does(pictures):
    def dazzled(view):
        return (view.image.min(axis=2) >= 250).astype(float)

    shown = pictures["glare"]
    before = dazzled(shown[FIRST])
    assert before.sum() > 500
    kept = {name: (before * dazzled(shown[name])).sum() / before.sum() for name in VIEWS}
    assert kept[TURN] > 0.7
    assert kept[LIGHT] < 0.5
    # a shorter exposure shows part of what was washed out
    assert dazzled(shown[EXPOSURE]).sum() < before.sum()


def test_a_longer_exposure_blurs_more(pictures):
    def sharp(view):
        grey = cv2.cvtColor(view.image, cv2.COLOR_BGR2GRAY).astype(np.float32)
        return cv2.Laplacian(cv2.GaussianBlur(grey, (0, 0), 1.0), cv2.CV_32F).var() / grey.mean() ** 2

    shown = pictures["motion_blur"]
    assert stops_for(shown[FIRST].image) < 0
    assert sharp(shown[EXPOSURE]) > sharp(shown[FIRST])


def test_its_laptops_are_those_of_no_other_benchmark():
    first = second_view._options().parse_args(["--out", "x"]).first
    assert first in SPLITS["test"]
    assert first > SPLITS["test"][1000]
    assert first not in MATERIAL


def test_limits_grow_with_the_factor_and_one_changes_nothing():
    assert scaled(PLAIN, 1.0).model_dump() == pytest.approx(PLAIN.model_dump())
    strict, loose = scaled(PLAIN, 0.1), scaled(PLAIN, 5.0)
    assert strict.min_probability > PLAIN.min_probability > loose.min_probability >= 0.0
    assert strict.max_logo_overlap < PLAIN.max_logo_overlap < loose.max_logo_overlap
    assert (strict.max_dil, strict.max_scene_distance) == (PLAIN.max_dil, PLAIN.max_scene_distance)


def laptop(first, **others):
    boxes, labels = np.array([HERE, THERE], np.float32), np.array([2, 2])
    seen = {name: Seen(scene, np.eye(3)) for name, scene in (others | {FIRST: first}).items()}
    return Laptop(SEED, NONE, Record("", boxes, labels, first), seen)


def test_a_second_view_is_taken_only_where_the_first_asks_what_it_may_answer():
    dim = {"shannon_entropy": 1.2}
    sure, unsure = observed(), observed(THERE, **dim)
    clear = assessment(sure, observed(THERE), stamp_ns=5)
    found = looked_again(laptop(assessment(sure, unsure), light=clear), PLAIN, (LIGHT,))
    assert (found.released, found.asked) == ((HERE, THERE), False)
    foreign = laptop(assessment(sure, observed(THERE, novelty=0.9)), light=clear)
    assert looked_again(foreign, PLAIN, (LIGHT,)) == once(foreign.seen[FIRST], PLAIN)[0]
    assert looked_again(foreign, PLAIN, (LIGHT,), joined=False).released == (HERE, THERE)
    settled = laptop(assessment(sure))
    assert looked_again(settled, PLAIN, (LIGHT,)).released == (HERE,)


def counted(asked, wrong):
    """A table in which every method has the figures of asking at once, but the second ``asked`` and ``wrong`` by factor."""
    table = np.zeros((len(METHODS), len(SCALES), 40, 6))
    for row in range(len(METHODS)):
        for step in range(len(SCALES)):
            share = (20, step // 4) if row != 1 else (asked(step), wrong(step))
            table[row, step, : share[0], 0] = 1
            table[row, step, : share[1], 1] = 1
    return table


def test_questions_are_compared_at_the_same_rate_of_wrongful_releases():
    seeds, everything = np.arange(40), np.ones(40, bool)
    table = counted(lambda step: 30 - step, lambda step: step // 2)
    rows = {row["method"]: row for row in at_equal_risk(table, seeds, everything)}
    level = second_view._PLAIN // 4
    assert rows[ONCE]["wrong"] == [level, 40]
    assert rows[ROW[1]]["wrong"][0] == level
    # twice as often wrong, so that only half of the factors are left
    assert rows[ROW[1]]["factor"] == SCALES[2 * level + 1]
    assert rows[ROW[1]]["more_than_at_once"][0] == pytest.approx((30 - (2 * level + 1) - 20) / 40)
    assert rows[ONCE]["more_than_at_once"] == [0.0, 0.0, 0.0]
    always = counted(lambda step: 1, lambda step: 39)
    hopeless = at_equal_risk(always, seeds, everything)[1]
    assert (hopeless["factor"], hopeless["more_than_at_once"]) == (None, [None] * 3)


def test_a_short_run_writes_what_the_tables_need(tmp_path, capsys):
    out = tmp_path / "found.json"
    arguments = [
        "--laptops",
        "1",
        "--first",
        str(SEED),
        "--out",
        str(out),
        "--cache",
        str(tmp_path / "c.sqlite"),
    ]
    second_view.main(arguments)
    found = json.loads(out.read_text())
    assert found["laptops"] == 1
    for name in TABLES:
        assert second_view.table(found, name).count("\n") >= len(METHODS)
    assert second_view.table(found) in capsys.readouterr().out
