# SPDX-License-Identifier: Apache-2.0
"""The last line of a test run says what was not run, and what to install for it."""

from types import SimpleNamespace
from typing import Any

import pytest

from test import conftest
from test.test_layout import ROOT

BROWSER = "no Chromium on this machine: apt install chromium"


class Terminal:
    def __init__(self, *reasons: str, processes: int = 1) -> None:
        self.lines: list[str] = []
        self._skipped = [
            SimpleNamespace(nodeid=f"file.py::{number}", longrepr=("file.py", 1, f"Skipped: {reason}"))
            for number, reason in enumerate(reasons)
        ] * processes

    def getreports(self, name: str) -> list[Any]:
        return self._skipped if name == "skipped" else []

    def write_line(self, line: str) -> None:
        self.lines.append(line)


def summary(*reasons: str, paths: tuple[str, ...] = ("test",), processes: int = 1) -> list[str]:
    terminal = Terminal(*reasons, processes=processes)
    config: Any = SimpleNamespace(args=list(paths), invocation_params=SimpleNamespace(dir=ROOT))
    conftest.pytest_terminal_summary(terminal, config)
    return terminal.lines


@pytest.fixture(autouse=True)
def _by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "NOT_RUN", "")
    monkeypatch.setattr(conftest, "HAS_LAUNCH_TESTING", True)


def test_nothing_is_said_when_all_was_run() -> None:
    assert summary() == []


def test_tests_with_the_same_reason_are_counted() -> None:
    assert summary(BROWSER, BROWSER, "no CUDA device") == [f"not run: 2 x {BROWSER}; 1 x no CUDA device"]


def test_a_file_that_every_process_skips_is_counted_once() -> None:
    assert summary(BROWSER, processes=3) == [f"not run: 1 x {BROWSER}"]


@pytest.mark.parametrize("paths", [("test",), (".",), ("test/cli", "test/")])
def test_missing_launch_tests_are_named_where_they_were_asked_for(
    monkeypatch: pytest.MonkeyPatch, paths: tuple[str, ...]
) -> None:
    monkeypatch.setattr(conftest, "HAS_LAUNCH_TESTING", False)
    assert summary(paths=("test/faults",)) == []
    assert summary(paths=("test/launch/test_launch.py::test_a",)) == []  # these are collected, and fail
    (line,) = summary(paths=paths)
    assert line.startswith("not run: test/launch: no launch_testing: apt install ros-jazzy-launch-testing")


def test_several_runs_share_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(conftest, "NOT_RUN", str(tmp_path / "not_run"))
    assert summary(BROWSER) + summary("no CUDA device") == []
    assert (tmp_path / "not_run").read_text() == f"1 x {BROWSER}\n1 x no CUDA device\n"
