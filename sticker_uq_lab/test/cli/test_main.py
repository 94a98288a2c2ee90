# SPDX-License-Identifier: Apache-2.0
"""The commands of the lab are those that setup.py registers; they explain themselves as the core's do."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import sticker_uq.cli as cli
from test.cli.test_main import check_help
from test.test_layout import LAB, setup_arguments

ROOT = Path(__file__).parents[3]
OF_LAB = [name for name in cli.COMMANDS if name not in cli.OWN]


def test_every_command_of_the_lab_is_registered(monkeypatch):
    named = setup_arguments(monkeypatch, LAB)["entry_points"][cli.ENTRY_POINT_GROUP]
    assert sorted(line.partition(" = ")[0] for line in named) == sorted(OF_LAB)
    assert {name: cli.installed_commands()[name] for name in OF_LAB} == dict(
        line.split(" = ") for line in named
    )


def test_the_help_of_all_commands_fits_a_screen(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    shown = CliRunner().invoke(cli.app, ["--help"]).output
    assert all(f" {name} " in shown for name in cli.COMMANDS)
    assert len(shown.splitlines()) <= 40


@pytest.mark.parametrize("name", OF_LAB)
def test_every_command_explains_itself_on_one_screen_and_wholly_on_demand(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    check_help(name)


@pytest.mark.parametrize(
    ("given", "meant"), [("dataset imprt", "import"), ("study statistic", "statistics"), ("trian", "train")]
)
def test_misspelt_commands_are_answered_with_the_nearest_at_every_level(given, meant):
    result = CliRunner().invoke(cli.app, given.split())
    assert (result.exit_code, f"did you mean {meant!r}?" in result.output) == (2, True)


def test_a_command_may_start_processes_of_its_own(tmp_path):
    entry = str(ROOT / "resource" / "sticker-uq")
    arguments = ["dataset", "render", "--count", "2", "--jobs", "2", "--out", str(tmp_path / "data")]
    done = subprocess.run(
        [sys.executable, entry, *arguments], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "data" / "images").iterdir())) == 2
