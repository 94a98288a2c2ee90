# SPDX-License-Identifier: Apache-2.0
"""Writes the notebook from the Python tutorial: its prose and its code, a picture of its own, no stored output.

python -m test.helpers.notebook examples/python.ipynb
"""

from __future__ import annotations

import argparse
import json
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from sticker_uq.io.files import atomic_write

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorials" / "python.md"
PICTURE = """import cv2

from sticker_uq.lab.rendering import render, sample_scene

# a rendered lid with two stickers; put your own lid.jpg here instead
cv2.imwrite("lid.jpg", render(sample_scene(3, stickers=2), (960, 720)).image)"""
SHOW = """from PIL import Image

Image.open("assessed.png")"""


def notebook(tutorial: str) -> dict[str, Any]:
    """The notebook (nbformat 4.5) of the Markdown text of a tutorial in docs/tutorials, without its comments."""
    tutorial = re.sub(r"(<!--.*?-->\n)+\n", "", tutorial)
    code = iter(re.findall(r"^```python\n(.*?)^```$", tutorial, re.M | re.S))
    prose = re.split(r"^```python\n.*?^```$", tutorial, flags=re.M | re.S)
    cells: list[dict[str, Any]] = []

    def add(kind: str, text: str) -> None:
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{len(cells) + 1}", "metadata": {}}
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        cells.append(cell | {"source": text.strip("\n").splitlines(keepends=True)})

    for number, text in enumerate(prose):
        add("markdown", re.sub(r"\]\(([^):#]+)", _from_examples, text))
        if number == 0:
            add("code", PICTURE)
        if block := next(code, None):
            add("code", block)
            if '"assessed.png"' in block:
                add("code", SHOW)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def as_text(content: dict[str, Any]) -> str:
    """The file of ``content``, as Jupyter writes it."""
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _from_examples(found: re.Match[str]) -> str:
    """A relative link of docs/tutorials, seen from examples/."""
    return f"]({posixpath.relpath(posixpath.join('docs/tutorials', found[1]), 'examples')}"


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("notebook", type=Path)
    path = parser.parse_args().notebook
    text = as_text(notebook(TUTORIAL.read_text(encoding="utf-8")))
    path.parent.mkdir(exist_ok=True)
    with atomic_write(path, "w") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
