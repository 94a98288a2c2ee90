# SPDX-License-Identifier: Apache-2.0
"""Bayes-OD against products of Gaussians and a Beta distribution by hand."""

import numpy as np
import pytest

from sticker_uq.detection import DetectorSettings, load_detector
from sticker_uq_lab.rendering import render, sample_scene
from sticker_uq_lab.studies.dil.bayes_od import bayes_od, fuse

NEAR, OTHER, FAR = [10.0, 10, 50, 50], [12.0, 10, 52, 50], [100.0, 100, 140, 140]
"""The first two overlap by 0.9."""


def test_a_certain_and_an_unsure_anchor_by_hand():
    # 41 passes: x1 of the first moves by 2 to both sides, variance 4 * 40 / 40; the other stands still
    boxes = np.tile([NEAR, OTHER, FAR], (41, 1, 1))
    boxes[:20, 0, 0] += 2
    boxes[20:40, 0, 0] -= 2
    objectness = np.tile([0.9, 0.6, 0.05], (41, 1))
    objectness[::2, 0] += 0.05
    objectness[1::2, 0] -= 0.0525  # whose mean stays
    found = fuse(boxes, objectness, same=0.5)
    # variances 5 and 1 with that of least variance: weights 1/6 and 5/6; the other sides have 1 and 1
    np.testing.assert_allclose(found.boxes, [[10 / 6 + 12 * 5 / 6, 10, 51, 50]])
    np.testing.assert_allclose(found.covariances, [np.diag([5 / 6, 0.5, 0.5, 0.5])])
    np.testing.assert_allclose(found.probability, [(1 + 0.9 + 0.6) / (2 + 2)])
    p = 2.5 / 4
    expected = -p * np.log2(p) - (1 - p) * np.log2(1 - p), 5 / 6 + 1.5
    assert found.uncertainty() == pytest.approx(expected)


def test_anchors_apart_are_objects_by_falling_score():
    boxes, objectness = np.tile([NEAR, FAR], (3, 1, 1)), np.tile([0.5, 0.8], (3, 1))
    found = fuse(boxes, objectness, same=0.5)
    np.testing.assert_allclose(found.boxes, [FAR, NEAR])
    np.testing.assert_allclose(found.probability, [1.8 / 3, 1.5 / 3])
    assert len(fuse(boxes, objectness, same=0.95).boxes) == 2
    assert len(fuse(boxes, 0.1 * objectness, same=0.5).boxes) == 0
    assert fuse(boxes, 0.1 * objectness, same=0.5).uncertainty() == (0, 0)


def test_without_dropout_the_objects_are_those_of_the_detector():
    detector = load_detector(DetectorSettings(dropout_rate=0, passes=2))
    features = detector.encode(render(sample_scene(3), size=(640, 480)).image)
    seen = detector.detect(features)
    sure = seen.boxes[seen.probabilities[:, 1:].sum(axis=1) > 0.9]
    found = bayes_od(detector, features, seed=0)
    assert len(sure)
    nearest = [np.abs(found.boxes - box).max(axis=1).min() for box in sure]
    assert max(nearest) < 15  # px: the mean of what suppression drops, of the same object
    assert np.trace(found.covariances, axis1=1, axis2=2).max() <= 4
