# SPDX-License-Identifier: Apache-2.0
"""What public photographs are said to show is computed as said: wrong objects, areas, splits, chance."""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.public_laptops import FOLDS, LABELS, SIZES, folds
from benchmarks.public_photographs import above_by_chance
from benchmarks.public_photographs_measure import SCORE, Objects, auroc, labelled_sets, objects_of, promise
from sticker_uq.calibration.records import Record
from sticker_uq.gate import Policy
from sticker_uq.io.coco import parse_annotations
from sticker_uq.scene import ObjectClass
from sticker_uq.testing.scenes import assessment, object_at

HERE, THERE = (100, 100, 150, 150), (300, 300, 350, 350)
STICKER, LOGO = ObjectClass.STICKER, ObjectClass.LOGO


def _record(number: int, labelled: ObjectClass | None, score: float = 0.95, workpiece: str = "") -> Record:
    """A picture with a sticker, a logo or nothing where a sticker is seen."""
    seen = object_at(HERE, STICKER, (0.0, round(1 - score, 3), score))
    boxes = np.array([] if labelled is None else [HERE], np.float32).reshape(-1, 4)
    labels = np.array([] if labelled is None else [labelled], np.int64)
    return Record(str(number), boxes, labels, assessment(seen, stamp_ns=number), workpiece)


def test_every_listed_set_has_something_to_keep_and_to_remove():
    listed = labelled_sets()
    assert len({one.name for one in listed}) == len(listed) >= 2
    assert all({"logo", "sticker"} <= set(one.classes.values()) for one in listed)
    assert all(one.licence != "unknown" for one in listed)


def test_an_object_is_wrong_unless_it_lies_on_one_of_its_class():
    records = [_record(0, STICKER), _record(1, LOGO, 0.6), _record(2, None)]
    elsewhere = replace(_record(3, STICKER), boxes=np.array([THERE], np.float32))
    further = [[{SCORE: 0.1 * n}] for n in range(4)]
    found = objects_of([*records, elsewhere], further)
    assert found.wrong.tolist() == [False, True, True, True]
    assert found.removal.all()
    assert found.unit.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(found.doubts[SCORE], [0.0, 0.1, 0.2, 0.3])
    np.testing.assert_allclose(found.doubts["mean score"], [0.05, 0.4, 0.05, 0.05], atol=1e-6)


def test_areas_are_those_of_the_doubts_and_of_their_difference_to_one_pass():
    rng = np.random.default_rng(0)
    wrong = np.arange(200) % 4 == 0
    doubts = {SCORE: rng.random(200), "exact": wrong + 0.1 * rng.random(200), "none": np.full(200, np.nan)}
    objects = Objects(np.arange(200) // 2, wrong, np.arange(200) < 100, doubts)
    score, exact, none = auroc(objects, removals_only=False)
    assert exact["auroc"] == [1.0, 1.0, 1.0]
    assert exact["minus_score"][0] == pytest.approx(1.0 - score["auroc"][0], abs=1e-4)
    assert exact["minus_score"][1] > 0.3
    assert score["minus_score"] == [0.0, 0.0, 0.0]
    assert score["auroc"][1] < score["auroc"][0] < score["auroc"][2]
    assert none["auroc"] == none["minus_score"] == [None] * 3
    (half, *_) = auroc(objects, removals_only=True)
    assert half["auroc"] != score["auroc"]


def test_a_split_calibrates_on_one_half_and_counts_on_the_other():
    rng = np.random.default_rng(1)
    sure, unsure = 0.999 - 0.2 * rng.random(160) ** 4, 0.4 + 0.3 * rng.random(160)
    records = []
    for n in range(160):  # in turn a sticker, a logo that is one, and nothing where a sticker is seen
        record = _record(n, (STICKER, LOGO, None)[n % 3], float((unsure if n % 3 else sure)[n]))
        clean = assessment(object_at(HERE, LOGO), stamp_ns=n, dil=float(unsure[n]))
        records.append(replace(record, assessment=clean) if n % 3 == 1 else record)
    row = promise(records, 0, 0.1, Policy(unmeasured_novelty="release"))
    assert row["refused"] == ""
    assert row["wrongful"][1] == row["asked"][1] == 80
    assert row["wrongful"][0] <= 8
    assert row["score"]["released"][1] == row["released"][1]
    few = promise(records[:110], 0, 0.05, Policy(unmeasured_novelty="release"))
    assert "--alpha 0.05 cannot be proved" in few["refused"]


def test_chance_is_that_of_the_binomial_distribution():
    assert above_by_chance([[0, 1], [0, 1]], 0.1, 0.25) == pytest.approx(0.5)  # above as soon as one is bad
    assert above_by_chance([[0, 10]], 0.1, 0.1) == pytest.approx(1 - 0.9**10 - 10 * 0.1 * 0.9**9)
    assert above_by_chance([], 0.1, 0.1) == 0


def test_no_laptop_of_the_photographs_is_learned_from_and_tested_on():
    items = parse_annotations(LABELS, json.loads(LABELS.read_text(encoding="utf-8")))
    parts = folds(items)
    assert sorted(n for part in parts for n in part) == list(range(len(items)))
    assert len(parts) == FOLDS
    assert all(len(items) - len(part) > max(SIZES) for part in parts)
    laptops = [{items[n].workpiece_id for n in part} for part in parts]
    assert sum(map(len, laptops)) == len(set.union(*laptops))
