# SPDX-License-Identifier: Apache-2.0
"""Every figure as a table: the same rows for the CSV files and the report."""

from __future__ import annotations

import pandas as pd

from sticker_uq.lab.robustness.result import Assessment

FOLDER = "tables"


def all_tables(assessment: Assessment) -> dict[str, pd.DataFrame]:
    """Tables by name; what was not measured is NaN.

    They are significance, coverage, performance, distances, checks, sweeps and breaks.
    """
    spec, sets = assessment.specification, assessment.sets
    where = ("kind", "circumstance", "strength")
    risk = ("frequency", "exposure", "likelihood", "severity", "significance")
    sweep = ("circumstance", "metric", "unit")
    breaks = ("breaks_at", "breaks_low", "breaks_high", "at_mildest")
    significance = [
        {"circumstance": c.name}
        | {name: getattr(c, name) for name in risk}
        | {"finding": str(assessment.by_circumstance.get(c.name, "not assessed"))}
        for c in sorted(spec.circumstances, key=lambda c: (-c.significance, c.name))
    ]
    coverage = [
        {
            "circumstance": r.circumstance,
            "significance": r.significance,
            "target_frequency": r.target,
            "source_frequency": r.source,
            **{name: getattr(r, name) for name in ("low", "high", "found_by", "status")},
        }
        for r in assessment.coverage
    ]
    tables = {
        "significance": significance,
        "coverage": coverage,
        "performance": [{name: getattr(one, name) for name in where} | one.figures for one in sets],
        "distances": [
            {name: getattr(one, name) for name in where} | one.distances for one in sets if one.distances
        ],
        "checks": [vars(check) | {"finding": str(check.finding)} for check in assessment.checks],
        "sweeps": [
            {name: getattr(one, name) for name in sweep}
            | {name: getattr(point, name) for name in ("strength", "distance", "epsilon")}
            | {"source": one.source}
            | {name: getattr(point, name) for name in ("value", "low", "high")}
            for one in assessment.sweeps
            for point in one.points
        ],
        "breaks": [
            {name: getattr(one, name) for name in (*sweep, *breaks)}
            for one in assessment.sweeps
            if one.metric in spec.relations
        ],
    }
    return {name: pd.DataFrame(rows) for name, rows in tables.items()}
