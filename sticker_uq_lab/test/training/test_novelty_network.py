# SPDX-License-Identifier: Apache-2.0
"""What a novelty network learns, and what the packaged one finds on rendered scenes."""

import math

import numpy as np
import pytest
import torch

from lab_helpers.scenes import rendered
from sticker_uq.detection import DetectorSettings, StochasticDetector, load_detector
from sticker_uq.detection.weights import packaged_weights
from sticker_uq.io.coco import LabelledImage, read_coco
from sticker_uq.perception.novelty.network import (
    NoveltyNetwork,
    load_network,
    network_input,
    novelty_maps,
    packaged_network,
    read_network,
    save_network,
)
from sticker_uq.perception.novelty.regions import scene_novelty
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.datasets.abnormal_shapes import add_shapes
from sticker_uq_lab.rendering import render, sample_scene
from sticker_uq_lab.training.novelty_training import epochs_for, learn_network, mobile_blocks
from test.helpers.models import picture, tiny_detector
from test.perception.novelty.test_network import PACKAGED, UNIT


@pytest.fixture(scope="module")
def detector() -> StochasticDetector:
    return load_detector(DetectorSettings())


@pytest.fixture(scope="module")
def network(detector: StochasticDetector) -> NoveltyNetwork:
    found = packaged_network(detector)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> list[LabelledImage]:
    return read_coco(rendered(tmp_path_factory.mktemp("clean"), range(12), (320, 240), "png"))


def test_packaged_network_finds_shapes_on_unseen_scenes(network):
    rng = np.random.default_rng(0)
    found = []
    for seed in range(12):
        if len(found) == 5:
            break
        scene = render(sample_scene(seed, stickers=3))
        shaped, covered = add_shapes(scene.image, scene.boxes, rng)[:2]
        if (covered > 127).sum() < 800:
            continue
        before, after = (scene_novelty(novelty_maps(network, i)) for i in (scene.image, shaped))
        found.append(after > before)
    assert len(found) == 5
    assert np.mean(found) >= 0.8


def test_a_network_is_learned_kept_and_read_again(detector, items, tmp_path):
    losses: list[float] = []
    start = mobile_blocks(detector)
    network = learn_network(items, start, 3, 1, lambda pictures, loss: losses.append(loss), size=(256, 192))
    assert len(losses) == 6
    assert all(math.isfinite(loss) for loss in losses)
    assert losses[-1] < losses[0]

    path = tmp_path / "network.safetensors"
    with pytest.raises(InvalidInput, match="reference"):
        save_network(network, detector, path)
    network.reference.set(*UNIT)
    network.limit = 0.5
    save_network(network, detector, path)
    assert load_network(path).limit == 0.5
    kept = novelty_maps(load_network(path), picture())
    direct = novelty_maps(network, picture())
    np.testing.assert_allclose(kept.foreign, direct.foreign, atol=0.02)  # half precision
    assert kept.boxes.shape == (len(kept.scores), 4)
    assert (np.diff(kept.scores) <= 0).all()
    assert network_input([picture()]).shape == (1, 3, *picture().shape[:2])

    more: list[float] = []
    learn_network(items, read_network(path), 1, 2, lambda pictures, loss: more.append(loss), size=(256, 192))
    assert more[0] < losses[0]  # it resumes

    larger = learn_network(items[:2], read_network(path), 1, size=(512, 384))
    larger.reference.set(*UNIT)
    save_network(larger, detector, path)
    assert load_network(path).size == (512, 384)
    assert 4 * kept.foreign.size == novelty_maps(load_network(path), picture()).foreign.size
    broken = tmp_path / "broken.safetensors"
    larger.size = (4, 0)
    save_network(larger, detector, broken)
    with pytest.raises(InvalidInput, match=r"size \[4, 0\] cannot be used"):
        load_network(broken)

    with pytest.raises(InvalidInput, match="no novelty network"):
        load_network(str(packaged_weights(PACKAGED)))
    with pytest.raises(InvalidInput, match="no pictures"):
        learn_network([], start)
    with pytest.raises(InvalidInput, match="no MobileNetV3"):
        mobile_blocks(tiny_detector("ssd300_vgg16"))


def test_a_network_learns_from_pictures_of_several_sizes(detector, items, tmp_path):
    upright = read_coco(rendered(tmp_path, range(3), (240, 320), "png"))
    sizes: list[int] = []
    network = learn_network(
        [*items[:9], *upright],
        mobile_blocks(detector),
        1,
        on_batch=lambda pictures, loss: sizes.append(pictures),
        size=(256, 192),
    )
    assert sorted(sizes) == [1, 3, 8]  # 9 wide pictures in batches of 8, and the 3 upright ones
    assert all(torch.isfinite(p).all() for p in network.parameters())


@pytest.mark.parametrize(("pictures", "epochs"), [(40, 80), (131, 24), (1000, 4), (1200, 3), (5000, 3)])
def test_few_pictures_take_more_epochs(pictures, epochs):
    assert epochs_for(pictures) == epochs
