# SPDX-License-Identifier: Apache-2.0
"""The branches of a frozen SSD's head, level by level, are torch's convolutions, and their gradients autograd's."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torchvision.models.detection.ssd import SSDClassificationHead, SSDRegressionHead
from torchvision.models.detection.ssdlite import SSDLiteClassificationHead, SSDLiteRegressionHead

from sticker_uq.detection.kernels.fast_retinanet import LazyDeltas
from sticker_uq.detection.kernels.fast_ssd import ClassScores, Dropped, Level, SsdDeltas, levels_of
from sticker_uq.detection.kernels.frozen import frozen
from sticker_uq.detection.selection import NonFiniteOutput

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


def levels(kind: str, classes: bool = True) -> list[Level]:
    return levels_of(frozen(Model(branch(kind, classes))).branch)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("kind", ["ssd300", "ssdlite"])
def test_objectness_and_its_gradient_are_autograds(kind: str, count: int) -> None:
    exact = branch(kind).double().requires_grad_(False)
    leaves = [m.double().requires_grad_() for m in maps(count)]
    wanted = torch.softmax(exact(leaves), dim=2)
    gradients = torch.autograd.grad((1 - wanted[..., 0]).sum(), leaves)

    found = ClassScores(levels(kind), 3, maps(count))
    torch.testing.assert_close(found.probabilities.double(), wanted, rtol=1e-4, atol=1e-5)
    for number, ((height, width), level) in enumerate(zip(SIDES, found.objectness, strict=True)):
        assert level.shape == (count, BOXES, height, width)
        start = sum(h * w for h, w in SIDES[:number]) * BOXES
        rows = level.permute(0, 2, 3, 1).flatten(1)
        expected = 1 - wanted[:, start : start + rows.shape[1], 0]
        torch.testing.assert_close(rows.double(), expected, rtol=1e-4, atol=1e-5)
    for gradient, expected in zip(found.gradients(), gradients, strict=True):
        assert gradient.shape == expected.shape
        largest = float(expected.abs().max())
        torch.testing.assert_close(gradient.double(), expected, rtol=1e-3, atol=1e-4 * largest)


def test_a_slope_is_exact_where_the_background_is_nearly_certain() -> None:
    exact = branch("ssd300")
    with torch.no_grad():
        for level in exact.module_list:  # type: ignore[union-attr]
            level.bias.unflatten(0, (-1, 3))[:, 0] += 14
    made = levels_of(frozen(Model(exact)).branch)
    leaves = [m.double().requires_grad_() for m in maps(1)]
    wanted = torch.softmax(exact.double().requires_grad_(False)(leaves), dim=2)
    assert float(wanted[..., 0].detach().min()) > 0.999
    gradients = torch.autograd.grad((1 - wanted[..., 0]).sum(), leaves)
    for gradient, expected in zip(ClassScores(made, 3, maps(1)).gradients(), gradients, strict=True):
        assert (gradient.double() - expected).norm() < 1e-4 * expected.norm()


def whole(levels: list[Tensor]) -> list[Dropped]:
    return [Dropped(m, None, n) for n, m in enumerate(levels)]


def counts() -> list[int]:
    return [h * w * BOXES for h, w in SIDES]


@pytest.mark.parametrize("kind", ["ssd300", "ssdlite"])
@pytest.mark.parametrize("wanted", [4, 4000])
def test_wanted_boxes_are_those_of_the_whole_branch(kind: str, wanted: int) -> None:
    generator = torch.Generator().manual_seed(7)
    shared, kept = maps(1), [(torch.rand(2, *m.shape[1:], generator=generator) < 0.8) for m in maps(1)]
    outputs = branch(kind, classes=False).requires_grad_(False)(
        [m * k for m, k in zip(shared, kept, strict=True)]
    )
    rows = torch.randint(sum(counts()), (wanted,), generator=generator)
    images = torch.randint(2, (wanted,), generator=generator)
    bytes_ = [k.to(torch.uint8).contiguous(memory_format=torch.channels_last) for k in kept]
    dropped = [Dropped(*pair, n) for n, pair in enumerate(zip(shared, bytes_, strict=True))]
    found = SsdDeltas(levels(kind, classes=False), dropped, counts())
    for _ in range(2):  # what was computed is kept
        torch.testing.assert_close(found(images, rows), outputs[images, rows], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found(1, rows[:3]), outputs[1, rows[:3]], rtol=1e-4, atol=1e-4)
    assert found(0, rows[:0]).shape == (0, 4)


def test_every_place_has_its_own_neighbours() -> None:
    outputs = branch("ssdlite", classes=False).requires_grad_(False)(maps(1))
    for row in range(sum(counts())):
        found = SsdDeltas(levels_once(), whole(maps(1)), counts())
        torch.testing.assert_close(found(0, torch.tensor([row])), outputs[0, [row]], rtol=1e-4, atol=1e-4)


@cache
def levels_once() -> list[Level]:
    return levels("ssdlite", classes=False)


def test_boxes_that_are_not_finite_are_refused() -> None:
    broken = maps(1)
    broken[4][0, 0, 2, 2] = float("nan")
    found = SsdDeltas(levels_once(), whole(broken), counts())
    start = sum(counts()[:4])
    with pytest.raises(NonFiniteOutput):
        found(0, torch.tensor([start + 12 * BOXES]))
    assert torch.isfinite(found(0, torch.tensor([0]))).all()


def test_levels_are_computed_when_a_box_of_them_is_wanted_and_once() -> None:
    asked: list[int] = []
    whole = torch.randn(2, 12, 4, generator=torch.Generator().manual_seed(1))

    def compute(level: int) -> Tensor:
        asked.append(level)
        return whole[:, 4 * level : 4 * level + 4]

    deltas = LazyDeltas(2, [4, 4, 4], compute)
    images, rows = torch.tensor([0, 1, 1]), torch.tensor([11, 3, 8])
    assert torch.equal(deltas(images, rows), whole[images, rows])
    assert torch.equal(deltas(1, rows[:2]), whole[1, rows[:2]])
    assert sorted(asked) == [0, 2]
    whole[0, 5, 2] = float("inf")
    with pytest.raises(NonFiniteOutput):
        deltas(1, torch.tensor([4]))
