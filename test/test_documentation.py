# SPDX-License-Identifier: Apache-2.0
"""What the documentation names exists: commands, options, modules, scripts, functions, tests; the tutorials' Python runs."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import cv2
import pytest
import typer
import yaml
from pydantic import BaseModel

import sticker_uq.cli as cli
from sticker_uq.cell.detector_settings import DetectorNodeSettings
from sticker_uq.cell.processes import CellOptions
from sticker_uq.cell.recorder_settings import RecorderSettings
from sticker_uq.cell.supervisor_settings import SupervisorNodeSettings
from sticker_uq.console.server import ConsoleSettings
from sticker_uq.io.topics import more_topics
from sticker_uq.lab.rendering import render, sample_scene

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
PAPERS = sorted((ROOT / "docs/papers").glob("*.md"))
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
        "recorder": RecorderSettings,
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
    seen = re.sub(r"(<!--.*?-->\n)+\n", "", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(seen.splitlines()) <= 75


def test_the_python_of_the_tutorial_runs(beside_a_lid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs/tutorials/python.md").read_text(encoding="utf-8")
    blocks = [block for kind, block in FENCE.findall(text) if kind == "python"]
    assert len(blocks) == 4
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "python.md", "exec"), names)
    assert "STICKER" in capsys.readouterr().out
    assert (beside_a_lid / "assessed.png").stat().st_size > 10_000


def missing_names(text: str) -> list[str]:
    """The functions ``sticker_uq.…`` and tests ``test/….py::…`` that ``text`` names and that do not exist."""
    missing = []
    for name in sorted(set(re.findall(r"\bsticker_uq(?:\.\w+)+", text))):
        try:
            resolve_name(name)
        except (ImportError, AttributeError):
            missing.append(name)
    for path, test in sorted(set(re.findall(r"\b(test/[\w/]+\.py)(?:::(\w+))?", text))):
        if not (ROOT / path).is_file():
            missing.append(path)
        elif test:
            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            if test not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
                missing.append(f"{path}::{test}")
    return missing


@pytest.mark.parametrize("page", PAPERS, ids=lambda page: page.name)
def test_every_function_and_test_of_a_paper_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert missing_names(text) == []
    for shown, linked in re.findall(r"\[`([\w.]+)`\]\(functions\.md#([\w.]+)\)", text):
        assert linked == f"sticker_uq.{shown}"


def test_a_name_that_does_not_exist_is_found() -> None:
    right = ("sticker_uq.uncertainty.metrics.variation_ratio", "test/dil/test_score.py::test_worked_example")
    assert missing_names(" ".join(right)) == []
    wrong = (
        "sticker_uq.uncertainty.metrics.variation_rate",
        "sticker_uq.uncertainties",
        "test/dil/test_score.py::test_worked",
        "test/dil/test_scores.py",
    )
    assert missing_names(" ".join(wrong)) == sorted(wrong)


def test_the_page_of_functions_has_what_the_pages_of_the_papers_link() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAPERS)
    shown = re.findall(r"^::: ([\w.]+)$", text, re.M)
    assert sorted(set(re.findall(r"functions\.md#([\w.]+)", text))) == shown
    assert len(shown) > 50


def test_the_papers_are_those_of_the_citation() -> None:
    index = (ROOT / "docs/papers/index.md").read_text(encoding="utf-8")
    references = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["references"]
    rows = [line for line in index.splitlines() if re.match(r"\| S00\d \|", line)]
    assert len(references) == len(rows) == 5
    for reference, row in zip(references, rows, strict=True):
        _, number, authors, title, where, *_ = (cell.strip() for cell in row.split("|"))
        assert reference["notes"].startswith(number)
        assert title == reference["title"]
        named = [f"{author['given-names']} {author['family-names']}" for author in reference["authors"]]
        assert authors == ", ".join(named)
        assert str(reference.get("year", "year")) in where
        assert reference.get("doi", "") in where
