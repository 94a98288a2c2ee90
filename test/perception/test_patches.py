# SPDX-License-Identifier: Apache-2.0
"""What patches of the image show: a sticker that no object explains, and something in front."""

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
from sticker_uq.perception.patches import Patches, PatchHead, read_patch_head, save_patch_head
from sticker_uq.scene import InvalidInput, ObjectClass
from sticker_uq.testing.scenes import SURE, observed
from test.helpers.models import DEFAULT_MODEL, small_weights

SETTINGS = partial(PerceptionSettings, device="cpu", passes=3, novelty=False)
PICTURE = np.random.default_rng(0).integers(0, 255, (240, 320, 3), np.uint8)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Weights with a head that learned nothing beside them."""
    file = small_weights(tmp_path_factory.mktemp("patches"))
    detector = load_detector(SETTINGS(weights=str(file)))
    torch.manual_seed(0)
    head = PatchHead([level.shape[1] for level in detector.encode(PICTURE).maps[:2]])
    save_patch_head(head, DEFAULT_MODEL, file.with_name(f"{file.stem}_patches.safetensors"))
    return file


def test_on_two_facts_of_the_scene_are_measured_and_all_else_stays(weights):
    off, on = (Perception(SETTINGS(weights=str(weights), patches=patches)) for patches in (False, True))
    plain, seen = off.assess(PICTURE), on.assess(PICTURE)
    assert {"patches"} == seen.timings.keys() - plain.timings.keys()
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
    assert SETTINGS().hash_on("cpu") != SETTINGS(patches=True).hash_on("cpu")
    assert "patches" not in PerceptionSettings().model_fields_set


def test_without_a_head_nothing_is_measured_and_another_file_is_refused(weights, tmp_path):
    alone = tmp_path / "alone.safetensors"
    shutil.copyfile(weights, alone)
    seen = Perception(SETTINGS(weights=str(alone), patches=True)).assess(PICTURE)
    assert math.isnan(seen.localization.obstruction)
    shutil.copyfile(weights, tmp_path / "alone_patches.safetensors")
    with pytest.raises(InvalidInput, match="is no patch head"):
        Perception(SETTINGS(weights=str(alone), patches=True))
    state = PatchHead([3, 5])
    state.tell = torch.nn.Conv2d(48, 7, 1)
    save_patch_head(state, DEFAULT_MODEL, tmp_path / "other.safetensors")
    with pytest.raises(InvalidInput, match="has other layers"):
        read_patch_head(tmp_path / "other.safetensors")


HOT = np.zeros((6, 8), np.float32)
HOT[2:4, 1:3] = 0.9
HOT[5, 7] = 0.4
PATCHES = Patches(HOT, np.zeros((6, 8), np.float32), (10.0, 10.0))
AROUND = (10.0, 20.0, 30.0, 40.0)


def test_what_an_object_explains_is_not_missed():
    first, second = PATCHES.places(PATCHES.unexplained(()), 0.3)
    assert (first.box.tolist(), second.box.tolist()) == (list(AROUND), [70.0, 50.0, 80.0, 60.0])
    assert (first.objectness, second.objectness) == pytest.approx((0.9, 0.4))
    for label in (ObjectClass.STICKER, ObjectClass.LOGO):
        (place,) = PATCHES.places(PATCHES.unexplained([observed(AROUND, label)]), 0.3)
        assert place.objectness == pytest.approx(0.4)
    unsure = observed(AROUND, probabilities=(0.1, 0.0, 0.9), detection_rate=0.3)
    for left_alone in (observed(AROUND, ObjectClass.BACKGROUND, SURE[ObjectClass.BACKGROUND]), unsure):
        assert PATCHES.unexplained([left_alone]).max() == pytest.approx(0.9)


@given(
    st.lists(st.tuples(*[st.floats(-20, 100)] * 4), max_size=3),
    st.sampled_from(ObjectClass),
    st.integers(0, 2**31),
)
def test_more_objects_never_leave_more_unexplained(corners, label, seed):
    values = np.random.default_rng(seed).random((6, 8)).astype(np.float32)
    patches = Patches(values, values, (10.0, 10.0))
    objects = [observed((*np.minimum(c[:2], c[2:]), *np.maximum(c[:2], c[2:])), label) for c in corners]
    fewer, more = patches.unexplained(objects[1:]), patches.unexplained(objects)
    assert (more <= fewer).all()
    assert set(np.unique(more)) <= {0.0, *np.unique(values)}


def test_a_single_patch_is_no_hand():
    few, hand = np.zeros((6, 8), np.float32), np.zeros((6, 8), np.float32)
    few[0, :7], hand[2:4, :4] = 0.99, 0.8
    assert replace(PATCHES, in_front=few).obstruction == 0.0
    assert replace(PATCHES, in_front=hand).obstruction == pytest.approx(0.8)
