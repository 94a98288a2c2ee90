# SPDX-License-Identifier: Apache-2.0
"""Several images computed together: each has its own masks and, but for rounding, the result that it has alone."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
import torch

from sticker_uq.detection.detector import StochasticDetector
from sticker_uq.detection.dropout import CounterDropout, PassDropout
from sticker_uq.scene import InvalidInput, StochasticSamples
from test.helpers.models import MODEL_NAMES, picture, tiny_detector, tiny_model
from test.helpers.simulated_gpu import simulated_gpu

each_model = pytest.mark.parametrize("name", MODEL_NAMES, scope="module")
SSDLITE = "ssdlite320_mobilenet_v3_large"
SEEDS = (5, 6, 7)
PICTURES = [picture(), np.roll(picture(), 9, axis=1), np.roll(picture(), 5, axis=0)]
_PX, _PROBABILITY = 0.05, 2e-3


def sampled(detector: StochasticDetector, order: tuple[int, ...]) -> dict[int, StochasticSamples]:
    features = detector.encode_together([PICTURES[n] for n in order])
    found = detector.sample_together(features, 3, [SEEDS[n] for n in order])
    return dict(zip(order, found, strict=True))


def assert_same(one: StochasticSamples, other: StochasticSamples, px: float, probability: float) -> None:
    assert len(one) > 0
    np.testing.assert_array_equal(one.pass_index, other.pass_index)
    np.testing.assert_allclose(one.boxes, other.boxes, atol=px, rtol=0)
    np.testing.assert_allclose(one.probabilities, other.probabilities, atol=probability, rtol=0)


@each_model
@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_a_batch_has_the_result_of_each_image_alone(name: str, chunk: int) -> None:
    plain = tiny_detector(name)
    detector = plain.with_settings(plain.settings)
    detector.chunk = chunk
    together = sampled(detector, (0, 1, 2))
    for number, found in together.items():
        alone = detector.sample(detector.encode(PICTURES[number]), 3, SEEDS[number])
        assert_same(found, alone, _PX, _PROBABILITY)
    assert not np.array_equal(together[0].boxes, together[1].boxes)


@each_model
def test_the_features_of_a_batch_are_those_of_each_image(name: str) -> None:
    detector = tiny_detector(name)
    for found, image in zip(detector.encode_together(PICTURES), PICTURES, strict=True):
        alone = detector.encode(image)
        assert (found.image_size, found.resized, found.padded) == (
            alone.image_size,
            alone.resized,
            alone.padded,
        )
        for one, other in zip((*found.maps, *found.extra), (*alone.maps, *alone.extra), strict=True):
            assert one.shape == other.shape
            assert float((one - other).abs().max()) <= 1e-4 * float(other.abs().max())


@each_model
def test_no_bit_of_a_result_depends_on_the_other_images_or_on_the_place(name: str) -> None:
    detector = tiny_detector(name)
    first = sampled(detector, (0, 1, 2))
    for order in ((2, 0, 1), (0, 2, 2), (1, 1, 1)):
        for number, found in sampled(detector, order).items():
            assert_same(found, first[number], 0, 0)


@pytest.mark.parametrize("site", ["in", "out"])
@pytest.mark.parametrize("name", ["ssd300_vgg16", SSDLITE])
def test_dropout_on_the_outputs_of_an_ssd_has_the_masks_of_each_image_too(name: str, site: str) -> None:
    detector = tiny_detector(name, dropout_site=site)
    for number, found in sampled(detector, (0, 1, 2)).items():
        alone = detector.sample(detector.encode(PICTURES[number]), 3, SEEDS[number])
        assert_same(found, alone, _PX, _PROBABILITY)


def test_the_networks_own_modules_compute_a_batch_too() -> None:
    name = "retinanet_resnet50_fpn_v2"
    reference = StochasticDetector(tiny_model(name), tiny_detector(name).settings, "", "reference")
    for number, found in sampled(reference, (0, 1, 2)).items():
        alone = reference.sample(reference.encode(PICTURES[number]), 3, SEEDS[number])
        assert_same(found, alone, _PX, _PROBABILITY)


@pytest.mark.parametrize("kind", [CounterDropout, PassDropout])
def test_masks_of_several_images_are_those_of_each(kind: type[CounterDropout | PassDropout]) -> None:
    cpu, like = torch.device("cpu"), torch.randn(3, 8, 5, 7)
    together = kind(0.3, SEEDS, range(2, 6), cpu)
    apart = [kind(0.3, seed, range(2, 6), cpu) for seed in SEEDS]
    for _ in range(2):  # each call has masks of its own
        found = together(like)
        wanted = torch.cat([one(like[n : n + 1]) for n, one in enumerate(apart)])
        assert torch.equal(found, wanted)
    parts = found.split(4)
    assert not any(torch.equal(a != 0, b != 0) for a, b in itertools.pairwise(parts))


@each_model
def test_a_gpu_computes_a_batch_with_no_more_waits_than_an_image(name: str) -> None:
    settings = tiny_detector(name).settings.model_copy(update={"device": "cuda", "passes": 3})
    with simulated_gpu() as simulation:
        detector = StochasticDetector(copy.deepcopy(tiny_model(name)), settings, "")
        sampled(detector, (0,))  # shapes of anchors are brought there once
        waits = []
        for order in ((0,), (0, 1, 2)):
            features = detector.encode_together([PICTURES[n] for n in order])
            simulation.waits.clear()
            found = detector.sample_together(features, 3, [SEEDS[n] for n in order])
            waits.append(simulation.waits.total())
            together = found
    assert waits[0] == waits[1]
    for number, one in enumerate(together):
        processor = tiny_detector(name)
        alone = processor.sample(processor.encode(PICTURES[number]), 3, SEEDS[number])
        assert_same(one, alone, _PX, _PROBABILITY)


def test_images_of_different_sizes_and_no_image_are_refused() -> None:
    detector = tiny_detector(SSDLITE)
    other = picture(width=200)
    for images in ([PICTURES[0], other], []):
        with pytest.raises(InvalidInput, match="expected at least one, all of one size"):
            detector.encode_together(images)
    features = [detector.encode(image) for image in (PICTURES[0], other)]
    with pytest.raises(InvalidInput, match="expected at least one, all of one size"):
        detector.sample_together(features, 2, [1, 2])


def test_without_dropout_each_image_has_its_detections_in_every_pass() -> None:
    detector = tiny_detector(SSDLITE, dropout_rate=0.0)
    for number, found in sampled(detector, (0, 1)).items():
        seen = detector.detect(detector.encode(PICTURES[number]))
        np.testing.assert_array_equal(found.boxes, np.tile(seen.boxes, (3, 1)))
