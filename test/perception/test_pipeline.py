# SPDX-License-Identifier: Apache-2.0
"""The way from an image to an assessment is whole, deterministic and says when it fails."""

import importlib
import math
import sys
from copy import deepcopy
from functools import cache

import numpy as np
import pytest
import torch

from sticker_uq.detection import StochasticDetector
from sticker_uq.gate import Policy
from sticker_uq.messages import text_of
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.perception.dil import dil as saliency
from sticker_uq.perception.image_facts import measure_exposure
from sticker_uq.perception.pipeline import image_digest, image_seed
from sticker_uq.plain import to_plain
from sticker_uq.scene import DeviceFailed, Status
from test.helpers.models import MIN_SIZE, picture, tiny_detector, tiny_model, tiny_weights
from test.helpers.simulated_gpu import simulated_gpu

pytestmark = pytest.mark.usefixtures("small_packaged")

SSDLITE = "ssdlite320_mobilenet_v3_large"
NO_NETWORK = "novelty is not measured: no novelty network for the weights of "


def perception(name=SSDLITE, passes=4, **values):
    settings = PerceptionSettings(model=name, min_size=MIN_SIZE, passes=passes, **values)
    return Perception(settings, tiny_detector(name, passes=passes, seed=settings.seed))


@cache
def packaged_perception():
    """The packaged detector with its novelty network, on the processor."""
    return Perception(PerceptionSettings(passes=2, device="cpu", threads=torch.get_num_threads()))


@cache
def packaged_scene():
    return packaged_perception().assess(picture(), stamp_ns=1)


def with_head(name, value):
    """A detector all of whose class scores come from parameters of one ``value``."""
    healthy = tiny_detector(name)
    model = deepcopy(healthy.model)
    with torch.no_grad():
        for parameter in model.head.classification_head.parameters():
            parameter.fill_(value)
    return StochasticDetector(model, healthy.settings, healthy.weights_hash)


@pytest.mark.parametrize("name", [SSDLITE, "fasterrcnn_resnet50_fpn"])
def test_models_of_one_and_of_two_stages_give_a_whole_assessment(name):
    scene = perception(name, passes=2).assess(picture(), 17, "camera", keep_saliency=True)
    assert (scene.stamp_ns, scene.frame_id, scene.model) == (17, "camera", name)
    assert (scene.status, scene.status_text) == (Status.DEGRADED, NO_NETWORK + name)
    assert scene.image_size == (224, 168)
    assert scene.objects or scene.unstable
    assert scene.uncertainty.objects == len(scene.objects)
    assert scene.uncertainty.unstable == len(scene.unstable)
    assert 0.0 <= scene.localization.dil <= 1.0
    assert scene.localization.saliency.shape == (168, 224)
    assert set(scene.timings) == {"encode", "sample", "detect", "dil", "novelty", "cluster", "total"}
    assert scene.exposure == measure_exposure(picture())
    assert math.isnan(scene.localization.novelty), "a detector whose head nobody taught"


def test_the_same_pixels_give_the_same_bytes_and_others_do_not():
    one, other = perception(), perception()
    first = one.assess(picture(1), 5, "a")
    assert one.assess(picture(2), 6, "a").image_digest != first.image_digest
    again = one.assess(picture(1), 5, "a", keep_saliency=True)
    assert (first.localization.saliency is None, again.localization.saliency is None) == (True, False)
    assert again.to_bytes() == first.to_bytes() == other.assess(picture(1), 5, "a").to_bytes()
    changed = picture(1)
    changed[0, 0] ^= 1
    assert one.assess(changed, 5, "a").image_digest != first.image_digest
    assert perception(seed=2).assess(picture(1), 5, "a").to_bytes() != first.to_bytes()
    assert image_seed("ab", 1) != image_seed("ab", 2) != image_seed("cd", 2)


