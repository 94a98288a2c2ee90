# SPDX-License-Identifier: Apache-2.0
import json
from dataclasses import replace
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

from lab_helpers.scenes import rendered
from sticker_uq.io.coco import read_coco, write_coco
from sticker_uq.scene import InvalidInput, ObjectClass
from sticker_uq_lab.datasets.abnormal import (
    CASES,
    CLEAN,
    EXPOSURE,
    HIDDEN_SHARE,
    abnormal_scenes,
    patch_place,
    read_abnormal,
)
from sticker_uq_lab.rendering.things import OBJECTS, UNKNOWN_STICKERS

SIZE = (320, 240)
SEEDS = range(3)
PATCH = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A COCO folder of three scenes with four stickers each and one without."""
    root = tmp_path_factory.mktemp("clean")
    return rendered(root, (*SEEDS, 9), SIZE, "png", stickers=lambda seed: 4 if seed in SEEDS else 0)


def told(folder):
    """The pictures of a folder of abnormal scenes with all that its annotations say."""
    document = json.loads((folder / "annotations.json").read_text())
    return [
        SimpleNamespace(
            picture=one.picture,
            source=one.source,
            visible=np.array([a["visible"] for a in document["annotations"] if a["image_id"] == entry["id"]]),
            lost=entry["lost"],
            added=np.array([[x, y, x + w, y + h] for x, y, w, h in (a["bbox"] for a in entry["added"])]),
            kinds=[a["kind"] for a in entry["added"]],
        )
        for one, entry in zip(read_abnormal(folder), document["images"], strict=True)
    ]


@pytest.fixture(scope="module")
def cases(folder, tmp_path_factory):
    """Every case as it is read back, by name."""
    root, items = tmp_path_factory.mktemp("abnormal"), read_coco(folder)
    for case in (CLEAN, *CASES, "patch-test"):
        patch = PATCH if case.startswith("patch") else None
        write_coco(root / case, abnormal_scenes(items, case, 5, patch, "png"))
    return {case.name: told(case) for case in root.iterdir()}


def picture(item):
    return cv2.imread(str(item.path))


def test_the_clean_case_changes_nothing(folder, cases):
    for before, after in zip(read_coco(folder), cases[CLEAN], strict=True):
        np.testing.assert_array_equal(picture(before), picture(after.picture))
        np.testing.assert_array_equal(before.boxes, after.picture.boxes)
        assert (after.visible == 1).all()
        assert not len(after.lost)
        assert not len(after.added)


@pytest.mark.parametrize("case", ["occlusion", "occlusion-pasted", "patch-test"])
def test_what_hides_is_told(folder, cases, case):
    originals = {item.path.name: item for item in read_coco(folder)}
    # not the bare one
    assert [found.source for found in cases[case]] == [f"{seed:08d}.png" for seed in SEEDS]
    for found in cases[case]:
        before = originals[found.source]
        assert len(found.visible) + len(found.lost) == len(before.boxes)
        assert found.kinds
        assert len(found.added) == len(found.kinds)
        assert (picture(before) != picture(found.picture)).any()
        covered = np.flatnonzero(found.visible < 1)
        assert len(covered) + len(found.lost) > 0
        for index in covered:
            x1, y1, x2, y2 = found.picture.boxes[index]
            assert any(x1 >= b[0] and y1 >= b[1] and x2 <= b[2] and y2 <= b[3] for b in before.boxes)
        assert (found.visible >= 0.25 - 1e-3).all()


def test_an_occluder_hides_as_much_as_wanted(cases):
    for found in cases["occlusion-pasted"]:
        stickers = found.visible[found.picture.labels == ObjectClass.STICKER]
        # a box may be hit a second time by the piece over its neighbour
        assert stickers.min() < 1 - HIDDEN_SHARE[0] + 0.1


@pytest.mark.parametrize("case", ["unknown-object", "unknown-sticker"])
def test_foreign_objects_lie_where_nothing_was(folder, cases, case):
    for before, found in zip(read_coco(folder), cases[case], strict=True):
        known = UNKNOWN_STICKERS if case == "unknown-sticker" else OBJECTS
        assert 1 <= len(found.kinds) <= 3
        assert set(found.kinds) <= set(known)
        more = len(found.kinds) if case == "unknown-sticker" else 0
        assert len(found.picture.boxes) == len(before.boxes) + more
        np.testing.assert_array_equal(found.picture.boxes[: len(before.boxes)], before.boxes)
        if more:
            np.testing.assert_array_equal(found.picture.boxes[-more:], found.added)
        changed = (picture(before) != picture(found.picture)).any(axis=2)
        for x1, y1, x2, y2 in found.added.astype(int):
            assert changed[y1:y2, x1:x2].mean() > 0.15


def test_a_patch_lies_on_its_sticker_and_inside_the_picture():
    rng = np.random.default_rng(0)
    for box in ([0, 0, 20, 30], [300, 220, 320, 240], [100, 80, 180, 120]):
        left, top, side = patch_place(np.array(box, np.float32), (240, 320), rng)
        assert left >= 0
        assert top >= 0
        assert left + side <= 320
        assert top + side <= 240
        assert box[0] <= left + side / 2 <= box[2]
        assert box[1] <= top + side / 2 <= box[3]


def test_a_laptop_has_its_own_draws_whatever_its_id_and_name(folder):
    items = read_coco(folder)[:2]
    first, second = items
    other = [replace(second, image_id=first.image_id), replace(first, image_id=second.image_id)]
    before, after = (
        [scene.image_fields["added"] for scene in abnormal_scenes(part, "unknown-object", 5)]
        for part in (items, other)
    )
    assert after == before[::-1]
    assert before[0] != before[1]


def test_nothing_to_hide_is_refused(folder):
    bare = [item for item in read_coco(folder) if not item.shows_sticker]
    with pytest.raises(InvalidInput, match="case 'occlusion': none of the 1 pictures has a sticker"):
        abnormal_scenes(bare, "occlusion", 0)


def test_unknown_case_and_ordinary_folder(folder):
    with pytest.raises(InvalidInput, match=r"case 'fog': expected one of clean, occlusion-pasted"):
        list(abnormal_scenes(read_coco(folder), "fog", 0))
    with pytest.raises(InvalidInput, match="dataset abnormal"):
        read_abnormal(folder)


@pytest.mark.parametrize("case", EXPOSURE)
def test_exposure_degrades_pictures_and_invents_no_object(folder, tmp_path, case):
    items = read_coco(folder)
    write_coco(tmp_path / case, abnormal_scenes(items, case, 5, image_format="png"))
    found = told(tmp_path / case)
    assert len(found) == len(items)
    for before, after in zip(items, found, strict=True):
        assert (picture(before) != picture(after.picture)).any()
        assert len(after.picture.boxes) + len(after.lost) == len(before.boxes)
