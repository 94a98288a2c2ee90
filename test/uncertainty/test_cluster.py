# SPDX-License-Identifier: Apache-2.0
"""Which boxes are one object: the normal cases, the odd ones, and independence of order and surroundings."""

import importlib
import warnings

import numpy as np
import pytest
from hdbscan import hdbscan
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.scene import InvalidInput, StochasticSamples
from sticker_uq.uncertainty import ClusterSettings, TooManyBoxes, cluster, iou_matrix
from test.helpers.samples import LOGO, STICKER, Row, samples, seen

# the package has a function of this name
clustering = importlib.import_module("sticker_uq.uncertainty.cluster")

A = (100.0, 100.0, 200.0, 180.0)
B = (400.0, 120.0, 480.0, 200.0)
FAR = (700.0, 500.0, 760.0, 570.0)
T = 20


def labels_of(rows: list[Row], passes: int = T) -> list[int]:
    return cluster(samples(rows, passes)).tolist()


def together(labels: np.ndarray) -> np.ndarray:
    """Which pairs of rows share an object."""
    return (labels[:, None] == labels[None, :]) & (labels >= 0)[:, None]


def shifted(box: tuple[float, ...], right: float) -> tuple[float, ...]:
    return (box[0] + right, box[1], box[2] + right, box[3])


def test_more_boxes_than_can_be_clustered_are_refused(monkeypatch):
    rows = seen(A, range(T), noise=2.0) + seen(FAR, range(T), noise=2.0)
    monkeypatch.setattr(clustering, "MOST_TOGETHER", T)
    assert labels_of(rows) == [0] * T + [1] * T
    monkeypatch.setattr(clustering, "MOST_TOGETHER", T - 1)
    with pytest.raises(
        TooManyBoxes, match=f"{T} boxes that hang together, expected at most {T - 1}: raise score_floor"
    ):
        labels_of(rows)
    monkeypatch.setattr(clustering, "MOST_BOXES", 2 * T - 1)
    with pytest.raises(TooManyBoxes, match=f"{2 * T} boxes of all passes, expected at most {2 * T - 1}"):
        labels_of(rows)


def test_a_chain_of_many_objects_falls_into_them():
    # each overlaps the next by more than half; the passes tell them apart, in many cuts
    rows = [row for n in range(60) for row in seen(shifted(A, 35.0 * n), range(T), noise=1.0)]
    labels = np.array(labels_of(rows)).reshape(60, T)
    assert (labels == np.arange(60)[:, None]).mean() > 0.9


