# SPDX-License-Identifier: Apache-2.0
"""A node without a lifecycle tells how it is on /diagnostics too."""

from sticker_uq.nodes.recorder.node import Recorder
from sticker_uq.testing.bench import overrides


def test_the_recorder_tells_what_it_has_lost(bench, tmp_path):
    reports = bench.diagnostics()
    recorder = bench.add(Recorder(parameter_overrides=overrides(bag=str(tmp_path / "bag"))))
    bench.until(lambda: reports.value("recorder: recording", "lost") == "0", "the recorder's diagnostics")
    recorder.lost = 3
    bench.until(lambda: reports.value("recorder: recording", "lost") == "3", "the loss")
