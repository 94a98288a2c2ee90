# SPDX-License-Identifier: Apache-2.0
"""All objects of an image at once: to the last bit what the formulas give for each of them alone."""

import numpy as np
import shapely
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.scene import METRICS, StochasticSamples
from sticker_uq.uncertainty.metrics import GroupedSamples, measure
from sticker_uq.uncertainty.overlap import box_areas
from test.uncertainty import formulas

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
def test_every_number_of_every_object_is_that_of_the_object_alone(some: list[StochasticSamples]) -> None:
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
