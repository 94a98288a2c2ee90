# SPDX-License-Identifier: Apache-2.0
import numpy as np

from benchmarks.world import CELL, ROOT, quantiles, read
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
