# SPDX-License-Identifier: Apache-2.0
"""The novelty head: what it learns, what it is told apart from, and its file."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sticker_uq.detection import DetectorSettings, StochasticDetector, load_detector
from sticker_uq.detection.weights import packaged_weights
from sticker_uq.io.coco import LabelledImage, read_coco, write_coco
from sticker_uq.lab.datasets.abnormal_shapes import exposed
from sticker_uq.lab.rendering import encode_scene, render, sample_scene
from sticker_uq.lab.training.novelty_head import train_novelty_head
from sticker_uq.novelty.head import (
    NoveltyHead,
    cells_of,
    load_head,
    load_novelty_model,
    novelty,
    novelty_map,
    save_head,
)
from sticker_uq.scene import FloatArray, InvalidInput
from test.helpers.models import MODEL_NAMES, picture, tiny_detector

PACKAGED = "ssdlite320_mobilenet_v3_large"


@pytest.fixture(scope="module")
def detector() -> StochasticDetector:
    return load_detector(DetectorSettings())


def probabilities(detector: StochasticDetector, head: NoveltyHead, image: np.ndarray) -> torch.Tensor:
    features = detector.encode(image)
    return novelty_map(head, cells_of(detector.head_maps(features), features.padded))[0]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31 - 1), st.booleans())
def test_shapes_change_only_what_they_cover_and_their_shadow(seed: int, objects: bool) -> None:
    grey = np.full((90, 120, 3), 128, np.uint8)
    boxes: FloatArray = np.array([[30, 20, 60, 50]] if objects else [], np.float32).reshape(-1, 4)
    image, covered = exposed(grey, boxes, np.random.default_rng(seed))[:2]
    again = exposed(grey, boxes, np.random.default_rng(seed)).image
    np.testing.assert_array_equal(image, again)
    assert image.shape == grey.shape
    assert (grey == 128).all()  # the picture itself is left alone
    assert covered.shape == (90, 120)
    if not covered.any():  # a shape may lie outside of the picture
        np.testing.assert_array_equal(image, grey)


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> list[LabelledImage]:
    folder = tmp_path_factory.mktemp("clean")
    write_coco(folder, [encode_scene(i, render(sample_scene(i), (320, 240)), "png") for i in range(8)])
    return read_coco(folder)


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_every_model_can_have_a_head(name: str, items: list[LabelledImage]) -> None:
    tiny = tiny_detector(name)
    found = probabilities(tiny, train_novelty_head(tiny, items[:2]), picture())
    assert found.ndim == 2
    assert 8 <= found.shape[1] <= 20  # about 16 px of the network's input
    assert ((found >= 0) & (found <= 1)).all()


def test_the_mean_of_the_strongest_cells() -> None:
    assert novelty(torch.tensor([[0.1, 0.9, 0.8], [0.7, 0.6, 0.0]])) == pytest.approx(0.75)
    assert novelty(torch.tensor([[0.5]])) == 0.5


def test_a_head_is_learned_kept_and_read_again(
    detector: StochasticDetector, items: list[LabelledImage], tmp_path: Path
) -> None:
    seen: list[int] = []
    head = train_novelty_head(detector, items, 1, lambda: seen.append(1))
    assert len(seen) == len(items)
    same = train_novelty_head(detector, items, 1)
    first, second = (probabilities(detector, h, picture()) for h in (head, same))
    torch.testing.assert_close(first, second)

    head.reference.set(torch.zeros(len(head.mean)), torch.eye(len(head.mean)))
    save_head(head, detector, tmp_path / "head.safetensors")
    kept = probabilities(detector, load_head(detector, tmp_path / "head.safetensors"), picture())
    torch.testing.assert_close(kept, first, atol=0.01, rtol=0.01)  # half precision

    assert isinstance(load_novelty_model(detector, tmp_path / "head.safetensors"), NoveltyHead)

    with pytest.raises(InvalidInput, match="was learned on weights"):
        load_head(tiny_detector(PACKAGED), tmp_path / "head.safetensors")
    with pytest.raises(InvalidInput, match="no novelty head"):
        load_head(detector, str(packaged_weights(PACKAGED)))
    with pytest.raises(InvalidInput, match="0 pictures"):
        train_novelty_head(detector, [])
