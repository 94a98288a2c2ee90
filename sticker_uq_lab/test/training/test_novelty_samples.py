# SPDX-License-Identifier: Apache-2.0
"""What the novelty network learns from."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sticker_uq.io.coco import LabelledImage, read_coco, write_coco
from sticker_uq.perception.novelty.network import STRIDE
from sticker_uq_lab.datasets.abnormal_shapes import add_shapes
from sticker_uq_lab.rendering import encode_scene, render, sample_scene
from sticker_uq_lab.training.novelty_samples import NoveltySample, _visible, sample

FOREIGN, LOGO, STICKER, MIDDLE = range(4)


@pytest.fixture(scope="module")
def item(tmp_path_factory: pytest.TempPathFactory) -> LabelledImage:
    folder = tmp_path_factory.mktemp("clean")
    write_coco(folder, [encode_scene(1, render(sample_scene(5, stickers=4), (480, 360)), "png")])
    return read_coco(folder)[0]


def boxes_of(seen: NoveltySample) -> np.ndarray:
    """The boxes in cells that its middles teach, (N, 4)."""
    rows, columns = np.nonzero(seen.targets[MIDDLE] * seen.weights[MIDDLE])
    left, top, right, bottom = seen.edges[:, rows, columns]
    x, y = columns + 0.5, rows + 0.5
    return np.stack([x - left, y - top, x + right, y + bottom], axis=1)


def test_a_sample_is_the_same_again_and_another_in_the_next_epoch(item):
    first, again, later = sample(item, 0, 3), sample(item, 0, 3), sample(item, 1, 3)
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(first.picture, later.picture)
    height, width = first.picture.shape[:2]
    assert (
        first.targets.shape
        == first.weights.shape
        == first.edges.shape
        == (4, -(-height // STRIDE), -(-width // STRIDE))
    )


def test_middles_teach_the_boxes_of_their_stickers(item):
    for epoch in range(12):
        seen = sample(item, epoch, 0)
        found = boxes_of(seen)
        assert len(found) >= 1
        assert (found[:, 2:] > found[:, :2]).all()
        # a box lies in the picture, and where a sticker is taught
        assert (found >= -1e-3).all()
        assert (found[:, 2:] <= np.array(seen.targets.shape[:0:-1]) + 1e-3).all()
        rows, columns = np.nonzero(seen.targets[MIDDLE] * seen.weights[MIDDLE] * seen.weights[STICKER])
        assert seen.targets[STICKER, rows, columns].mean() > 0.7


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31 - 1))
def test_what_is_left_of_a_box_bounds_what_is_not_covered(seed):
    rng = np.random.default_rng(seed)
    covered = np.zeros((60, 80), np.uint8)
    x, y = rng.integers(0, 70), rng.integers(0, 50)
    covered[y : y + rng.integers(1, 60), x : x + rng.integers(1, 80)] = 255
    (left,), (part,) = _visible(np.float32([[10, 10, 50, 40]]), covered)
    free = np.argwhere(covered[10:40, 10:50] == 0)
    assert part == pytest.approx(len(free) / 1200)
    if len(free):
        low, high = free.min(axis=0) + 10, free.max(axis=0) + 11
        np.testing.assert_array_equal(left, [low[1], low[0], high[1], high[0]])


def test_flat_shapes_lie_apart_from_the_objects_and_raised_ones_are_told_apart():
    scene = render(sample_scene(5, stickers=2))
    flat = 0
    for seed in range(40):
        seen = add_shapes(scene.image, scene.boxes, np.random.default_rng(seed))
        assert (seen.raised <= seen.covered).all()
        for x1, y1, x2, y2 in seen.flat.astype(int):
            flat += 1
            assert (seen.covered[y1:y2, x1:x2] > 0).any()
            inside = (
                (scene.boxes[:, 0] <= x2)
                & (scene.boxes[:, 2] >= x1)
                & (scene.boxes[:, 1] <= y2)
                & (scene.boxes[:, 3] >= y1)
            )
            assert not inside.any()
    assert flat >= 5


def test_a_picture_that_cannot_be_read_is_named(item, tmp_path):
    gone = LabelledImage(**{**item.__dict__, "path": tmp_path / "gone.png"})
    with pytest.raises(ValueError, match=r"gone\.png"):
        sample(gone, 0, 0)
