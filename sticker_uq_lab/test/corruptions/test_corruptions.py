# SPDX-License-Identifier: Apache-2.0
"""Transformations do what their strength says, in its unit, and boxes follow the objects."""

import math
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sticker_uq.scene import InvalidInput
from sticker_uq_lab.corruptions import TRANSFORMATIONS, LabelledPicture, transform
from sticker_uq_lab.corruptions.camera import linear, motion_kernel
from sticker_uq_lab.corruptions.workpiece import rotation_matrix, tilt_matrix
from sticker_uq_lab.rendering import render, sample_scene

SIZE = (320, 240)
BOX = (112.0, 84.0, 196.0, 150.0)
MOVES = ("rotation", "tilt")
REPLACES = ("occlusion", "unknown_make", "sticker_residue")


def plain(level: int = 90, boxes: Any = (BOX,), label: int = 2) -> LabelledPicture:
    image = np.full((SIZE[1], SIZE[0], 3), level, np.uint8)
    return LabelledPicture.of(image, np.array(boxes, np.float32).reshape(-1, 4), np.full(len(boxes), label))


def filled(level: int = 255, background: int = 0) -> LabelledPicture:
    """The box as a filled mask."""
    picture = plain(background)
    x1, y1, x2, y2 = map(int, BOX)
    picture.image[y1:y2, x1:x2] = level
    return picture


def scene_picture(seed: int = 7003) -> LabelledPicture:
    spec = sample_scene(seed)
    rendered = render(spec, SIZE)
    shapes = np.zeros(rendered.id_map.shape, np.uint8)
    for number, identity in enumerate(rendered.ids):
        shapes[rendered.id_map == identity] = number + 1
    return LabelledPicture.of(rendered.image, rendered.boxes, rendered.labels, shapes, spec)


def extent(mask: Any) -> Any:
    """Box of the columns and rows in which most of the mask lies."""
    columns, rows = mask.sum(0), mask.sum(1)
    xs, ys = np.flatnonzero(columns > columns.max() / 2), np.flatnonzero(rows > rows.max() / 2)
    return np.array([xs[0], ys[0], xs[-1] + 1, ys[-1] + 1])


@pytest.mark.parametrize("name", sorted(set(TRANSFORMATIONS) - {*MOVES, *REPLACES}))
@pytest.mark.parametrize("step", [0, 2])
def test_what_spoils_pixels_leaves_the_object_where_its_box_is(name, step):
    strength = TRANSFORMATIONS[name].ladder[step]
    background, with_object = plain(0), filled()
    before = transform(background, name, strength, 5)
    after = transform(with_object, name, strength, 5)
    assert np.array_equal(after.boxes, with_object.boxes)
    difference = linear(after.image).mean(2) - linear(before.image).mean(2)
    found = extent(difference > difference.max() / 2)
    assert np.abs(found - BOX).max() <= (strength if name == "lower_resolution" else 1)


@pytest.mark.parametrize("name", MOVES)
@given(seed=st.integers(0, 10_000), share=st.floats(0.05, 0.9))
@settings(max_examples=12, deadline=None)
def test_a_moved_box_is_the_box_of_its_moved_mask(name, seed, share):
    after = transform(filled(), name, share * 40, seed)
    x, y, w, h = cv2.boundingRect((after.image[:, :, 0] > 127).astype(np.uint8))
    # A sharp corner between pixels is less than half of any pixel.
    assert np.abs(after.boxes[0] - (x, y, x + w, y + h)).max() <= 1.6


def test_a_quarter_turn_moves_a_box_exactly():
    turned = plain().warp(rotation_matrix(90, SIZE), plain().image)
    x1, y1, x2, y2 = BOX
    # about the middle (160, 120): (x, y) -> (160 - (y - 120), 120 + (x - 160))
    assert turned.boxes[0] == pytest.approx((280 - y2, x1 - 40, 280 - y1, x2 - 40), abs=1e-3)


def test_a_tilt_about_the_horizontal_is_the_pinhole_camera():
    matrix = tilt_matrix(20, 0, 60, SIZE)
    focal = 160 / math.tan(math.radians(30))
    point = matrix @ (160, 200, 1)
    # 80 px below the middle: depth focal + 80 sin 20, height 80 cos 20
    expected = 120 + focal * 80 * math.cos(math.radians(20)) / (focal + 80 * math.sin(math.radians(20)))
    assert point[:2] / point[2] == pytest.approx((160, expected))
    assert tilt_matrix(0, 77, 60, SIZE) == pytest.approx(np.eye(3), abs=1e-12)


