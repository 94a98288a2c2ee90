# SPDX-License-Identifier: Apache-2.0
"""Objectness saliency: the published formulas, finite differences, torch's interpolation and pytorch-grad-cam."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from sticker_uq.detection import DeterministicPass, Features, StochasticDetector
from sticker_uq.detection.deterministic_pass import leaves
from sticker_uq.perception.dil.cam import library_map
from sticker_uq.perception.dil.dil import activation_map, activation_maps, enlarge, sum_objectness
from sticker_uq.scene import Detections, InvalidInput
from test.helpers.models import picture, tiny_detector

KINDS = ("ssdlite320_mobilenet_v3_large", "retinanet_resnet50_fpn", "fasterrcnn_resnet50_fpn")


def features_of(image: tuple[int, int], resized: tuple[int, int], padded: tuple[int, int]) -> Features:
    return Features(image_size=image, resized=resized, padded=padded, maps=())


class SmallDetector:
    """Two levels and a smooth head in double precision: what a detector is to the saliency, small enough to differentiate."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(3)
        self.head = nn.Conv2d(4, 3, 3, padding=1).double().requires_grad_(False)
        self.head.weight.copy_(torch.randn(self.head.weight.shape, generator=generator, dtype=torch.float64))
        shapes = [(1, 4, 6, 8), (1, 4, 3, 4)]
        self.maps = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]

    def objectness(self, maps: list[Tensor]) -> list[Tensor]:
        return [torch.sigmoid(self.head(level)) for level in maps]

    def deterministic_pass(self, two_stage: bool) -> DeterministicPass:
        maps = leaves(self.maps)
        return look_with(maps, self.objectness(maps), two_stage)


def look_with(maps: list[Tensor], objectness: list[Tensor], two_stage: bool) -> DeterministicPass:
    """A pass of which only maps and objectness mean anything."""
    nothing = Detections(np.zeros((0, 4), np.float32), np.zeros((0, 3), np.float32))
    return DeterministicPass(
        features_of((8, 6), (6, 8), (6, 8)),
        tuple(maps),
        tuple(objectness),
        two_stage,
        torch.zeros(0, 4),
        lambda rows: rows,
        nothing,
    )


def test_one_stage_objectness_is_summed_over_everything():
    levels = [torch.arange(12.0).view(1, 3, 2, 2), torch.full((1, 3, 1, 1), 0.5)]
    assert sum_objectness(levels, two_stage=False).item() == 66 + 1.5


def test_two_stage_objectness_takes_the_best_box_of_each_place():
    levels = [torch.arange(12.0).view(1, 3, 2, 2), torch.tensor([[[[0.5]], [[0.75]], [[-2.0]]]])]
    assert sum_objectness(levels, two_stage=True).item() == 8 + 9 + 10 + 11 + 0.75


def test_gradcam_weighs_channels_by_their_mean_gradient():
    activations = torch.tensor([[[1.0, 2.0], [3.0, -4.0]], [[5.0, 0.0], [-1.0, 2.0]]])
    gradients = torch.tensor([[[1.0, 1.0], [1.0, 1.0]], [[-4.0, 0.0], [0.0, 2.0]]])
    # weights 1 and -0.5
    expected = [[0.0, 2.0], [3.5, 0.0]]
    assert activation_map(activations[None], gradients[None], "gradcam").tolist() == [expected]


def test_layercam_weighs_every_element_by_its_own_positive_gradient():
    activations = torch.tensor([[[1.0, 2.0], [3.0, -4.0]], [[5.0, 0.0], [-1.0, 2.0]]])
    gradients = torch.tensor([[[1.0, 1.0], [1.0, 1.0]], [[-4.0, 0.0], [0.5, 2.0]]])
    expected = [[1.0, 2.0], [2.5, 0.0]]
    assert activation_map(activations[None], gradients[None], "layercam").tolist() == [expected]


def test_gradcam_plus_plus_weighs_positive_gradients_by_their_share():
    activations = torch.rand(3, 2, 2, generator=torch.Generator().manual_seed(1))
    gradients = torch.randn(3, 2, 2, generator=torch.Generator().manual_seed(2))
    gradients[0, 0, 0] = 0.0
    expected = torch.zeros(2, 2)
    for k in range(3):
        weight = 0.0
        for g in gradients[k].flatten().tolist():
            share = g**2 / (2 * g**2 + activations[k].sum().item() * g**3 + 1e-6) if g else 0.0
            weight += share * max(g, 0.0)
        expected += weight * activations[k]
    found = activation_map(activations[None], gradients[None], "gradcam++")[0]
    torch.testing.assert_close(found, expected.relu())


