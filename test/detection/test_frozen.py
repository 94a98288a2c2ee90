# SPDX-License-Identifier: Apache-2.0
"""What the fast kernels compute is what torchvision computes, for inputs that a network rarely makes."""

import copy

import numpy as np
import pytest
import torch
from torch.nn.utils.parametrizations import weight_norm
from torchvision.ops import MultiScaleRoIAlign

from sticker_uq.detection.catalogue import build_model
from sticker_uq.detection.kernels.convolutions import OneDnn, Winograd, use_winograd
from sticker_uq.detection.kernels.fast_faster_rcnn import BagPooling
from sticker_uq.detection.kernels.frozen import copy_model, freeze
from sticker_uq.detection.kernels.pixels import network_input
from test.helpers.models import MIN_SIZE, picture, tiny_detector, tiny_model


@pytest.mark.parametrize("name", ["ssdlite320_mobilenet_v3_large", "fasterrcnn_resnet50_fpn"])
def test_a_frozen_copy_has_no_normalisation_and_leaves_the_model_alone(name):
    model = copy.deepcopy(tiny_model(name))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    fast = freeze(model)
    assert not any(isinstance(m, torch.nn.BatchNorm2d) for m in fast.modules())
    assert any(isinstance(m, OneDnn) for m in fast.modules())
    assert not any(isinstance(m, OneDnn) for m in model.modules())
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert fast.transform is model.transform
    x = torch.rand(1, 3, 96, 128)
    with torch.no_grad():
        for found, wanted in zip(fast.backbone(x).values(), model.backbone(x).values(), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("count", "height", "width"), [(1, 32, 32), (1, 61, 79), (3, 18, 45), (80, 4, 4), (2, 130, 33)]
)
@pytest.mark.parametrize("bias", [True, False])
def test_minimal_filtering_is_the_convolution_and_so_is_its_gradient(count, height, width, bias):
    torch.manual_seed(0)
    wanted = torch.nn.Conv2d(128, 136, 3, padding=1, bias=bias).requires_grad_(False)
    found = copy.deepcopy(wanted)
    use_winograd(found)
    assert type(found) is Winograd
    x = torch.randn(count, 128, height, width).contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found(x), wanted(x), rtol=1e-4, atol=1e-4)
    assert "transformed_weight" in vars(found)
    assert torch.equal(found(x), found(x))
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    for convolution, leaf in zip((wanted, found), inputs, strict=True):
        (convolution(leaf) ** 2).sum().backward()
    torch.testing.assert_close(inputs[1].grad, inputs[0].grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "convolution",
    [
        torch.nn.Conv2d(128, 128, 1),
        torch.nn.Conv2d(128, 128, 3),
        torch.nn.Conv2d(128, 128, 3, padding=1, stride=2),
        torch.nn.Conv2d(128, 128, 3, padding=1, groups=2),
        torch.nn.Conv2d(256, 24, 3, padding=1),
        torch.nn.Conv2d(128, 128, 3, padding=1, dtype=torch.bfloat16),
    ],
)
def test_other_convolutions_stay_what_they_are(convolution):
    use_winograd(convolution)
    assert type(convolution) is torch.nn.Conv2d


@pytest.mark.parametrize("name", ["ssdlite320_mobilenet_v3_large", "retinanet_resnet50_fpn"])
@pytest.mark.parametrize(("width", "height"), [(224, 168), (127, 401), (640, 33), (20, 20)])
def test_the_networks_input_is_torchvisions(name, width, height):
    transform = build_model(name, min_size=MIN_SIZE).eval().transform
    image = (
        picture(4, 400, 420)[:height, :width]
        if width < 400
        else np.tile(picture(4), (1, 3, 1))[:height, :width]
    )
    rgb = torch.from_numpy(np.ascontiguousarray(image[..., ::-1])).permute(2, 0, 1) / 255
    wanted, _ = transform([rgb])
    found = network_input(transform, image)
    assert found.image_sizes == wanted.image_sizes
    torch.testing.assert_close(found.tensors, wanted.tensors, rtol=0, atol=2e-4)


def test_pooling_as_a_weighted_sum_is_roi_align():
    torch.manual_seed(0)
    padded, passes = (128, 192), 3
    maps = [
        torch.randn(passes, 5, 128 // s, 192 // s).contiguous(memory_format=torch.channels_last)
        for s in (4, 8, 16, 32)
    ]
    corner = torch.rand(200, 2) * torch.tensor([190.0, 126.0])
    size = torch.rand(200, 2) ** 3 * 300
    boxes = torch.cat([corner, torch.minimum(corner + size, torch.tensor([192.0, 128.0]))], dim=1)
    boxes[0] = torch.tensor([0.0, 0.0, 192.0, 128.0])
    boxes[1] = torch.tensor([191.5, 127.5, 192.0, 128.0])
    image = torch.arange(200) % passes
    order = image.argsort(stable=True)
    boxes, image = boxes[order], image[order]
    stock = MultiScaleRoIAlign(["0", "1", "2", "3"], output_size=7, sampling_ratio=2)
    named = {str(i): m for i, m in enumerate(maps)}
    wanted = stock(named, [boxes[image == i] for i in range(passes)], [padded] * passes)
    found = BagPooling(stock)(maps, boxes, image, padded)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_pooling_with_other_samples_is_refused():
    with pytest.raises(ValueError, match="3 samples"):
        BagPooling(MultiScaleRoIAlign(["0"], output_size=7, sampling_ratio=3))


@pytest.mark.parametrize("name", ["ssdlite320_mobilenet_v3_large", "fasterrcnn_resnet50_fpn"])
def test_reduced_precision_moves_a_box_by_little_and_spares_the_deterministic_heads(name):
    plain = tiny_detector(name)
    low = tiny_detector(name, precision="bfloat16")
    features = low.encode(picture())
    assert features.maps[0].dtype == torch.bfloat16
    assert all(m.dtype == torch.float32 for m in low.head_maps(features))
    samples = low.sample(features, passes=2, seed=1)
    assert samples.boxes.dtype == samples.probabilities.dtype == np.float32
    seen, found = low.deterministic_pass(features).detections, low.detect(features)
    np.testing.assert_array_equal(seen.boxes, found.boxes)
    wanted = plain.detect(plain.encode(picture()))
    assert abs(len(found) - len(wanted)) <= 0.3 * len(wanted) + 2


def test_a_copy_shares_no_weight_and_keeps_how_a_layer_computes_its_own():
    layer = weight_norm(torch.nn.Conv2d(3, 4, 1))
    model = torch.nn.Sequential(layer, torch.nn.BatchNorm2d(4))
    model.transform = torch.nn.Identity()
    made = copy_model(model)
    given = torch.randn(1, 3, 5, 5)
    wanted = model(given)
    theirs = {tensor.data_ptr() for tensor in model.state_dict().values()}
    assert theirs.isdisjoint(tensor.data_ptr() for tensor in made.state_dict().values())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert torch.equal(made(given), wanted)
    assert not made(given).requires_grad
    assert made.transform is model.transform
