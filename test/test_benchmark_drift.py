"""The benchmark of the watch over a policy's assumption, on made-up laptops instead of rendered ones."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks import drift


class MadeUp:
    """Laptops whose DiL a circumstance shifts."""

    def __init__(self, _: Path) -> None:
        pass

    def look(
        self, first_seed: int, count: int, circumstance: str = "", strength: float = 0.0
    ) -> list[drift.Seen]:
        rng = np.random.default_rng(first_seed)
        shift = 3.0 if circumstance and circumstance != "glare" else 0.0
        values = rng.normal(10.0, 1.0, (count, len(drift.WATCHED)))
        values[:, 3] += shift
        rows = (dict(zip(drift.WATCHED, row.tolist(), strict=True)) for row in values)
        return [drift.Seen(f"{first_seed + number:032x}", row) for number, row in enumerate(rows)]


def test_the_table_and_the_chart_tell_the_changed_from_the_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drift, "Laptops", MadeUp)
    monkeypatch.setattr(drift, "ORDERS", 2)
    monkeypatch.setattr(drift, "REDRAWN", 2)
    app = drift.typer.Typer()
    app.command()(drift.main)
    sizes = ("--reference-count", 40, "--stream-count", 40, "--calm-count", 10)
    result = CliRunner().invoke(app, [*map(str, sizes), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    table = (tmp_path / "out" / "drift.md").read_text()
    assert "40 unseen laptops like them: no alarm" in table
    assert "0 of 2 streams with an alarm" in table
    rows = {line.split("|")[1].strip(): line for line in table.splitlines() if line.startswith("| ")}
    assert "> 80" in rows["glare 2"], "no change, no alarm"
    assert "> 30" not in rows["motion blur 20"]
    ElementTree.parse(tmp_path / "out" / "drift.svg")
