# SPDX-License-Identifier: Apache-2.0
"""The branches of a frozen SSD's head, level by level, are torch's convolutions."""

import copy
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torchvision.models.detection.ssd import SSDClassificationHead, SSDRegressionHead
from torchvision.models.detection.ssdlite import SSDLiteClassificationHead, SSDLiteRegressionHead

from sticker_uq.detection.detector import StochasticDetector
from sticker_uq.detection.kernels.fast_ssd import (
    Dropped,
    MapLevel,
    SsdDeltas,
    levels_above_background,
    levels_of,
)
from sticker_uq.detection.kernels.frozen import freeze
from sticker_uq.detection.selection import NonFiniteOutput
from sticker_uq.perception.dil.dil import objectness_gradients
from test.helpers.models import picture, tiny_detector, tiny_model

SIDES = [(1, 1), (2, 2), (3, 3), (2, 4), (5, 5), (7, 12), (18, 19)]
CHANNELS, BOXES = 24, 2


class Model(nn.Module):
    """As much of a detector as freezing wants to see."""

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.transform, self.branch = nn.Identity(), branch


def branch(kind: str, classes: bool = True) -> nn.Module:
    torch.manual_seed(3)
    channels, boxes = [CHANNELS] * len(SIDES), [BOXES] * len(SIDES)
    if kind == "ssd300":
        head = SSDClassificationHead(channels, boxes, 3) if classes else SSDRegressionHead(channels, boxes)
        return head.eval()
    made = SSDLiteClassificationHead(channels, boxes, 3, nn.BatchNorm2d)
    if not classes:
        made = SSDLiteRegressionHead(channels, boxes, nn.BatchNorm2d)
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):  # so that many activations lie on either side of both limits
            nn.init.normal_(module.weight, 3.0, 1.0)
            nn.init.normal_(module.bias, 2.0, 2.0)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
    return made.eval()


def maps(count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    made = [torch.randn(count, CHANNELS, h, w, generator=generator) for h, w in SIDES]
    return [m.contiguous(memory_format=torch.channels_last) for m in made]


def levels(kind: str, classes: bool = True) -> list[MapLevel]:
    return levels_of(freeze(Model(branch(kind, classes))).branch)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("kind", ["ssd300", "ssdlite"])
def test_outputs_are_those_of_the_branch(kind, count):
    wanted = branch(kind).double().requires_grad_(False)([m.double() for m in maps(count)])
    found = [level.rows(m).reshape(count, -1, 3) for level, m in zip(levels(kind), maps(count), strict=True)]
    torch.testing.assert_close(torch.cat(found, dim=1).double(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["ssd300", "ssdlite"])
def test_logits_less_the_backgrounds_have_the_same_softmax(kind):
    made = levels_above_background(freeze(Model(branch(kind))).branch)
    for whole_level, level, m in zip(levels(kind), made, maps(3), strict=True):
        wanted = whole_level.rows(m).unflatten(2, (-1, 3))
        found = torch.nn.functional.pad(level.rows(m).unflatten(2, (-1, 2)), (1, 0))
        torch.testing.assert_close(found.softmax(3), wanted.softmax(3), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["ssd300_vgg16", "ssdlite320_mobilenet_v3_large"])
def test_a_slope_is_exact_where_the_background_is_nearly_certain(name):
    model = copy.deepcopy(tiny_model(name))
    for block in model.head.classification_head.module_list:
        (block if name == "ssd300_vgg16" else block[-1]).bias.unflatten(0, (-1, 3))[:, 0] += 14
    detector = StochasticDetector(model, tiny_detector(name).settings, "")
    plain = detector.deterministic_pass(detector.encode(picture()))
    leaves = [m.detach().double().requires_grad_() for m in plain.maps]
    wanted = torch.softmax(model.head.classification_head.double()(leaves), dim=2)
    assert float(wanted[..., 0].detach().median()) > 0.999
    gradients = torch.autograd.grad((1 - wanted[..., 0]).sum(), leaves)
    for gradient, expected in zip(objectness_gradients(plain), gradients, strict=True):
        assert (gradient.double() - expected).norm() <= 1e-3 * expected.norm()


def whole(levels: list[Tensor]) -> list[Dropped]:
    return [Dropped(m, None) for m in levels]


def counts() -> list[int]:
    return [h * w * BOXES for h, w in SIDES]


@pytest.mark.parametrize("kind", ["ssd300", "ssdlite"])
@pytest.mark.parametrize("wanted", [4, 4000])
def test_wanted_boxes_are_those_of_the_whole_branch(kind, wanted):
    generator = torch.Generator().manual_seed(7)
    shared, kept = maps(1), [(torch.rand(2, *m.shape[1:], generator=generator) < 0.8) for m in maps(1)]
    outputs = branch(kind, classes=False).requires_grad_(False)(
        [m * k for m, k in zip(shared, kept, strict=True)]
    )
    rows = torch.randint(sum(counts()), (wanted,), generator=generator)
    images = torch.randint(2, (wanted,), generator=generator)
    bytes_ = [k.to(torch.uint8).contiguous(memory_format=torch.channels_last) for k in kept]
    dropped = [Dropped(*pair) for pair in zip(shared, bytes_, strict=True)]
    found = SsdDeltas(levels(kind, classes=False), dropped, counts())
    for _ in range(2):  # what was computed is kept
        torch.testing.assert_close(found(images, rows), outputs[images, rows], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found(1, rows[:3]), outputs[1, rows[:3]], rtol=1e-4, atol=1e-4)
    assert found(0, rows[:0]).shape == (0, 4)


def test_every_place_has_its_own_neighbours():
    outputs = branch("ssdlite", classes=False).requires_grad_(False)(maps(1))
    for row in range(sum(counts())):
        found = SsdDeltas(levels_once(), whole(maps(1)), counts())
        torch.testing.assert_close(found(0, torch.tensor([row])), outputs[0, [row]], rtol=1e-4, atol=1e-4)


@cache
def levels_once() -> list[MapLevel]:
    return levels("ssdlite", classes=False)


def test_boxes_that_are_not_finite_are_refused():
    broken = maps(1)
    broken[4][0, 0, 2, 2] = float("nan")
    found = SsdDeltas(levels_once(), whole(broken), counts())
    start = sum(counts()[:4])
    with pytest.raises(NonFiniteOutput):
        found(0, torch.tensor([start + 12 * BOXES]))
    assert torch.isfinite(found(0, torch.tensor([0]))).all()