CHAIN = [*[0.0] * 9, 10.0, 70.0, *[80.0] * 9]
NOISE = [(107, 76, 203, 167), (102, 100, 201, 181), (107, 100, 223, 195), (105, 114, 190, 182)]


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        (seen(A, range(T), noise=2.0), [0] * T),
        (seen(A, range(1)), [-1]),
        (seen(A, range(2)), [-1] * 2),
        (seen(A, range(3), noise=1.0), [0] * 3),
        (seen(A, range(3), noise=1.0) + seen(B, range(3), noise=1.0), [0] * 3 + [1] * 3),
        (seen(FAR, range(3), noise=1.0) + seen(A, range(T), noise=1.0), [1] * 3 + [0] * T),
        # Four boxes whose third neighbours are all further than epsilon, though each overlaps another by more than half:
        # HDBSCAN calls them noise, and enough passes agree.
        ([(t, box, STICKER) for t, box in enumerate(NOISE)], [0] * 4),
        # Neighbours in the chain overlap by more than half, but the box in the middle has too few of them to be a core.
        ([*[(t, shifted(A, right), STICKER) for t, right in enumerate(CHAIN)], (0, shifted(A, 40.0), STICKER)],
         [0] * 10 + [1] * 10 + [0]),
        (seen(A, [0] * 6, noise=1.0), [-1] * 6),  # of one pass alone
        ([(t, (5.0, 5.0, 5.0, 9.0), LOGO) for t in range(5)], [-1] * 5),  # without area
        # Every distance between them is 1: one tree over all boxes breaks the ties by the order of the rows and gives the far
        # boxes to one of the clusters.
        *(
            (seen(FAR, range(far), noise=3.0) + seen(A, range(T), noise=3.0) + seen(B, range(T), noise=3.0),
             [-1] * far + [0] * T + [1] * T)
            for far in (1, 2)
        ),
        # a small box inside an object
        ([*seen(A, range(T), noise=2.0), (0, (100.0, 100.0, 130.0, 125.0), LOGO)], [0] * T + [-1]),
        # three in a row that overlap
        ([row for n in range(3) for row in seen(shifted(A, 30.0 * n), range(T), noise=1.0, seed=n)],
         [0] * T + [1] * T + [2] * T),
        # an overlapping one that some passes miss
        (seen(A, range(0, T, 2), noise=1.0, seed=1) + seen(shifted(A, 30.0), range(0, T, 3), noise=1.0, seed=2),
         [0] * 10 + [1] * 7),
        # The same outline once as a sticker and once as a logo: suppression works per class and keeps both.
        (seen(A, range(T), noise=1.0, seed=1) + seen(A, range(T), noise=1.0, seed=2, probabilities=LOGO), [0] * 2 * T),
        # two boxes in too few passes are no second object
        (seen(A, range(T), noise=1.0) + seen(shifted(A, 25.0), range(2), noise=1.0), [0] * (T + 2)),
        # No pass shows two: there is no evidence of a second object, only of an uncertain box.
        (seen(A, range(10), noise=1.0) + seen(shifted(A, 25.0), range(10, T), noise=1.0), [0] * T),
    ],
)  # fmt: skip
def test_which_boxes_are_one_object(rows, labels):
    assert labels_of(rows) == labels


def test_no_boxes_have_no_labels():
    labels = cluster(samples([], T))
    assert labels.shape == (0,)
    assert labels.dtype == np.int64


def test_identical_boxes_are_one_object_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert labels_of(seen(A, range(T))) == [0] * T
        assert labels_of(seen(A, range(T)) + seen(B, range(T))) == [0] * T + [1] * T
        spread = seen(A, range(T)) + seen(shifted(A, 30.0), range(10)) + seen(shifted(A, 60.0), range(10))
        assert min(labels_of(spread)) >= 0


@pytest.mark.parametrize("overlap", [0.3, 0.45, 0.55, 0.65])
def test_two_overlapping_objects_that_passes_show_together_are_two(overlap):
    width = A[2] - A[0]
    other = shifted(A, width * (1 - overlap) / (1 + overlap))
    assert iou_matrix(np.array([A]), np.array([other]))[0, 0] == pytest.approx(overlap)
    rows = seen(A, range(T), noise=1.5, seed=1) + seen(other, range(T), noise=1.5, seed=2)
    assert labels_of(rows) == [0] * T + [1] * T


@pytest.mark.parametrize("seed", range(8))
def test_each_of_two_overlapping_objects_takes_one_box_of_every_pass(seed):
    # The boxes move so much that some lie nearer to the other object: only its partner of the same pass tells.
    rows = seen(A, range(T), noise=7.0, seed=seed) + seen(
        shifted(A, 25.0), range(T), noise=7.0, seed=seed + 100
    )
    labels = np.array(labels_of(rows))
    assert set(labels) == {0, 1}
    assert (labels[:T] != labels[T:]).all()


def test_cluster_size_is_counted_in_passes():
    rows = seen(A, range(4), noise=1.0) + seen(B, range(5), noise=1.0)
    labels = cluster(samples(rows, T), ClusterSettings(min_cluster_size=5, min_samples=5))
    assert labels.tolist() == [-1] * 4 + [0] * 5


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_none_are_refused(value):
    with pytest.raises(InvalidInput, match="finite"):
        cluster(samples([(0, (0.0, 0.0, value, 9.0), LOGO)], T))


@pytest.mark.parametrize("values", [{"min_cluster_size": 1}, {"epsilon": 1.0}, {"epsilonn": 0.5}])
def test_settings_have_ranges(values):
    with pytest.raises(ValueError, match=next(iter(values))):
        ClusterSettings.model_validate(values)


