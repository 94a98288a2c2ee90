# SPDX-License-Identifier: Apache-2.0
"""A data set is divided by laptop, and nothing is in two parts."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sticker_uq.io.coco import LabelledImage, encode_picture, read_coco
from sticker_uq.scene import InvalidInput, ObjectClass
from sticker_uq_lab.datasets.checking import picture_statistics
from sticker_uq_lab.qualifying.parts import (
    divide,
    fingerprint,
    near_in_two_parts,
    parts_of,
    refuse_same_pixels,
    write_part,
)


def labelled(folder: Path, laptops: Sequence[str]) -> Path:
    """A COCO folder of noise, a picture for each of ``laptops``; every third shows a sticker."""
    source = folder.with_name(f"{folder.name}_source")
    source.mkdir()
    items = []
    for number in range(len(laptops)):
        picture = np.random.default_rng(number).integers(0, 255, (32, 48, 3)).astype(np.uint8)
        path = source / f"shot_{number}.png"
        path.write_bytes(encode_picture(picture, "png"))
        box = np.array([[4.0, 4.0, 20.0, 20.0]], np.float32)
        label = ObjectClass.STICKER if number % 3 == 0 else ObjectClass.LOGO
        items.append(LabelledImage(path, number, 48, 32, box, np.array([int(label)])))
    write_part(folder, items, laptops)
    return folder


def test_a_laptop_is_in_one_part_only(tmp_path):
    data = labelled(tmp_path / "data", [f"pc{n // 3}" if n < 30 else "" for n in range(60)])
    parts = divide(picture_statistics(read_coco(data)), tmp_path / "parts", (0.5, 0.3, 0.2), -1, 0)
    found = {name: read_coco(folder) for name, folder in parts.items()}
    assert sum(map(len, found.values())) == 60
    assert [len(items) for items in found.values()] == pytest.approx([30, 18, 12], abs=2)
    laptops = [{item.workpiece_id for item in items if item.workpiece_id} for items in found.values()]
    assert len(set.union(*laptops)) == sum(map(len, laptops)) == 10
    names = {item.path.name for items in found.values() for item in items}
    assert names == {f"shot_{n}.png" for n in range(60)}
    refuse_same_pixels({name: picture_statistics(items) for name, items in found.items()})


def test_same_pixels_are_refused_and_near_ones_listed(tmp_path):
    seen = picture_statistics(read_coco(labelled(tmp_path / "data", [""] * 3)))
    with pytest.raises(InvalidInput, match=r"test/shot_1\.png and learn/shot_1\.png: have the same pixels"):
        refuse_same_pixels({"learn": seen, "test": seen[1:2]})
    alike = replace(seen[0], pixels=b"other", perceptual=seen[0].perceptual ^ 1)
    (line,) = near_in_two_parts({"learn": seen, "test": [alike]}, 6)
    assert line.startswith("learn/shot_0.png and test/shot_0.png: ")


def test_the_fingerprint_is_of_pixels_labels_and_laptops(tmp_path):
    items = read_coco(labelled(tmp_path / "data", ["a", "b"]))
    before = fingerprint(items)
    assert before == fingerprint(read_coco(tmp_path / "data"))
    assert before != fingerprint([replace(items[0], workpiece_id="c"), items[1]])
    assert before != fingerprint([replace(items[0], boxes=items[0].boxes + 1), items[1]])
    items[0].path.write_bytes(items[1].path.read_bytes())
    assert before != fingerprint(items)


def test_a_folder_without_parts_is_named(tmp_path):
    assert parts_of(labelled(tmp_path / "learn", ["a", "b"])) is None
    with pytest.raises(InvalidInput, match=r"calibrate/annotations\.json is missing"):
        parts_of(tmp_path)
