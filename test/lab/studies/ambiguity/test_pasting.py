# SPDX-License-Identifier: Apache-2.0
"""Ambiguous crops in scenes: where they lie, how their borders look, what COCO says about them."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from sticker_uq.io.coco import LabelledImage, load_annotations, read_coco, write_coco
from sticker_uq.io.crops import MARGIN, crop_square, cut_crops, empty_boxes
from sticker_uq.lab.rendering.render import render
from sticker_uq.lab.rendering.scene_sampling import sample_scene
from sticker_uq.lab.studies.ambiguity.pasting import paste, pasted_scenes
from sticker_uq.lab.studies.ambiguity.raae import AmbiguousImages


def blobs(count: int, size: int = 24) -> AmbiguousImages:
    """Bright discs on grey, half of them between logo and sticker, half between lid and sticker."""
    images = np.full((count, 3, size, size), 0.4, np.float32)
    y, x = np.mgrid[:size, :size] - (size - 1) / 2
    images[:, :, np.hypot(x, y) < 0.35 * size] = 0.9
    pairs = np.array([[1, 2], [0, 2]])[np.arange(count) % 2]
    return AmbiguousImages(images, pairs, np.tile([0.55, 0.45], (count, 1)))


def test_a_crop_is_the_square_around_its_box() -> None:
    image = np.zeros((60, 80, 3), np.uint8)
    image[20:40, 30:50] = (0, 128, 255)
    box = np.array([30.0, 20.0, 50.0, 40.0])
    left, top, side = crop_square(box)
    assert (left + side / 2, top + side / 2) == pytest.approx((40, 30), abs=1)
    assert side == round(20 * MARGIN)
    (crop,) = cut_crops(image, box[None], 25)
    assert crop.shape == (3, 25, 25)
    assert crop[:, 12, 12] == pytest.approx([0, 128 / 255, 1])
    assert crop[:, 0].max() == 0


def test_a_crop_at_the_edge_shows_the_mirror_image() -> None:
    image = np.random.default_rng(0).integers(0, 255, (40, 40, 3)).astype(np.uint8)
    (crop,) = cut_crops(image, np.array([[-8.0, 4.0, 8.0, 20.0]]), 20)
    assert crop[:, :, :10] == pytest.approx(crop[:, :, 19:9:-1])


def test_empty_places_touch_nothing() -> None:
    boxes = np.array([[100.0, 80, 160, 140], [240, 150, 300, 200]], np.float32)
    found = empty_boxes((400, 300), boxes, 4, np.random.default_rng(3))
    assert len(found) >= 2
    for number, place in enumerate(found):
        left, top, side = crop_square(place)
        for other in np.concatenate([boxes, found[:number]]):
            apart = left + 1 >= other[2] or left + side - 1 <= other[0] or top + 1 >= other[3]
            assert apart or top + side - 1 <= other[1]
    assert len(empty_boxes((400, 300), np.array([[0.0, 0, 400, 300]]), 3, np.random.default_rng(0))) == 0


def test_the_borders_are_seamless() -> None:
    ground = np.full((200, 240, 3), (180, 90, 60), np.uint8)
    scene = paste(ground, np.zeros((0, 4)), blobs(1).images, np.array([0]), np.random.default_rng(1))
    (box,) = scene.boxes
    left, top, side = crop_square(box)
    piece = scene.image[top : top + side, left : left + side].astype(int)
    border = np.concatenate([piece[1], piece[-2], piece[:, 1], piece[:, -2]])
    assert np.abs(border - [180, 90, 60]).max() <= 6  # plainly pasted, it would be 120
    assert np.abs(piece[side // 2, side // 2] - [180, 90, 60]).min() > 40
    outside = scene.image.copy()
    outside[top : top + side, left : left + side] = ground[0, 0]
    assert (outside == ground).all()


def test_scenes_with_probabilistic_labels(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    items = []

    for seed in (3, 4):
        scene = render(sample_scene(seed), (320, 240))
        path = tmp_path / f"images/{seed}.png"
        cv2.imwrite(str(path), scene.image)
        items.append(LabelledImage(path, seed, 320, 240, scene.boxes, scene.labels))
    out = tmp_path / "pasted"
    assert write_coco(out, pasted_scenes(items, blobs(6), 2, seed=0)) == 2
    pasted = read_coco(out)
    annotations = load_annotations(out)["annotations"]
    added = [a for a in annotations if a["ambiguous"]]
    assert 2 <= len(added) <= 4
    assert len(annotations) == len(added) + sum(len(item.labels) for item in items)
    for annotation in annotations:
        assert sum(annotation["probabilities"]) == pytest.approx(1)
        if not annotation["ambiguous"]:
            assert annotation["probabilities"][annotation["category_id"]] == 1
    # the more probable class that is an object: logo of logo and sticker, sticker of lid and sticker
    assert {(a["category_id"], *a["probabilities"]) for a in added} <= {
        (1, 0, 0.55, 0.45),
        (2, 0.55, 0, 0.45),
    }
    again = tmp_path / "again"
    write_coco(again, pasted_scenes(items, blobs(6), 2, seed=0))
    assert [p.path.read_bytes() for p in read_coco(again)] == [p.path.read_bytes() for p in pasted]
