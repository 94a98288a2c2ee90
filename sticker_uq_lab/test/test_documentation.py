# SPDX-License-Identifier: Apache-2.0
"""The documentation builds as a site without a broken link, and what its commands and files name exists; its Python runs."""

import ast
import copy
import importlib.util
import json
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cv2
import pytest
import typer
import yaml

import sticker_uq.cli as cli
from benchmarks.tables import renewed
from sticker_uq.cell.node_settings import DetectorNodeSettings, RecorderSettings
from sticker_uq.cell.processes import CellOptions
from sticker_uq.cell.supervisor_settings import SupervisorNodeSettings
from sticker_uq.console.server import ConsoleSettings
from sticker_uq_lab.rendering import render, sample_scene

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
TESTS = {
    name
    for folder in (ROOT / "test", ROOT / "sticker_uq_lab" / "test")
    for path in folder.rglob("test_*.py")
    for name in (path.stem, *re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8")))
}
SETTINGS = {
    "detector": DetectorNodeSettings,
    "supervisor": SupervisorNodeSettings,
    "console": ConsoleSettings,
    "recorder": RecorderSettings,
}


def test_the_site_builds_without_a_warning(tmp_path, monkeypatch):
    # in this process, which has loaded what the tables of results are made with
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("mkdocs", run_name="__main__")
    assert ended.value.code in (None, 0)
    built = {
        name: (tmp_path / "site" / name / "index.html").read_text(encoding="utf-8")
        for name in ("parameters", "reference/commands", "reference/ros", "howto/troubleshooting", "gate")
    }
    assert "arm_heartbeat_timeout_s" in built["parameters"]
    assert "audit verify FOLDER" in built["reference/commands"]
    assert "REASON_NO_SCENE" in built["reference/ros"]
    assert "waiting for the first camera image" in built["howto/troubleshooting"]
    source = (ROOT / "docs/gate.md").read_text(encoding="utf-8")
    drawn = built["gate"][built["gate"].index('<figure class="states">') : built["gate"].index("</figure>")]
    edges = re.findall(r"^ *(\w+) --> (\w+): (.+)$", source, re.M)
    assert drawn.count('class="by"') == len(edges) > 10
    assert all(f"{a} to {b} by {label}" in drawn for a, b, label in edges)
    assert "stateDiagram" not in built["gate"], "code hosts draw it, the site has no JavaScript for it"


def command_lines(text: str, name: str) -> Iterator[list[str]]:
    """The words after ``name`` in every line of a block, or in code in a line, that runs it; a backslash continues a line."""
    shown = [block for kind, block in FENCE.findall(text) if kind not in ("python", "diff")]
    shown += re.findall(r"^    (.*)$", FENCE.sub("", text.replace("\\\n", " ")), re.M)
    inline = (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", FENCE.sub("", text)))
    for line in (*"\n".join(shown).replace("\\\n", " ").splitlines(), *inline):
        found = re.match(
            rf"\s*(?:[A-Z_]+=\S+ |time |nohup |scripts/run )*{name}(\s.*)?$", line.split("  #")[0]
        )
        if found:
            yield shlex.split(found[1] or "", comments=True)


def options_of(module: str) -> set[str]:
    """The options that the command line of ``module`` has, by its source: to start each takes seconds."""
    nodes = [*ast.walk(ast.parse(Path(find_spec(module).origin).read_bytes()))]
    words = [
        word.value for node in nodes if isinstance(node, ast.Call) for word in node.args if isinstance(word, ast.Constant)
    ]  # fmt: skip
    options = {word for word in words if str(word).startswith("--")}
    for function in nodes:  # of typer
        if isinstance(function, ast.FunctionDef) and function.name == "main":
            options |= {f"--{one.arg.replace('_', '-')}" for one in function.args.args}
    return {"--help", *options, *(option.replace("--", "--no-", 1) for option in options)}


def test_the_images_per_second_of_the_readme_are_measured():
    cost = json.loads((ROOT / "benchmarks/results/cost.json").read_text(encoding="utf-8"))["assessment"]
    told = re.search(
        r"(\d+) images/s<!-- source: \S+: assessment -->, calculated", (ROOT / "README.md").read_text()
    )
    assert told[1] == f"{2 * 1000 / cost[1]:.0f}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_its_commands_and_files_name_exists(page):
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"(?:`|::)(test_\w+)`", text)) <= TESTS
    group = typer.main.get_command(cli.app)
    for words in command_lines(text, "sticker-uq"):
        if words[:1] in (["..."], ["COMMAND"]):
            continue  # whichever
        command: Any = group
        known = {"--help", "--version", "--install-completion"}
        for word in words:
            inner = getattr(command, "get_command", lambda *_: None)(None, word) if word[:1] != "-" else None
            if inner is not None:
                command = inner.load() if hasattr(inner, "load") else inner
                known |= {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
            elif word.startswith("--"):
                assert word.partition("=")[0] in known, f"sticker-uq {' '.join(words)}: {word}"
        assert not words or command is not group or words[0].startswith("-"), f"sticker-uq {' '.join(words)}"
    for words in command_lines(text, "python"):
        if words[:1] == ["-m"] and words[1].partition(".")[0] in ("benchmarks", "sticker_uq", "test"):
            documented = {word.partition("=")[0] for word in words if word.startswith("--")}
            assert documented <= options_of(words[1]), f"python {' '.join(words)}"
    for words in command_lines(text, "ros2 launch sticker_uq"):
        assert (ROOT / "launch" / words[0]).is_file(), words
        arguments = [word for word in words[1:] if not word.startswith("-") and word != "..."]
        CellOptions.from_texts(dict(word.split(":=", 1) for word in arguments))
    for kind, block in FENCE.findall(text):
        if kind == "yaml" and "ros__parameters" in block:
            for name, content in yaml.safe_load(block).items():
                SETTINGS[name.rpartition("/")[2]].model_validate(content["ros__parameters"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_its_tables_are_those_of_the_result_files_and_the_code(page):
    assert renewed(page) == page.read_text(encoding="utf-8"), (
        "scripts/run python -m benchmarks.tables --write"
    )


@pytest.fixture
def beside_a_lid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with lid.jpg in it and in its folder `folder`."""
    picture = render(sample_scene(3, stickers=2), (480, 360)).image
    (tmp_path / "folder").mkdir()
    for name in ("lid.jpg", "folder/lid.jpg"):
        cv2.imwrite(str(tmp_path / name), picture)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def python_of(page: Path) -> list[str]:
    """The Python of a page, block by block."""
    return [block for kind, block in FENCE.findall(page.read_text(encoding="utf-8")) if kind == "python"]


@pytest.mark.parametrize("name", ["README.md", "docs/tutorials/python.md"])
def test_its_python_runs(name, small_packaged, beside_a_lid, capsys):
    names: dict[str, Any] = {}
    for block in python_of(ROOT / name):
        exec(compile(block, name, "exec"), names)
    assert "REMOVE STICKER" in capsys.readouterr().out
    assert "lid.jpg" in set(names["table"]["image"])


def test_the_script_to_compare_leaves_a_picture_a_table_and_a_video(small_packaged, beside_a_lid):
    video = cv2.VideoWriter("lids.mp4", cv2.VideoWriter.fourcc(*"mp4v"), 5, (480, 360))
    video.write(cv2.imread("lid.jpg"))
    video.release()
    runpy.run_path(str(ROOT / "examples" / "compare" / "with_sticker_uq.py"))
    assert cv2.imread("judged.png").shape == (360, 480, 3)
    assert "sticker" in (beside_a_lid / "judged.csv").read_text(encoding="utf-8")
    assert cv2.VideoCapture("judged.mp4").read()[0]


def test_the_notebook_has_what_its_code_prints_and_shows(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("notebook", ROOT / "scripts" / "notebook.py")
    notebook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(notebook)
    stored = json.loads((ROOT / "examples" / "python.ipynb").read_text(encoding="utf-8"))["cells"]
    cells = copy.deepcopy(stored)
    monkeypatch.chdir(tmp_path)
    names = notebook.run(cells)
    assert set(names["table"]["image"]) == {"lid.jpg"}
    kinds = [
        [(out["output_type"], *out.get("data", ())) for each in run for out in each.get("outputs", ())]
        for run in (cells, stored)
    ]
    assert kinds[0] == kinds[1]
    assert ("execute_result", "image/jpeg", "text/plain") in kinds[1]
    assert "REMOVE STICKER" in "".join(notebook.compared(stored))
