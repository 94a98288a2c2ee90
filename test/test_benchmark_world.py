# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from benchmarks.world import CELL, ROOT, _boxes, quantiles, read
from sticker_uq.detection import DetectorSettings, load_detector
from sticker_uq.novelty.network import packaged_for, read_network
from sticker_uq.scene import ObjectClass


def test_rendered_boxes_are_as_large_as_those_of_the_study(one_thread):
    measured = quantiles(range(5_000_000, 5_000_120), (408, 342))
    for kind, sides in CELL.items():
        for side, wanted in sides.items():
            np.testing.assert_allclose(measured[kind][side], wanted, rtol=0.2, err_msg=f"{kind}, {side}")


def test_rendered_stickers_are_as_many_as_long_and_as_close_as_those_of_the_study():
    """Counts, also of logos; quartiles of long / short; share with a neighbour within 10 px of 2448."""
    wanted = {"top": (5, 20, (1.03, 1.13, 1.24), 0.25), "open": (4.5, 9, (1.04, 1.19, 1.33), 0.31)}
    pictures = [_boxes(seed, (408, 342)) for seed in range(5_000_000, 5_000_120)]
    for view, (median, most, ratios, near) in wanted.items():
        own = [(boxes, labels == ObjectClass.STICKER) for name, boxes, labels in pictures if name == view]
        logos = [int((labels == ObjectClass.LOGO).sum()) for name, _, labels in pictures if name == view]
        # one of the two that an open laptop has at least may lie under something
        assert (min(logos), np.median(logos), max(logos)) == ((1, 1, 2) if view == "top" else (1, 3, 4))
        counts = [int(stickers.sum()) for _, stickers in own]
        assert np.median(counts) == pytest.approx(median, abs=1)
        assert 0.6 * most <= max(counts) <= most
        sides = np.concatenate([(boxes[:, 2:] - boxes[:, :2])[stickers] for boxes, stickers in own])
        found = np.quantile(sides.max(axis=1) / sides.min(axis=1), (0.25, 0.5, 0.75))
        np.testing.assert_allclose(found, ratios, rtol=0.2, err_msg=view)
        close = []
        for boxes, stickers in own:
            wide = boxes + np.array([-5, -5, 5, 5])
            met = (
                np.maximum(wide[:, None, :2], wide[:, :2]) <= np.minimum(wide[:, None, 2:], wide[:, 2:])
            ).all(-1)
            close += (met.sum(axis=1) > 1)[stickers].tolist()
        assert np.mean(close) == pytest.approx(near, abs=0.1)


def test_measured_weights_are_the_packaged_ones():
    measured = read(ROOT / "benchmarks/results/world.json")["weights"]
    detector = load_detector(DetectorSettings())
    assert measured["packaged"]["checksum"] == detector.weights_hash
    file = packaged_for(detector)
    assert file is not None
    network = read_network(file)
    assert not network.quality.weakness
    assert network.quality.objects_weakness
