# SPDX-License-Identifier: Apache-2.0
"""From detections to objects with metrics: nothing lost, nothing made up, always the same."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.plain import to_plain
from sticker_uq.scene import METRICS, Detections, ObjectClass
from sticker_uq.uncertainty import observe
from sticker_uq.uncertainty.observe import single_pass_on
from test.helpers.samples import LOGO, samples, seen
from test.uncertainty.formulas import box_covariance, predictive_surface, shannon_entropy
from test.uncertainty.test_cluster import FAR, A, B, T, scenes, shifted


def test_an_object_has_the_score_of_the_pass_without_dropout_that_lies_on_it():
    objects = observe(samples(seen(A, range(5)) + seen(FAR, range(5, 10)), T))[0]
    beside = np.array([A, shifted(A, 1.0), B], np.float32)
    found = Detections(beside, np.array([[0.4, 0, 0.6], [0.3, 0, 0.7], [0, 0, 1]], np.float32))
    assert sorted(o.single_pass for o in single_pass_on(objects, found)) == pytest.approx([0.0, 0.7])
    assert objects[0].over_all_passes == pytest.approx(
        [1 - 5 / T * 0.95, 5 / T * 0.05, 5 / T * 0.9], abs=0.03
    )
    assert all(math.isnan(o.single_pass) for o in objects)


def test_a_lone_object_carries_the_metrics_of_its_boxes():
    some = samples(seen(A, range(0, T, 2), noise=2.0), T)
    objects, unstable, image = observe(some)
    assert unstable == ()
    (found,) = objects
    assert found.id == 0
    assert found.label is ObjectClass.STICKER
    assert found.score == pytest.approx(0.9)
    assert (found.detections, found.passes, found.detection_rate) == (10, 10, 0.5)
    assert not found.duplicated
    assert not found.unstable
    assert found.box == pytest.approx(some.boxes.mean(axis=0), abs=1e-4)
    assert found.box_covariance == pytest.approx(box_covariance(some.boxes))
    assert found.total_variance == pytest.approx(np.trace(found.box_covariance))
    assert found.predictive_surface == pytest.approx(predictive_surface(some.boxes))
    assert found.shannon_entropy == pytest.approx(shannon_entropy(some.probabilities))
    area = float(np.prod(found.box[2:] - found.box[:2]))
    assert found.relative_total_variance == pytest.approx(found.total_variance / area, rel=1e-5)
    assert found.relative_predictive_surface == pytest.approx(found.predictive_surface / area, rel=1e-5)
    assert (image.objects, image.unstable) == (1, 0)
    assert image.total_variance == found.total_variance


def test_no_boxes_give_no_objects_and_no_numbers():
    objects, unstable, image = observe(samples([], T))
    assert (objects, unstable, image.objects, image.unstable) == ((), (), 0, 0)
    assert all(math.isnan(getattr(image, name)) for name in METRICS)


def test_an_object_that_too_few_passes_saw_is_unstable_but_there():
    rows = seen(A, range(T), noise=1.0) + seen(FAR, [4, 11], noise=1.0) + seen(B, [7], probabilities=LOGO)
    objects, unstable, image = observe(samples(rows, T))
    assert [o.id for o in objects] == [0]
    assert [o.id for o in unstable] == [1, 2]
    assert {(o.detections, o.passes, o.label) for o in unstable} == {
        (2, 2, ObjectClass.STICKER),
        (1, 1, ObjectClass.LOGO),
    }
    for rare in unstable:
        assert rare.unstable
        assert all(math.isnan(getattr(rare, name)) for name in METRICS)
        assert np.isnan(rare.box_covariance).all()
        assert rare.detection_rate == rare.passes / T
    assert (image.objects, image.unstable) == (1, 2)
    assert image.total_variance == objects[0].total_variance


def test_objects_come_most_probable_first():
    rows = seen(B, range(T), probabilities=(0.2, 0.2, 0.6)) + seen(A, range(T)) + seen(FAR, range(T))
    objects, _, image = observe(samples(rows, T))
    assert [o.box.tolist() for o in objects] == [list(A), list(FAR), list(B)]
    for name in METRICS:
        assert getattr(image, name) == pytest.approx(sum(getattr(o, name) for o in objects) / 3), (
            "plain means"
        )
    assert [o.id for o in objects] == [0, 1, 2]


@given(scenes())
def test_every_box_is_in_exactly_one_object(some):
    objects, unstable, image = observe(some)
    assert sum(o.detections for o in (*objects, *unstable)) == len(some)
    assert [o.id for o in (*objects, *unstable)] == list(range(len(objects) + len(unstable)))
    assert all(o.passes >= 3 for o in objects)
    assert all(o.passes < 3 for o in unstable)
    assert (image.objects, image.unstable) == (len(objects), len(unstable))
    for o in (*objects, *unstable):
        assert o.duplicated == (o.detections > o.passes)
        assert o.box.dtype == o.probabilities.dtype == np.float32
        assert o.box_covariance.dtype == np.float64
        assert o.probabilities.sum() == pytest.approx(1.0, abs=1e-6)
        assert o.label == int(o.probabilities.argmax())
        assert 0.0 < o.detection_rate <= 1.0


@given(scenes(), st.integers(0, 2**32 - 1))
def test_the_result_is_the_same_to_the_last_bit_in_any_order(some, seed):
    random = np.random.default_rng(seed)
    order = random.permutation(len(some))
    renumbered = random.permutation(some.passes)[some.pass_index[order]]
    other = replace(
        some, boxes=some.boxes[order], probabilities=some.probabilities[order], pass_index=renumbered
    )
    assert repr(to_plain(observe(other))) == repr(to_plain(observe(some)))
