# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq demo``: a simulated cell at work, and what came of it."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from sticker_uq.cell.domain import free_domain, taken
from sticker_uq.cell.processes import CellOptions, ProcessSpec, cell_processes, check_parameter_file
from sticker_uq.cell.runner import ProcessGroup
from sticker_uq.cli.options import output_folder
from sticker_uq.cli.terminal import output
from sticker_uq.evaluation.replay.recording import RecordedLaptop, read_recording
from sticker_uq.evaluation.reporting.cell_report import cell_report, stage_times
from sticker_uq.evaluation.reporting.report import write_report
from sticker_uq.evaluation.reporting.report_model import Headline, ReportLaptop, Tone
from sticker_uq.gate import Policy
from sticker_uq.io.bags import Bag
from sticker_uq.io.files import atomic_write
from sticker_uq.io.outputs import remove_earlier_result
from sticker_uq.io.share import share_folder
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


_LOG_LINE = re.compile(r"^\[(?P<node>\w+)\] \[(?P<level>\w+)\] \[[\d.]+\] \[[^\]]*\]: (?P<text>.*)$")
_SHOWN = ("cell_sim", "console", "supervisor")
_MADE_BY_DEMO = "truth.json"
_WRITTEN = (_MADE_BY_DEMO, "summary.json", "report.html", "log.txt")
_FILES = (
    *_WRITTEN,
    *(f".{name}.*.tmp" for name in _WRITTEN),  # of a demo that was killed
    "pictures/*.jpg",
    "bag/metadata.yaml",
    "bag/*.mcap",
    "audit/audit-*.jsonl",
    "audit/lock",
)
"""What a demo leaves in its folder."""


def command(
    laptops: Annotated[int, typer.Option(min=1, max=1000, help="Number of laptops.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the laptops.")] = 7,
    out: Annotated[
        Path,
        output_folder(
            "Folder for the recording, the pictures and the report; an earlier demo's files in it are replaced."
        ),
    ] = Path("out/demo"),
    person: Annotated[
        Literal["ground_truth", "console", "none"],
        typer.Option(
            help="Who answers interventions: ground_truth (the simulation), console (you, on the operator's page; every laptop "
            "has a sticker on a logo, so that there is something to ask) or none."
        ),
    ] = "ground_truth",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the operator's page; 0: any free one.")
    ] = 8780,
    params: Annotated[
        Path | None, typer.Option(help="ROS parameter file instead of the packaged one.")
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(help="Policy file instead of the packaged one."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=1.0, help="Timeout of the demo, s; default: 600, or none with --person console."),
    ] = None,
    domain: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=232,
            help="ROS domain of the demo, refused while anybody on this machine is in it; default: a free one.",
        ),
    ] = None,
) -> None:
    """Run laptops through the whole cell: separate processes over DDS, a recording, a report, a table.

    Interventions are answered from ground truth, or by you with --person console. Exit status 0 only if every laptop was
    done, nothing but stickers was touched, no laptop called clean has a sticker left, and recording and report are complete.
    """
    console = output()
    policy_file = policy or share_folder() / "config" / "policy.yaml"
    Policy.load(policy_file)  # reports an invalid policy before anything is removed or started
    if params is not None:
        check_parameter_file(params)
    if domain is not None and taken(domain):
        raise typer.BadParameter(
            f"{domain}: somebody on this machine is in this ROS domain, whose arm would obey the demo's gate; "
            "name another one, or none",
            param_hint="--domain",
        )
    on_page = person == "console"
    limit = timeout if timeout is not None or on_page else 600.0
    options = CellOptions.from_texts(
        {
            "sim": "true",
            "sim_person": "none" if on_page else person,
            "console": str(on_page).lower(),
            "console_port": str(port),
            "sim_seed": str(seed),
            "sim_laptops": str(laptops),
            "sim_hard": "true" if on_page else "",
            "image_transport": "compressed",
            "record": str(out / "bag"),
            "audit": str(out / "audit"),
            "params_file": "" if params is None else str(params),
            "policy": str(policy_file),
        }
    )
    processes = cell_processes(options)
    _prepare(out)
    with nullcontext(domain) if domain is not None else free_domain() as own:
        _isolate(own)
        console.print(f"ROS domain {own}, on this machine alone")
        trouble = _run(processes, laptops, out, limit, console)
    if trouble:
        console.print(f"[bold red]FAILED[/]: {trouble}; see {out / 'log.txt'}")
        raise typer.Exit(1)
    console.print("reading the recording, drawing pictures, writing the report ...")
    outcome = read_outcome(out, laptops, Policy.load(policy_file), _environment())
    with atomic_write(out / "summary.json", "w") as file:
        json.dump(outcome.summary(), file, indent=1)
    _print_table(outcome, console)
    console.print(f"report: {out / 'report.html'}   pictures: {out / 'pictures'}   recording: {out / 'bag'}")
    for failure in outcome.failures:
        console.print(f"[bold red]FAILED[/]: {failure}")
    raise typer.Exit(1 if outcome.failures else 0)