def test_without_dil_the_rest_is_the_same_but_degraded():
    whole, scene = perception().assess(picture()), perception(dil=False).assess(picture())
    assert scene.status is Status.DEGRADED
    assert scene.status_text == "distinctive localization is switched off; " + NO_NETWORK + SSDLITE
    assert scene.localization is None
    assert set(scene.timings) == {"encode", "sample", "novelty", "cluster", "close_ups", "total"}
    # the score of the pass without dropout is a part of DiL
    assert all(math.isnan(o.single_pass) for o in scene.objects)
    assert all(not math.isnan(o.single_pass) for o in whole.objects)
    same = [to_plain(one.objects, leave_out=("single_pass",)) for one in (scene, whole)]
    assert same[0] == same[1]


def test_no_saliency_at_all_is_degraded():
    looker = Perception(PerceptionSettings(model=SSDLITE, passes=2), with_head(SSDLITE, 0.0))
    scene = looker.assess(picture())
    assert scene.status is Status.DEGRADED
    assert "no objectness saliency" in scene.status_text
    assert np.isnan(scene.localization.dil)


@pytest.mark.parametrize("dil", [True, False])
def test_non_finite_output_is_a_failed_scene(dil):
    settings = PerceptionSettings(model=SSDLITE, passes=2, dil=dil)
    looker = Perception(settings, with_head(SSDLITE, float("nan")))
    scene = looker.assess(picture(), 3, "camera")
    assert scene.status is Status.FAILED
    assert "not finite" in scene.status_text
    assert (scene.stamp_ns, scene.frame_id, scene.objects, scene.unstable) == (3, "camera", (), ())
    assert (scene.image_size, scene.image_digest) == ((224, 168), image_digest(picture()))
    assert (scene.model_hash, scene.settings_hash) == (looker.model_hash, settings.hash_on("cpu"))


def test_more_boxes_than_can_be_clustered_fail_the_image(monkeypatch):
    monkeypatch.setattr(importlib.import_module("sticker_uq.uncertainty.cluster"), "MOST_BOXES", 0)
    scene = perception().assess(picture())
    assert scene.status is Status.FAILED
    assert "boxes of all passes, expected at most 0" in scene.status_text
    assert (scene.objects, scene.image_digest) == ((), image_digest(picture()))


def test_an_internal_error_is_not_swallowed(monkeypatch):
    looker = perception()

    def broken(*_, **__):
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(looker.detector, "sample", broken)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        looker.assess(picture())


def test_a_failed_assessment_says_why_and_by_whom():
    looker = perception()
    scene = looker.failed_assessment(7, "camera", "the image is truncated")
    assert (scene.status, scene.status_text) == (Status.FAILED, "the image is truncated")
    assert (scene.stamp_ns, scene.frame_id, scene.image_size, scene.image_digest) == (7, "camera", (0, 0), "")
    assert (scene.model, scene.model_hash, scene.settings_hash) == (
        SSDLITE,
        looker.model_hash,
        looker.settings.hash_on("cpu"),
    )
    assert scene.localization is None
    assert scene.uncertainty.objects == 0


def test_a_file_of_weights_sees_what_the_model_sees(tmp_path):
    file = tiny_weights(SSDLITE, tmp_path)
    settings = PerceptionSettings(model=SSDLITE, passes=3, weights=str(file), device="cpu")
    loaded = Perception(settings)
    loaded.warm_up()
    given = Perception(settings, StochasticDetector(tiny_model(SSDLITE), settings, loaded.model_hash))
    assert loaded.assess(picture(), 1, "a").to_bytes() == given.assess(picture(), 1, "a").to_bytes()


def test_a_view_of_an_image_has_the_digest_of_its_copy_and_another_shape_another_one():
    image = picture()
    assert image_digest(image[:, ::-1]) == image_digest(image[:, ::-1].copy()) != image_digest(image)
    assert image_digest(image.reshape(224, 168, 3)) != image_digest(image)


def test_the_hash_covers_what_changes_the_result_only():
    same = PerceptionSettings()
    assert same.hash_on("cpu") == PerceptionSettings(
        device="cpu", threads=1, weights="w.safetensors"
    ).hash_on("cpu")
    for change in (
        {"passes": 21},
        {"seed": 1},
        {"dil_alpha": 0.1},
        {"precision": "bfloat16"},
        {"passes_at_once": 3},
    ):
        assert PerceptionSettings(**change).hash_on("cpu") != same.hash_on("cpu")


