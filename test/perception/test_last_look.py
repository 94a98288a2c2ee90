# SPDX-License-Identifier: Apache-2.0
"""The last look: patches of a sticker that no object explains, and whether a hand or a gripper is in front."""

import math
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.detection.detector import load_detector
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.perception.front import (
    FrontHead,
    front_maps,
    front_picture,
    front_probability,
    save_front_head,
)
from sticker_uq.perception.novelty.photo_network import load_photo_network
from sticker_uq.perception.patches import Patches, PatchHead, read_patch_head, save_patch_head
from sticker_uq.scene import InvalidInput, ObjectClass
from sticker_uq.testing.scenes import SURE, object_at
from test.helpers.models import DEFAULT_MODEL, small_weights

SETTINGS = partial(PerceptionSettings, device="cpu", passes=3, novelty=False)
PICTURE = np.random.default_rng(0).integers(0, 255, (240, 320, 3), np.uint8)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Weights with networks for the last look beside them that learned nothing."""
    file = small_weights(tmp_path_factory.mktemp("patches"))
    detector = load_detector(SETTINGS(weights=str(file)))
    torch.manual_seed(0)
    head = PatchHead([level.shape[1] for level in detector.encode(PICTURE).maps[:2]])
    save_patch_head(head, DEFAULT_MODEL, file.with_name(f"{file.stem}_patches.safetensors"))
    front = FrontHead()
    front.network = load_photo_network().hash
    save_front_head(front, file.with_name(f"{file.stem}_front.safetensors"))
    return file


def test_on_two_facts_of_the_scene_are_measured_and_all_else_stays(weights):
    off, on = (Perception(SETTINGS(weights=str(weights), last_look=on)) for on in (False, True))
    plain, seen = off.assess(PICTURE), on.assess(PICTURE)
    assert {"last_look"} == seen.timings.keys() - plain.timings.keys()
    assert math.isnan(plain.localization.obstruction)
    for value in (seen.localization.obstruction, seen.localization.missed_sticker_probability):
        assert 0.0 < value < 1.0
    before = plain.localization
    added = len(seen.localization.unexplained) - len(before.unexplained)
    assert added >= 0
    same = replace(
        seen.localization,
        obstruction=math.nan,
        missed_sticker_probability=before.missed_sticker_probability,
        unexplained=seen.localization.unexplained[added:],
    )
    assert replace(seen, localization=same, settings_hash=plain.settings_hash).digest == plain.digest
    assert seen.settings_hash != plain.settings_hash
    assert on.assess(PICTURE).digest == seen.digest


def test_off_policies_keep_their_hash():
    assert PerceptionSettings(last_look=False).hash_on("cpu") != PerceptionSettings().hash_on("cpu")


def test_without_a_head_nothing_is_measured_and_another_file_is_refused(weights, tmp_path):
    alone = tmp_path / "alone.safetensors"
    shutil.copyfile(weights, alone)
    seen = Perception(SETTINGS(weights=str(alone), last_look=True)).assess(PICTURE)
    assert math.isnan(seen.localization.obstruction)
    for name, refusal in (("patches", "is no patch head"), ("front", "is no front head")):
        other = tmp_path / f"alone_{name}.safetensors"
        shutil.copyfile(weights, other)
        with pytest.raises(InvalidInput, match=refusal):
            Perception(SETTINGS(weights=str(alone), last_look=True))
        other.unlink()
    state = PatchHead([3, 5])
    state.tell = torch.nn.Conv2d(48, 7, 1)
    save_patch_head(state, DEFAULT_MODEL, tmp_path / "other.safetensors")
    with pytest.raises(InvalidInput, match="has other layers"):
        read_patch_head(tmp_path / "other.safetensors")


HOT = np.zeros((6, 8), np.float32)
HOT[2:4, 1:3] = 0.9
HOT[5, 7] = 0.4
PATCHES = Patches(HOT, (10.0, 10.0))
AROUND = (10.0, 20.0, 30.0, 40.0)


def test_what_an_object_explains_is_not_missed():
    first, second = PATCHES.places(PATCHES.unexplained_map(()), 0.3)
    assert (first.box.tolist(), second.box.tolist()) == (list(AROUND), [70.0, 50.0, 80.0, 60.0])
    assert (first.objectness, second.objectness) == pytest.approx((0.9, 0.4))
    for label in (ObjectClass.STICKER, ObjectClass.LOGO):
        (place,) = PATCHES.places(PATCHES.unexplained_map([object_at(AROUND, label)]), 0.3)
        assert place.objectness == pytest.approx(0.4)
    unsure = object_at(AROUND, probabilities=(0.1, 0.0, 0.9), detection_rate=0.3)
    for left_alone in (object_at(AROUND, ObjectClass.BACKGROUND, SURE[ObjectClass.BACKGROUND]), unsure):
        assert PATCHES.unexplained_map([left_alone]).max() == pytest.approx(0.9)


@given(
    st.lists(st.tuples(*[st.floats(-20, 100)] * 4), max_size=3),
    st.sampled_from(ObjectClass),
    st.integers(0, 2**31),
)
def test_more_objects_never_leave_more_unexplained(corners, label, seed):
    values = np.random.default_rng(seed).random((6, 8)).astype(np.float32)
    patches = Patches(values, (10.0, 10.0))
    objects = [object_at((*np.minimum(c[:2], c[2:]), *np.maximum(c[:2], c[2:])), label) for c in corners]
    fewer, more = patches.unexplained_map(objects[1:]), patches.unexplained_map(objects)
    assert (more <= fewer).all()
    assert set(np.unique(more)) <= {0.0, *np.unique(values)}


@pytest.mark.parametrize("size", [(1632, 1366), (960, 720), (64, 480), (5, 5)])
def test_pictures_of_any_shape_are_looked_at(size):
    small = front_picture(np.full((size[1], size[0], 3), 200, np.uint8))
    assert small.shape[0] % 8 == small.shape[1] % 8 == 0
    assert (small == 200).all()
    cells = FrontHead().eval()(front_maps(load_photo_network(), small))
    assert min(cells.shape) >= 1
    assert 0.0 < front_probability(cells) < 1.0


def test_a_single_cell_is_no_hand():
    cells = torch.full((1, 1, 5, 5), -9.0)
    cells[0, 0, 0, :2] = 9.0
    assert front_probability(cells) < 0.01
    cells[0, 0, 1, 0] = 2.0
    assert front_probability(cells) == pytest.approx(0.88, abs=0.01)


def test_a_head_for_another_photo_network_is_refused(weights, tmp_path):
    alone = tmp_path / "alone.safetensors"
    shutil.copyfile(weights, alone)
    head = FrontHead()
    head.network = "0" * 64
    save_front_head(head, tmp_path / "alone_front.safetensors")
    with pytest.raises(InvalidInput, match="is for photo network 000000000000, this version has"):
        Perception(SETTINGS(weights=str(alone), last_look=True))
