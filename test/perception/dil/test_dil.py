# SPDX-License-Identifier: Apache-2.0
"""Distinctive localization of detectors of one and of two stages on one small picture."""

import math
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision.ops import box_iou

from sticker_uq.detection import DeterministicPass, Features, NonFiniteOutput, StochasticDetector
from sticker_uq.perception.dil import (
    LocalizationSettings,
    distinctive_localization,
    dynamic_threshold,
    localize,
)
from sticker_uq.perception.dil.dil import (
    EXPLAINED_IOU,
    EXPLAINED_PART,
    activation_maps,
    apart,
    enlarge,
    unexplained_anchors,
)
from sticker_uq.perception.dil.score import covered_pixels
from sticker_uq.plain import to_plain
from sticker_uq.scene import Detections, FloatArray, Localization
from test.helpers.models import picture, tiny_detector

ONE_STAGE, TWO_STAGES = BOTH = "ssdlite320_mobilenet_v3_large", "fasterrcnn_resnet50_fpn"
NOTHING = Detections(np.zeros((0, 4), np.float32), np.zeros((0, 3), np.float32))


def localized(
    detector: StochasticDetector,
    detections: Detections | None = None,
    settings: LocalizationSettings | None = None,
    keep_saliency: bool = False,
) -> Localization:
    """The localization of the test picture, as if ``detections`` had been detected."""
    deterministic = detector.deterministic_pass(detector.encode(picture()))
    if detections is not None:
        deterministic = replace(deterministic, detections=detections)
    return localize(deterministic, settings or LocalizationSettings(), keep_saliency)


@pytest.mark.parametrize(
    ("name", "technique"),
    [*((name, "layercam") for name in BOTH), (ONE_STAGE, "gradcam"), (TWO_STAGES, "gradcam++")],
)
def test_every_model_has_a_dil(name, technique):
    detector = tiny_detector(name)
    detections = detector.detect(detector.encode(picture()))
    settings = LocalizationSettings(technique=technique)
    found = localized(detector, settings=settings, keep_saliency=True)

    assert found.saliency.shape == picture().shape[:2]
    assert found.saliency.min() >= 0
    assert found.saliency.std() > 0
    assert found.complete_localization > 0
    assert 0 <= found.background_localization <= found.complete_localization
    predicted = detections.boxes[detections.scores >= settings.decision_threshold]
    assert len(predicted) > 0
    expected = distinctive_localization(found.saliency, predicted)
    sums = (found.complete_localization, found.background_localization, found.dil)
    assert sums == pytest.approx(expected, rel=1e-4)
    for region in found.unexplained:
        outside = np.where(covered_pixels(predicted, *found.saliency.shape), 0, found.saliency)
        inside = outside[covered_pixels(region.box[None], *found.saliency.shape)].sum(dtype=np.float64)
        assert region.share == pytest.approx(inside / expected[1], rel=1e-4, abs=1e-6)
    assert to_plain(replace(found, saliency=None)) == to_plain(localized(detector, settings=settings))
    assert 0 <= found.dil <= 1
    assert found.decision_threshold == dynamic_threshold(found.dil, 0.5, 0.2)


def test_saliency_leaves_no_trace():
    detector = tiny_detector(ONE_STAGE)
    features = detector.encode(picture())
    before = [m.clone() for m in detector.head_maps(features)]
    first, second = (
        enlarge(activation_maps(detector.deterministic_pass(features)), features) for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)
    for kept, untouched in zip(detector.head_maps(features), before, strict=True):
        assert torch.equal(kept, untouched)
        assert not kept.requires_grad
    assert all(p.grad is None for p in detector.model.parameters())


def test_without_a_prediction_everything_is_unexplained():
    found = localized(tiny_detector(ONE_STAGE), NOTHING, LocalizationSettings(alpha=0.3))
    assert found.dil == 1.0
    assert found.decision_threshold == pytest.approx(0.2)
    assert found.saliency is None


def test_a_box_around_everything_explains_everything():
    detector = tiny_detector(ONE_STAGE)
    width, height = detector.encode(picture()).image_size
    all_of_it = Detections(np.float32([[0, 0, width, height]]), np.float32([[0.1, 0.1, 0.8]]))
    found = localized(detector, all_of_it)
    assert (found.unexplained_objectness, found.unexplained) == (0.0, ())
    assert (found.background_localization, found.dil, found.decision_threshold) == (0.0, 0.0, 0.5)


def test_only_boxes_that_reach_the_threshold_are_predictions():
    detector = tiny_detector(ONE_STAGE)
    width, height = detector.encode(picture()).image_size
    half = Detections(np.float32([[0, 0, width, height]]), np.float32([[0.25, 0.25, 0.5]]))
    assert localized(detector, half, LocalizationSettings(decision_threshold=0.5)).dil == 0.0
    assert localized(detector, half, LocalizationSettings(decision_threshold=0.51)).dil == 1.0


def test_an_object_that_is_not_predicted_raises_dil():
    detector = tiny_detector("retinanet_resnet50_fpn")
    found, missed = localized(detector), localized(detector, NOTHING)
    # the sum runs over the cells between the boxes' edges, and so in another order
    assert missed.complete_localization == pytest.approx(found.complete_localization, rel=1e-12)
    assert missed.dil > found.dil


