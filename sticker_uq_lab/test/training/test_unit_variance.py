# SPDX-License-Identifier: Apache-2.0
"""First weights of a network without normalisation, and SSD300 on pictures smaller than its own."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from lab_helpers.scenes import rendered
from sticker_uq.detection import build_model
from sticker_uq.detection.models.ssd import backbone_maps
from sticker_uq.io.coco import read_coco
from sticker_uq_lab.training.augmentation import Sample, augment
from sticker_uq_lab.training.recipes import batch_loss, prepare_random, scale_to_variance
from test.helpers.models import half_ssd300

pytestmark = pytest.mark.usefixtures("one_thread")

SSD300, SSDLITE = "ssd300_vgg16", "ssdlite320_mobilenet_v3_large"
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rendered(tmp_path_factory.mktemp("scenes"), range(4), (240, 180), stickers=3)


@pytest.fixture(scope="module")
def built() -> nn.Module:
    torch.manual_seed(0)
    return half_ssd300()


@pytest.fixture
def model(built: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return copy.deepcopy(built)


def samples(folder: Path, size: int) -> list[Sample]:
    items = read_coco(folder)
    return [augment(item, (size, size), np.random.default_rng(i)) for i, item in enumerate(items)]


@pytest.mark.parametrize("deviation", [1.0, 0.1])
def test_every_convolution_gives_the_deviation_that_is_asked_for(deviation):
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(3, 8, 3),
        nn.ReLU(inplace=True),
        nn.Conv2d(8, 8, 3, bias=False),
        nn.ReLU(),
        nn.Conv2d(8, 4, 1),
    ]
    network = nn.Sequential(*layers)
    pictures = 100 * torch.randn(2, 3, 16, 16) + 50
    result = scale_to_variance(network, lambda: network(pictures), deviation)
    values = pictures
    for layer in network:
        values = layer(values)
        if isinstance(layer, nn.Conv2d):
            assert values.std().item() == pytest.approx(deviation, rel=1e-3)
            assert layer.bias is None or not layer.bias.any()
    torch.testing.assert_close(result, values)
    assert not any(layer._forward_hooks for layer in network)


def test_a_layer_without_variance_keeps_its_filters():
    layer = nn.Conv2d(2, 1, 1)
    before = layer.weight.clone()
    scale_to_variance(layer, lambda: layer(torch.ones(1, 2, 1, 1)))
    assert torch.equal(layer.weight, before)


def test_the_backbone_gives_torchvisions_maps_and_fewer_for_small_pictures(built):
    backbone = built.backbone
    with torch.no_grad():
        pictures = torch.randn(1, 3, 300, 300)
        for mine, theirs in zip(backbone_maps(backbone, pictures), backbone(pictures).values(), strict=True):
            assert torch.equal(mine, theirs)
        small = backbone_maps(backbone, pictures[..., :160, :160])
    assert [m.shape[-1] for m in small] == [20, 10, 5, 3, 1]


def test_ssd300_starts_with_small_logits_on_pictures_of_any_size(model, scenes):
    with torch.no_grad():
        as_built = batch_loss(SSD300, model, samples(scenes, 128)[:1], CPU).item()
    prepare_random(SSD300, model, samples(scenes, 300)[:1], CPU)
    with torch.no_grad():
        losses = [batch_loss(SSD300, model, samples(scenes, size)[:1], CPU).item() for size in (128, 300)]
    # ln 3 for each of a positive and its three negatives, and boxes that are not yet moved
    assert all(3 < loss < 15 for loss in losses)
    assert losses[0] < as_built / 2


def test_a_model_with_normalisation_keeps_its_random_weights(scenes):
    model = build_model(SSDLITE)
    before = copy.deepcopy(model.state_dict())
    prepare_random(SSDLITE, model, samples(scenes, 192), CPU)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
