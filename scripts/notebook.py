#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the cells of examples/python.ipynb in an empty folder and stores what they print and show; scripts/docs calls it.

The file stays as it is where only digits beyond the second differ, as from machine to machine.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "examples" / "python.ipynb"


def run(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Run the code of ``cells`` in the working folder and put outputs into them; returns the names that they define."""
    names: dict[str, Any] = {}
    for count, cell in enumerate((each for each in cells if each["cell_type"] == "code"), 1):
        *rest, last = ast.parse("".join(cell["source"])).body
        shown = ast.Expression(last.value) if isinstance(last, ast.Expr) else None
        value = None
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(ast.Module(rest if shown else [*rest, last], []), NOTEBOOK.name, "exec"), names)
            if shown:
                value = eval(compile(shown, NOTEBOOK.name, "eval"), names)
        text = printed.getvalue().splitlines(keepends=True)
        cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": text}] if text else []
        if value is not None:
            result = {
                "output_type": "execute_result",
                "execution_count": count,
                "metadata": {},
                "data": _data(value),
            }
            cell["outputs"].append(result)
        cell["execution_count"] = count
    return names


def _data(value: Any) -> dict[str, Any]:
    if hasattr(value, "_repr_jpeg_"):
        return {"image/jpeg": b64encode(value._repr_jpeg_()).decode(), "text/plain": [type(value).__name__]}
    return {"text/plain": repr(value).splitlines(keepends=True)}


def compared(cells: list[dict[str, Any]]) -> list[Any]:
    """What is printed and shown, without pictures' pixels and digits beyond the second."""
    return [
        re.sub(
            r"(\.\d\d)\d+(e-?\d+)?",
            r"\1",
            "".join(output.get("text", output.get("data", {}).get("text/plain", ()))),
        )
        for cell in cells
        for output in cell.get("outputs", ())
    ]


def main() -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    before = compared(notebook["cells"])
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        run(notebook["cells"])
    if compared(notebook["cells"]) != before:
        text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
        NOTEBOOK.write_text(text, encoding="utf-8")
        print(f"{os.path.relpath(NOTEBOOK)}: other outputs than before are stored")


if __name__ == "__main__":
    main()