@pytest.mark.parametrize("name", BOTH)
def test_a_deterministic_pass_at_the_surer_detections_tells_the_same(name):
    detector = tiny_detector(name)
    settings = LocalizationSettings()
    deterministic = detector.deterministic_pass(
        detector.encode(picture()), least_score=settings.decision_threshold
    )
    assert to_plain(localize(deterministic, settings)) == to_plain(localized(detector, settings=settings))


def broken_detector(name: str, value: float) -> StochasticDetector:
    healthy = tiny_detector(name)
    model = deepcopy(healthy.model)
    classification = model.head.classification_head
    with torch.no_grad():
        for parameter in classification.parameters():
            parameter.fill_(value)
    return StochasticDetector(model, healthy.settings, healthy.weights_hash)


def test_objectness_that_is_nan_is_an_error():
    detector = broken_detector(ONE_STAGE, float("nan"))
    with pytest.raises(NonFiniteOutput, match="not finite"):
        localized(detector, NOTHING)


def test_a_head_that_feels_nothing_has_no_dil():
    found = localized(broken_detector(ONE_STAGE, 0.0), NOTHING, LocalizationSettings(technique="gradcam"))
    assert (found.complete_localization, found.background_localization) == (0.0, 0.0)
    assert math.isnan(found.dil)
    assert found.decision_threshold == 0.5


@pytest.mark.parametrize(
    "values", [{"technique": "lime"}, {"decision_threshold": 1.5}, {"alpha": -0.1}, {"unknown": 1}]
)
def test_settings_have_ranges(values):
    with pytest.raises(ValueError, match=next(iter(values))):
        LocalizationSettings.model_validate(values)


@pytest.mark.parametrize("name", BOTH)
def test_what_is_detected_but_not_predicted_is_an_unexplained_region(name):
    detector = tiny_detector(name)
    seen = detector.detect(detector.encode(picture()))
    found = localized(detector, NOTHING)
    assert found.unexplained_objectness > 0.3
    values = [region.objectness for region in found.unexplained]
    assert values == sorted(values, reverse=True)
    assert values[0] == pytest.approx(found.unexplained_objectness)
    assert all(0.0 <= region.share <= 1.0 for region in found.unexplained)
    assert max(region.share for region in found.unexplained) > 0.0
    boxes = torch.from_numpy(np.stack([region.box for region in found.unexplained]))
    assert (boxes[:, 2:] > boxes[:, :2]).all()
    if not name.startswith("fasterrcnn"):  # its second stage moves the boxes of the first
        assert box_iou(boxes, torch.from_numpy(seen.boxes)).amax(dim=1)[0] > 0.5


@pytest.mark.parametrize("name", BOTH)
def test_a_box_explains_its_own_region_and_no_other(name):
    detector = tiny_detector(name)
    without = localized(detector, NOTHING)
    strongest = without.unexplained[0]
    alone = Detections(strongest.box[None], np.float32([[0.1, 0.1, 0.8]]))
    explained = localized(detector, alone)
    assert explained.unexplained_objectness <= without.unexplained_objectness
    assert explained.background_localization <= without.background_localization
    for region in explained.unexplained:
        overlap = box_iou(torch.from_numpy(region.box[None]), torch.from_numpy(strongest.box[None]))
        assert overlap.item() < 0.9


SIDE = 100


def explained(anchor: FloatArray, boxes: FloatArray) -> bool:
    for box in boxes:
        low, high = np.maximum(anchor[:2], box[:2]), np.minimum(anchor[2:], box[2:])
        shared = np.prod(np.maximum(high - low, 0))
        of_anchor, of_box = np.prod(anchor[2:] - anchor[:2]), np.prod(box[2:] - box[:2])
        if shared > EXPLAINED_IOU * (of_anchor + of_box - shared) or shared > EXPLAINED_PART * of_anchor:
            return True
    return False


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    anchors=st.sampled_from([1, 40, 300, 6000]),
    boxes=st.integers(0, 4),
    large=st.booleans(),
    steps=st.sampled_from([3, 1000]),
)
def test_the_strongest_unexplained_anchor_is_found_however_many_there_are(seed, anchors, boxes, large, steps):
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, SIDE - 20, (anchors, 2))
    places = np.concatenate([corners, corners + rng.uniform(2, 20, (anchors, 2))], axis=1).astype(np.float32)
    values = rng.integers(0, steps, anchors).astype(np.float32) / steps  # with ties
    low = rng.uniform(0, 20 if large else SIDE - 30, (boxes, 2))
    predicted = np.concatenate([low, low + (75 if large else 15)], axis=1).astype(np.float32)
    features = Features((SIDE, SIDE), (SIDE, SIDE), (SIDE, SIDE), ())
    objectness = torch.from_numpy(values).view(1, 1, 1, -1)
    tensor = torch.from_numpy(places)
    nothing = Detections(np.zeros((0, 4), np.float32), np.zeros((0, 3), np.float32))
    deterministic = DeterministicPass(
        features, (), (objectness,), False, tensor, lambda rows: tensor[rows], nothing
    )
    found = apart(deterministic, *unexplained_anchors(deterministic, predicted, 0.05), 0.05)

    free = np.array([not explained(place, predicted) for place in places])
    assert found.objectness == (values[free].max() if free.any() else 0.0)
    assert (found.values >= 0.05).all()
    assert list(found.values) == sorted(found.values, reverse=True)
    for box, value in zip(found.boxes, found.values, strict=True):
        (row,) = np.flatnonzero((places == box).all(axis=1))
        assert free[row]
        assert values[row] == value
    if free.any() and values[free].max() >= 0.05:
        assert found.values[0] == values[free].max()
