"""The way from an image to an assessment is whole, deterministic and says when it fails."""

import subprocess
import sys

import numpy as np
import pytest
from pydantic import ValidationError

from sticker_uq.detection import NonFiniteOutput
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.perception.pipeline import image_digest, image_seed
from sticker_uq.scene import InvalidInput, Status
from test.helpers.models import MIN_SIZE, MODEL_NAMES, picture, tiny_detector

SSDLITE = "ssdlite320_mobilenet_v3_large"


def perception(name=SSDLITE, passes=4, **values):
    settings = PerceptionSettings(model=name, min_size=MIN_SIZE, passes=passes, **values)
    return Perception(settings, tiny_detector(name, passes=passes, seed=settings.seed))


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_every_model_gives_a_whole_assessment(name):
    scene = perception(name).assess(picture(), 17, "camera", keep_saliency=True)
    assert (scene.status, scene.stamp_ns, scene.frame_id, scene.model) == (Status.OK, 17, "camera", name)
    assert scene.image_size == (224, 168)
    assert scene.objects or scene.unstable
    assert scene.uncertainty.objects == len(scene.objects)
    assert scene.uncertainty.unstable == len(scene.unstable)
    assert scene.localization is not None
    assert 0.0 <= scene.localization.dil <= 1.0
    assert scene.localization.saliency is not None
    assert scene.localization.saliency.shape == (168, 224)
    assert set(scene.timings) == {"encode", "decode", "detect", "dil", "cluster", "total"}


def test_the_same_pixels_give_the_same_bytes_and_others_do_not():
    one, other = perception(), perception()
    first = one.assess(picture(1), 5, "a").to_bytes()
    one.assess(picture(2), 6, "a")
    assert one.assess(picture(1), 5, "a").to_bytes() == first == other.assess(picture(1), 5, "a").to_bytes()
    changed = picture(1)
    changed[0, 0] ^= 1
    assert one.assess(changed, 5, "a").image_digest != one.assess(picture(1), 5, "a").image_digest


def test_the_seed_changes_the_masks():
    assert perception(seed=1).assess(picture()).to_bytes() != perception(seed=2).assess(picture()).to_bytes()
    assert image_seed("ab", 1) != image_seed("ab", 2) != image_seed("cd", 2)


def test_saliency_is_kept_only_when_asked_for_and_dil_can_be_off():
    assert perception().assess(picture()).localization.saliency is None
    scene = perception(dil=False).assess(picture())
    assert scene.localization is None
    assert "dil" not in scene.timings


def test_non_finite_output_is_a_failed_scene(monkeypatch):
    looker = perception()

    def broken(*_, **__):
        raise NonFiniteOutput("the network produced NaN")

    monkeypatch.setattr(looker.detector, "decode", broken)
    scene = looker.assess(picture(), 3, "camera")
    assert (scene.status, scene.status_text) == (Status.FAILED, "the network produced NaN")
    assert (scene.stamp_ns, scene.frame_id, scene.objects) == (3, "camera", ())
    assert scene.model_hash == looker.model_hash


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((4, 4), np.uint8),
        np.zeros((4, 4, 3), np.float32),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((0, 4, 3), np.uint8),
        None,
    ],
)
def test_what_is_no_image_is_refused(image):
    with pytest.raises(InvalidInput, match="expected"):
        perception().assess(image)


def test_a_view_of_an_image_has_the_digest_of_its_copy():
    image = picture()
    assert image_digest(image[:, ::-1]) == image_digest(image[:, ::-1].copy()) != image_digest(image)


def test_settings_carry_the_ranges_of_their_rooms():
    for name, value in {"passes": 0, "min_cluster_size": 1, "cluster_epsilon": 1.0, "dil_alpha": 2.0}.items():
        with pytest.raises(ValidationError, match=name):
            PerceptionSettings(**{name: value})
    settings = PerceptionSettings(cluster_epsilon=0.4, dil_technique="gradcam++", dil_alpha=0.1)
    assert settings.cluster.epsilon == 0.4
    assert (settings.localization.technique, settings.localization.alpha) == ("gradcam++", 0.1)


def test_the_hash_covers_what_changes_the_result_only():
    same = PerceptionSettings()
    assert same.hash == PerceptionSettings(device="cpu", threads=1, weights="w.safetensors").hash
    for change in ({"passes": 21}, {"seed": 1}, {"dil_alpha": 0.1}, {"min_samples": 4}):
        assert PerceptionSettings(**change).hash != same.hash


def test_settings_load_without_torch():
    program = "import sys; import sticker_uq.perception; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