def test_the_kind_of_device_is_part_of_the_hash_and_its_number_is_not():
    settings = PerceptionSettings(device="cuda:1")
    assert settings.hash_on("cuda") == PerceptionSettings(device="auto").hash_on("cuda")
    assert settings.hash_on("cuda") != settings.hash_on("cpu")
    assert PerceptionSettings(precision="tf32").hash_on("cuda") != settings.hash_on("cuda")


NO_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB\nmore")
ASSERTED = torch.AcceleratorError("CUDA error: device-side assert triggered\nmore")


def failing(error):
    def fails(*_, **__):
        raise type(error)(*error.args)

    return fails


PLACES = {
    "encode": lambda patch, p, f: patch.setattr(p.detector._engine, "encode", f),
    "detect": lambda patch, p, f: patch.setattr(p.detector._exact, "head_outputs", f),
    "dil": lambda patch, p, f: patch.setattr("sticker_uq.perception.dil.dil.activation_maps", f),
    "novelty": lambda patch, p, f: patch.setattr("sticker_uq.perception.image_novelty.scene_activations", f),
    "sample": lambda patch, p, f: patch.setattr(p.detector, "_pass_rows", f),
}


@pytest.mark.parametrize("stage", PLACES)
def test_too_little_memory_in_a_stage_fails_the_image_with_a_reason_and_the_next_is_assessed(
    stage, monkeypatch
):
    shared = packaged_perception()
    looker = Perception(shared.settings, shared.detector.with_settings(shared.detector.settings))
    freed = []
    monkeypatch.setattr(looker.detector, "free_memory", lambda: freed.append(sys.exc_info()[0]))
    with monkeypatch.context() as patch:
        PLACES[stage](patch, looker, failing(NO_MEMORY))
        scene = looker.assess(picture(), stamp_ns=1)
    assert scene.status is Status.FAILED
    assert scene.status_text.startswith(
        f"the memory of cpu does not suffice for stage {stage}: CUDA out of memory. Tried to allocate 2.00 GiB; "
    )
    assert "passes_at_once" in scene.status_text
    assert "more" not in scene.status_text
    assert freed
    assert set(freed) == {None}, "while an error is handled its traceback still holds tensors"
    looker.detector.chunk = shared.detector.chunk
    assert looker.assess(picture(), stamp_ns=1).digest == packaged_scene().digest

    with monkeypatch.context() as patch:
        PLACES[stage](patch, looker, failing(ASSERTED))
        with pytest.raises(
            DeviceFailed, match=f"cpu failed in stage {stage}: CUDA error: device-side assert triggered"
        ):
            looker.assess(picture())


def test_an_assessment_says_what_computed_it_and_another_device_is_refused_by_its_policy(monkeypatch):
    plain = packaged_scene()
    assert (plain.device, plain.device_kind, plain.precision) == ("cpu, engine 3", "cpu", "float32")
    validity = {
        "settings_hash": plain.settings_hash,
        "device": plain.device_kind,
        "precision": plain.precision,
    }
    policy = Policy(validity=validity)
    assert policy.refusal(plain) is None
    monkeypatch.setattr(saliency, "objectness_gradients", lambda d: [torch.ones_like(m) for m in d.maps])
    with simulated_gpu():
        there = Perception(PerceptionSettings(passes=2, device="cuda")).assess(picture())
    assert there.settings_hash != plain.settings_hash
    refusal = policy.refusal(there)
    assert text_of(refusal) == (
        "the policy was made on cpu, float32, not cuda, float32: calibrate again on this device, or set the detector's device "
        "and precision to those"
    )
    older = Policy(validity={"settings_hash": plain.settings_hash})
    assert text_of(older.refusal(there)).endswith("calibrate again with these")
    assert Policy().refusal(there) is None, "limits set by hand are for any device"
