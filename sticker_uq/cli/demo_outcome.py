# SPDX-License-Identifier: Apache-2.0
"""The outcome of a demo: the recording compared with ground truth."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sticker_uq.evaluation.replay.recording import RecordedLaptop, read_recording
from sticker_uq.evaluation.reporting.cell_report import cell_report, stage_times
from sticker_uq.evaluation.reporting.report import write_report
from sticker_uq.evaluation.reporting.report_model import Headline, ReportLaptop, Tone
from sticker_uq.gate import Policy
from sticker_uq.io.bags import Bag
from sticker_uq.simulation.simulated_cell import LaptopRecord

LAPTOP_COLUMNS = (
    "laptop",
    "stickers",
    "removed",
    "by person",
    "left",
    "wrong",
    "asked",
    "images",
    "result",
)
Row = tuple[str | int | float | None, ...]


@dataclass(frozen=True)
class DemoOutcome:
    """Outcome of the demo. ``rows``: a laptop each and the total; ``stages``: median ms per image; ``failures``:
    missed criteria.
    """

    rows: tuple[Row, ...]
    stages: Mapping[str, float]
    failures: tuple[str, ...]

    def summary(self) -> dict[str, Any]:
        """The demo's outcome as JSON-serialisable values."""
        laptops = [dict(zip(LAPTOP_COLUMNS, row, strict=True)) for row in self.rows]
        return {
            "laptops": laptops[:-1],
            "total": laptops[-1],
            "ms": dict(self.stages),
            "failures": list(self.failures),
        }


def read_outcome(out: Path, laptops: int, policy: Policy, environment: Mapping[str, str]) -> DemoOutcome:
    """Outcome of the demo: the recording in ``out``, made with ``policy``, against ground truth; writes pictures and report.html.

    Raises :class:`sticker_uq.scene.InvalidInput` when the recording cannot be read.
    """
    records = [LaptopRecord(**record) for record in json.loads((out / "truth.json").read_text())]
    bag = Bag(out / "bag")
    cell = read_recording(bag)
    recorded = {laptop.workpiece_id: laptop for laptop in cell.laptops}
    rows = [_row(record, recorded.get(record.workpiece_id)) for record in records]
    if cell.between.scenes:
        rows.append(("between laptops", *[None] * 6, len(cell.between.scenes), ""))
    totals = [sum(int(row[i] or 0) for row in rows) for i in range(1, 8)]
    clean = sum(laptop.clean for laptop in recorded.values())
    total: Row = ("all", *totals, f"{clean} of {laptops} clean")
    failures = _failures(records, recorded, laptops)
    if totals[0] and not totals[1]:
        failures.append(f"none of {totals[0]} stickers was removed")
    if bag.damage:
        failures.append(f"the recording is damaged: {bag.damage}")
    stages = stage_times(list(recorded.values()))
    stickers, removed, by_operator, left, wrong = totals[:5]
    report = cell_report(
        list(recorded.values()),
        out / "bag",
        out / "pictures",
        policy,
        title=f"{laptops} laptops through the cell",
        lead=(
            f"{removed} of {stickers} stickers were removed, {by_operator} of them after a person was asked; {left} are left and "
            f"{wrong} times something else was touched. Laptops, camera, arm and the person's answers are simulated; detector, "
            "uncertainty, policy and gate are those of a real cell."
        ),
        headlines=[
            Headline(
                "stickers removed",
                f"{removed} of {stickers}",
                Tone.GOOD if removed == stickers else Tone.WARN,
            ),
            Headline("wrongly touched", str(wrong), Tone.BAD if wrong else Tone.GOOD),
            Headline("laptops clean", f"{clean} of {laptops}", Tone.GOOD if clean == laptops else Tone.WARN),
            Headline("interventions", str(totals[5])),
            Headline("per image", f"{stages.get('total', float('nan')):.0f} ms"),
        ],
        columns=LAPTOP_COLUMNS,
        rows=[*rows, total],
        environment=environment,
    )
    write_report(report, out / "report.html")
    failures += [f"{laptop.title}: no picture of it" for laptop in report.laptops if not _has_picture(laptop)]
    return DemoOutcome((*rows, total), stages, tuple(failures))


def _has_picture(laptop: ReportLaptop) -> bool:
    return any(entry.picture is not None for entry in laptop.entries)


def _row(record: LaptopRecord, laptop: RecordedLaptop | None) -> Row:
    removals = laptop.removals() if laptop is not None else []
    return (
        record.workpiece_id,
        record.stickers,
        record.removed,
        sum(laptop.by_operator(r) for r in removals) if laptop is not None else 0,
        record.left,
        record.logos_touched + record.lid_touched,
        len(laptop.questions) if laptop is not None else 0,
        len(laptop.scenes) if laptop is not None else 0,
        _result(laptop),
    )


def _result(laptop: RecordedLaptop | None) -> str:
    if laptop is None:
        return "not recorded"
    return "clean" if laptop.clean else laptop.result or "never left"


def _failures(records: list[LaptopRecord], recorded: Mapping[str, RecordedLaptop], laptops: int) -> list[str]:
    failures = []
    done = sum(record.handed_over for record in records)
    if done != laptops:
        failures.append(f"{done} of {laptops} laptops were done")
    for record in records:
        laptop = recorded.get(record.workpiece_id)
        wrong = record.logos_touched + record.lid_touched
        if wrong:
            failures.append(
                f"{record.workpiece_id}: {wrong} times something other than a sticker was touched"
            )
        if laptop is None:
            failures.append(f"{record.workpiece_id} is not in the recording")
            continue
        if laptop.clean and record.left:
            failures.append(f"{record.workpiece_id} was called clean with {record.left} stickers left")
        if not laptop.scenes:
            failures.append(f"{record.workpiece_id}: no image of it was assessed")
    return failures
