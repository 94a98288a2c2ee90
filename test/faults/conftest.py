# SPDX-License-Identifier: Apache-2.0
"""One cell for all faults: each test leaves it working, which is part of what it tests."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sticker_uq.cell.transport import free_domain
from sticker_uq.testing.bench import Bench, local_environment, run_bench
from test.helpers.fault_cell import HASTY_S, PATIENT_S, FaultCell

CALM_HZ = 5.0
"""A quarter of the camera's own: the processes of this cell take a tenth of the suite's time."""
TESTS_PER_HOLD = 3
"""A hold forgets failed removals: ten at one place end with a question, and a busy machine adds to those of the tests."""


@pytest.fixture(scope="package")
def package_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bench, Path]]:
    """A probe on a domain of its own, and a folder."""
    folder = tmp_path_factory.mktemp("cell")
    with pytest.MonkeyPatch.context() as patch, free_domain() as domain:
        for name, value in local_environment(domain, folder / "ros_log").items():
            patch.setenv(name, value)
        with run_bench() as bench:
            yield bench, folder


class Cells:
    """The cell that the tests share. One that has failed a test is stopped: the next test gets a new one, and a fair trial."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self._bench, self._folder = bench, folder
        self._made = self._given = 0
        self._running = ExitStack()
        self._cell: FaultCell | None = None

    def current(self) -> FaultCell:
        """A cell whose arm moves: a new one, or as the last test has left it."""
        new = self._cell is None
        if self._cell is None:
            self._made += 1
            folder = self._folder / f"cell_{self._made}"
            folder.mkdir()
            self._cell = self._running.enter_context(FaultCell(self._bench, folder))
            self._cell.camera.rate(CALM_HZ)
        self._given += 1
        if new or self._given % TESTS_PER_HOLD == 0:
            self._cell.hold(True)
            self._cell.hold(False)
            self._cell.works()
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