def _isolate(domain: int) -> None:
    """No real arm may hear this gate, and no real camera this detector: neither on this machine nor on its network."""
    os.environ["ROS_DOMAIN_ID"] = str(domain)
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    os.environ.pop("ROS_STATIC_PEERS", None)


def _prepare(out: Path) -> None:
    """Make the folder ``out`` for a new demo; raises InvalidInput when it holds anything but files of an earlier one."""
    out.mkdir(parents=True, exist_ok=True)
    remove_earlier_result(out, _FILES, f"--out {out}")
    with atomic_write(out / _MADE_BY_DEMO, "w") as file:
        file.write("[]")


def _run(specs: list[ProcessSpec], laptops: int, out: Path, timeout: float | None, console: Console) -> str:
    for spec in specs:
        if spec.name == "cell_sim":
            spec.parameters["record_file"] = str((out / _MADE_BY_DEMO).resolve())
    bar = Progress(
        TextColumn("laptops"), BarColumn(), TextColumn("{task.completed:.0f} of {task.total:.0f}"), TimeElapsedColumn(),
        TextColumn("{task.description}"), console=console,
    )  # fmt: skip
    with bar, (out / "log.txt").open("w") as log:
        task = bar.add_task("starting", total=laptops)

        def show(line: str) -> None:
            print(line, file=log, flush=True)
            match = _LOG_LINE.match(line)
            if match is None or (match["node"] not in _SHOWN and match["level"] == "INFO"):
                return
            if match["node"] == "cell_sim":
                done, removed, stickers = _progress(out)
                bar.update(task, completed=done, description=f"{removed} of {stickers} stickers so far")
            colour = {"WARN": "yellow", "ERROR": "red", "FATAL": "red"}.get(match["level"], "default")
            bar.console.print(f"[dim]{match['node']:>10}[/] [{colour}]{_plain(match['text'])}[/]")

        with ProcessGroup(specs, show) as group:
            ended = group.wait_for_exit(timeout)
    if ended is None:
        return f"timeout after {timeout:g} s"
    name, code = ended
    return "" if (name, code) == ("cell_sim", 0) else f"the node {name} ended with exit code {code}"


def _progress(out: Path) -> tuple[int, int, int]:
    records = json.loads((out / _MADE_BY_DEMO).read_text())
    done = sum(record["handed_over"] for record in records)
    return done, sum(record["removed"] for record in records), sum(record["stickers"] for record in records)


def _plain(text: str) -> str:
    return text.replace("[", "\\[")


def _print_table(outcome: DemoOutcome, console: Console) -> None:
    table = Table(title="Outcome by ground truth", box=SIMPLE_HEAD, padding=0)
    for column in LAPTOP_COLUMNS:
        table.add_column(column, justify="left" if column in ("laptop", "result") else "right", no_wrap=True)
    *laptops, total = outcome.rows
    for row in laptops:
        table.add_row(*map(_cell, row))
    table.add_section()
    table.add_row(*map(_cell, total), style="bold")
    console.print(table)
    stages = Table(title="Milliseconds per image (median)")
    for stage in outcome.stages:
        stages.add_column(stage, justify="right")
    stages.add_row(*(f"{ms:.1f}" for ms in outcome.stages.values()))
    console.print(stages)


def _cell(value: Any) -> str:
    return "" if value is None else str(value)


def _environment() -> dict[str, str]:
    import torch
    import torchvision

    return {
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "processor": f"{platform.machine()}, {os.cpu_count()} cores",
    }