def test_what_leaves_the_picture_is_hidden_and_what_half_leaves_is_cut():
    picture = plain(boxes=[(10, 100, 50, 140), (200, 100, 240, 140)])
    shift = np.array([[1.0, 0, -30], [0, 1, 0], [0, 0, 1]])
    moved = picture.warp(shift, picture.image)
    assert moved.boxes.tolist() == [[0, 100, 20, 140], [170, 100, 210, 140]]
    assert moved.visible.tolist() == pytest.approx([0.5, 1])
    further = moved.warp(shift, moved.image)
    assert further.boxes.tolist() == [[140, 100, 180, 140]]
    assert further.origin.tolist() == [1]
    assert further.hidden.tolist() == [0]


def test_a_cover_shrinks_a_box_or_hides_the_object():
    picture = plain(boxes=[(40, 40, 80, 80), (100, 40, 140, 80), (200, 40.5, 240, 80)])
    cover = np.zeros(SIZE[::-1], np.uint8)
    cover[:, 50:60] = 1  # a stripe inside the first: its box does not shrink
    cover[:, 100:120] = 1  # the left half of the second
    cover[:72, 200:240] = 1  # more than three quarters of the third
    covered = picture.with_cover(cover, picture.image)
    assert covered.boxes.tolist() == [[40, 40, 80, 80], [120, 40, 140, 80]]
    assert covered.visible.tolist() == pytest.approx([0.75, 0.5])
    assert covered.hidden.tolist() == [2]


def test_a_known_shape_counts_and_not_its_box():
    shapes = np.zeros(SIZE[::-1], np.uint8)
    cv2.circle(shapes, (160, 120), 30, (1,), -1)
    box = (130, 90, 191, 151)
    disc = LabelledPicture.of(plain().image, np.array([box], np.float32), np.array([2]), shapes)
    turned = disc.warp(rotation_matrix(45, SIZE), disc.image)
    assert np.abs(turned.boxes[0] - box).max() < 2  # a disc turned about its middle stays
    cover = np.zeros(SIZE[::-1], np.uint8)
    cover[:100] = 1
    shows = (shapes > 0)[100:].sum() / (shapes > 0).sum()
    assert disc.with_cover(cover, disc.image).visible[0] == pytest.approx(shows)


@pytest.mark.parametrize("tool", ["gripper", "hand", "cables"])
@pytest.mark.parametrize("strength", [5, 15, 36])
def test_a_tool_covers_the_share_it_should_and_boxes_tell_what_shows(tool, strength):
    picture = filled(200, 90)
    after = transform(picture, "occlusion", strength, 11, tool=tool)
    x1, y1, x2, y2 = map(int, BOX)
    shapes = np.zeros(SIZE[::-1], np.uint8)
    shapes[y1:y2, x1:x2] = 1
    known = LabelledPicture.of(picture.image, picture.boxes, picture.labels, shapes)
    same = transform(known, "occlusion", strength, 11, tool=tool)
    assert np.array_equal(same.boxes, after.boxes)
    assert np.array_equal(same.hidden, after.hidden)
    if len(same.boxes):
        assert same.shapes is not None
        x, y, w, h = cv2.boundingRect(same.shapes)
        assert same.boxes[0].tolist() == [x, y, x + w, y + h]
        assert same.visible[0] == pytest.approx(np.count_nonzero(same.shapes) / np.count_nonzero(shapes))
    everything = LabelledPicture.of(
        picture.image, picture.boxes, picture.labels, np.ones(SIZE[::-1], np.uint8)
    )
    whole = transform(everything, "occlusion", strength, 11, tool=tool)
    assert whole.shapes is not None
    covered = 1 - np.count_nonzero(whole.shapes) / (SIZE[0] * SIZE[1])
    assert covered == pytest.approx(strength / 100, abs=0.02)


def test_exposure_doubles_light_per_stop_and_clips():
    picture = plain(100)
    brighter = transform(picture, "overexposure", 1.0, 0)
    assert linear(brighter.image).mean() == pytest.approx(2 * linear(picture.image).mean(), rel=0.01)
    assert transform(picture, "overexposure", 4, 0).image.min() == 255
    darker = transform(plain(200), "low_light", 4, 0)  # gain brings two of the stops back
    assert linear(darker.image).mean() == pytest.approx(linear(plain(200).image).mean() / 4, rel=0.03)


def test_noise_has_its_standard_deviation_and_dead_pixels_their_share():
    assert transform(plain(128), "sensor_noise", 12, 3).image.std() == pytest.approx(12, rel=0.02)
    dead = transform(plain(128), "salt_and_pepper", 6, 3).image
    assert (dead == 0).mean() == pytest.approx(0.03, abs=0.003)
    assert (dead == 255).mean() == pytest.approx(0.03, abs=0.003)


