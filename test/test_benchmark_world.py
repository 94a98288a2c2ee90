# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from benchmarks.world import CELL, ROOT, Found, _counts, _rates, best_threshold, quantiles, read
from sticker_uq.detection import DetectorSettings, load_detector
from sticker_uq.novelty.network import packaged_for, read_network


def test_rendered_boxes_are_as_large_as_those_of_the_study(one_thread):
    measured = quantiles(range(5_000_000, 5_000_120), (408, 342))
    for kind, sides in CELL.items():
        for side, wanted in sides.items():
            np.testing.assert_allclose(measured[kind][side], wanted, rtol=0.2, err_msg=f"{kind}, {side}")


def test_measured_weights_are_the_packaged_ones():
    measured = read(ROOT / "benchmarks/results/world.json")["weights"]
    detector = load_detector(DetectorSettings())
    assert measured["packaged"]["checksum"] == detector.weights_hash
    file = packaged_for(detector)
    assert file is not None
    network = read_network(file)
    assert not network.quality.weakness
    assert network.quality.objects_weakness


def test_stickers_are_counted_by_score_and_size():
    found = [
        Found(
            np.array([1.0, 3.0]), np.array([0.9, -1.0]), np.array([1.1]), np.array([0.9]), np.array([True])
        ),
        Found(
            np.array([0.9]),
            np.array([0.4]),
            np.array([0.9, 3.0]),
            np.array([0.4, 0.3]),
            np.array([True, False]),
        ),
    ]
    assert _counts(found, 0.35, small=False).tolist() == [[1, 2, 1, 1], [1, 1, 1, 1]]
    assert _counts(found, 0.35, small=True).tolist() == [[1, 1, 1, 1], [1, 1, 1, 1]]
    assert best_threshold(found) == pytest.approx(0.4)
    rates = _rates(_counts(found, 0.5, small=False))
    assert (rates["stickers"], rates["recall"][0], rates["precision"][0]) == (
        3,
        pytest.approx(1 / 3, abs=1e-4),
        1.0,
    )
    assert _rates(_counts(found, 0.95, small=False))["precision"] is None
