# SPDX-License-Identifier: Apache-2.0
"""Figures of each cell of a fleet from the Parquet files: questions, releases, limits, scene distance, drift, differences."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import stats

from sticker_uq.evaluation.fleet.recordings import (
    ASSESSMENTS,
    GATES,
    INDEX,
    JUDGEMENTS,
    POLICY,
    read_assessments,
)
from sticker_uq.evaluation.metrics.statistics import Interval, clopper_pearson
from sticker_uq.gate import Policy, judge
from sticker_uq.gate.assumptions.assumption_monitor import AssumptionMonitor, AssumptionSettings
from sticker_uq.scene import InvalidInput

_COLUMNS = ["cell", "recording", "laptop", "stamp_ns", "status", "outcome", "scene_distance", "blocked_by"]


@dataclass(frozen=True)
class Drift:
    """What the assumption monitor would have said of a cell of the fleet, laptop by laptop.

    ``evidence`` after each laptop until the alarm, 1 raises it; ``alarm_at``: number of the laptop that did, 0 for none, with
    its ``recording`` and ``stamp_ns``; ``reason``: signal that had drifted.
    """

    evidence: tuple[float, ...] = ()
    alarm_at: int = 0
    recording: str = ""
    stamp_ns: int = 0
    reason: str = ""


@dataclass(frozen=True)
class CellFigures:
    """One cell of the fleet, or all of it (``cell`` "").

    ``laptops`` with an image; ``asked``, ``released``: those with an image whose outcome is ASK, WORK, by the replayed policy;
    ``per_100``: laptops asked about, per 100, with the exact 95 % interval; ``blocked``: laptops by limit; ``distance``: median,
    95th percentile of the scene distance and share above the policy's limit, over images. ``recorded``: "laptops", "questions",
    laptops "asked" about and "releases" that the gate recorded.
    ``p``: of the difference to all other cells, ``adjusted`` for as many cells.
    """

    cell: str
    recordings: int
    laptops: int
    images: int
    failed: int
    asked: int
    released: int
    per_100: Interval
    blocked: dict[str, int]
    distance: tuple[float, float, float]
    recorded: dict[str, int]
    drift: Drift = Drift()
    p: float = math.nan
    adjusted: float = math.nan


@dataclass(frozen=True)
class Fleet:
    """Figures of a fleet: ``whole`` of all cells, ``cells`` by name, ``index``: table of recordings, ``level`` of the tests."""

    whole: CellFigures
    cells: tuple[CellFigures, ...]
    index: pd.DataFrame
    policy: Policy
    level: float
    false_alarm: float

    def differing(self) -> list[CellFigures]:
        """The cells that ask more or less often than the rest of the fleet, at the level; the most certain first."""
        found = [cell for cell in self.cells if cell.adjusted <= self.level]
        return sorted(found, key=lambda cell: cell.adjusted)

    def asks_more(self, cell: CellFigures) -> bool:
        """Whether ``cell`` asks more often than the rest of the fleet, as far as its own laptops say."""
        return cell.asked * self.whole.laptops > self.whole.asked * cell.laptops


def read_fleet(folder: Path, level: float = 0.05, false_alarm: float | None = None) -> Fleet:
    """The figures of the fleet whose Parquet files are in ``folder``.

    ``level``: false discovery rate among the cells that are said to differ. ``false_alarm``: of the assumption monitor, None for
    its default. Raises InvalidInput when there is no finished replay of a fleet, or nothing in it could be judged.
    """
    try:
        table = pq.read_table(folder / INDEX)
        policy = Policy.model_validate_json(table.schema.metadata[POLICY])
        index = table.to_pandas()
        used = index[index["error"] == ""]
        images, gates = (_read(folder, used, kind, columns) for kind, columns in (
            (JUDGEMENTS, _COLUMNS), (GATES, ["cell", "event", "state", "decision_id", "object_id", "laptop"]),
        ))  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise InvalidInput(
            f"{folder}: expected the folder of a finished `sticker-uq fleet replay` ({error})"
        ) from None
    if images.empty:
        raise InvalidInput(f"{folder}: none of its {len(index)} recordings could be judged")
    settings = AssumptionSettings() if false_alarm is None else AssumptionSettings(false_alarm=false_alarm)
    whole = _figures("", images, gates, len(used), policy)
    parts = [
        _figures(str(cell), of_cell, gates[gates["cell"] == cell], of_cell["recording"].nunique(), policy)
        for cell, of_cell in images.groupby("cell", sort=True)
    ]
    p = [_difference(one, whole) for one in parts]
    # Benjamini and Yekutieli: a cell and the others, which hold each other's laptops, are not independent
    adjusted = stats.false_discovery_control(p, method="by")
    cells = tuple(
        CellFigures(
            **vars(one)
            | {
                "drift": _drift(folder, images[images["cell"] == one.cell], used, policy, settings),
                "p": p_one,
                "adjusted": float(p_adjusted),
            }
        )
        for one, p_one, p_adjusted in zip(parts, p, adjusted, strict=True)
    )
    return Fleet(whole, cells, index, policy, level, settings.false_alarm)


def per_100(events: int, laptops: int) -> Interval:
    """How many of 100 ``laptops`` of a fleet it happened to, with the exact 95 % interval (Clopper-Pearson); NaN for none."""
    low, high = clopper_pearson(events, laptops)
    return Interval(100 * events / laptops if laptops else math.nan, 100 * low, 100 * high)


def as_plain(fleet: Fleet) -> dict[str, Any]:
    """The figures of ``fleet`` as JSON can hold them; null for what could not be measured."""

    def plain(cell: CellFigures) -> dict[str, Any]:
        names = ("median", "p95", "above_limit")
        drift = {"workpieces": len(cell.drift.evidence), **vars(cell.drift)}
        drift["evidence"] = cell.drift.evidence[-1] if cell.drift.evidence else math.nan
        return vars(cell) | {
            "per_100": vars(cell.per_100),
            "distance": dict(zip(names, cell.distance, strict=True)),
            "drift": drift,
            "differs": cell.adjusted <= fleet.level,
        }

    failed = fleet.index[fleet.index["error"] != ""]
    found = {
        "policy": fleet.policy.hash,
        "level": fleet.level,
        "false_alarm": fleet.false_alarm,
        "fleet": plain(fleet.whole),
        "cells": [plain(cell) for cell in fleet.cells],
        "not_judged": failed[["cell", "recording", "error"]].to_dict("records"),
    }
    # NaN is no JSON
    return dict(json.loads(json.dumps(found, default=str), parse_constant=lambda _: None))


def _read(folder: Path, index: pd.DataFrame, kind: str, columns: list[str]) -> pd.DataFrame:
    tables = [
        pq.read_table(folder / kind / name, columns=columns).to_pandas().assign(number=number)
        for number, name in enumerate(index[kind])
        if name
    ]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=[*columns, "number"])


def _figures(
    name: str, images: pd.DataFrame, gates: pd.DataFrame, recordings: int, policy: Policy
) -> CellFigures:
    laptops = images.dropna(subset="laptop").groupby(["number", "laptop"])
    count = laptops.ngroups
    outcomes = laptops["outcome"].agg(set)
    asked, released = (int(sum(one in found for found in outcomes)) for one in ("ASK", "WORK"))
    blocked: Counter[str] = Counter()
    for _, lists in laptops["blocked_by"]:
        blocked.update({limit for limits in lists for limit in limits})
    far = images["scene_distance"].dropna().to_numpy(float)
    questions = gates[gates["event"] == "question"]
    removals = gates[(gates["event"] == "gate") & (gates["state"] == "removing")]
    return CellFigures(
        cell=name,
        recordings=recordings,
        laptops=count,
        images=len(images),
        failed=int((images["status"] == "FAILED").sum()),
        asked=asked,
        released=released,
        per_100=per_100(asked, count),
        blocked=dict(sorted(blocked.items(), key=lambda item: (-item[1], item[0]))),
        distance=(
            float(np.median(far)),
            float(np.quantile(far, 0.95)),
            float((far > policy.max_scene_distance).mean()),
        )
        if len(far)
        else (math.nan,) * 3,
        recorded={
            "laptops": int((gates["event"] == "laptop").sum()),
            "questions": len(questions),
            "asked": len(questions[["number", "laptop"]].drop_duplicates()),
            "releases": len(removals[["number", "decision_id", "object_id"]].drop_duplicates()),
        },
    )


def _difference(cell: CellFigures, whole: CellFigures) -> float:
    """p of Fisher's exact test, two-sided, whether ``cell`` asks about as many of its laptops as the other cells of the fleet."""
    rest_asked, rest = whole.asked - cell.asked, whole.laptops - cell.laptops
    table = [[cell.asked, cell.laptops - cell.asked], [rest_asked, rest - rest_asked]]
    return float(stats.fisher_exact(table).pvalue) if cell.laptops and rest else 1.0


def _drift(
    folder: Path, images: pd.DataFrame, index: pd.DataFrame, policy: Policy, settings: AssumptionSettings
) -> Drift:
    """The cell's assumption monitor over the first judged image of each laptop, recordings in order of their first stamps."""
    monitor = AssumptionMonitor(policy.reference, {}, settings)
    if not monitor.active:
        return Drift()
    evidence: list[float] = []
    firsts: Sequence[Any] = (
        images.groupby("number")["stamp_ns"].min().sort_values(kind="stable").index.tolist()
    )
    for number in firsts:
        recording = images[images["number"] == number].reset_index(drop=True)
        judged = recording[(recording["outcome"] != "BLOCKED") & recording["laptop"].notna()]
        wanted = set(judged.drop_duplicates("laptop").index)
        row = index.iloc[number]
        for _, scene in read_assessments(folder / ASSESSMENTS / row[ASSESSMENTS], wanted):
            monitor.next_workpiece()
            alarm = monitor.see(scene, judge(scene, policy))
            evidence.append(monitor.evidence)
            if alarm is not None:
                return Drift(
                    tuple(evidence), len(evidence), row["recording"], scene.stamp_ns, alarm.reason.subject
                )
    return Drift(tuple(evidence))