@pytest.mark.parametrize("angle", [0, 30, 90, 135])
def test_a_motion_kernel_has_its_length_and_direction(angle):
    kernel = motion_kernel(15, angle)
    middle = len(kernel) // 2
    ys, xs = np.mgrid[: len(kernel), : len(kernel)] - middle
    assert kernel.sum() == pytest.approx(1)
    assert (kernel * xs).sum() == pytest.approx(0, abs=1e-6)
    c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    # An even line of length L has variance L^2 / 12 along itself and 1 / 12 across.
    assert (kernel * (xs * c + ys * s) ** 2).sum() == pytest.approx(15**2 / 12, rel=0.02)
    assert (kernel * (ys * c - xs * s) ** 2).sum() < 0.4


def test_glare_drives_its_area_to_white():
    picture = plain(0, boxes=[(150, 110, 170, 130)])
    lit = transform(picture, "glare", 2, 4).image
    assert (lit.min(2) == 255).mean() == pytest.approx(0.02, rel=0.05)
    assert lit.min() >= 0
    assert np.array_equal(transform(picture, "glare", 0, 4).image, picture.image)


@pytest.mark.parametrize("known", [True, False], ids=["rendered", "pasted"])
def test_residue_lies_beside_the_objects_and_covers_its_area(known):
    picture = scene_picture()
    if not known:
        picture = LabelledPicture.of(picture.image, picture.boxes, picture.labels)
    after = transform(picture, "sticker_residue", 1.2, 3)
    changed = (after.image != picture.image).any(2)
    assert 0.006 < changed.mean() < 0.02
    assert np.array_equal(after.boxes, picture.boxes)
    for x1, y1, x2, y2 in picture.boxes.astype(int):
        assert changed[y1:y2, x1:x2].mean() < 0.01


@pytest.mark.parametrize("known", [True, False], ids=["rendered", "pasted"])
def test_an_unknown_logo_takes_the_place_of_the_old_one(known):
    picture = scene_picture()
    if not known:
        picture = LabelledPicture.of(picture.image, picture.boxes, picture.labels)
    after = transform(picture, "unknown_make", 100, 3)
    assert after.labels.tolist() == picture.labels.tolist()
    assert np.abs(after.boxes - picture.boxes).max() <= 3
    x1, y1, x2, y2 = after.boxes[after.labels == 1][0].astype(int)
    logo = cv2.cvtColor(after.image[y1:y2, x1:x2], cv2.COLOR_BGR2GRAY).astype(float)
    assert np.percentile(logo, 95) - np.percentile(logo, 5) > 50
    if known:
        assert after.shapes is not None
        assert after.scene is not None
        assert np.array_equal(render(after.scene, SIZE).boxes, after.boxes)


@pytest.mark.parametrize("name", sorted(TRANSFORMATIONS))
def test_the_same_seed_gives_the_same_bytes_and_a_ladder_is_allowed(name):
    picture = scene_picture()
    once = TRANSFORMATIONS[name]
    strength = once.ladder[-1]
    one, two = (transform(picture, name, strength, 9) for _ in range(2))
    assert np.array_equal(one.image, two.image)
    assert np.array_equal(one.boxes, two.boxes)
    assert one.image.shape == picture.image.shape
    assert len(one.boxes) + len(one.hidden) == len(picture.boxes)
    for step in once.ladder:
        once.check(step)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("snow", 1), "'snow': expected one of glare"),
        (("rotation", 400), "rotation: strength 400: expected 0 to 180 degrees"),
        (("jpeg", float("nan")), "jpeg: strength nan"),
    ],
)
def test_a_wrong_call_is_bad_input(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        transform(plain(), *arguments, 0)


def test_wrong_parameters_are_bad_input():
    with pytest.raises(InvalidInput, match="unknown parameter 'colour'; known: tool"):
        transform(plain(), "occlusion", 5, 0, colour="red")
    with pytest.raises(InvalidInput, match="tool = 'foot': expected one of any, gripper, hand, cables"):
        transform(plain(), "occlusion", 5, 0, tool="foot")
    with pytest.raises(InvalidInput, match="tool = 3"):
        transform(plain(), "occlusion", 5, 0, tool=3)
    with pytest.raises(InvalidInput, match="expected"):
        LabelledPicture.of(np.zeros((4, 4), np.uint8), np.zeros((0, 4)), np.zeros(0))


def test_a_poor_lens_puts_red_outside_and_blue_inside_of_green():
    picture = plain(0)
    picture.image[:, :] = 20
    picture.image[60:180, 260:] = 230  # an edge right of the middle
    after = transform(picture, "chromatic_aberration", 2, 0)
    edge = [int(np.argmax(after.image[120, :, channel] > 125)) for channel in range(3)]
    assert edge[0] < edge[1] < edge[2]
    assert edge[1] == 260
    assert np.array_equal(transform(picture, "chromatic_aberration", 0, 0).image, picture.image)
