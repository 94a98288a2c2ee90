# SPDX-License-Identifier: Apache-2.0
"""What the demo makes of a recording: the comparison, report.html and the animation."""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sticker_uq.evaluation.annotated_images import write_animation
from sticker_uq.evaluation.replay.recording import RecordedLaptop, read_recording
from sticker_uq.evaluation.report_model import Headline, ReportSection, Tone
from sticker_uq.evaluation.reporting.cell_report import cell_report
from sticker_uq.evaluation.reporting.report import write_report
from sticker_uq.gate import Policy
from sticker_uq.io.bags import Bag
from sticker_uq_lab.simulation.comparison import Comparison, compare
from sticker_uq_lab.simulation.simulated_cell import RECORDS, LaptopRecord, SimulationSettings

MADE_BY_DEMO = "truth.json"
ANIMATION = "demo.webp"
LAPTOP_COLUMNS = (
    "laptop", "hard because", "stickers", "removed", "by person", "left",
    "wrong", "asked", "images", "result",
)  # fmt: skip
Row = tuple[str | int | float | None, ...]


@dataclass(frozen=True)
class DemoOutcome:
    """``rows``: a laptop each; ``stages``: median ms per image; ``failures``: missed criteria."""

    rows: tuple[Row, ...]
    comparison: Comparison
    stages: Mapping[str, float]
    failures: tuple[str, ...]

    def summary(self) -> dict[str, Any]:
        return {
            "laptops": [dict(zip(LAPTOP_COLUMNS, row, strict=True)) for row in self.rows],
            "comparison": self.comparison.summary(),
            "ms": dict(self.stages),
            "failures": list(self.failures),
        }


def read_outcome(
    out: Path,
    policy: Policy,
    settings: SimulationSettings,
    by_score: list[LaptopRecord],
    least_score: float,
    minutes: float,
    made_with: Mapping[str, str],
) -> DemoOutcome:
    """The recording in ``out``, made with ``policy``, against ground truth; writes pictures and report.html.

    ``by_score``: the same simulated laptops, peeled by a score threshold; ``made_with``: what the report is to name. Raises
    :class:`sticker_uq.scene.InvalidInput` when the recording cannot be read.
    """
    records = read_records(out)
    bag = Bag(out / "bag")
    laptops = read_recording(bag).laptops
    recorded = {laptop.workpiece_id: laptop for laptop in laptops}
    matched = [recorded.get(record.workpiece_id) for record in records]
    rows = tuple(map(_row, records, matched))
    failures = _failures(records, recorded, settings.laptops)
    if bag.damage:
        failures.append(f"the recording is damaged: {bag.damage}")
    comparison = compare(by_score[: len(records)], records, matched, least_score, minutes)
    score, gate = comparison.score, comparison.gate
    each = ReportSection("Every laptop through the gate", "", columns=LAPTOP_COLUMNS, rows=rows, folded=True)
    report = cell_report(
        laptops,
        out / "bag",
        out / "pictures",
        policy,
        title=comparison.headline,
        lead="Laptops, camera, arm and the person's answers are simulated; detector, uncertainty, policy and gate are those of "
        f"a real cell. Policy: {guarantee_words(policy)}. Big numbers: score threshold → gate.",
        headlines=[
            _headline("peeled at wrong places", score.wrong, gate.wrong),
            _headline("stickers left", score.left, gate.left),
            Headline("questions to a person", f"0 → {gate.questions}"),
            Headline("minutes of a person", f"0 → {gate.questions * minutes:g}"),
            _headline("laptops right without a person", score.unattended, gate.unattended, fewer=False),
        ],
        columns=comparison.columns,
        rows=comparison.rows,
        environment={**made_with, **_environment()},
        sections=(*comparison.sections(settings), each),
        truth={record.workpiece_id: _truth(record, recorded.get(record.workpiece_id)) for record in records},
    )
    write_report(report, out / "report.html")
    write_animation(comparison.shots(settings), out / ANIMATION)
    failures += [
        f"{laptop.title}: no picture of it"
        for laptop in report.laptops
        if all(e.picture is None for e in laptop.entries)
    ]
    return DemoOutcome(rows, comparison, report.timings, tuple(failures))


def guarantee_words(policy: Policy) -> str:
    """What ``policy`` guarantees, in one line."""
    proof = policy.guarantee.wrongful_removal if policy.guarantee is not None else None
    if proof is None:
        return "guarantees nothing"
    return (
        f"at most {100 * proof.level:.3g} of 100 images of laptops as it was calibrated on lead to a wrongful removal, "
        f"confidence {proof.confidence:.0%}"
    )


def read_records(out: Path) -> list[LaptopRecord]:
    """The ground truth that the simulation has written so far."""
    return RECORDS.validate_json((out / MADE_BY_DEMO).read_bytes())


def _truth(record: LaptopRecord, laptop: RecordedLaptop | None) -> tuple[str, Tone]:
    """How the laptop really ended."""
    found = [(record.left, "sticker left", "stickers left"), (record.wrong, "wrong place", "wrong places")]
    words = ", ".join(f"{count} {one if count == 1 else many}" for count, one, many in found if count)
    if not words:
        return "clean and unharmed", Tone.GOOD
    unseen = record.wrong or (laptop is not None and laptop.clean)
    return words, Tone.BAD if unseen else Tone.WARN


def _headline(label: str, score: int, gate: int, *, fewer: bool = True) -> Headline:
    better = gate < score if fewer else gate > score
    tone = Tone.PLAIN if gate == score else Tone.GOOD if better else Tone.BAD
    return Headline(label, f"{score} → {gate}", tone)


def _row(record: LaptopRecord, laptop: RecordedLaptop | None) -> Row:
    seen = laptop or RecordedLaptop(record.workpiece_id, 0)
    result = "clean" if seen.clean else seen.result or "never left"
    return (
        record.workpiece_id,
        record.condition,
        record.stickers,
        record.removed,
        sum(map(seen.by_operator, seen.removals())),
        record.left,
        record.wrong,
        len(seen.questions),
        len(seen.scenes),
        "not recorded" if laptop is None else result,
    )


def _failures(records: list[LaptopRecord], recorded: Mapping[str, RecordedLaptop], laptops: int) -> list[str]:
    failures = []
    done = sum(record.handed_over for record in records)
    if done != laptops:
        failures.append(f"{done} of {laptops} laptops were done")
    for record in records:
        laptop = recorded.get(record.workpiece_id)
        if laptop is None:
            failures.append(f"{record.workpiece_id} is not in the recording")
            continue
        if not laptop.scenes:
            failures.append(f"{record.workpiece_id}: no image of it was assessed")
    return failures


def _environment() -> dict[str, str]:
    import torch
    import torchvision

    return {
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "processor": f"{platform.machine()}, {os.cpu_count()} cores",
    }
