# SPDX-License-Identifier: Apache-2.0
"""The nodes without a lifecycle tell how they are on /diagnostics too."""

from sticker_uq.nodes.recorder.node import Recorder
from sticker_uq.testing.bench import overrides
from sticker_uq_lab.nodes.cell_sim import CellSim


def test_the_simulated_cell_tells_which_laptop_it_holds(bench):
    reports = bench.diagnostics()
    bench.add(CellSim(parameter_overrides=overrides(width_px=160, height_px=120, seed=7)))
    bench.until(lambda: reports.value("cell_sim: cell", "laptop") == "laptop-7-1", "the cell's diagnostics")
    assert reports.value("cell_sim: cell", "wrongly_touched") == "0"


def test_the_recorder_tells_what_it_has_lost(bench, tmp_path):
    reports = bench.diagnostics()
    recorder = bench.add(Recorder(parameter_overrides=overrides(bag=str(tmp_path / "bag"))))
    bench.until(lambda: reports.value("recorder: recording", "lost") == "0", "the recorder's diagnostics")
    recorder.lost = 3
    bench.until(lambda: reports.value("recorder: recording", "lost") == "3", "the loss")
