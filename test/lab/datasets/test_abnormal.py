# SPDX-License-Identifier: Apache-2.0
import itertools
import json
import zlib
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

from sticker_uq.io.coco import read_coco, write_coco
from sticker_uq.lab.datasets.abnormal import (
    CASES,
    CLEAN,
    EXPOSURE,
    HIDDEN_SHARE,
    abnormal_scenes,
    patch_place,
    patched,
    read_abnormal,
    untouched,
)
from sticker_uq.lab.rendering.painting import draw_over
from sticker_uq.lab.rendering.things import OBJECTS, OCCLUDERS, UNKNOWN_STICKERS
from sticker_uq.scene import InvalidInput, ObjectClass
from test.helpers.scenes import rendered

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
        changed = (picture(before) != picture(found.picture)).any(axis=2)
        assert changed.any()
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


def test_same_seed_same_bytes_other_seed_others(folder):
    items = read_coco(folder)[:1]
    for case in CASES:
        first, again, other = (next(abnormal_scenes(items, case, seed)).data for seed in (1, 1, 2))
        assert first == again != other


def test_a_scene_does_not_depend_on_the_others(folder):
    items = read_coco(folder)
    alone = next(abnormal_scenes(items[1:2], "occlusion", 1))
    assert alone.data == list(abnormal_scenes(items, "occlusion", 1))[1].data


@pytest.mark.parametrize("kind", list(OCCLUDERS))
def test_an_occluder_covers_more_the_further_it_reaches(kind):
    def covered(reach):
        _, mask = draw_over(
            (200, 200),
            lambda pen, rng: OCCLUDERS[kind](pen, reach, rng),
            (100, 100),
            30,
            0.7,
            np.random.default_rng(3),
        )
        return (mask[80:120, 80:120] > 127).mean()

    parts = [covered(reach) for reach in np.linspace(-1.5, 1.5, 7)]
    assert parts[0] < 0.05
    assert parts[-1] > 0.6
    assert all(b >= a - 0.12 for a, b in itertools.pairwise(parts))


@pytest.mark.parametrize("kind", [*OBJECTS, *UNKNOWN_STICKERS])
def test_a_foreign_object_fills_its_place_in_any_direction(kind):
    draw = {**OBJECTS, **UNKNOWN_STICKERS}[kind]
    for turn in (0.0, 2.0):
        _, mask = draw_over((200, 200), draw, (100, 100), 50, turn, np.random.default_rng(zlib.crc32(b"x")))
        x, y, w, h = cv2.boundingRect(mask)
        assert max(w, h) > 50
        assert abs(x + w / 2 - 100) < 30
        assert abs(y + h / 2 - 100) < 30


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


def test_a_patch_is_pasted_as_it_is():
    boxes = np.array([[100, 80, 180, 160]], np.float32)
    labels = np.array([2])
    patch = np.full((8, 8, 3), (10, 200, 90), np.uint8)
    black = untouched(np.zeros((240, 320, 3), np.uint8), boxes, labels)
    scene = patched(black, np.random.default_rng(0), patch)
    x1, y1, x2, y2 = scene.added[0].astype(int)
    assert (scene.image[y1:y2, x1:x2] == (10, 200, 90)).all()
    assert scene.image.sum() == 300 * (x2 - x1) * (y2 - y1)


def test_unknown_case_and_ordinary_folder(folder):
    with pytest.raises(InvalidInput, match=r"case 'fog': expected one of clean, occlusion-pasted"):
        list(abnormal_scenes(read_coco(folder), "fog", 0))
    with pytest.raises(InvalidInput, match="dataset abnormal"):
        read_abnormal(folder)


def test_the_folder_is_coco_with_more(folder, tmp_path):
    write_coco(tmp_path / "o", abnormal_scenes(read_coco(folder), "unknown-sticker", 0))
    document = json.loads((tmp_path / "o" / "annotations.json").read_text())
    entry = document["images"][0]
    assert entry["case"] == "unknown-sticker"
    assert entry["source"] == "00000000.png"
    assert entry["seed"] == 0
    assert set(entry["added"][0]) == {"bbox", "kind"}
    assert all(0 < a["visible"] <= 1 and len(a["whole_bbox"]) == 4 for a in document["annotations"])


@pytest.mark.parametrize("case", EXPOSURE)
def test_exposure_degrades_pictures_and_invents_no_object(folder, tmp_path, case):
    items = read_coco(folder)
    write_coco(tmp_path / case, abnormal_scenes(items, case, 5, image_format="png"))
    found = told(tmp_path / case)
    assert len(found) == len(items)
    for before, after in zip(items, found, strict=True):
        assert (picture(before) != picture(after.picture)).any()
        assert len(after.picture.boxes) + len(after.lost) == len(before.boxes)
