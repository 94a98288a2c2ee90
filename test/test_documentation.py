"""What the documentation tells to type exists: commands, options, modules, scripts, files; the tutorials' Python runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cv2
import pytest
import typer
import yaml
from pydantic import BaseModel

import sticker_uq.cli as cli
from sticker_uq.cell.detector_settings import DetectorNodeSettings
from sticker_uq.cell.processes import CellOptions
from sticker_uq.cell.supervisor_settings import SupervisorNodeSettings
from sticker_uq.console.server import ConsoleSettings
from sticker_uq.io.topics import more_topics
from sticker_uq.lab.rendering import render, sample_scene

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def code_lines(page: Path) -> Iterator[str]:
    """Lines of the code blocks of a page that are not Python, joined where a backslash continues them."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    shown = [block for kind, block in FENCE.findall(text) if kind not in ("python", "diff")]
    shown += re.findall(r"^    (.*)$", FENCE.sub("", text), re.M)
    for block in shown:
        yield from block.splitlines()


def commands(page: Path, name: str) -> Iterator[list[str]]:
    """The words after ``name`` in every line that runs it."""
    for line in code_lines(page):
        found = re.match(
            rf"\s*(?:[A-Z_]+=\S+ |time |nohup |scripts/run )*{name}(\s.*)?$", line.split("  #")[0]
        )
        if found:
            yield shlex.split(found[1] or "", comments=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_and_option_exists(page: Path) -> None:
    group = typer.main.get_command(cli.app)
    for words in commands(page, "sticker-uq"):
        command: object = group
        known = {"--help", "--version", "--install-completion"}
        for word in words:
            inner = getattr(command, "get_command", lambda *_: None)(None, word) if word[:1] != "-" else None
            if inner is not None:
                command = inner.load() if hasattr(inner, "load") else inner
                known |= {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
            elif word.startswith("--"):
                assert word.partition("=")[0] in known, f"sticker-uq {' '.join(words)}: {word}"
        assert not words or command is not group or words[0].startswith("-"), f"sticker-uq {' '.join(words)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_module_script_and_test_exists(page: Path) -> None:
    for words in commands(page, "python"):
        if words[:1] == ["-m"] and words[1].partition(".")[0] in ("benchmarks", "sticker_uq", "test"):
            assert find_spec(words[1]) is not None, words
    for script in re.findall(r"(?<![\w/.])scripts/\w+", page.read_text(encoding="utf-8")):
        assert (ROOT / script).is_file(), script
    for words in commands(page, "scripts/test"):
        for path in words:
            assert not path.startswith("test/") or (ROOT / path.partition("::")[0]).exists(), path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_launch_file_and_argument_exists(page: Path) -> None:
    for words in commands(page, "ros2 launch sticker_uq"):
        assert (ROOT / "launch" / words[0]).is_file(), words
        arguments = [word for word in words[1:] if not word.startswith("-") and word != "..."]
        given = dict(word.split(":=", 1) for word in arguments)
        options = CellOptions.from_texts(given)
        more_topics(options.more_camera_topics)
    for words in commands(page, "ros2 run sticker_uq"):
        assert f'"{words[0]} = ' in (ROOT / "setup.py").read_text(encoding="utf-8"), words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_parameter_file_is_valid(page: Path) -> None:
    settings: dict[str, type[BaseModel]] = {
        "detector": DetectorNodeSettings,
        "supervisor": SupervisorNodeSettings,
        "console": ConsoleSettings,
    }
    for kind, block in FENCE.findall(page.read_text(encoding="utf-8")):
        if kind == "yaml" and "ros__parameters" in block:
            for name, content in yaml.safe_load(block).items():
                settings[name.rpartition("/")[2]].model_validate(content["ros__parameters"])


@pytest.fixture
def beside_a_lid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with lid.jpg in it and in its folder `folder`."""
    picture = render(sample_scene(3, stickers=2), (480, 360)).image
    (tmp_path / "folder").mkdir()
    for name in ("lid.jpg", "folder/lid.jpg"):
        cv2.imwrite(str(tmp_path / name), picture)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_python_of_readme_runs(beside_a_lid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = [block for kind, block in FENCE.findall(text) if kind == "python"]
    names: dict[str, Any] = {}
    exec(compile(block, "README.md", "exec"), names)
    assert "REMOVE STICKER" in capsys.readouterr().out
    assert names["picture"].shape == names["image"].shape
    assert set(names["table"]["image"]) == {"lid.jpg"}


@pytest.mark.parametrize(
    ("row", "claim"),
    [
        ("a GPU", "The detector runs on a GPU"),
        ("a real arm", "The cell moves a real arm"),
        ("the whole cell under SROS2", "the whole cell under SROS2"),
        ("the `ros:jazzy` container", "`docker/Dockerfile` builds on `ros:jazzy`"),
    ],
)
def test_readme_says_never_of_what_the_page_of_the_status_says_it(row: str, claim: str) -> None:
    claims = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs/status.md").read_text(encoding="utf-8"), re.M)
    (tried,) = re.findall(
        rf"^\| {re.escape(row)} \| (\w+) \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.M
    )
    assert (tried == "never") == any(claim in one for one in claims)


def test_readme_fits_on_one_screen() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 75


def test_the_python_of_the_tutorial_runs(beside_a_lid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs/tutorials/python.md").read_text(encoding="utf-8")
    blocks = [block for kind, block in FENCE.findall(text) if kind == "python"]
    assert len(blocks) == 4
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "python.md", "exec"), names)
    assert "STICKER" in capsys.readouterr().out
    assert (beside_a_lid / "assessed.png").stat().st_size > 10_000
