# SPDX-License-Identifier: Apache-2.0
"""The detector around its passes: images, devices, weights, objectness, outputs that cannot be trusted."""

import copy

import numpy as np
import pytest
import torch
from torchvision.models.detection.rpn import concat_box_prediction_layers

import sticker_uq.detection.detector as detector_module
from sticker_uq.detection.detector import StochasticDetector, load_detector, resolve_device
from sticker_uq.detection.deterministic_pass import flat
from sticker_uq.detection.selection import NonFiniteOutput
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.detection.weights import save_weights
from sticker_uq.scene import InvalidInput
from test.helpers.models import FAMILIES, picture, tiny_detector, tiny_model

SSDLITE = "ssdlite320_mobilenet_v3_large"
ENGINE = (SSDLITE, "fasterrcnn_resnet50_fpn")  # what is a rule of the engine is the same for every model


@pytest.mark.parametrize("name", ENGINE)
def test_boxes_lie_in_the_original_image_and_vectors_are_distributions(name):
    detector = tiny_detector(name, score_floor=0.05)
    width, height = 127, 401  # 127 / 300 * 300 is more than 127 in single precision
    features = detector.encode(picture(2, width, height))
    samples = detector.sample(features, passes=1, seed=3)
    assert features.image_size == (width, height)
    assert len(samples) > 0
    assert samples.boxes.dtype == samples.probabilities.dtype == np.float32
    assert samples.boxes.min() >= 0
    assert (samples.boxes[:, 2:] <= [width, height]).all()
    assert (samples.boxes[:, 2:] > samples.boxes[:, :2]).all()
    assert samples.boxes[:, 3].max() > height / 2  # not left in pixels of the resized image
    np.testing.assert_allclose(samples.probabilities.sum(axis=1), 1, atol=1e-5)
    assert (samples.probabilities[:, 1:].max(axis=1) > 0.05).all()
    assert (samples.probabilities >= 0).all()


@pytest.mark.parametrize("name", FAMILIES)
def test_objectness_is_that_of_the_heads_and_differentiable(name):
    detector = tiny_detector(name)
    deterministic = detector.deterministic_pass(detector.encode(picture()))
    maps, levels = list(deterministic.maps), deterministic.objectness
    assert [level.shape[2:] for level in levels] == [m.shape[2:] for m in maps]
    found = flat(levels)[0]  # torchvision's order of anchors

    if name.startswith("fasterrcnn"):
        logits, deltas = detector.model.rpn.head(maps)
        wanted = concat_box_prediction_layers(logits, deltas)[0][:, 0]
    else:
        logits = detector.model.head(maps)["cls_logits"][0]
        retinanet = name.startswith("retinanet")
        wanted = (
            torch.sigmoid(logits[:, 1:]).amax(dim=1) if retinanet else 1 - torch.softmax(logits, dim=1)[:, 0]
        )
    torch.testing.assert_close(found.detach(), wanted.detach(), rtol=1e-4, atol=1e-4)
    probability = torch.sigmoid(wanted) if deterministic.two_stage else wanted
    torch.testing.assert_close(deterministic.probability(), probability.detach(), rtol=1e-4, atol=1e-4)
    assert deterministic.two_stage == name.startswith("fasterrcnn")
    assert deterministic.anchors.shape == (found.numel(), 4)

    expected = torch.autograd.grad(wanted.sum(), maps)
    gradients = torch.autograd.grad(found.sum(), maps)
    for gradient, other in zip(gradients, expected, strict=True):
        # kernels that round differently decide some rectifiers at 0 differently
        assert gradient.shape == other.shape
        assert (gradient - other).norm() <= 1e-2 * other.norm() + 1e-7
    assert any(g.abs().sum() > 0 for g in gradients)
    assert all(p.grad is None and not p.requires_grad for p in detector.model.parameters())


@pytest.mark.parametrize(("name", "site"), [*((name, "in") for name in FAMILIES), (SSDLITE, "out")])
def test_a_deterministic_pass_has_the_detections_of_the_detector_byte_for_byte(name, site):
    detector = tiny_detector(name, dropout_site=site)
    features = detector.encode(picture())
    seen, expected = detector.deterministic_pass(features).detections, detector.detect(features)
    assert len(seen) > 0
    np.testing.assert_array_equal(seen.boxes, expected.boxes)
    np.testing.assert_array_equal(seen.probabilities, expected.probabilities)


