# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest

from sticker_uq.scene import InvalidInput, ObjectClass
from sticker_uq_lab.rendering import render, sample_scene
from sticker_uq_lab.rendering.sticker_sampling import STICKER_KINDS
from sticker_uq_lab.rendering.stickers import PRINTS, paint_sticker

SIZE = (480, 360)


def still(scene):
    """The scene as a perfect camera sees it."""
    return replace(scene, camera=replace(scene.camera, noise=0.0, blur=0.0, motion=0.0))


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_same_scene_same_bytes(seed):
    first, second = render(sample_scene(seed), SIZE), render(sample_scene(seed), SIZE)
    assert first.image.tobytes() == second.image.tobytes()
    assert first.boxes.tobytes() == second.boxes.tobytes()
    assert first.image.tobytes() != render(sample_scene(seed + 1), SIZE).image.tobytes()


def test_arrays_have_the_promised_form():
    for seed in range(12):
        scene = sample_scene(seed)
        seen = render(scene, SIZE)
        count = len(seen.labels)
        assert seen.image.shape == (360, 480, 3)
        assert seen.image.dtype == np.uint8
        assert seen.boxes.shape == (count, 4)
        assert seen.boxes.dtype == np.float32
        assert seen.ids.shape == seen.visible_fraction.shape == (count,)
        assert ((seen.visible_fraction >= 0.25) & (seen.visible_fraction <= 1)).all()
        logos = {logo.id for logo in scene.logos}
        expected = [ObjectClass.LOGO if identity in logos else ObjectClass.STICKER for identity in seen.ids]
        assert seen.labels.tolist() == expected


def test_boxes_are_inside_the_image_and_tight_around_the_visible_part():
    for seed in range(20):
        seen = render(sample_scene(seed), SIZE)
        for box, identity in zip(seen.boxes, seen.ids, strict=True):
            rows, columns = np.nonzero(seen.id_map == identity)
            assert box.tolist() == [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            assert box.min() >= 0
            assert box[2] <= 480
            assert box[3] <= 360


@pytest.mark.parametrize("seed", [0, 4, 14, 23])
def test_taking_a_sticker_off_changes_the_picture_only_around_it(seed):
    scene = still(sample_scene(seed, stickers=5))
    before = render(scene, SIZE)
    for sticker in scene.stickers:
        alone = replace(scene, stickers=(sticker,))
        box = dict(zip(*_boxes(render(alone, SIZE)), strict=True))[sticker.id]
        after = render(scene.without_sticker(sticker.id), SIZE)
        changed = np.abs(before.image.astype(int) - after.image).max(axis=2)
        outside = changed.copy()
        x1, y1, x2, y2 = box.astype(int)
        outside[max(0, y1 - 8) : y2 + 8, max(0, x1 - 8) : x2 + 8] = 0
        assert outside.max() == 0
        assert sticker.id not in after.ids


def _boxes(seen):
    return seen.ids.tolist(), list(seen.boxes)


def test_covered_objects_are_not_annotated():
    scene = sample_scene(6, stickers=2)
    below, above = scene.stickers
    lid = replace(
        above, centre=below.centre, width=below.width * 1.6, height=below.height * 1.6, shape="rect"
    )
    lid = replace(lid, angle=below.angle, print="words", motif="YES", peel=0.0, wear=0.0)
    seen = render(replace(scene, stickers=(below, lid)), SIZE)
    assert below.id not in seen.ids
    assert lid.id in seen.ids
    assert below.id in render(replace(scene, stickers=(below,)), SIZE).ids


def test_too_small_a_picture_is_refused():
    with pytest.raises(InvalidInput, match="size 10x600"):
        render(sample_scene(0), (10, 600))


def test_every_kind_of_sticker_can_be_painted():
    draft = sample_scene(3, stickers=1).stickers[0]
    assert {kind.print for kind in STICKER_KINDS} | {"badge"} == set(PRINTS)
    for kind in STICKER_KINDS:
        for shape in kind.shapes:
            for motif in kind.motifs:
                spec = replace(draft, shape=shape, print=kind.print, motif=motif, width=90.0, height=90.0)
                spec = replace(spec, peel=0.0, wear=0.0, faded=0.0)
                colours, coverage = paint_sticker(spec, 0.6)
                assert coverage.max() == 255
                assert colours[coverage > 200].std(axis=0).max() > 8, (kind.print, shape, motif)
