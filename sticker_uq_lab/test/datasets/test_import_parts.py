# SPDX-License-Identifier: Apache-2.0
"""Imported pictures are divided by laptops: none is in two parts, frames of a video stay together, copies are left out."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import yaml

from lab_helpers.imports import MEANING, STICKER, annotated, edit, picture, refusal, source, taken
from sticker_uq.io.coco import read_coco
from sticker_uq.io.labelled_images import LabelledSource
from sticker_uq_lab.datasets.importing.grouping import split_groups


def many(root: Path, laptops: int, each: int) -> Path:
    """Pictures of laptops, some frames of each: nearly the same; a sticker on every second one."""
    (root / "in").mkdir()
    names = []
    for laptop in range(laptops):
        base = picture(100 + laptop).astype(np.int16)
        for frame in range(each):
            noise = np.random.default_rng(laptop * each + frame).integers(-2, 3, base.shape)
            names.append(f"pc{laptop:02d}_{frame}.png")
            cv2.imwrite(str(root / "in" / names[-1]), np.clip(base + noise, 0, 255).astype(np.uint8))
    return annotated(root / "in", names, dict.fromkeys(range(0, len(names), 2), (1, 2, 30, 40)))


@pytest.mark.parametrize("grouping", [["--group", r"pc(\d+)", "--near", "-1"], [], ["--near", "-1"]])
def test_no_laptop_is_in_two_parts(grouping, tmp_path):
    root = many(tmp_path, 12, 4)
    if grouping == ["--near", "-1"]:  # the annotations name the laptops

        def name_them(document: Any) -> None:
            for image in document["images"]:
                image["workpiece_id"] = image["file_name"][:4]

        edit(root / "a.json", name_them)
    options = [*STICKER, "--split", "0.5,0.25,0.25", *grouping]
    taken(root, *options)
    laptops: dict[str, set[str]] = {}
    for part, count in (("learn", 24), ("calibrate", 12), ("test", 12)):
        items = read_coco(tmp_path / "out" / part)
        assert len(items) == count
        laptops[part] = {item.source_name[:4] for item in items}
        assert len({item.workpiece_id for item in items}) == len(laptops[part]) == count // 4
        labelled = LabelledSource(tmp_path / "out" / part)
        assert len({labelled.workpiece_of(item, 0) for item in labelled.items.values()}) == count // 4
    assert not laptops["learn"] & laptops["calibrate"]
    assert not (laptops["learn"] | laptops["calibrate"]) & laptops["test"]
    # the same seed gives the same parts, another one others
    for name, seed in (("same", 0), ("other", 1)):
        taken(root, *options, "--seed", seed, out=name)
    first, same, other = (
        (tmp_path / name / "learn" / "annotations.json").read_text() for name in ("out", "same", "other")
    )
    assert first == same != other


def test_parts_that_stay_empty_and_wrong_shares_are_refused(tmp_path):
    root = many(tmp_path, 2, 2)
    for options, message in (
        (["--split", "0.7,0.15,0.15"], "4 pictures of 2 laptops: nothing is left for"),
        (["--split", "0.7,0.2"], "expected the shares of learn, calibrate, test"),
        (["--split", "0.7,0.2,0.2"], "which sum to 1"),
        (["--group", "("], "not a regular expression"),
        (["--group", "x"], "finds nothing in 4 of 4 names, first 'pc00_0.png'"),
    ):
        assert message in refusal(root, *STICKER, *options)


def test_laptops_without_stickers_are_divided_by_the_same_shares():
    groups, clean = list(range(100)), [number % 5 == 0 for number in range(100)]
    parts = split_groups(groups, (0.5, 0.35, 0.15), seed=0, clean=clean)
    assert [parts.count(part) for part in range(3)] == [50, 35, 15]
    assert [sum(c for c, p in zip(clean, parts, strict=True) if p == part) for part in range(3)] == [10, 7, 3]


def test_copies_are_left_out_and_copies_with_other_objects_refused(tmp_path):
    root = source(tmp_path, "yolo")
    (root / "images" / "lid_09.png").write_bytes((root / "images" / "lid_02.png").read_bytes())
    labels = root / "labels" / "lid_09.txt"
    labels.write_text("0 0.5 0.5 0.1 0.1\n")
    assert "lid_09.png and images/lid_02.png have other objects" in refusal(root)
    output, items = taken(root, *MEANING, "--repair", out="repaired")
    assert "lid_09.png and images/lid_02.png have other objects: both left out" in output
    assert len(items) == 2
    labels.write_text((root / "labels" / "lid_02.txt").read_text())
    output, items = taken(root)
    assert "images/lid_09.png has the pixels of images/lid_02.png" in output
    assert len(items) == 3


def test_frames_of_a_video_are_one_laptop_and_told_when_they_are_not(tmp_path):
    numbers = [start + 6 * step for start in range(0, 12000, 1000) for step in range(4)]
    root = tmp_path / "in"
    root.mkdir()
    names = [f"video{number:04d}.png" for number in numbers]
    for number, name in zip(numbers, names, strict=True):
        cv2.imwrite(str(root / name), picture(number))
    annotated(root, names, dict.fromkeys(range(0, len(names), 2), (1, 2, 30, 40)))
    options = [*STICKER, "--split", "0.5,0.25,0.25"]
    apart, _ = taken(root, *options, out="apart")
    assert "test: 12 of 12 pictures have a name that differs by at most 30 in its number" in apart
    assert "import again with --consecutive N" in apart
    joined, _ = taken(root, *options, "--consecutive", "6")
    assert "in its number" not in joined
    scenes_of = {}
    for part in ("learn", "calibrate", "test"):
        items = read_coco(tmp_path / "out" / part)
        scenes_of[part] = {int(Path(item.source_name).stem[5:]) // 1000 for item in items}
        assert len({item.workpiece_id for item in items}) == len(scenes_of[part]) == len(items) // 4
    assert sum(map(len, scenes_of.values())) == len(set().union(*scenes_of.values())) == 12
    assert yaml.safe_load((tmp_path / "out" / "import.yaml").read_text())["consecutive"] == 6
    # numbers that --group says are those of laptops number no frames, and without parts nothing can be in another one
    assert "in its number" not in taken(root, *options, "--group", r"video(\d+)", out="grouped")[0]
    assert "in its number" not in taken(root, *STICKER, out="whole")[0]
