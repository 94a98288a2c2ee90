# SPDX-License-Identifier: Apache-2.0
"""A detector's objects as monitors see them."""

import numpy as np
import pytest
import torch

from sticker_uq.detection.features import Features
from sticker_uq.perception.monitors.detections import CROP_SIZE, Probe, observe_boxes, pool_layers, vectors_of
from sticker_uq.scene import StochasticSamples
from test.helpers.models import picture, tiny_detector

BOXES = np.array([[10.0, 10, 50, 50], [120, 60, 180, 120]], np.float32)
VECTOR = np.array([0.1, 0.2, 0.7], np.float32)


class Maps:
    """A detector whose one map holds the x coordinate, px of the picture, in its first channel."""

    device = torch.device("cpu")

    def head_maps(self, features: Features) -> list[torch.Tensor]:
        return list(features.maps)


def test_maps_are_pooled_at_the_box():
    # a picture of 200x100 px, resized to half and padded to 120x64, seen by a map of stride 4
    centres = (torch.arange(30) + 0.5) * 4 * 2
    level = centres.expand(1, 1, 16, 30).clone()
    features = Features((200, 100), (50, 100), (64, 120), (level,))
    (pooled,) = pool_layers(Maps(), features, np.array([[40.0, 20, 80, 60], [100, 20, 180, 90]]))
    assert pooled[:, 0] == pytest.approx([60, 140])


def test_objects_of_a_real_detector():
    detector, image = tiny_detector("ssdlite320_mobilenet_v3_large"), picture(1)
    features = detector.encode(image)
    found = detector.detect(features)
    assert len(found) >= 2
    samples = detector.sample(features, 3, 5)
    objects = observe_boxes(detector, image, features, found.boxes, found.probabilities, samples)
    assert len(objects) == len(found)
    assert objects.samples.shape == (3, len(found), 3)
    assert objects.crops.shape == (len(found), 3, CROP_SIZE, CROP_SIZE)
    assert objects.features.shape == (len(found), sum(layer.shape[1] for layer in objects.layers))
    assert np.isfinite(objects.features).all()
    assert objects.logits is None
    none = observe_boxes(detector, image, features, found.boxes[:0], found.probabilities[:0], samples)
    assert len(none) == 0


def test_a_pass_speaks_for_the_box_it_overlaps():
    near, far = BOXES[0] + 2, BOXES[0] + 60
    samples = StochasticSamples(
        np.stack([near, far, BOXES[1]]).astype(np.float32),
        np.stack([VECTOR, VECTOR[::-1], VECTOR[[1, 0, 2]]]),
        np.array([0, 0, 2]),
        3,
    )
    vectors = vectors_of(BOXES, samples)
    assert vectors[0, 0] == pytest.approx(VECTOR)
    assert vectors[2, 1] == pytest.approx(VECTOR[[1, 0, 2]])
    assert np.isnan(vectors[0, 1]).all()
    assert np.isnan(vectors[1]).all()
    assert np.isnan(vectors[2, 0]).all()


def test_the_probe_gives_logits():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 200)
    features = rng.normal(0, 0.4, (200, 5)) + 2 * np.eye(5)[labels]
    assert (Probe.fit(features, labels).logits(features).argmax(axis=1) == labels).mean() > 0.97
