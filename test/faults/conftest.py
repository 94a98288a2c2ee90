# SPDX-License-Identifier: Apache-2.0
"""One cell for all faults: each test leaves it working, which is part of what it tests."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sticker_uq.cell.transport import free_domain
from sticker_uq.testing.bench import Bench, local_environment, running_bench
from test.helpers.fault_cell import HASTY_S, PATIENT_S, FaultCell

CALM_HZ = 5.0
"""A quarter of the camera's own: the processes of this cell take a tenth of the suite's time."""


@pytest.fixture(scope="package")
def package_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bench, Path]]:
    """A probe on a domain of its own, and a folder."""
    folder = tmp_path_factory.mktemp("cell")
    with pytest.MonkeyPatch.context() as patch, free_domain() as domain:
        for name, value in local_environment(domain, folder / "ros_log").items():
            patch.setenv(name, value)
        with running_bench() as bench:
            yield bench, folder


class Cells:
    """The cell that the tests share. One that has failed a test is stopped: the next test gets a new one, and a fair trial."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self._bench, self._folder = bench, folder
        self._made = 0
        self._running = ExitStack()
        self._cell: FaultCell | None = None

    def current(self) -> FaultCell:
        if self._cell is None:
            self._made += 1
            folder = self._folder / f"cell_{self._made}"
            folder.mkdir()
            self._cell = self._running.enter_context(FaultCell(self._bench, folder))
            self._cell.camera.rate(CALM_HZ)
        return self._cell

    def stop(self) -> None:
        self._cell = None
        self._running.close()


@pytest.fixture(scope="package")
def cells(package_bench: tuple[Bench, Path]) -> Iterator[Cells]:
    made = Cells(*package_bench)
    yield made
    made.stop()


@pytest.fixture
def cell(cells: Cells) -> Iterator[FaultCell]:
    """A cell whose arm moves; afterwards it does again, has never moved without a permit, and its audit log is whole."""
    try:
        cell = cells.current()
        cell.hold(True)  # a hold forgets the attempts of the tests before
        cell.hold(False)
        cell.works()
        yield cell
        cell.works()
        cell.check_motion()
        cell.check_audit()
    except AssertionError:
        cells.stop()
        raise


@pytest.fixture
def hasty(cell: FaultCell) -> Iterator[FaultCell]:
    """The cell with a supervisor that soon faults when the arm does not answer."""
    cell.quiet()
    cell.arm_timeouts(HASTY_S)
    cell.hold(False)
    cell.works()
    yield cell
    cell.quiet()
    cell.arm_timeouts(PATIENT_S)
    cell.hold(False)
