"""Distinctive localization of all six models on one small picture."""

import math
from copy import deepcopy

import numpy as np
import pytest
import torch

from sticker_uq.detection import NonFiniteOutput, StochasticDetector
from sticker_uq.localization import (
    LocalizationSettings,
    distinctive_localization,
    dynamic_threshold,
    localize,
    objectness_saliency,
)
from sticker_uq.localization.settings import Technique
from sticker_uq.scene import Detections
from test.helpers.models import MODEL_NAMES, picture, tiny_detector

NOTHING = Detections(np.zeros((0, 4), np.float32), np.zeros((0, 3), np.float32))


@pytest.mark.parametrize("technique", ["gradcam", "gradcam++"])
@pytest.mark.parametrize("name", MODEL_NAMES)
def test_every_model_has_a_dil(name: str, technique: Technique) -> None:
    detector = tiny_detector(name)
    features = detector.encode(picture())
    detections = detector.detect(features)
    settings = LocalizationSettings(technique=technique)
    found = localize(detector, features, detections, settings, keep_saliency=True)

    assert found.saliency is not None
    assert found.saliency.shape == picture().shape[:2]
    assert found.saliency.min() >= 0
    assert found.saliency.std() > 0
    assert found.complete_localization > 0
    assert 0 <= found.background_localization <= found.complete_localization
    predicted = detections.boxes[detections.scores >= settings.decision_threshold]
    assert len(predicted) > 0
    expected = distinctive_localization(found.saliency, predicted)
    assert (found.complete_localization, found.background_localization, found.dil) == expected
    assert 0 <= found.dil <= 1
    assert found.decision_threshold == dynamic_threshold(found.dil, 0.5, 0.2)


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_saliency_leaves_no_trace(name: str) -> None:
    detector = tiny_detector(name)
    features = detector.encode(picture())
    before = [m.clone() for m in detector.head_maps(features)]
    first, second = (objectness_saliency(detector, features) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    for kept, untouched in zip(detector.head_maps(features), before, strict=True):
        assert torch.equal(kept, untouched)
        assert not kept.requires_grad
    assert all(p.grad is None for p in detector.model.parameters())


def test_without_a_prediction_everything_is_unexplained() -> None:
    detector = tiny_detector("ssdlite320_mobilenet_v3_large")
    features = detector.encode(picture())
    found = localize(detector, features, NOTHING, LocalizationSettings(alpha=0.3))
    assert found.dil == 1.0
    assert found.decision_threshold == pytest.approx(0.2)
    assert found.saliency is None


def test_a_box_around_everything_explains_everything() -> None:
    detector = tiny_detector("ssdlite320_mobilenet_v3_large")
    features = detector.encode(picture())
    width, height = features.image_size
    all_of_it = Detections(np.float32([[0, 0, width, height]]), np.float32([[0.1, 0.1, 0.8]]))
    found = localize(detector, features, all_of_it, LocalizationSettings())
    assert (found.background_localization, found.dil, found.decision_threshold) == (0.0, 0.0, 0.5)


def test_only_boxes_that_reach_the_threshold_are_predictions() -> None:
    detector = tiny_detector("ssdlite320_mobilenet_v3_large")
    features = detector.encode(picture())
    width, height = features.image_size
    half = Detections(np.float32([[0, 0, width, height]]), np.float32([[0.25, 0.25, 0.5]]))
    assert localize(detector, features, half, LocalizationSettings(decision_threshold=0.5)).dil == 0.0
    assert localize(detector, features, half, LocalizationSettings(decision_threshold=0.51)).dil == 1.0


def test_an_object_that_is_not_predicted_raises_dil() -> None:
    detector = tiny_detector("retinanet_resnet50_fpn")
    features = detector.encode(picture())
    found = localize(detector, features, detector.detect(features), LocalizationSettings())
    missed = localize(detector, features, NOTHING, LocalizationSettings())
    assert missed.complete_localization == found.complete_localization
    assert missed.dil > found.dil


def broken_detector(name: str, value: float) -> StochasticDetector:
    healthy = tiny_detector(name)
    model = deepcopy(healthy.model)
    classification = model.head.classification_head
    with torch.no_grad():
        for parameter in classification.parameters():
            parameter.fill_(value)
    return StochasticDetector(model, healthy.settings, healthy.weights_hash)


def test_saliency_that_is_no_number_is_an_error() -> None:
    detector = broken_detector("ssdlite320_mobilenet_v3_large", float("nan"))
    with pytest.raises(NonFiniteOutput, match="saliency"):
        localize(detector, detector.encode(picture()), NOTHING, LocalizationSettings())


def test_a_head_that_feels_nothing_has_no_dil() -> None:
    detector = broken_detector("ssdlite320_mobilenet_v3_large", 0.0)
    found = localize(detector, detector.encode(picture()), NOTHING, LocalizationSettings())
    assert (found.complete_localization, found.background_localization) == (0.0, 0.0)
    assert math.isnan(found.dil)
    assert found.decision_threshold == 0.5


@pytest.mark.parametrize(
    "values", [{"technique": "lime"}, {"decision_threshold": 1.5}, {"alpha": -0.1}, {"unknown": 1}]
)
def test_settings_have_ranges(values: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        LocalizationSettings.model_validate(values)
