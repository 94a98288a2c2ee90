# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the watch over a policy's assumption, on made-up laptops instead of rendered ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks import drift
from benchmarks.rendered import Recipe
from benchmarks.shift import CIRCUMSTANCES


class MadeUp:
    """Laptops of which every circumstance but glare shifts one signal."""

    def __init__(self, cache: Path, jobs: int) -> None:
        pass

    def look(self, wanted: Sequence[Recipe]) -> list[drift.Seen]:
        rng = np.random.default_rng(wanted[0].seed)
        shift = 3.0 if wanted[0].circumstance not in ("", "glare") else 0.0
        values = rng.normal(10.0, 1.0, (len(wanted), len(drift.SIGNALS)))
        values[:, 3] += shift
        rows = (dict(zip(drift.SIGNALS, row.tolist(), strict=True)) for row in values)
        return [drift.Seen(f"{one.seed:032x}", row) for one, row in zip(wanted, rows, strict=True)]


def test_the_table_and_the_chart_tell_the_changed_from_the_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drift, "Laptops", MadeUp)
    monkeypatch.setattr(drift, "ORDERS", 2)
    monkeypatch.setattr(drift, "REDRAWN", 2)
    app = drift.typer.Typer()
    app.command()(drift.main)
    sizes = ("--reference-count", 80, "--stream-count", 40, "--calm-count", 10)
    result = CliRunner().invoke(app, [*map(str, sizes), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    table = (tmp_path / "out" / "drift.md").read_text()
    assert "40 unseen laptops like them: no alarm" in table
    assert "0 of 2 streams with an alarm" in table
    rows = {line.split("|")[1].strip(): line for line in table.splitlines() if line.startswith("| ")}
    assert "> 15" in rows["glare 2"], "no change, no alarm"
    assert "> 15" not in rows["motion blur 15"]
    assert len(rows) == 2 * len(CIRCUMSTANCES) + 1
    ElementTree.parse(tmp_path / "out" / "drift.svg")