def test_eigencam_is_the_projection_on_the_first_principal_component():
    seen = torch.randn(1, 5, 4, 6, generator=torch.Generator().manual_seed(4))
    rows = seen[0].flatten(1).T
    rows = rows - rows.mean(dim=0)
    projected = rows @ torch.linalg.svd(rows, full_matrices=False).Vh[0]
    projected = projected * projected[projected.abs().argmax()].sign()
    for sign in (1, -1):  # of the activations: a component has none
        found = activation_map(sign * seen, torch.zeros_like(seen), "eigencam")[0]
        torch.testing.assert_close(found, projected.relu().view(4, 6), rtol=1e-4, atol=1e-5)
    with pytest.raises(InvalidInput, match="10000 cells, expected at most 8192"):
        activation_map(torch.zeros(1, 2, 100, 100), torch.zeros(1, 2, 100, 100), "eigencam")


@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 7), st.integers(1, 7))
def test_the_fast_layercam_is_that_of_the_library(seed, channels, height, width):
    drawn = torch.Generator().manual_seed(seed)
    seen, slopes = (torch.randn(2, channels, height, width, generator=drawn) for _ in range(2))
    expected = library_map(seen, slopes, "layercam")
    torch.testing.assert_close(activation_map(seen, slopes, "layercam"), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("two_stage", [False, True])
def test_gradients_agree_with_finite_differences(two_stage):
    detector = SmallDetector()
    step = 1e-5

    def total(maps: list[Tensor]) -> float:
        return float(sum_objectness(detector.objectness(maps), two_stage))

    expected = []
    for level, values in enumerate(detector.maps):
        weights = torch.zeros(4, dtype=torch.float64)
        for channel in range(4):
            # A constant added to a channel changes the total by the sum of its gradients.
            raised = [m.clone() for m in detector.maps]
            lowered = [m.clone() for m in detector.maps]
            raised[level][0, channel] += step
            lowered[level][0, channel] -= step
            weights[channel] = (total(raised) - total(lowered)) / (2 * step) / values[0, channel].numel()
        expected.append(torch.einsum("c,chw->hw", weights, values[0]).relu())
    found = activation_maps(detector.deterministic_pass(two_stage), "gradcam")
    for one, other in zip(found, expected, strict=True):
        assert other.max() > 0
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("two_stage", [False, True])
def test_layercam_agrees_with_finite_differences_of_every_element(two_stage):
    detector = SmallDetector()
    step = 1e-5
    found = activation_maps(detector.deterministic_pass(two_stage), "layercam")
    for level, values in enumerate(detector.maps):
        expected = torch.zeros(values.shape[2:], dtype=torch.float64)
        for c, y, x in np.ndindex(*values.shape[1:]):
            totals = []
            for move in (step, -step):
                maps = [m.clone() for m in detector.maps]
                maps[level][0, c, y, x] += move
                totals.append(float(sum_objectness(detector.objectness(maps), two_stage)))
            expected[y, x] += max((totals[0] - totals[1]) / (2 * step), 0.0) * values[0, c, y, x]
        assert expected.max() > 0
        torch.testing.assert_close(found[level], expected.relu(), rtol=1e-5, atol=1e-8)


def test_levels_are_enlarged_like_torch_does_and_summed():
    torch.manual_seed(0)
    levels = [torch.rand(20, 30), torch.rand(5, 8), torch.rand(2, 3), torch.rand(1, 1)]
    found = enlarge(levels, features_of((320, 240), (120, 160), (120, 160)))
    expected = sum(F.interpolate(m[None, None], (240, 320), mode="bilinear")[0, 0] for m in levels)
    assert found.shape == (240, 320)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-5)


