"""The simulated cell as a node."""

from __future__ import annotations

import errno
import json
import threading
from pathlib import Path

import pytest
import rclpy

from sticker_uq.nodes.cell_sim import RecordKeeper, SimulatedMotion
from sticker_uq.nodes.conversions import box_to_msg
from sticker_uq.nodes.simulation import SimulatedCell, SimulationSettings
from sticker_uq_msgs.action import RemoveSticker
from test.helpers.ros import Bench


def test_a_full_disk_does_not_fail_the_removal(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "record.json"
    settings = SimulationSettings(seed=2, width=320, height=240, failure_rate=0.0, record_file=str(path))
    cell = SimulatedCell(settings)
    stickers = cell.missed([])
    assert len(stickers) >= 3
    node = bench.add(rclpy.create_node("cell_sim", enable_rosout=False))
    motion = SimulatedMotion(node, cell, threading.Lock(), RecordKeeper(node, cell))

    def peel(number: int) -> None:
        phases = [step.phase for step in motion.steps(RemoveSticker.Goal(box=box_to_msg(stickers[number])))]
        assert phases[-1] == RemoveSticker.Feedback.PHASE_RETREAT

    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(cell, "write_record", full)
        peel(0)
        peel(1)
    assert cell.record.removed == 2
    assert not path.exists()
    assert capfd.readouterr().err.count("No space left on device") == 1
    peel(2)
    assert json.loads(path.read_text())[0]["removed"] == 3
