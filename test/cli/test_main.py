# SPDX-License-Identifier: Apache-2.0
"""The command line as a whole: quick help, one line for every error, the right exit status."""

import errno
import io
import os
import re
import subprocess
import sys
import types

import pytest
import typer
from typer.testing import CliRunner

import sticker_uq
import sticker_uq.cli as cli
from sticker_uq.scene import DeviceFailed, InvalidInput

EVERYTHING_HEAVY = ("torch", "torchvision", "cv2", "rclpy", "pandas", "matplotlib", "rosbags", "pydantic")


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
    assert set(cli.OWN) <= set(cli.installed_commands())
    for name in cli.installed_commands():
        assert name in done.stdout


def below(command, path):
    """The words that call ``command``, and those that call each command below it."""
    inner = getattr(command, "commands", {})
    return [path, *(words for name, one in inner.items() for words in below(one, [*path, name]))]


@pytest.mark.parametrize("name", cli.OWN)
def test_every_command_explains_itself_on_one_screen_and_wholly_on_demand(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    check_help(name)


def check_help(name):
    """Of the command and those below it."""
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


REGISTERED = """
import typer
app = typer.Typer()

@app.command()
def again() -> None:
    typer.echo("done")
"""


@pytest.fixture
def registered(tmp_path, monkeypatch):
    """Installs a distribution with the lines of its commands, and a module ``their_command``."""

    def install(lines: str) -> None:
        information = tmp_path / "theirs-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(f"[{cli.ENTRY_POINT_GROUP}]\n{lines}\n")
        (tmp_path / "their_command.py").write_text(REGISTERED)
        monkeypatch.syspath_prepend(tmp_path)
        cli.installed_commands.cache_clear()

    yield install
    sys.modules.pop("their_command", None)
    cli.installed_commands.cache_clear()


def test_another_package_adds_a_command_and_replaces_none(registered):
    registered("again = their_command\ndoctor = their_command")
    assert "Of their_command." in CliRunner().invoke(cli.app, ["--help"]).output
    assert CliRunner().invoke(cli.app, ["again"]).output == "done\n"
    assert cli.installed_commands()["doctor"] == "sticker_uq.cli.doctor"


@pytest.mark.parametrize("name", sorted(set(cli.COMMANDS) - set(cli.OWN)))
def test_without_the_lab_its_commands_say_what_to_install(name, monkeypatch):
    monkeypatch.setattr(cli, "entry_points", lambda group: [])
    cli.installed_commands.cache_clear()
    result = CliRunner().invoke(cli.app, [name, "--out", "out"])
    listed = CliRunner().invoke(cli.app, ["--help"]).output
    cli.installed_commands.cache_clear()
    assert f"│ {name} " not in listed
    assert "│ replay " in listed
    told = f"error: {name} is a command of sticker_uq_lab, which is not installed: "
    assert (result.exit_code, result.stderr.startswith(told)) == (2, True), result.output
    assert "pip install ./sticker_uq_lab" in result.stderr


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