def test_what_lies_over_the_padding_is_left_out():
    torch.manual_seed(0)
    level = torch.rand(4, 6)
    # The network saw 40 x 50 px of picture on a canvas of 48 x 64; at twice the size that is 80 x 100 on 96 x 128.
    found = enlarge([level], features_of((100, 80), (40, 50), (48, 64)))
    canvas = F.interpolate(level[None, None], (96, 128), mode="bilinear")[0, 0]
    np.testing.assert_allclose(found, canvas[:80, :100].numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("padded", [(48, 64), (40, 50)])
def test_a_flat_level_stays_flat(padded):
    found = enlarge([torch.full((3, 5), 2.0), torch.ones(1, 1)], features_of((77, 61), (40, 50), padded))
    np.testing.assert_allclose(found, np.full((61, 77), 3.0), rtol=1e-6)


def test_saliency_is_the_enlarged_sum_of_the_levels():
    detector = tiny_detector(KINDS[0])
    features = detector.encode(picture())
    levels = activation_maps(detector.deterministic_pass(features))
    assert [level.shape for level in levels] == [m.shape[-2:] for m in detector.head_maps(features)]
    saliency = enlarge(levels, features)
    assert saliency.shape == picture().shape[:2]
    assert saliency.min() >= 0


class Objectness(nn.Module):
    """The detector from pixels to the summed objectness, as pytorch-grad-cam wants it, and the modules that make its levels.

    The package differentiates through the whole network, where a level also acts through the levels made from it. ``levels``
    are those for which that does not matter: in the SSDs, because no gradient flows from level to level here.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.detector = tiny_detector(name)
        self.model = self.detector.model
        # they know the size of the picture; made before anything is recorded, because they pass the same modules
        self.features = self.detector.encode(picture())
        backbone = self.model.backbone
        self.has_pyramid = hasattr(backbone, "fpn")
        if self.has_pyramid:
            self.blocks = list(backbone.fpn.layer_blocks)
            self.levels = range(len(self.blocks) - 1)
        else:
            self.blocks = [*backbone.features, *backbone.extra]
            self.levels = range(0, 5)  # maps of one cell tell nothing
        self.targets = [self.blocks[level] for level in self.levels]

    def forward(self, pixels: Tensor) -> Tensor:
        family = self.detector.family
        with torch.enable_grad():
            outputs = family.head_outputs(self.features, self.maps(pixels), 0.2)
        return sum_objectness(outputs.objectness, family.two_stage)[None]

    def maps(self, pixels: Tensor) -> list[Tensor]:
        backbone = self.model.backbone
        if self.has_pyramid:
            return list(backbone(pixels).values())
        maps = []
        for block in self.blocks:
            pixels = block(pixels)
            maps.append(pixels)
            pixels = pixels.detach().requires_grad_()
        return maps


@pytest.mark.parametrize("name", KINDS)
def test_levels_agree_with_pytorch_grad_cam(name):
    from pytorch_grad_cam import (
        GradCAM,
        GradCAMPlusPlus,
        LayerCAM,
    )  # not before it is needed: each process collects all tests

    wrapped = Objectness(name)
    # with torchvision's own kernels: others round differently, and a rectifier at 0 turns that into another gradient
    detector = StochasticDetector(wrapped.model, wrapped.detector.settings, "", "reference")
    ours = activation_maps(detector.deterministic_pass(detector.encode(picture())), "gradcam")
    layers = activation_maps(detector.deterministic_pass(detector.encode(picture())), "layercam")
    rgb = torch.from_numpy(picture()[..., ::-1].copy()).permute(2, 0, 1) / 255
    pixels = wrapped.model.transform([rgb])[0].tensors

    with GradCAM(wrapped, wrapped.targets) as cam, GradCAMPlusPlus(wrapped, wrapped.targets) as plus_plus:
        cam.compute_input_gradient = True  # the parameters are frozen
        cam(pixels, targets=[lambda output: output])
        recorded = zip(
            cam.activations_and_grads.activations, cam.activations_and_grads.gradients, strict=True
        )
        # In the order of the calls, which in a pyramid is from coarse to fine.
        fine_to_coarse = sorted(recorded, key=lambda pair: -pair[0].shape[-1])
        strongest = 0.0
        for level, (a, g) in zip(wrapped.levels, fine_to_coarse, strict=True):
            raw = torch.from_numpy(cam.get_cam_image(pixels, None, None, a.numpy(), g.numpy())[0]).relu()
            strongest = max(strongest, float(raw.max()))
            torch.testing.assert_close(ours[level], raw, rtol=1e-3, atol=1e-4 * float(raw.max()) + 1e-9)
            # In double precision: Grad-CAM++ divides by differences that amplify the last digits of a sum.
            a, g = a.double(), g.double()
            raw = torch.from_numpy(
                plus_plus.get_cam_image(pixels, None, None, a.numpy(), g.numpy())[0]
            ).relu()
            found = activation_map(a, g, "gradcam++")[0]
            torch.testing.assert_close(found, raw, rtol=1e-6, atol=1e-9 * float(raw.max()) + 1e-15)
            raw = torch.from_numpy(
                LayerCAM.get_cam_image(cam, pixels, None, None, a.numpy(), g.numpy(), False)[0]
            ).relu()
            torch.testing.assert_close(
                layers[level].double(), raw, rtol=1e-3, atol=1e-4 * float(raw.max()) + 1e-9
            )
        assert strongest > 0
