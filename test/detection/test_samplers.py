# SPDX-License-Identifier: Apache-2.0
"""Other samplers: views that map boxes back, networks that take turns, one interface."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from sticker_uq.detection.samplers import PLAIN, Ensemble, TestTimeAugmentation, View
from sticker_uq.scene import InvalidInput
from test.helpers.models import picture, tiny_detector

SSDLITE = "ssdlite320_mobilenet_v3_large"


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_box_of_a_view_is_found_at_its_place_in_the_image(mirrored: bool) -> None:
    image = np.zeros((120, 160, 3), np.uint8)
    cv2.rectangle(image, (40, 30), (79, 59), (200, 200, 200), -1)
    view = View(mirrored, 1.05, (3.0, -2.0), 1.1)
    rows, columns = np.nonzero(view.of(image)[..., 0] > 100)
    seen = np.array([[columns.min(), rows.min(), columns.max(), rows.max()]], np.float64)
    np.testing.assert_allclose(view.back(seen, (160, 120)), [[40, 30, 79, 59]], atol=1.0)


def test_the_plain_view_changes_nothing() -> None:
    image = picture()
    np.testing.assert_array_equal(PLAIN.of(image), image)


def test_augmentation_begins_with_the_plain_detection_and_a_pass_is_always_the_same() -> None:
    detector = tiny_detector(SSDLITE)
    sampler = TestTimeAugmentation(detector)
    image = picture()
    samples = sampler.sample(sampler.encode(image), 4, seed=3)
    plain = detector.detect(detector.encode(image))
    first = samples.boxes[samples.pass_index == 0]
    np.testing.assert_allclose(first, plain.boxes, atol=1e-3)
    fewer = sampler.sample(image, 2, seed=3)
    assert (samples.passes, fewer.passes) == (4, 2)
    np.testing.assert_array_equal(fewer.boxes, samples.boxes[samples.pass_index < 2])
    assert not np.array_equal(fewer.boxes, sampler.sample(image, 2, seed=4).boxes)
    assert len(samples)


def test_an_ensemble_lets_each_network_look_once() -> None:
    members = [tiny_detector(SSDLITE), tiny_detector(SSDLITE, score_floor=0.3)]
    sampler = Ensemble(members)
    image = picture()
    samples = sampler.sample(sampler.encode(image), 2, seed=0)
    for number, member in enumerate(members):
        alone = member.detect(member.encode(image))
        np.testing.assert_array_equal(samples.boxes[samples.pass_index == number], alone.boxes)
    first = sampler.sample(sampler.encode(image), 1, seed=0)
    np.testing.assert_array_equal(first.boxes, samples.boxes[samples.pass_index == 0])
    with pytest.raises(InvalidInput, match="pass 3 of an ensemble of 2"):
        sampler.sample(sampler.encode(image), 3, seed=0)


def test_what_cannot_be_sampled_is_refused() -> None:
    with pytest.raises(InvalidInput, match="an ensemble of 1 networks: expected two or more"):
        Ensemble([tiny_detector(SSDLITE)])
    with pytest.raises(InvalidInput, match="passes is 0"):
        TestTimeAugmentation(tiny_detector(SSDLITE)).sample(picture(), 0, seed=0)
