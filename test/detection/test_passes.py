# SPDX-License-Identifier: Apache-2.0
"""The stochastic passes of all models against whole torchvision models with the same masks."""

import copy
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from sticker_uq.detection.detector import StochasticDetector
from sticker_uq.detection.features import Features
from sticker_uq.scene import Detections, StochasticSamples
from test.detection.reference import complete_pass, expected
from test.helpers.models import FAMILIES, MODEL_NAMES, picture, tiny_detector, tiny_model

CASES = [*((name, "in") for name in MODEL_NAMES), ("ssdlite320_mobilenet_v3_large", "out")]
SEED = 7
# what is a rule of the engine is the same for every model
ENGINE = ("ssdlite320_mobilenet_v3_large", "fasterrcnn_resnet50_fpn")


@cache
def features_of(name: str, site: str = "in") -> Features:
    return tiny_detector(name, dropout_site=site).encode(picture())


def one_pass(samples: StochasticSamples, number: int) -> NDArray[Any]:
    """Box and probabilities (N, 7) of one pass."""
    return np.hstack([samples.boxes, samples.probabilities])[samples.pass_index == number]


def rows_of(detections: Detections) -> NDArray[Any]:
    """Box and probabilities (N, 7)."""
    return np.hstack([detections.boxes, detections.probabilities])


def assert_matches(
    found: NDArray[Any], wanted: NDArray[Any], pixels: float = 1e-2, probability: float = 1e-5
) -> None:
    """The same rows of box and probabilities; equal scores leave the order open."""
    assert found.shape == wanted.shape
    distance = np.abs(found[:, None] - wanted[None]).max(axis=2)
    rows, columns = linear_sum_assignment(distance)
    assert distance[rows, columns].max(initial=0) < pixels
    np.testing.assert_allclose(found[rows, 4:], wanted[columns, 4:], atol=probability)


def same(a: StochasticSamples, b: StochasticSamples) -> bool:
    pairs = [(a.boxes, b.boxes), (a.probabilities, b.probabilities), (a.pass_index, b.pass_index)]
    return a.passes == b.passes and all(np.array_equal(x, y) for x, y in pairs)


@pytest.mark.parametrize(
    ("name", "site", "kernels"),
    [(*case, "fast") for case in CASES] + [(name, "in", "reference") for name in ENGINE],
)
def test_passes_on_cached_features_equal_complete_passes(name, site, kernels):
    """The fast kernels round differently: how far that moves a box or a score is bounded here."""
    plain = tiny_detector(name, dropout_site=site, max_detections=60)
    detector = plain if kernels == "fast" else StochasticDetector(plain.model, plain.settings, "", kernels)
    image = picture()
    passes = 2 if name in ENGINE else 1
    samples = detector.sample(detector.encode(image), passes=passes, seed=SEED)
    for t in range(passes):
        outputs = complete_pass(
            detector.model, detector.settings, image, detector.dropout(SEED, range(t, t + 1))
        )
        wanted = expected(outputs, detector.settings, image)
        assert len(wanted) >= 5
        if kernels == "reference":
            assert_matches(one_pass(samples, t), wanted)
        else:
            assert_matches(one_pass(samples, t), wanted, pixels=0.05, probability=5e-3)


@pytest.mark.parametrize("name", ENGINE)
def test_a_pass_does_not_depend_on_those_computed_with_it(name, monkeypatch):
    detector = tiny_detector(name)
    features = features_of(name)
    monkeypatch.setattr(detector, "chunk", 3)
    together = detector.sample(features, passes=3, seed=SEED)
    monkeypatch.setattr(detector, "chunk", 1)
    alone = detector.sample(features, passes=3, seed=SEED)
    fewer = detector.sample(features, passes=1, seed=SEED)
    assert len(together) > 0
    for t, other in [
        (0, one_pass(alone, 0)),
        (1, one_pass(alone, 1)),
        (2, one_pass(alone, 2)),
        (0, one_pass(fewer, 0)),
    ]:
        assert_matches(other, one_pass(together, t))


@pytest.mark.parametrize(
    ("name", "site"), [*((name, "in") for name in ENGINE), ("ssdlite320_mobilenet_v3_large", "out")]
)
def test_dropout_varies_with_pass_and_seed_and_repeats(name, site):
    detector = tiny_detector(name, dropout_site=site, max_detections=60)
    features = features_of(name, site)
    first = detector.sample(features, passes=2, seed=SEED)
    assert same(first, detector.sample(detector.encode(picture()), passes=2, seed=SEED))
    assert not same(first, detector.sample(features, passes=2, seed=SEED + 1))
    assert not np.array_equal(one_pass(first, 0), one_pass(first, 1))
    assert not np.array_equal(one_pass(first, 0), rows_of(detector.detect(features)))


@pytest.mark.parametrize("name", ENGINE)
def test_without_dropout_every_pass_is_the_detection(name):
    detector = tiny_detector(name, dropout_rate=0.0)
    features = features_of(name)
    detections = rows_of(detector.detect(features))
    samples = detector.sample(features, passes=3, seed=SEED)
    assert len(detections) > 0
    assert samples.passes == 3
    for t in range(3):
        np.testing.assert_array_equal(one_pass(samples, t), detections)


@pytest.mark.parametrize("name", FAMILIES)
def test_detections_are_torchvisions(name):
    """Above 0.5 a softmax has one class at most, so the one box per proposal is torchvision's."""
    model = copy.deepcopy(tiny_model(name))
    retinanet = name.startswith("retinanet")
    if retinanet:  # sigmoids are independent: only a single class can be compared
        model.head.classification_head.cls_logits.bias.data.unflatten(0, (-1, 3))[:, :2] = -40
    plain = tiny_detector(name, score_floor=0.5)
    detector = StochasticDetector(model, plain.settings, "")
    for image in (picture(), picture(1, 150, 230)):
        stock = complete_pass(model, detector.settings, image, None).stock
        found = detector.detect(detector.encode(image))
        has_area = (stock["boxes"][:, 2:] - stock["boxes"][:, :2] >= 0.02).all(dim=1)
        columns = [stock[k][has_area].view(int(has_area.sum()), -1) for k in ("boxes", "labels", "scores")]
        assert_matches(
            np.hstack([found.boxes, found.foreground_labels[:, None], found.scores[:, None]]),
            torch.cat(columns, dim=1).numpy(),
            pixels=0.05,
            probability=1e-3,
        )
        if image.shape == picture().shape:
            assert len(found) > 0
