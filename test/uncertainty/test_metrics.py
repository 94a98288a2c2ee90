# SPDX-License-Identifier: Apache-2.0
"""The five metrics: worked examples, ranges and invariances."""

import math

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.scene import METRICS, StochasticSamples
from sticker_uq.uncertainty import metrics
from sticker_uq.uncertainty.metrics import GroupedSamples, measure
from sticker_uq.uncertainty.overlap import box_areas
from test.uncertainty import formulas


def of_boxes(boxes: np.ndarray) -> GroupedSamples:
    """One object with ``boxes`` (M, 4)."""
    return grouped(boxes, np.tile(np.float32([0, 0, 1]), (len(boxes), 1)))


def of_vectors(vectors: np.ndarray) -> GroupedSamples:
    """One object with class ``vectors`` (M, 3)."""
    return grouped(np.zeros((len(vectors), 4), np.float32), vectors)


def grouped(boxes: np.ndarray, vectors: np.ndarray) -> GroupedSamples:
    rows = np.arange(len(boxes))
    return GroupedSamples.of(StochasticSamples(boxes, vectors, rows, len(rows)), [rows])


def variation_ratio(vectors: np.ndarray) -> float:
    return float(metrics.variation_ratio(of_vectors(vectors))[0])


def shannon_entropy(vectors: np.ndarray) -> float:
    return float(metrics.shannon_entropy(of_vectors(vectors))[0])


def mutual_information(vectors: np.ndarray) -> float:
    return float(metrics.mutual_information(of_vectors(vectors))[0])


def total_variance(boxes: np.ndarray) -> float:
    return float(metrics.total_variance(of_boxes(boxes))[0])


def predictive_surface(boxes: np.ndarray) -> float:
    return float(metrics.predictive_surface(of_boxes(boxes))[0])


def corner_hulls(boxes: np.ndarray) -> tuple[np.ndarray, ...]:
    return of_boxes(boxes).corner_hulls[0]


def test_worked_example_of_the_label_metrics():
    vectors = np.float32([[0.0, 0.5, 0.5], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    # Labels 1 (a tie goes to the lower class), 2, 2, 0; mean vector (1/4, 1/8, 5/8); entropies 1, 0, 0, 0 bits.
    entropy = 0.25 * 2 + 0.125 * 3 + 0.625 * math.log2(1.6)
    assert variation_ratio(vectors) == 0.5
    assert shannon_entropy(vectors) == pytest.approx(entropy, abs=1e-12)
    assert mutual_information(vectors) == pytest.approx(entropy - 0.25, abs=1e-12)


def test_worked_example_of_the_box_metrics():
    # The four corners take the corners of squares of side 2, 2, 2 and 2: variance 1 per coordinate, area 4.
    moved = np.float32([[0, 0, 10, 20], [2, 0, 12, 20], [2, 2, 12, 22], [0, 2, 10, 22]])
    assert total_variance(moved) == 4.0
    assert predictive_surface(moved) == 4.0
    # Only the right edge moves: two corners move on a line, two stand still, no hull has an area.
    widened = np.float32([[0, 0, 10, 20], [0, 0, 14, 20], [0, 0, 12, 20]])
    assert total_variance(widened) == pytest.approx(8 / 3)
    assert predictive_surface(widened) == 0.0
    assert [len(hull) for hull in corner_hulls(widened)] == [1, 2, 1, 2]


def test_the_table_of_metrics_has_a_function_for_each():
    some = grouped(np.float32([[0, 0, 4, 5], [1, 1, 4, 5]]), np.float32([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]]))
    measured = metrics.measure(some)
    assert measured.keys() == METRICS.keys()
    for name, metric in METRICS.items():
        assert 0 <= measured[name][0] <= metric.highest
        assert not metric.relative or METRICS[metric.relative].short == f"{metric.short}/area"


PASSES = 40


@st.composite
def groups(draw: st.DrawFn) -> list[StochasticSamples]:
    """Objects of 1 to 200 boxes, some all alike, some without area, some vectors certain."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    made = []
    for count in draw(st.lists(st.sampled_from([1, 2, 3, 7, 8, 9, 20, 130, 200]), min_size=1, max_size=6)):
        corner, size = random.uniform(-5, 500, 2), random.uniform(0, 150, 2) * random.integers(0, 2, 2)
        box = np.concatenate([corner, corner + size])
        boxes = box + random.choice([0.0, 1.0, 20.0]) * random.standard_normal((count, 4))
        if random.random() < 0.3:
            boxes = np.round(boxes)
        vectors = random.dirichlet(random.choice([0.01, 1.0], 3), count)
        made.append(
            StochasticSamples(
                boxes.astype(np.float32),
                vectors.astype(np.float32),
                random.integers(0, PASSES, count),
                PASSES,
            )
        )
    return made


def same(one: object, other: object) -> bool:
    """Bit for bit, NaN included."""
    return np.asarray(one, np.float64).tobytes() == np.asarray(other, np.float64).tobytes()


@given(groups())
def test_every_number_of_every_object_is_that_of_the_object_alone(some):
    together = StochasticSamples(
        np.concatenate([s.boxes for s in some]),
        np.concatenate([s.probabilities for s in some]),
        np.concatenate([s.pass_index for s in some]),
        PASSES,
    )
    # the rows of the objects are mixed, and keep their order within each
    owner = np.repeat(np.arange(len(some)), [len(s) for s in some])
    mixed = np.random.default_rng(0).permutation(len(owner))
    together = StochasticSamples(
        together.boxes[mixed], together.probabilities[mixed], together.pass_index[mixed], PASSES
    )
    members = [np.flatnonzero(owner[mixed] == g) for g in range(len(some))]
    grouped = GroupedSamples.of(together, members)
    measured = measure(grouped)
    assert set(measured) == set(METRICS)
    for g, rows in enumerate(members):
        boxes, vectors = together.boxes[rows], together.probabilities[rows]
        area = box_areas(boxes.mean(axis=0, dtype=np.float64)[None])[0]
        variance, surface = formulas.total_variance(boxes), formulas.predictive_surface(boxes)
        alone = {
            "variation_ratio": formulas.variation_ratio(vectors),
            "shannon_entropy": formulas.shannon_entropy(vectors),
            "mutual_information": formulas.mutual_information(vectors),
            "total_variance": variance,
            "predictive_surface": surface,
            "relative_total_variance": variance / area if area > 0.0 else np.nan,
            "relative_predictive_surface": surface / area if area > 0.0 else np.nan,
        }
        assert same(grouped.mean_boxes[g], boxes.mean(axis=0, dtype=np.float64))
        assert same(grouped.mean_vectors[g], formulas.distributions(vectors).mean(axis=0))
        assert same(grouped.covariances[g], formulas.box_covariance(boxes))
        assert grouped.passes[g] == len(set(together.pass_index[rows].tolist()))
        for name, value in alone.items():
            assert same(measured[name][g], value), name
        for hull, shape in zip(grouped.corner_hulls[g], formulas.hulls(boxes), strict=True):
            ring = shapely.get_coordinates(shape).astype(np.float32)
            assert same(hull, ring[:-1] if shape.geom_type == "Polygon" else ring)
