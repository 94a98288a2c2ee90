# SPDX-License-Identifier: Apache-2.0
"""examples/python.ipynb is the Python tutorial as a notebook: valid, without output, and its cells run in order."""

import json
import re
from pathlib import Path
from typing import Any

import cv2
import pytest

from test.helpers.notebook import ROOT, TUTORIAL, as_text, notebook

FILE = ROOT / "examples" / "python.ipynb"
TEXT = FILE.read_text(encoding="utf-8")
CELLS: list[dict[str, Any]] = json.loads(TEXT)["cells"]


def test_the_notebook_is_that_of_the_tutorial() -> None:
    expected = as_text(notebook(TUTORIAL.read_text(encoding="utf-8")))
    assert expected == TEXT, "run: python -m test.helpers.notebook examples/python.ipynb"


def test_the_notebook_is_valid_and_stores_no_output() -> None:
    whole = json.loads(TEXT)
    assert (whole["nbformat"], whole["nbformat_minor"]) == (4, 5)
    assert whole["metadata"]["kernelspec"]["name"] == "python3"
    names = [cell["id"] for cell in CELLS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-zA-Z0-9-_]{1,64}", name) for name in names)
    for cell in CELLS:
        required = {"cell_type", "id", "metadata", "source"}
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
            required |= {"outputs", "execution_count"}
        assert set(cell) == required


def test_its_links_lead_to_files() -> None:
    prose = "".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown")
    links = re.findall(r"\]\(([^):#]+)\)", prose)
    assert len(links) >= 4
    assert [link for link in links if not (FILE.parent / link).is_file()] == []


def test_its_cells_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    code = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]
    assert len(code) == 6
    for number, source in enumerate(code):
        exec(compile(source, f"cell {number}", "exec"), names)
    assert "REMOVE STICKER" in capsys.readouterr().out
    assert cv2.imread("assessed.png").shape == names["image"].shape == (720, 960, 3)
    assert set(names["table"]["image"]) >= {"lid.jpg"}
