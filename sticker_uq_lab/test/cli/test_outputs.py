# SPDX-License-Identifier: Apache-2.0
"""No command loses anything: outputs are checked before the work, and only what an earlier run wrote is replaced."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import sticker_uq.cli as cli
from sticker_uq.io.share import share_folder

OUTPUTS = ("out", "json_file", "report", "kept")
"""The names of parameters for places to write to."""


def leaves(command: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    """Every command below ``command`` with the words that call it."""
    children = getattr(command, "commands", {})
    below = [leaf for name, child in children.items() for leaf in leaves(child, (*path, name))]
    return [*below, (path, command)]


def commands() -> list[tuple[tuple[str, ...], Any]]:
    found = []
    for name in cli.COMMANDS:
        module = importlib.import_module(cli.installed_commands()[name])
        app = getattr(module, "app", None)
        if app is None:
            app = typer.Typer()
            app.command()(module.command)
        found += leaves(typer.main.get_command(app), (name,))
    return found


def outputs() -> list[tuple[tuple[str, ...], str]]:
    """Every parameter for a place to write to, as it is typed."""
    return [
        (path, parameter.opts[0])
        for path, command in commands()
        for parameter in command.params
        if parameter.name in OUTPUTS
    ]


def run(*arguments: object) -> Any:
    result = CliRunner().invoke(cli.app, [*map(str, arguments)], env={"COLUMNS": "200"})
    assert "Traceback" not in result.output
    return result


def test_no_command_starts_when_its_result_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    found = outputs()
    assert len(found) >= 25
    for path, option in found:
        place = tmp_path / "file" / "below"
        given = (option, place) if option.startswith("-") else (place,)
        result = run(*path, *given)
        name = option if option.startswith("-") else option.upper()
        assert result.exit_code == 2, (path, option, result.output)
        assert f"error: {name} {place}: " in result.stderr, (path, option, result.output)


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """The folder of an earlier demo."""
    out = tmp_path / "out"
    for name in (
        "bag/metadata.yaml",
        "bag/bag_0.mcap",
        "audit/audit-000001.jsonl",
        "audit/lock",
        "pictures/1.jpg",
    ):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(name)
    for name in ("truth.json", "summary.json", "report.html", "log.txt"):
        (out / name).write_text("[]")
    return out


def content(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


LIMITS = str(share_folder() / "config" / "limits.yaml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--person", "nobody"), "nobody"),
        (("--policy", "absent.yaml"), "policy absent.yaml: no such file"),
        (("--params", "absent.yaml"), "name one for yours with --policy"),
        (("--params", "absent.yaml", "--policy", LIMITS), "parameter file absent.yaml: no such file"),
        (("--port", "99999"), ""),
    ],
)
def test_a_demo_with_a_wrong_argument_leaves_the_earlier_result(earlier, arguments, message):
    before = content(earlier)
    result = run("demo", "--overwrite", "--out", earlier, *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert content(earlier) == before


NEW_OR_EMPTY = (
    "demo",
    "replay SOURCE",
    "qualify --data SOURCE",
    "improve --bundle SOURCE --audit SOURCE --recordings SOURCE",
)


@pytest.mark.parametrize("command", NEW_OR_EMPTY)
def test_a_result_is_replaced_on_demand_only(tmp_path, earlier, command):
    before = content(earlier)
    arguments = [str(tmp_path) if word == "SOURCE" else word for word in command.split()]
    result = run(*arguments, "--out", earlier)
    assert (result.exit_code, content(earlier)) == (2, before), result.output
    assert (
        f"--out {earlier}: not an empty folder; choose another one, or give --overwrite to" in result.stderr
    )
    if arguments[0] != "demo":
        result = run(*arguments, "--overwrite", "--out", earlier)
        assert (result.exit_code, content(earlier)) == (2, before), result.output
        assert re.search(rf"error: --out {earlier}: holds \S+, which no earlier run wrote", result.stderr)


def test_several_cases_are_written_all_or_none(tmp_path):
    assert (
        run("dataset", "render", "--out", tmp_path / "data", "--count", 1, "--size", "96x72").exit_code == 0
    )
    for name in ("clean", "occlusion"):
        (tmp_path / "cases" / name).mkdir(parents=True)
    (tmp_path / "cases" / "occlusion" / "annotations.json").write_text("{}")
    result = run(
        "dataset", "abnormal", "--data", tmp_path / "data", "--out", tmp_path / "cases",
        "--case", "clean", "--case", "occlusion",
    )  # fmt: skip
    assert result.exit_code == 2
    assert "exists already" in result.stderr
    assert list((tmp_path / "cases" / "clean").iterdir()) == []


def test_a_line_break_in_an_error_stays_in_its_line(tmp_path):
    result = run("replay", tmp_path / "a\nerror: forged\x1b[2J", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert r"a\nerror: forged\x1b[2J: no such file" in result.stderr
