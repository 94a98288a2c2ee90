# SPDX-License-Identifier: Apache-2.0
"""Stickers on logos and prints of the lid: what changes, and what is labelled."""

import numpy as np
import pytest

from sticker_uq.scene import InvalidInput, ObjectClass
from sticker_uq_lab.rendering import render, sample_scene
from sticker_uq_lab.rendering.scene_sampling import sticker_on_logo, with_prints

SIZE = (320, 240)
SCENE = sample_scene(7003, stickers=4)


def test_a_sticker_comes_nearer_to_the_logo_until_it_covers_it():
    logo, first = SCENE.logos[0], SCENE.stickers[0]
    shares = []
    for nearness in (0.0, 0.5, 1.0):
        scene = sticker_on_logo(SCENE, nearness)
        moved = scene.stickers[-1]
        assert moved.id == first.id
        away = np.abs(np.subtract(moved.centre, logo.centre))
        reach = (moved.width + logo.width) / 2, (moved.height + logo.height) / 2
        # side by side, half of the way, on top of each other
        assert max(away / reach) == pytest.approx(1 - nearness, abs=1e-9)
        shares.append((render(scene, SIZE).id_map == logo.id).sum())
    assert shares[0] > shares[1] > shares[2]
    bare = sample_scene(7003, stickers=0)
    assert sticker_on_logo(bare, 0.5) == bare


def test_a_print_is_no_sticker_and_as_visible_as_its_ink():
    whole = render(SCENE, SIZE)
    scene, printed = with_prints(SCENE, 0.5, SIZE)
    assert printed == tuple(s.id for s in SCENE.stickers[::2])
    assert not np.isin(scene.ids, printed).any()
    assert (scene.labels == ObjectClass.STICKER).sum() == len(SCENE.stickers) - len(printed)
    bare, _ = with_prints(SCENE, 0.0, SIZE)
    ink = np.isin(whole.id_map, printed)
    contrast = np.abs(whole.image.astype(int) - bare.image)[ink].mean()
    assert np.abs(scene.image.astype(int) - bare.image)[ink].mean() == pytest.approx(contrast / 2, rel=0.05)
    full, _ = with_prints(SCENE, 1.0, SIZE)
    assert np.array_equal(full.image, whole.image)


@pytest.mark.parametrize("make", [sticker_on_logo, with_prints])
def test_a_share_out_of_range_is_bad_input(make):
    with pytest.raises(InvalidInput, match=r"1\.5: expected a number from 0 to 1"):
        make(SCENE, 1.5)
