# SPDX-License-Identifier: Apache-2.0
"""The novelty network: its input, what it finds, and its file."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sticker_uq.detection import DetectorSettings, StochasticDetector, load_detector
from sticker_uq.perception.dil import LocalizationSettings, localize
from sticker_uq.perception.novelty.network import (
    SIZE,
    NoveltyMaps,
    NoveltyNetwork,
    input_size,
    load_network,
    novelty_maps,
    packaged_network,
    save_network,
)
from sticker_uq.perception.novelty.regions import (
    MOST_CELLS,
    missed_sticker_probability,
    missed_stickers,
    scene_novelty,
    unexplained_places,
)
from sticker_uq.scene import FloatArray, InvalidInput
from sticker_uq.uncertainty import iou_matrix
from test.helpers.laptops import labelled, laptop
from test.helpers.models import picture, tiny_detector

PACKAGED = "ssdlite320_mobilenet_v3_large"
NONE = np.zeros((0, 4), np.float32)
UNIT = torch.zeros(512), torch.eye(512)
"""A reference, as mean and root."""


@pytest.fixture(scope="module")
def detector() -> StochasticDetector:
    return load_detector(DetectorSettings())


@pytest.fixture(scope="module")
def network(detector: StochasticDetector) -> NoveltyNetwork:
    found = packaged_network(detector)
    assert found is not None
    return found


def maps(foreign: FloatArray, sticker: FloatArray | None = None) -> NoveltyMaps:
    """Maps of cells of 10 x 10 px."""
    rows, columns = foreign.shape
    other = np.zeros_like(foreign) if sticker is None else sticker
    return NoveltyMaps(foreign, other, (10 * columns, 10 * rows), (10.0, 10.0))


def block(left: int, top: int, right: int, bottom: int, value: float = 0.9) -> FloatArray:
    """12 x 16 cells of which some have ``value``."""
    cells = np.zeros((12, 16), np.float32)
    cells[top:bottom, left:right] = value
    return cells


@given(st.integers(64, 4000), st.integers(64, 4000))
def test_the_input_keeps_the_shape_and_has_as_many_pixels_always(width, height):
    across, down = input_size(width, height)
    assert across * down == pytest.approx(SIZE[0] * SIZE[1], rel=0.05)
    assert across / down == pytest.approx(width / height, rel=0.05)


def test_cells_cover_the_picture(network):
    found = novelty_maps(network, picture())
    height, width = picture().shape[:2]
    assert found.image_size == (width, height)
    for cells, size, pixels in zip(found.foreign.shape, found.cell[::-1], (height, width), strict=True):
        assert (cells - 1) * size < pixels <= cells * size + 1e-6
    assert ((found.foreign >= 0) & (found.foreign <= 1)).all()


def test_the_known_is_not_novel_and_stickers_are_seen(network):
    scene = labelled("large")
    found = novelty_maps(network, laptop("large"))
    assert float((found.foreign > 0.5).mean()) < 0.05
    for box in scene.boxes[scene.labels == 2]:
        x, y = ((box[:2] + box[2:]) / 2 / found.cell).astype(int)
        assert found.sticker[y, x] > 0.5
        assert iou_matrix(box[None], found.boxes[found.scores > 0.5]).max() > 0.5


def test_a_place_that_no_box_explains_is_found():
    here = maps(np.maximum(block(2, 3, 5, 6), block(10, 8, 11, 9)), block(10, 1, 13, 3, 0.7))
    boxes, values = unexplained_places(here, NONE)
    np.testing.assert_allclose(boxes, [[20, 30, 50, 60], [100, 10, 130, 30]])  # a single cell is no place
    np.testing.assert_allclose(values, [0.9, 0.7])
    boxes, _ = unexplained_places(here, np.float32([[15, 25, 55, 65]]))
    np.testing.assert_allclose(boxes, [[100, 10, 130, 30]])
    # a place is explained by a box over half of it, and not by less
    half = unexplained_places(here, np.float32([[20, 30, 35, 60]]))[0]
    np.testing.assert_allclose(half, [[20, 30, 50, 60], [100, 10, 130, 30]])
    half = unexplained_places(maps(block(2, 3, 6, 6)), np.float32([[20, 30, 40, 60]]))[0]
    assert half.shape == (0, 4)
    boxes, values = unexplained_places(here, np.float32([[0, 0, 160, 120]]))
    assert boxes.shape == (0, 4)
    assert values.shape == (0,)


def stickers(boxes: FloatArray, scores: list[float]) -> NoveltyMaps:
    """Maps of 160 x 120 px with nothing in them but the stickers of the novelty network."""
    return replace(
        maps(np.zeros((12, 16), np.float32)),
        boxes=np.float32(boxes).reshape(-1, 4),
        scores=np.float32(scores),
    )


def test_a_sticker_that_no_box_shows_is_a_missed_sticker_and_a_place():
    seen = stickers([[10, 10, 50, 50], [80, 20, 120, 60], [20, 80, 40, 100]], [0.9, 0.8, 0.3])
    shown = np.float32([[12, 8, 55, 52]])
    boxes, scores = missed_stickers(seen, shown)
    np.testing.assert_array_equal(boxes, [[80, 20, 120, 60], [20, 80, 40, 100]])
    np.testing.assert_allclose(scores, [0.8, 0.3])
    assert missed_sticker_probability(seen, shown) == pytest.approx(0.8)
    boxes, values = unexplained_places(seen, shown)
    np.testing.assert_array_equal(boxes, [[80, 20, 120, 60]])
    np.testing.assert_allclose(values, [0.8])
    # a box around everything shows none of them
    assert missed_sticker_probability(seen, np.float32([[0, 0, 160, 120]])) == pytest.approx(0.9)
    assert missed_sticker_probability(seen, seen.boxes) == 0
    assert missed_sticker_probability(stickers([], []), shown) == 0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31 - 1), st.integers(0, 4), st.integers(0, 5))
def test_another_box_never_makes_more_of_a_missed_sticker(seed, number, seen):
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, 120, (number + 1 + seen, 2, 2))
    boxes = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1).astype(np.float32)
    here = stickers(boxes[:seen], rng.random(seen).tolist())
    fewer, more = (missed_sticker_probability(here, boxes[seen:end]) for end in (-1, None))
    assert 0 <= more <= fewer <= 1


def test_the_strongest_cells_count():
    cells = np.full((12, 16), 0.01, np.float32)
    cells.ravel()[:MOST_CELLS] = 0.8
    assert scene_novelty(maps(cells)) == pytest.approx(0.8)
    assert scene_novelty(maps(np.full((1, 2), 0.5, np.float32))) == pytest.approx(0.5)


def test_places_join_the_unexplained_regions():
    detector = tiny_detector(PACKAGED)
    image = picture()
    height, width = image.shape[:2]
    features = detector.encode(image)
    alone = localize(detector.deterministic_pass(features), LocalizationSettings(region_objectness=1.0))
    place = NoveltyMaps(block(0, 0, 2, 2), block(0, 0, 1, 1), (width, height), (width / 16, height / 12))
    both = localize(
        detector.deterministic_pass(features), LocalizationSettings(region_objectness=1.0), novelty=place
    )
    assert not alone.unexplained
    (region,) = both.unexplained
    np.testing.assert_allclose(region.box, [0, 0, width / 8, height / 6], rtol=1e-5)
    assert region.objectness == pytest.approx(0.9)
    assert 0 <= region.share <= 1
    assert both.unexplained_objectness == alone.unexplained_objectness  # it stays the detector's own


def test_a_network_with_other_layers_is_refused(detector, tmp_path):
    other = NoveltyNetwork()
    other.head[2] = nn.Conv2d(48, 3, 1)
    other.reference.set(*UNIT)
    save_network(other, detector, tmp_path / "other.safetensors")
    with pytest.raises(InvalidInput, match="other layers than this version's network"):
        load_network(tmp_path / "other.safetensors")
