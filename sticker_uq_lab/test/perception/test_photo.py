# SPDX-License-Identifier: Apache-2.0
"""The second opinion about objects: measured where it is on, and nothing changes where it is off."""

import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from lab_helpers.scenes import rendered
from sticker_uq.detection.detector import load_detector
from sticker_uq.gate.policy.signals import SIGNALS, object_signals
from sticker_uq.io.coco import read_coco
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.perception.novelty.photo_network import FEATURES, load_photo_network
from sticker_uq.perception.photo import photo_file, read_photo_head, save_photo_head
from sticker_uq.scene import InvalidInput, ObjectClass
from sticker_uq_lab.rendering import render, sample_scene
from sticker_uq_lab.training.photo_head import (
    CALLED_FROM,
    FOLDS,
    PhotoExamples,
    fit_photo_head,
    learn_photo_head,
)
from test.helpers.models import DEFAULT_MODEL, small_weights

SETTINGS = partial(PerceptionSettings, device="cpu", passes=3, novelty=False)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Weights with a head that learned from six rendered laptops beside them."""
    folder = tmp_path_factory.mktemp("photo")
    file = small_weights(folder)
    items = read_coco(rendered(folder / "data", range(190_000_000, 190_000_006), (320, 240), stickers=3))
    detector = load_detector(SETTINGS(weights=str(file), score_floor=CALLED_FROM))
    learn_photo_head(detector, items, file.with_name("small_photo.safetensors"))
    return file


@pytest.fixture(scope="module")
def picture():
    return render(sample_scene(190_000_000, stickers=3), (320, 240)).image


def test_off_nothing_is_measured_and_policies_keep_their_hash(weights, picture):
    off = Perception(SETTINGS(weights=str(weights)))
    values = off.settings.model_dump()
    assert values["photo"] is False
    scene = off.assess(picture)
    assert all(np.isnan(one.photo) for one in scene.objects)
    assert "photo" not in scene.timings
    # made before there was this setting
    assert SETTINGS().hash_on("cpu") != SETTINGS(photo=True).hash_on("cpu")
    assert PerceptionSettings(last_look=False).hash_on("cpu") == BEFORE


BEFORE = "346b48261434dc3d4720e74bdf080c131d28d5e4e4697323b0a5920530d3d9b0"
"""Of the default settings before the second opinion and the last look."""


def test_on_every_object_that_may_be_a_sticker_has_it_and_all_else_stays(weights, picture):
    off, on = (Perception(SETTINGS(weights=str(weights), photo=photo)) for photo in (False, True))
    plain, seen = off.assess(picture), on.assess(picture)
    assert seen.objects
    assert {"photo"} == seen.timings.keys() - plain.timings.keys()
    for before, now in zip(plain.objects, seen.objects, strict=True):
        asked = before.over_all_passes[ObjectClass.STICKER] >= 0.02
        assert np.isfinite(now.photo) == asked
        assert object_signals(now, seen)["photo_improbability"] == pytest.approx(1 - now.photo, nan_ok=True)
        same = replace(now, photo=float("nan"))
        assert (same.box == before.box).all()
        assert (same.label, same.score) == (before.label, before.score)
    assert "photo_improbability" in SIGNALS
    again = on.assess(picture)
    assert [one.photo for one in again.objects] == [one.photo for one in seen.objects]
    assert seen.settings_hash != plain.settings_hash


def test_without_a_head_or_with_one_for_another_network_it_is_refused(weights, tmp_path):
    alone = tmp_path / "alone.safetensors"
    shutil.copyfile(weights, alone)
    with pytest.raises(InvalidInput, match=r"no photo head beside the weights .*alone.* train --photo-head"):
        Perception(SETTINGS(weights=str(alone), photo=True))
    head = read_photo_head(photo_file(SETTINGS(weights=str(weights)), ""))
    head.network = "0" * 64
    save_photo_head(head, DEFAULT_MODEL, tmp_path / "alone_photo.safetensors")
    with pytest.raises(InvalidInput, match="is for photo network 000000000000, this version has"):
        Perception(SETTINGS(weights=str(alone), photo=True))
    shutil.copyfile(weights, tmp_path / "alone_photo.safetensors")
    with pytest.raises(InvalidInput, match="is no photo head"):
        Perception(SETTINGS(weights=str(alone), photo=True))


def test_a_head_tells_what_it_learned_apart_on_laptops_left_out():
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 3, 300)
    features = rng.normal(0, 1, (300, FEATURES)).astype(np.float32)
    marks = np.arange(3)[:, None] * 50 + np.arange(50)
    features[np.arange(300)[:, None], marks[classes]] += 2.0
    examples = PhotoExamples(features, classes, np.arange(300) // 5)
    network = load_photo_network()
    head = fit_photo_head(examples, network)
    assert head.network == network.hash
    others = rng.normal(0, 1, (90, FEATURES)).astype(np.float32)
    truth = np.arange(90) % 3
    others[np.arange(90)[:, None], marks[truth]] += 2.0
    assert (head(torch.from_numpy(others)).argmax(1).numpy() == truth).mean() > 0.9
    again = fit_photo_head(examples, network)
    assert torch.equal(again.linear.weight, head.linear.weight)
    assert len(set(examples.laptops.tolist())) > FOLDS
    with pytest.raises(InvalidInput, match="needs labelled stickers"):
        fit_photo_head(PhotoExamples(features, np.zeros_like(classes), examples.laptops), network)
