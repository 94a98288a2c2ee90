"""Every figure of an assessment as a table: the same rows for the CSV files, the report and the summary."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sticker_uq.io.files import atomic_write
from sticker_uq.lab.robustness.result import Assessment

Cell = str | int | float
FOLDER = "tables"


@dataclass(frozen=True)
class Table:
    """A named table; every row has one cell per column."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def csv(self) -> str:
        """The table as CSV; what was not measured is an empty cell."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([["" if _is_nan(cell) else cell for cell in row] for row in self.rows])
        return stream.getvalue()


def all_tables(assessment: Assessment) -> tuple[Table, ...]:
    """Significance, coverage, performance, distances, checks and sweeps."""
    spec = assessment.specification
    plain = [one for one in assessment.sets if one.kind != "sweep"]
    figures = list(plain[0].figures)
    names = list(dict.fromkeys(name for one in assessment.sets for name in one.distances))
    check_fields = (
        "circumstance", "metric", "images", "source", "target", "change", "low", "high",
        "distance", "epsilon", "finding", "reason",
    )  # fmt: skip
    return (
        Table(
            "significance",
            ("circumstance", "frequency", "exposure", "likelihood", "severity", "significance", "finding"),
            tuple(
                (
                    c.name,
                    c.frequency,
                    c.exposure,
                    c.likelihood,
                    c.severity,
                    c.significance,
                    str(assessment.by_circumstance.get(c.name, "not assessed")),
                )
                for c in sorted(spec.circumstances, key=lambda c: (-c.significance, c.name))
            ),
        ),
        Table(
            "coverage",
            (
                "circumstance",
                "significance",
                "target_frequency",
                "source_frequency",
                "low",
                "high",
                "found_by",
                "status",
            ),
            tuple(
                (r.circumstance, r.significance, r.target, r.source, r.low, r.high, r.found_by, r.status)
                for r in assessment.coverage
            ),
        ),
        Table(
            "performance",
            ("kind", "circumstance", "strength", *figures),
            tuple(
                (one.kind, one.circumstance, one.strength, *(one.figures[name] for name in figures))
                for one in assessment.sets
            ),
        ),
        Table(
            "distances",
            ("kind", "circumstance", "strength", *names),
            tuple(
                (
                    one.kind,
                    one.circumstance,
                    one.strength,
                    *(one.distances.get(name, float("nan")) for name in names),
                )
                for one in assessment.sets
                if one.distances
            ),
        ),
        Table(
            "checks",
            check_fields,
            tuple(
                tuple(
                    str(value) if name == "finding" else value
                    for name, value in ((n, getattr(check, n)) for n in check_fields)
                )
                for check in assessment.checks
            ),
        ),
        Table(
            "sweeps",
            (
                "circumstance",
                "metric",
                "unit",
                "strength",
                "distance",
                "epsilon",
                "source",
                "value",
                "low",
                "high",
            ),
            tuple(
                (
                    one.circumstance,
                    one.metric,
                    one.unit,
                    point.strength,
                    point.distance,
                    point.epsilon,
                    one.source,
                    point.value,
                    point.low,
                    point.high,
                )
                for one in assessment.sweeps
                for point in one.points
            ),
        ),
        Table(
            "breaks",
            ("circumstance", "metric", "unit", "breaks_at", "breaks_low", "breaks_high", "at_mildest"),
            tuple(
                (s.circumstance, s.metric, s.unit, s.breaks_at, s.breaks_low, s.breaks_high, s.at_mildest)
                for s in assessment.sweeps
                if s.metric in spec.relations
            ),
        ),
    )


def write_tables(tables: Sequence[Table], folder: Path) -> None:
    """Write each table that has rows to ``folder``/tables/NAME.csv. Raises OSError when the disk refuses."""
    (folder / FOLDER).mkdir(exist_ok=True)
    for table in tables:
        if table.rows:
            with atomic_write(folder / FOLDER / f"{table.name}.csv", "w") as stream:
                stream.write(table.csv())


def _is_nan(cell: Cell) -> bool:
    return isinstance(cell, float) and cell != cell
