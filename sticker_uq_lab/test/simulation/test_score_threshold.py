# SPDX-License-Identifier: Apache-2.0
"""The arm without a gate peels what scores high enough, as often as it sees it, and what is no sticker only once."""

import numpy as np
import pytest

from sticker_uq.scene import Detections
from sticker_uq_lab.simulation import score_threshold
from sticker_uq_lab.simulation.simulated_cell import SimulatedCell, SimulationSettings

LAPTOPS = SimulationSettings(hard=True, laptops=2, failure_rate=0.0, width_px=320, height_px=240)
LID = np.array([0.0, 0.0, 9.0, 9.0], np.float32)


class KnowsAll:
    """A detector that sees the stickers of the simulated cell, and one more on the bare lid, each with a score of 0.8."""

    def __init__(self, cells):
        self._cells = cells

    def encode(self, image):
        return image

    def detect(self, _):
        boxes = np.array([*self._cells[-1].missed_stickers([]), LID], np.float32)
        return Detections(boxes, np.tile(np.array([0.1, 0.1, 0.8], np.float32), (len(boxes), 1)))


@pytest.mark.parametrize(("least_score", "wrong"), [(0.8, 1), (0.81, 0)])
def test_it_peels_what_scores_high_enough(monkeypatch, least_score, wrong):
    cells = []

    def made(settings):
        cells.append(SimulatedCell(settings))
        return cells[-1]

    monkeypatch.setattr(score_threshold, "SimulatedCell", made)
    records = score_threshold.peel_by_score(LAPTOPS, KnowsAll(cells), least_score)
    assert [record.wrong for record in records] == [wrong, wrong]
    assert all(record.handed_over for record in records)
    assert all((record.left == 0) == bool(wrong) for record in records)
