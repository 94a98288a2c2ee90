# SPDX-License-Identifier: Apache-2.0
"""The command line as a whole: quick help, one line for every error, the right exit status."""

import errno
import io
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import sticker_uq
import sticker_uq.cli as cli
from sticker_uq.scene import DeviceFailed, InvalidInput

EVERYTHING_HEAVY = ("torch", "torchvision", "cv2", "rclpy", "pandas", "matplotlib", "rosbags", "pydantic")


ROOT = Path(__file__).parents[2]


@pytest.fixture
def run_failing(monkeypatch):
    """Runs `sticker-uq doctor` with a command that raises the given error."""

    def run(error: BaseException):
        def command() -> None:
            raise error

        module = types.ModuleType("sticker_uq.cli.doctor")
        module.command = command
        monkeypatch.setitem(sys.modules, "sticker_uq.cli.doctor", module)
        return CliRunner().invoke(cli.app, ["doctor"])

    return run


def test_the_help_of_all_commands_fits_a_screen(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert len(CliRunner().invoke(cli.app, ["--help"]).output.splitlines()) <= 40


def test_alone_it_says_in_six_lines_what_to_do_first():
    alone = CliRunner().invoke(cli.app, [])
    first, *steps = alone.output.splitlines()
    assert (alone.exit_code, len(steps), first[:10]) == (2, 5, "sticker-uq")
    assert all(len(line) <= 100 for line in (first, *steps))
    named = [line.split()[1] for line in steps]
    assert {*named} <= {*cli.COMMANDS, "--help"}


def test_help_lists_every_command_and_imports_nothing_heavy():
    code = (
        "import sys\nfrom sticker_uq.cli import main\n"
        "sys.argv = ['sticker-uq', '--help']\n"
        "try:\n    main()\n"
        f"finally:\n    print('HEAVY', sorted(set(sys.modules) & set({EVERYTHING_HEAVY!r})))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "HEAVY []" in done.stdout
    for name in cli.COMMANDS:
        assert name in done.stdout


def below(command, path):
    """The words that call ``command``, and those that call each command below it."""
    inner = getattr(command, "commands", {})
    return [path, *(words for name, one in inner.items() for words in below(one, [*path, name]))]


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_explains_itself_on_one_screen_and_wholly_on_demand(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    loaded = typer.main.get_command(cli.app).get_command(None, name).load()
    for words in below(loaded, [name]):
        result = CliRunner().invoke(cli.app, [*words, "--help"])
        assert result.exit_code == 0, result.output
        assert f"{' '.join(words)} [OPTIONS]" in result.output
        assert len(result.output.splitlines()) <= 40, result.output
        every = CliRunner().invoke(cli.app, [*words, "--help-all"])
        options = [set(re.findall(r"^│[ *]+(--[\w-]+)", run.output, re.MULTILINE)) for run in (result, every)]
        assert options[0] <= options[1]
        assert (options[0] < options[1]) == ("--help-all shows" in result.output)
        assert "<bool>" not in every.output, "a flag has no type"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("replya", "replay"),
        ("bundle creat", "create"),
        ("dataset imprt", "import"),
        ("study statistic", "statistics"),
    ],
)
def test_misspelt_commands_are_answered_with_the_nearest_at_every_level(given, meant):
    result = CliRunner().invoke(cli.app, given.split())
    assert (result.exit_code, f"did you mean {meant!r}?" in result.output) == (2, True)


def test_an_unknown_command_is_answered_with_those_there_are():
    result = CliRunner().invoke(cli.app, ["bundle", "xyz"])
    assert (result.exit_code, "expected one of create, show" in " ".join(result.output.split())) == (2, True)


def test_the_version():
    assert CliRunner().invoke(cli.app, ["--version"]).output == f"sticker-uq {sticker_uq.__version__}\n"


def test_the_shell_completes_commands_and_their_options():
    asked = {
        "_STICKER_UQ_COMPLETE": "complete_bash",
        "COMP_WORDS": "sticker-uq replay --dropout-r",
        "COMP_CWORD": "2",
    }
    done = subprocess.run(["sticker-uq"], env=os.environ | asked, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["--dropout-rate"], done.stderr


def test_a_command_may_start_processes_of_its_own(tmp_path):
    entry = str(ROOT / "resource" / "sticker-uq")
    arguments = ["dataset", "render", "--count", "2", "--jobs", "2", "--out", str(tmp_path / "data")]
    done = subprocess.run(
        [sys.executable, entry, *arguments], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "data" / "images").iterdir())) == 2


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (InvalidInput("passes 0: expected 1 to 200"), 2, "error: passes 0: expected 1 to 200"),
        (
            FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "a.mcap"),
            1,
            "error: a.mcap: No such file or directory",
        ),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 1, "error: No space left on device"),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), 1, "Python package torch is missing"),
        (MemoryError(), 1, "error: out of memory"),
        (DeviceFailed("cuda:0 failed"), 1, "error: cuda:0 failed"),
        (RuntimeError("CUDA error"), 1, "internal error: RuntimeError: CUDA error"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (typer.Exit(7), 7, ""),
    ],
)
def test_an_error_is_one_line_and_an_exit_status(run_failing, error, status, line):
    result = run_failing(error)
    assert result.exit_code == status
    assert line in result.stderr
    assert len(result.stderr.strip().splitlines()) == (1 if line else 0)
    assert "Traceback" not in result.output


def test_what_the_encoding_of_the_output_lacks_is_escaped_and_errors_need_no_place(monkeypatch):
    module, output = types.ModuleType("sticker_uq.cli.doctor"), io.TextIOWrapper(io.BytesIO(), "latin-1")
    module.command = lambda: typer.echo("größer ✓")
    monkeypatch.setitem(sys.modules, "sticker_uq.cli.doctor", module)
    monkeypatch.setattr(cli, "end_on_interrupt", lambda: None)
    monkeypatch.setattr(sys, "argv", ["sticker-uq", "doctor"])
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr(sys, "stderr", None)
    with pytest.raises(SystemExit) as end:
        cli.main()
    output.flush()
    assert (end.value.code, output.buffer.getvalue().decode("latin-1")) == (0, "größer \\u2713\n")


def test_debug_variable_lets_the_traceback_through(run_failing, monkeypatch):
    monkeypatch.setenv("STICKER_UQ_DEBUG", "1")
    assert isinstance(run_failing(InvalidInput("passes 0")).exception, InvalidInput)