def test_detections_are_decoded_from_the_anchors_of_the_deterministic_pass():
    detector = tiny_detector(SSDLITE)  # a second stage would move the boxes once more
    features = detector.encode(picture())
    deterministic = detector.deterministic_pass(features)
    rows = deterministic.probability().topk(400).indices
    width, height = features.image_size
    scale = np.array([width / features.resized[1], height / features.resized[0]] * 2, np.float32)
    boxes = (deterministic.decode_boxes(rows).numpy() * scale).clip(0, [width, height, width, height])
    for box in deterministic.detections.boxes:
        assert np.abs(boxes - box).max(axis=1).min() < 1e-2


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((0, 10, 3), np.uint8),
        np.zeros((10, 10), np.uint8),
        np.zeros((10, 10, 4), np.uint8),
        np.zeros((10, 10, 3), np.float32),
    ],
)
def test_refuses_what_is_no_bgr_image(image):
    with pytest.raises(InvalidInput, match=r"image has shape .* expected \(H, W, 3\) uint8 BGR"):
        tiny_detector(SSDLITE).encode(image)


def test_refuses_an_image_that_cannot_be_resized():
    with pytest.raises(InvalidInput, match="5000x2 px"):
        tiny_detector("fasterrcnn_resnet50_fpn").encode(np.zeros((2, 5000, 3), np.uint8))
    detector = tiny_detector(SSDLITE)
    with pytest.raises(InvalidInput, match="passes is 0"):
        detector.sample(detector.encode(picture()), passes=0, seed=0)


def test_colours_are_blue_green_red_and_the_image_may_be_read_only():
    detector = tiny_detector(SSDLITE)
    image = picture()
    image.setflags(write=False)
    swapped = np.ascontiguousarray(image[..., ::-1])
    rgb = torch.from_numpy(swapped).permute(2, 0, 1) / 255
    wanted = detector.model.backbone(detector.model.transform([rgb])[0].tensors)
    torch.testing.assert_close(detector.encode(image).maps[0], wanted["0"], rtol=0, atol=5e-3)
    assert not torch.allclose(detector.encode(swapped).maps[0], wanted["0"], atol=0.1)


@pytest.mark.parametrize("name", ENGINE)
def test_outputs_that_are_not_finite_are_no_empty_list(name):
    model = copy.deepcopy(tiny_model(name))
    layer = (
        model.backbone.fpn.layer_blocks[0][0]
        if "fpn" in name
        else model.head.classification_head.module_list[0][1]
    )
    layer.weight[0] = float("nan")
    detector = StochasticDetector(model, tiny_detector(name).settings, "")
    features = detector.encode(picture())
    with pytest.raises(NonFiniteOutput):
        detector.detect(features)
    with pytest.raises(NonFiniteOutput):
        detector.sample(features, passes=1, seed=0)


def test_a_box_that_no_pass_wants_need_not_be_finite():
    model = copy.deepcopy(tiny_model(SSDLITE))
    for level in model.head.regression_head.module_list:
        level[1].weight.fill_(float("nan"))
    features = tiny_detector(SSDLITE).encode(picture())
    with pytest.raises(NonFiniteOutput):
        StochasticDetector(model, tiny_detector(SSDLITE).settings, "").sample(features, passes=2, seed=0)
    for level in model.head.classification_head.module_list:
        level[1].bias.unflatten(0, (-1, 3))[:, 0] += 40
    detector = StochasticDetector(model, tiny_detector(SSDLITE).settings, "")
    assert len(detector.sample(features, passes=2, seed=0)) == 0


def test_says_how_to_get_weights_where_none_are_packaged(monkeypatch):
    monkeypatch.setattr(detector_module, "packaged_weights", lambda name: None)
    with pytest.raises(InvalidInput, match=r"sticker-uq train .* --model fasterrcnn_resnet50_fpn"):
        load_detector(DetectorSettings(model="fasterrcnn_resnet50_fpn", device="cpu"))


def test_it_warns_of_weights_that_learned_from_larger_images(tmp_path):
    name = "retinanet_resnet50_fpn"
    save_weights(tiny_model(name), tmp_path / "own.safetensors", {"model": name, "input_size": 800})
    settings = DetectorSettings(model=name, weights=str(tmp_path / "own.safetensors"), device="cpu")
    with pytest.warns(
        UserWarning, match=r"shorter side is 800 px, and sees them at 480 px: give min_size 800"
    ):
        load_detector(settings)


def test_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == resolve_device("cpu") == torch.device("cpu")
    with pytest.raises(InvalidInput, match="'cuda' does not exist"):
        load_detector(DetectorSettings(device="cuda"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert resolve_device("auto") == torch.device("cuda")
    with pytest.raises(InvalidInput, match="'cuda:1' does not exist"):
        resolve_device("cuda:1")


def test_other_settings_share_the_weights_but_another_model_does_not():
    plain = tiny_detector(SSDLITE)
    other = plain.with_settings(plain.settings.model_copy(update={"score_floor": 0.5, "dropout_rate": 0.4}))
    assert other.model is plain.model
    assert plain.settings.score_floor != other.settings.score_floor
    assert other.detect(plain.encode(picture())).scores.min() > 0.5
    for name, value in {"model": "ssd300_vgg16", "min_size": 600, "weights": "a.pth"}.items():
        with pytest.raises(InvalidInput, match=f"{name} is {value!r}"):
            plain.with_settings(plain.settings.model_copy(update={name: value}))
