# SPDX-License-Identifier: Apache-2.0
from collections import Counter
from dataclasses import replace

import pytest

from sticker_uq.scene import InvalidInput
from sticker_uq_lab.rendering import sample_scene
from sticker_uq_lab.rendering.things import THINGS


def test_same_seed_same_scene_other_seed_other_scene():
    assert sample_scene(7) == sample_scene(7)
    assert sample_scene(7) != replace(sample_scene(8), seed=7)


def test_fixed_number_of_stickers_leaves_the_rest_of_the_scene():
    free = sample_scene(11)
    for count in range(9):
        fixed = sample_scene(11, stickers=count)
        assert len(fixed.stickers) == count
        assert replace(fixed, stickers=()) == replace(free, stickers=())


def test_scenes_are_spread_over_what_a_cell_sees():
    scenes = [sample_scene(seed) for seed in range(400)]
    views = Counter(scene.laptop.view for scene in scenes)
    assert min(views["lid"], views["deck"]) > 120
    counts = Counter(len(scene.stickers) for scene in scenes)
    assert set(counts) == set(range(9))
    assert min(counts.values()) > 20
    assert len({scene.laptop.brand for scene in scenes}) == 12
    assert {scene.background.kind for scene in scenes} == {"wood", "mat", "conveyor", "metal", "cloth"}
    prints = {sticker.print for scene in scenes for sticker in scene.stickers}
    common = {"figure", "words", "label", "qr", "flag", "pattern", "badge", "warning", "decal", "hello"}
    assert prints >= common
    stickers = [sticker for scene in scenes for sticker in scene.stickers]
    assert 0.1 < sum(sticker.wear > 0 for sticker in stickers) / len(stickers) < 0.6
    assert 0.05 < sum(sticker.peel > 0 for sticker in stickers) / len(stickers) < 0.4
    assert sum(not scene.logos for scene in scenes) < 40


def test_every_sticker_sticks_to_the_laptop():
    for seed in range(300):
        scene = sample_scene(seed)
        for sticker in scene.stickers:
            assert 0 < sticker.centre[0] < 1000
            assert 0 < sticker.centre[1] < scene.laptop.depth


def test_without_sticker_takes_off_just_that_one():
    scene = sample_scene(3, stickers=4)
    gone = scene.stickers[1].id
    left = scene.without_sticker(gone)
    assert [sticker.id for sticker in left.stickers] == [s.id for s in scene.stickers if s.id != gone]
    assert replace(left, stickers=()) == replace(scene, stickers=())


def test_unknown_sticker_and_bad_arguments_are_named():
    scene = sample_scene(3, stickers=1)
    with pytest.raises(InvalidInput, match="sticker_id 99"):
        scene.without_sticker(99)
    with pytest.raises(InvalidInput, match=r"none"):
        sample_scene(3, stickers=0).without_sticker(1)
    with pytest.raises(InvalidInput, match="seed -1"):
        sample_scene(-1)
    for count in (-1, 9):
        with pytest.raises(InvalidInput, match=f"stickers {count}"):
            sample_scene(0, stickers=count)


def test_scenes_of_the_study_show_closed_and_open_laptops_and_what_must_not_be_peeled():
    scenes = [sample_scene(seed, profile="study") for seed in range(100)]
    views = Counter(scene.laptop.view for scene in scenes)
    assert set(views) == {"lid", "flat"}
    assert min(views.values()) > 35
    assert all(scene.logos for scene in scenes)
    assert {thing.kind for scene in scenes for thing in scene.things} == set(THINGS)
    assert sum(bool(scene.residues) for scene in scenes) > 15