@st.composite
def scenes(draw: st.DrawFn) -> StochasticSamples:
    """Up to six objects, some overlapping, that some passes miss, with false positives: boxes on half pixels."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    passes = draw(st.integers(1, 12))
    rows: list[Row] = []
    for _ in range(draw(st.integers(0, 6))):
        corner, size = random.uniform(0, 500, 2), random.uniform(20, 150, 2)
        noise = draw(st.sampled_from([0.0, 1.0, 6.0]))
        visible = np.flatnonzero(random.random(passes) < draw(st.sampled_from([0.3, 0.7, 1.0])))
        for t in visible:
            box = (
                np.round(2 * (np.concatenate([corner, corner + size]) + noise * random.standard_normal(4)))
                / 2
            )
            rows.append((int(t), box.tolist(), random.dirichlet([0.3, 0.3, 3.0]).tolist()))
    for _ in range(draw(st.integers(0, 6))):
        corner = random.uniform(0, 500, 2)
        box = np.round(np.concatenate([corner, corner + random.uniform(20, 150, 2)]))
        rows.append((int(random.integers(passes)), box.tolist(), LOGO))
    return samples(rows, passes)


def taken(some: StochasticSamples, order: np.ndarray) -> StochasticSamples:
    return StochasticSamples(
        some.boxes[order], some.probabilities[order], some.pass_index[order], some.passes
    )


@given(scenes(), st.integers(0, 2**32 - 1))
def test_the_order_of_rows_and_the_numbers_of_passes_do_not_matter(some, seed):
    random = np.random.default_rng(seed)
    order = random.permutation(len(some))
    other = taken(some, order)
    other = StochasticSamples(
        other.boxes, other.probabilities, random.permutation(some.passes)[other.pass_index], some.passes
    )
    assert (together(cluster(other)) == together(cluster(some))[np.ix_(order, order)]).all()


@given(scenes())
def test_objects_do_not_depend_on_what_else_is_in_the_image(some):
    company = samples(seen((5000, 5000, 5060, 5070), range(some.passes), noise=2.0), some.passes)
    both = StochasticSamples(
        np.concatenate([some.boxes, company.boxes]),
        np.concatenate([some.probabilities, company.probabilities]),
        np.concatenate([some.pass_index, company.pass_index]),
        some.passes,
    )
    assert cluster(both)[: len(some)].tolist() == cluster(some).tolist()


@given(st.integers(3, 40), st.integers(0, 2**32 - 1))
def test_boxes_that_all_overlap_by_half_need_no_tree(count, seed):
    # cluster() answers without HDBSCAN where all boxes overlap by more than half; HDBSCAN must say the same.
    random = np.random.default_rng(seed)
    boxes = np.round(np.array(A) + random.uniform(0.0, 7.0) * random.standard_normal((count, 4)))
    distance = 1.0 - iou_matrix(boxes, boxes)
    np.fill_diagonal(distance, 0.0)
    found = hdbscan(
        distance,
        metric="precomputed",
        min_cluster_size=3,
        min_samples=3,
        cluster_selection_epsilon=0.5,
        allow_single_cluster=True,
    )[0]
    if distance.max() < 0.5:
        assert (found == 0).all()


@given(st.lists(st.integers(2, 5), min_size=1, max_size=6), st.booleans(), st.integers(0, 2**32 - 1))
def test_boxes_of_one_pass_are_assigned_to_two_objects_as_by_the_general_assignment(sizes, tied, seed):
    random = np.random.default_rng(seed)
    passes = np.repeat(np.arange(len(sizes)), sizes)
    low = random.uniform(0, 40, (len(passes), 2))
    boxes = np.concatenate([low, low + 60], axis=1)
    boxes = np.round(boxes / 20) * 20 if tied else boxes
    halves = clustering._halve(boxes, passes, (0, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clustering, "_MOST_RIVALS", 1)  # every pass is one with too many boxes
        general = clustering._halve(boxes, passes, (0, 1))
    assert (halves is None) == (general is None)
    assert halves is None or (halves == general).all()
