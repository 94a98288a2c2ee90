# SPDX-License-Identifier: Apache-2.0
"""Follow-up cases come in the proportions of the specification, with their truth, and the same each time."""

import json
import shutil
from collections import Counter
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab_helpers.robustness import specification_of
from sticker_uq.io.coco import read_coco
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.robustness.followups import (
    check_transformations,
    circumstance_set,
    make_cases,
    target_set,
    with_transformation,
)
from sticker_uq_lab.robustness.frequencies import SourceSet
from sticker_uq_lab.robustness.spec import Specification


def spec(**more: Any) -> Specification:
    return specification_of(
        {"name": "noise", "transformation": "sensor_noise", "strength": [5, 20], "probability": 0.3},
        {
            "name": "dark",
            "transformation": "low_light",
            "strength": [1, 3],
            "probability": 0.4,
            "exclusive_group": "light",
        },
        {
            "name": "bright",
            "transformation": "overexposure",
            "strength": [1, 2],
            "relative_frequency": 0.2,
            "exclusive_group": "light",
        },
        {"name": "turned", "transformation": "rotation", "strength": [5, 20], "probability": 0.25},
        {"name": "power-cut", "probability": 0.5},
        **more,
    )


def test_target_cases_come_in_the_target_proportions():
    drawn = target_set(spec(), 50, 2000)
    seen = Counter(one.circumstance for d in drawn for one in d.applied)
    anything = 1 - 0.7 * 0.4 * 0.75
    for name, probability in (("noise", 0.3), ("dark", 0.4), ("bright", 0.2), ("turned", 0.25)):
        assert seen[name] / 2000 == pytest.approx(probability / anything, abs=0.005)
    together = sum({"noise", "turned"} <= {one.circumstance for one in d.applied} for d in drawn)
    assert together / 2000 == pytest.approx(0.3 * 0.25 / anything, abs=0.02)
    assert "power-cut" not in seen
    assert set(Counter(d.image for d in drawn).values()) == {40}


@given(
    shares=st.lists(st.floats(0.01, 0.3), min_size=1, max_size=3),
    alone=st.lists(st.floats(0.01, 1.0), max_size=3),
    count=st.integers(1, 60),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_exclusive_circumstances_never_meet(shares, alone, count, seed):
    noise = {"transformation": "sensor_noise", "strength": [1, 2]}
    group = [
        {"name": f"g{i}", "probability": s, "exclusive_group": "g", **noise} for i, s in enumerate(shares)
    ]
    free = [{"name": f"a{i}", "probability": s, **noise} for i, s in enumerate(alone)]
    drawn = target_set(specification_of(*group, *free, seed=seed), 7, count)
    assert len(drawn) == count
    for draft in drawn:
        names = [one.circumstance for one in draft.applied]
        assert names
        assert len(set(names)) == len(names)
        assert sum(name.startswith("g") for name in names) <= 1


def test_one_circumstance_each_when_combinations_are_forbidden():
    drawn = target_set(spec(combinations=False), 10, 115)
    assert {len(d.applied) for d in drawn} == {1}
    seen = Counter(d.applied[0].circumstance for d in drawn)
    assert seen == {"noise": 30, "dark": 40, "bright": 20, "turned": 25}


def test_the_most_significant_come_first_and_the_untestable_not_at_all():
    both = specification_of(
        {"name": "a", "transformation": "jpeg", "strength": [9, 5], "probability": 0.1},
        {"name": "b", "transformation": "jpeg", "strength": [9, 5], "probability": 0.1, "severity": 5},
        {"name": "c", "probability": 0.1},
    )
    assert [c.name for c in with_transformation(both)] == ["b", "a"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"transformation": "snow", "strength": [1, 2]}, "'snow': expected one of"),
        ({"transformation": "jpeg", "strength": [0, 2]}, "circumstance x: jpeg: strength 0"),
        ({"transformation": "jpeg", "strength": [9, 2], "parameters": {"a": 1}}, "unknown parameter 'a'"),
    ],
)
def test_a_transformation_that_does_not_exist_is_named(changes, message):
    with pytest.raises(InvalidInput, match=message):
        check_transformations(specification_of({"name": "x", "probability": 0.1, **changes}))


def test_cases_are_a_data_set_of_their_own_and_are_made_once(source, tmp_path):
    one = spec()
    sets = {
        "": target_set(one, len(source), 6),
        "turned": circumstance_set(one, one.circumstance("turned"), range(4)),
    }
    told: list[tuple[int, int]] = []
    made = make_cases(source, sets, tmp_path, progress=lambda *now: told.append(now))
    assert told[0] == (0, 10)
    assert told[-1] == (10, 10)
    assert list(made) == ["", "turned"]
    items = {item.image_id: item for item in read_coco(tmp_path)}
    for case in (case for s in made.values() for case in s):
        assert np.array_equal(items[case.truth.image_id].boxes, case.truth.boxes)
        assert items[case.truth.image_id].path == case.truth.path
        assert len(case.origin) + len(case.hidden) == len(case.source.boxes)
        assert case.source.labels[case.origin].tolist() == case.truth.labels.tolist()
    turned = made["turned"][1]
    assert turned.circumstances == ("turned",)
    assert not np.array_equal(turned.truth.boxes, turned.source.boxes)
    entries = json.loads((tmp_path / "annotations.json").read_text())["images"]
    assert {tuple(e["tags"]) for e in entries} >= {("turned",)}

    (tmp_path / "annotations.json").unlink()
    lost = made["turned"][0]
    (tmp_path / "cases" / f"{lost.case_id}.json").unlink()
    before = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "images").iterdir()}
    again = make_cases(source, sets, tmp_path)
    after = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "images").iterdir()}
    assert {name for name in before if before[name] != after[name]} == {lost.truth.path.name}
    assert np.array_equal(cv2.imread(str(lost.truth.path)), cv2.imread(str(again["turned"][0].truth.path)))
    assert [c.case_id for s in again.values() for c in s] == [c.case_id for s in made.values() for c in s]


def test_another_data_set_is_not_touched(source, scenes):
    with pytest.raises(InvalidInput, match="another data set"):
        make_cases(source, {"": target_set(spec(), len(source), 1)}, scenes)


def test_tags_come_from_the_entries(scenes, tmp_path):
    assert not SourceSet.load(scenes).tagged
    shutil.copytree(scenes, tmp_path / "tagged")
    path = tmp_path / "tagged" / "annotations.json"
    document = json.loads(path.read_text())
    document["images"][0]["tags"] = ["glare", "noise"]
    path.write_text(json.dumps(document))
    tagged = SourceSet.load(tmp_path / "tagged")
    assert tagged.tagged
    assert [sorted(i.tags) for i in tagged.images] == [["glare", "noise"], [], [], []]
    document["images"][0]["tags"] = "glare"
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidInput, match="expected a list of words"):
        SourceSet.load(tmp_path / "tagged")
