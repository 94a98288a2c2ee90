# SPDX-License-Identifier: Apache-2.0
"""A clock that has not started, jumps or stands still; the cell takes its time from /clock."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sticker_uq.gate import BlockReason
from sticker_uq.testing.bench import Bench
from sticker_uq.testing.clock import SimulatedClock
from test.helpers.fault_cell import FaultCell


@pytest.fixture(scope="module")
def clocked(package_bench: tuple[Bench, Path]) -> Iterator[tuple[FaultCell, SimulatedClock]]:
    """A second cell in a namespace of its own, whose clock the test holds."""
    bench, folder = package_bench
    clock = SimulatedClock(bench)
    with FaultCell(bench, folder / "clocked", now_ns=clock.now_ns, namespace="clocked") as cell:
        yield cell, clock


@pytest.fixture
def cell(clocked: tuple[FaultCell, SimulatedClock]) -> Iterator[FaultCell]:
    made, _ = clocked
    yield made
    made.works()
    made.check_motion()
    made.check_audit()


def test_simulated_time_that_has_not_started(cell, clocked):
    """Time 0: whatever the camera shows, the gate stays closed; it opens by itself once the time runs."""
    cell.camera.shows()
    cell.until_gate(reason=BlockReason.CLOCK, code="clock_zero")
    assert not any(gate.open for gate in cell.gates)
    clocked[1].runs = True


def test_clock_jumps_back(cell, clocked):
    clocked[1].jump(-60.0)
    cell.until_gate(reason=BlockReason.CLOCK)


def test_clock_jumps_forward(cell, clocked):
    """Every permit and every picture has become old at once."""
    clocked[1].jump(60.0)
    cell.until_gate()


def test_clock_stands_still(cell, clocked):
    """Nothing grows old on a clock that stands: steady time is what closes."""
    clocked[1].stand(True)
    cell.until_gate(code="clock_stands")
    clocked[1].stand(False)
