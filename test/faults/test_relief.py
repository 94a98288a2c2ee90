# SPDX-License-Identifier: Apache-2.0
"""A cell that requires relief, whose sensor is silent, lies or is not alone."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sensor_msgs.msg import Image

from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.images import map_to_image
from sticker_uq.testing.bench import Bench
from sticker_uq.testing.scripted_detector import Seen
from sticker_uq_msgs.msg import GateState
from sticker_uq_msgs.srv import ResolveIntervention
from test.faults.conftest import CALM_HZ, Cells
from test.helpers.fault_cell import FaultCell

RAISED = np.full((480, 640), 1e-4)


class Sensor:
    """Publishes a map 4 times a second, once it has one: each has more than a megabyte."""

    def __init__(self, bench: Bench) -> None:
        self.heights: np.ndarray | None = None
        self.changed: Callable[[Image], Any] = lambda message: None
        self._node = bench.probe
        self._publisher = self._node.create_publisher(Image, "/relief/relief", qos.IMAGES)
        self._timer = self._node.create_timer(0.25, self._measure)

    def _measure(self) -> None:
        if self.heights is not None:
            message = map_to_image(self.heights, self._node.get_clock().now().to_msg(), "camera")
            self.changed(message)
            self._publisher.publish(message)

    def close(self) -> None:
        self._node.destroy_timer(self._timer)
        self._node.destroy_publisher(self._publisher)


@pytest.fixture
def sensor(package_bench: tuple[Bench, Path]) -> Iterator[Sensor]:
    made = Sensor(package_bench[0])
    yield made
    made.close()


@pytest.fixture
def cell(package_bench: tuple[Bench, Path], cells: Cells) -> Iterator[FaultCell]:
    """It shows a sticker, of which nothing has been measured; the cell of the other tests does not run beside it."""
    bench, folder = package_bench
    cells.stop()
    required = {"min_relief_mm": 0.05, "max_relief_age_s": 0.5}
    with FaultCell(bench, folder / "relief", namespace="relief", **required) as made:
        made.camera.rate(CALM_HZ)
        made.camera.shows(Seen.STICKER)
        yield made
        made.check_motion()
        made.check_audit()


def test_relief_absent_late_of_another_place_or_flat(cell, sensor):
    def is_asked(code: str) -> None:
        # a map counts for half a second, so that the question may be the one of before once more
        for _ in range(20):
            gate = cell.until_gate(GateState.STATE_INTERVENTION)
            taken = cell.answer(ResolveIntervention.Request.SCENE_RESCAN).accepted
            if taken and code in [one.code for one in gate.details]:
                return
        raise AssertionError(f"{code} is no reason: {gate.details}")

    is_asked("relief_missing")
    sensor.heights = RAISED * np.nan
    is_asked("relief_unmeasured")
    sensor.heights = RAISED[:240]
    is_asked("relief_elsewhere")
    sensor.heights = RAISED * 0.1
    is_asked("relief_flat")
    sensor.changed = lambda message: setattr(message, "encoding", "mono16")
    sensor.heights = RAISED
    is_asked("relief_missing")
    sensor.changed = lambda message: setattr(message.header.stamp, "sec", message.header.stamp.sec - 5)
    is_asked("relief_missing")
    other = Sensor(cell.bench)
    is_asked("relief_missing")
    sensor.changed = lambda message: None
    is_asked("relief_missing")
    assert not any(gate.open for gate in cell.gates)
    other.close()
    said, done = len(cell.gates), len(cell.steps)

    def moves() -> bool:
        """Some time after the other sensor has gone; asked until then."""
        if cell.gates[-1].state == GateState.STATE_INTERVENTION:
            cell.answer(ResolveIntervention.Request.SCENE_RESCAN)
        return len(cell.steps) > done + 2 and any(gate.open for gate in cell.gates[said:])

    cell.until(moves, "a permit and an arm that moves")
