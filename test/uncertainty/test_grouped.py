"""All objects of an image at once: to the last bit what is said of each of them alone."""

import numpy as np
import shapely
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.scene import METRICS, StochasticSamples
from sticker_uq.uncertainty import metrics
from sticker_uq.uncertainty.grouped import Grouped, covariances, measures
from sticker_uq.uncertainty.metrics import surfaces_and_hulls
from sticker_uq.uncertainty.overlap import box_areas

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
    grouped = Grouped.of(together, members)
    box_means, class_means = grouped.means(grouped.boxes), grouped.means(grouped.vectors)
    covariance = covariances(grouped, box_means)
    surfaces = np.array([surface for surface, _ in surfaces_and_hulls([together.boxes[m] for m in members])])
    measured = measures(grouped, box_means, class_means, covariance, surfaces)
    assert set(measured) == set(METRICS)
    for g, rows in enumerate(members):
        boxes, vectors = together.boxes[rows], together.probabilities[rows]
        area = box_areas(boxes.mean(axis=0, dtype=np.float64)[None])[0]
        variance, surface = metrics.total_variance(boxes), metrics.predictive_surface(boxes)
        alone = {
            "variation_ratio": metrics.variation_ratio(vectors),
            "shannon_entropy": metrics.shannon_entropy(vectors),
            "mutual_information": metrics.mutual_information(vectors),
            "total_variance": variance,
            "predictive_surface": surface,
            "relative_total_variance": variance / area if area > 0.0 else np.nan,
            "relative_predictive_surface": surface / area if area > 0.0 else np.nan,
        }
        assert same(box_means[g], boxes.mean(axis=0, dtype=np.float64))
        assert same(class_means[g], metrics.mean_probabilities(vectors))
        assert same(covariance[g], metrics.box_covariance(boxes))
        assert grouped.passes[g] == len(set(together.pass_index[rows].tolist()))
        for name, value in alone.items():
            assert same(measured[name][g], value), name


@given(groups())
def test_hulls_are_those_of_the_points(some: list[StochasticSamples]) -> None:
    for (surface, hulls), samples in zip(surfaces_and_hulls([s.boxes for s in some]), some, strict=True):
        points = [samples.boxes[:, list(corner)].astype(np.float64) for corner in metrics.CORNERS]
        expected = [shapely.MultiPoint(corner).convex_hull for corner in points]
        assert same(surface, np.mean([hull.area for hull in expected]))
        for hull, shape in zip(hulls, expected, strict=True):
            ring = shapely.get_coordinates(shape).astype(np.float32)
            assert same(hull, ring[:-1] if shape.geom_type == "Polygon" else ring)
