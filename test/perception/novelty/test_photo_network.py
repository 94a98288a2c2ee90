# SPDX-License-Identifier: Apache-2.0
"""The network that has seen photographs: its crops, its maps and its file."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.perception.novelty import photo_network
from sticker_uq.perception.novelty.photo_network import (
    CHANNELS,
    FEATURES,
    SIDE,
    load_photo_network,
    photo_crop,
    photo_input,
    pool_maps,
    read_photo_network,
)
from sticker_uq.scene import InvalidInput

EDGE = st.floats(-80, 260)


@given(
    st.tuples(EDGE, EDGE, EDGE, EDGE), st.integers(8, 200), st.integers(8, 200), st.sampled_from([32, SIDE])
)
def test_a_crop_of_any_box_is_whole_and_shows_nothing_but_the_picture(box, width, height, side):
    image = np.random.default_rng(0).integers(90, 110, (height, width, 3)).astype(np.uint8)
    x1, y1, x2, y2 = box
    found = photo_crop(image, np.array([min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)]), side)
    assert found.shape == (side, side, 3)
    assert found.min() >= 90
    assert found.max() < 110


def test_a_crop_has_its_box_in_the_middle_half():
    image = np.zeros((400, 400, 3), np.uint8)
    image[150:250, 120:220] = 255
    inside = photo_crop(image, np.array([120, 150, 220, 250], np.float32))[..., 0] > 127
    rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
    for found in (rows, columns):
        assert found[0] == pytest.approx(SIDE / 4, abs=3)
        assert found[-1] == pytest.approx(3 * SIDE / 4, abs=3)


def test_ready_for_run_time_it_has_the_same_features():
    crops = np.random.default_rng(0).integers(0, 256, (2, SIDE, SIDE, 3)).astype(np.uint8)
    with torch.inference_mode():
        saved = read_photo_network()(photo_input(crops))
        ready = load_photo_network()(photo_input(crops))
    assert [m.shape[1] for m in saved] == list(CHANNELS)
    assert [m.shape[-1] for m in saved] == [SIDE // 8, SIDE // 16, SIDE // 32]
    for a, b in zip(saved, ready, strict=True):
        torch.testing.assert_close(a, b, atol=2e-3, rtol=1e-3)
    assert pool_maps(ready).shape == (2, FEATURES)
    assert pool_maps(ready).isfinite().all()


@pytest.mark.parametrize("side", [32, 33, 38, 75])
def test_strided_layers_pad_as_tensorflow_does(side):
    layer = photo_network.PhotoNetwork().features[0][0]
    given = torch.randn(1, 3, side, side)
    ours = layer(given)
    # SAME: as many outputs as steps, what is missing added after the picture first
    missing = max((-(-side // 2) - 1) * 2 + 3 - side, 0)
    before, after = missing // 2, missing - missing // 2
    padded = torch.nn.functional.pad(given, (before, after, before, after))
    torch.testing.assert_close(ours, torch.nn.functional.conv2d(padded, layer.weight, stride=2))


def test_another_file_is_refused(tmp_path):
    from sticker_uq.detection.weights import packaged_weights

    with pytest.raises(InvalidInput, match="is no photo network"):
        read_photo_network(packaged_weights("ssdlite320_mobilenet_v3_large"))
    assert photo_network.PACKAGED.stat().st_size < 12 << 20
