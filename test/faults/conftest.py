"""One cell for all faults: each test leaves it working, which is part of what it tests."""

from collections.abc import Iterator
from pathlib import Path

import domain_coordinator
import pytest

from sticker_uq.testing.bench import Bench, local_environment, running_bench
from sticker_uq.testing.fault_cell import HASTY_S, PATIENT_S, FaultCell

CALM_HZ = 10.0
"""Half the camera's own: the processes of this cell take a tenth of the suite's time."""


@pytest.fixture(scope="package")
def package_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bench, Path]]:
    """A probe on a domain of its own, and a folder."""
    folder = tmp_path_factory.mktemp("cell")
    with pytest.MonkeyPatch.context() as patch, domain_coordinator.domain_id() as domain:
        for name, value in local_environment(domain, folder / "ros_log").items():
            patch.setenv(name, value)
        with running_bench() as bench:
            yield bench, folder


@pytest.fixture(scope="package")
def running_cell(package_bench: tuple[Bench, Path]) -> Iterator[FaultCell]:
    bench, folder = package_bench
    with FaultCell(bench, folder) as cell:
        cell.camera.rate(CALM_HZ)
        yield cell


@pytest.fixture
def cell(running_cell: FaultCell) -> Iterator[FaultCell]:
    """A cell whose arm moves; afterwards it does again, has never moved without a permit, and its audit log is whole."""
    running_cell.quiet()
    running_cell.hold(False)
    running_cell.works()
    yield running_cell
    running_cell.works()
    running_cell.check_motion()
    running_cell.check_audit()


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
