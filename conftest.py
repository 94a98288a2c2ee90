# SPDX-License-Identifier: Apache-2.0
"""What every test needs, here and of the lab: a set-up environment, a ROS domain of its own, numeric tests that repeat."""

import contextlib
import ctypes
import functools
import gc
import importlib
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

with contextlib.suppress(
    ImportError
):  # before pytest takes the folder of that name for it, which has its tests
    import sticker_uq_lab  # noqa: F401

ROOT = Path(__file__).parent
LAUNCH_TESTS = ROOT / "sticker_uq_lab" / "test" / "launch"
SHARING = (ROOT / "test" / "faults", ROOT / "test" / "console" / "page")  # a cell, a browser
NOT_RUN = os.environ.pop("STICKER_UQ_NOT_RUN", "")  # not for the runs of pytest that tests start
# From long to short. They start first: no process is left with one of them when the others are done.
LONG = (
    "faults", "console/page", "lab/cli/test_qualify.py", "detection/test_gpu.py", "lab/attacks/test_white_box.py",
    "lab/cli/test_stopping.py", "lab/cli/test_demo.py", "lab/test_documented_commands.py", "lab/training/test_training.py",
    "detection/test_passes.py", "lab/test_benchmark_hard.py", "gate/test_exploration.py", "detection/test_weights.py",
    "cli/test_replay_cells.py", "lab/studies/detectors/test_running.py", "lab/test_benchmark_gpu.py",
    "perception/dil/test_dil.py", "detection/test_devices.py", "lab/cli/test_improve.py", "perception/dil/test_saliency.py",
    "perception/test_pipeline.py",
    "lab/test_documentation.py", "lab/attacks/test_dpatch.py", "calibration/test_fitting.py",
    "lab/studies/monitors/test_task_networks.py", "cli/test_main.py", "lab/robustness/test_running.py",
    "lab/studies/monitors/test_study.py", "evaluation/replay/test_replay.py", "lab/training/test_unit_variance.py",
    "perception/monitors/test_panel.py", "perception/novelty/test_network.py", "lab/test_benchmark_world.py",
    "nodes/common/test_lifecycle.py",
)  # fmt: skip
hypothesis.settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("repeatable")


def _importable(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


HAS_LAUNCH_TESTING = _importable("launch_testing")


def pytest_configure(config: pytest.Config) -> None:
    for module in ("rclpy", "sticker_uq_msgs.msg"):
        if not _importable(module):
            pytest.exit(
                f"{module} cannot be imported: run scripts/test, or scripts/run python -m pytest; "
                "in a colcon workspace build it and source its setup file first",
                returncode=pytest.ExitCode.USAGE_ERROR,
            )


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if collection_path == LAUNCH_TESTS and not HAS_LAUNCH_TESTING else None


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What was not run and why, in one line, or in the file that STICKER_UQ_NOT_RUN names for the line of several runs."""
    # each process of pytest-xdist collects every file and reports one that is skipped as a whole
    skipped = {report.nodeid: report.longrepr[2] for report in terminalreporter.getreports("skipped")}
    reasons = Counter(reason.removeprefix("Skipped: ") for reason in skipped.values())
    left_out = [f"{count} x {reason}" for reason, count in reasons.items()]
    asked_for = (config.invocation_params.dir / argument.partition("::")[0] for argument in config.args)
    if not HAS_LAUNCH_TESTING and any(path in LAUNCH_TESTS.parents for path in asked_for):
        left_out.append(
            "sticker_uq_lab/test/launch: no launch_testing: apt install ros-jazzy-launch-testing ros-jazzy-ros2launch"
        )
    if NOT_RUN:
        with open(NOT_RUN, "a", encoding="utf-8") as lines:
            lines.writelines(f"{line}\n" for line in left_out)
    elif left_out:
        terminalreporter.write_line(f"not run: {'; '.join(left_out)}")


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the marks in its own hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With ``-n N --dist loadgroup`` a file's tests stay in one process, those that share more than a file's do, too."""

    @functools.cache
    def group(path: Path) -> str:
        together = next((folder for folder in SHARING if folder in path.parents), path)
        name = together.relative_to(ROOT).as_posix()
        return name.replace("sticker_uq_lab/test/", "lab/").removeprefix("test/")

    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(group(item.path), len(LONG)))
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group(item.path)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """What is imported stays: the garbage collector need not walk through half a million objects again and again."""
    gc.disable()
    collected = yield
    gc.freeze()
    gc.enable()
    return collected


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """When a file is done, the process gives back what its models took, unless the next file would make them again."""
    yield
    if nextitem is not None and nextitem.path == item.path:
        return
    helpers = sys.modules.get("test.helpers.models")
    if helpers is not None:
        names = vars(nextitem.module).values() if isinstance(nextitem, pytest.Function) else ()
        if not any(named is helpers.tiny_detector for named in names):
            helpers.forget_detectors()
    gc.collect()
    gc.freeze()  # what it imported and keeps stays too
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # freed weights and gradients would stay with the process


@pytest.fixture
def ros_domain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[int]:
    """A ROS_DOMAIN_ID that no other process on this machine uses; discovery and logs stay local.

    Set in the environment before the test starts, so that its contexts and child processes inherit it.
    """
    from sticker_uq.cell.transport import free_domain
    from sticker_uq.testing.bench import local_environment

    with free_domain() as domain:
        for name, value in local_environment(domain, tmp_path / "ros_log").items():
            monkeypatch.setenv(name, value)
        # busy machines end processes slowly
        monkeypatch.setattr("sticker_uq.cell.runner.STOP_TIMEOUT_S", 60.0)
        yield domain


@pytest.fixture(scope="module")
def small_packaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """The process of the test finds networks packaged that have a smaller input: a fraction of the work.

    Their files.
    """
    from sticker_uq.detection import detector, weights
    from sticker_uq.detection.names import DEFAULT_MODEL
    from sticker_uq.perception.novelty import network
    from test.helpers.models import small_novelty, small_weights

    folder = tmp_path_factory.mktemp("packaged")
    small_weights(folder, 384, close_ups=True)
    small = small_weights(folder, 480)
    with pytest.MonkeyPatch.context() as patch:
        for module in (detector, weights):
            patch.setattr(module, "packaged_weights", {DEFAULT_MODEL: small}.get)
        novelty = small_novelty(folder)
        patch.setattr(network, "packaged_file", {DEFAULT_MODEL: novelty}.get)
        yield small, novelty


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Threads inside an operation cost more than they bring on small pictures, and wait long for each other on a busy machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
