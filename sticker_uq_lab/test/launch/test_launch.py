# SPDX-License-Identifier: Apache-2.0
"""The launch files as a person uses them."""

import os
import runpy
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from sticker_uq.cell.processes import CellOptions, ProcessSpec
from test.helpers.cell import write_parameters

pytestmark = pytest.mark.timeout(400)  # launch and up to three processes start
ROOT = Path(__file__).parents[3]


def _run(*command: str) -> tuple[int, str]:
    """Exit status and output of a command at the repository's root."""
    environment = {**os.environ, "RCUTILS_COLORIZED_OUTPUT": "0"}
    finished = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=390
    )  # fmt: skip
    return finished.returncode, finished.stdout


def _launch(*arguments: str) -> tuple[int, str]:
    return _run("ros2", "launch", "sticker_uq", *arguments)


def test_the_simulated_cell_comes_up_and_ends_in_order(ros_domain, tmp_path):
    status, output = _run(
        sys.executable, "-m", "launch_testing.launch_test", "sticker_uq_lab/test/launch/cell_scenario.py",
        f"params_file:={write_parameters(tmp_path)}",
    )  # fmt: skip
    assert status == 0, output


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("passes:=0", "argument passes='0': expected at least 1"),
        ("weights:=nowhere.safetensors", "weights 'nowhere.safetensors': no such file"),
        ("polcy:=strict.yaml", "unknown argument polcy:=strict.yaml, did you mean policy?"),
    ],
)
def test_an_unusable_argument_starts_nothing_and_fails_with_one_line(ros_domain, argument, reason):
    status, output = _launch("cell.launch.py", argument)
    assert status == 1
    assert output.count("ERROR") == 1
    assert reason in output
    assert "process started" not in output
    assert "Traceback" not in output


def test_a_node_that_dies_fails_the_launch_with_its_reason(ros_domain, tmp_path):
    status, output = _launch("detector.launch.py", f"params_file:={write_parameters(tmp_path, passes=0)}")
    assert status == 1
    assert "parameter passes = 0: expected an integer from 1 to 200" in output
    assert "detector DIED with exit code 1" in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("file", "missing"),
    [
        ("cell.launch.py", ()),
        ("detector.launch.py", ("sim", "policy", "console", "record", "audit", "source")),
    ],
)
def test_arguments_are_listed_with_their_descriptions(ros_domain, file, missing):
    status, output = _launch(file, "--show-args")
    assert status == 0
    for name, info in CellOptions.model_fields.items():
        listed = f"'{name}':\n        {info.description}" in output
        assert listed == (not name.startswith(missing)), name


@pytest.mark.parametrize("file", ["cell.launch.py", "detector.launch.py"])
def test_the_systems_pydantic_is_refused_with_what_to_do(monkeypatch, file):
    monkeypatch.setattr(metadata, "version", {"pydantic": "1.10.14"}.__getitem__)
    with pytest.raises(RuntimeError, match=r"pydantic 1 is too old: activate the virtual environment first"):
        runpy.run_path(str(ROOT / "launch" / file))


def test_the_launch_fails_when_a_node_dies():
    from sticker_uq.nodes.common.launch_actions import _on_exit_of

    spec = ProcessSpec("recorder", "recorder", "", ROOT / "config" / "cell.yaml")
    died, running = SimpleNamespace(returncode=-9), SimpleNamespace(is_shutdown=False)
    with pytest.raises(RuntimeError, match="recorder DIED with exit code -9"):
        _on_exit_of(spec)(died, running)
