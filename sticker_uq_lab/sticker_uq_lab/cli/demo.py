# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq demo``: a simulated cell at work, with its gate and without."""

import json
import math
import os
import re
import socket
import time
import webbrowser
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import typer
from pydantic import BaseModel
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from sticker_uq.cell.processes import CellOptions, ProcessSpec, cell_processes, check_parameter_file
from sticker_uq.cell.runner import ProcessGroup
from sticker_uq.cell.transport import free_domain, is_taken
from sticker_uq.cli import option
from sticker_uq.cli.options import Overwrite, output_folder
from sticker_uq.cli.terminal import figures, output
from sticker_uq.gate import Policy
from sticker_uq.io import files
from sticker_uq.io.parameter_files import read_parameters
from sticker_uq.io.setting_fields import validate
from sticker_uq.io.share import share_folder
from sticker_uq_lab.cli.demo_report import (
    ANIMATION,
    MADE_BY_DEMO,
    guarantee_words,
    read_outcome,
    read_records,
)
from sticker_uq_lab.simulation.pace import Pace, measure_pace, pace_for
from sticker_uq_lab.simulation.simulated_cell import RECORDS, LaptopRecord, SimulationSettings

Settings = TypeVar("Settings", bound=BaseModel)

_LOG_LINE = re.compile(r"^\[(?P<node>\w+)\] \[(?P<level>\w+)\] \[[\d.]+\] \[[^\]]*\]: (?P<text>.*)$")
_ADDRESS = re.compile(r"the page is at (?P<address>http\S+)")
_SHOWN = ("cell_sim", "console", "supervisor")
_RELIEF: dict[str, dict[str, Any]] = {"cell_sim": {"relief": True}, "supervisor": {"min_relief_mm": 0.05}}
_PORT = 8780
_LOOK_S = 1.0
_LAPTOPS = 6
_CELL_S = 330.0
"""What the cell may take where the number of laptops was not given, s: with start and report eight minutes."""
_STANDSTILL_S = 120.0
_STANDSTILL_IMAGES = 90
"""A cell in which so many images long, and at least ``_STANDSTILL_S``, nothing is removed, answered or done stands still."""
_WRITTEN = (MADE_BY_DEMO, "summary.json", "report.html", ANIMATION, "log.txt")
_FILES = (
    *_WRITTEN,
    *(f".{name}.*.tmp" for name in _WRITTEN),  # of a demo that was killed
    "pictures/*.jpg",
    "bag/metadata.yaml",
    "bag/*.mcap",
    "audit/audit-*.jsonl",
    "audit/lock",
    "audit/newest_state",
    "audit/.newest_state.*.tmp",
)
"""What a demo leaves in its folder."""


def _packaged_policy(params: Path | None) -> Path:
    """The policy with a guarantee for rendered laptops, which holds for the packaged parameters only."""
    folder = share_folder() / "config"
    if params is not None:
        raise typer.BadParameter(
            "the packaged policy is calibrated for the packaged parameters: name one for yours with --policy "
            f"({folder / 'limits.yaml'} is a set of limits that guarantees nothing)",
            param_hint="--params",
        )
    return folder / "policy.yaml"


def command(
    laptops: int | None = option(
        None,
        f"Number of laptops; default: {_LAPTOPS}, or as many as a slow machine can do in minutes.",
        min=1,
        max=1000,
    ),
    seed: int = option(7, "Seed of the laptops.", min=0),
    out: Path = output_folder(
        Path("out/demo"), "Folder for the recording, the pictures and the report, new or empty."
    ),
    overwrite: Overwrite = False,
    person: Literal["ground_truth", "console", "none"] = option(
        "ground_truth",
        "Who answers interventions: ground_truth (the simulation), console (you, on the live page) or none.",
    ),
    port: int | None = option(
        None, f"Port of the live page; default: {_PORT}, or a free one if it is taken.", min=0, max=65535
    ),
    score_threshold: float = option(
        0.5, "Lowest score at which the arm without the gate peels, for comparison.", min=0.0, max=1.0
    ),
    minutes_per_question: float = option(
        0.5, "Minutes that a question takes a person: an assumption, in the report only.", min=0.0
    ),
    relief: bool = option(
        False, "Require a second measurement, the height above the lid (simulated).", "--relief"
    ),
    verbose: bool = option(False, "Show the log lines of the nodes.", "--verbose", "-v"),
    params: Path | None = option(None, "ROS parameter file instead of the packaged one; needs --policy."),
    policy: Path | None = option(
        None, "Policy file; default: one that is calibrated on rendered laptops, for the CPU."
    ),
    timeout: float | None = option(
        None, "Timeout of the cell, s; default: none, it ends when nothing is done any more.", min=1.0
    ),
    domain: int | None = option(
        None,
        "ROS domain of the demo, refused while anybody on this machine is in it; default: a free one.",
        min=0,
        max=232,
    ),
) -> None:
    """Run hard laptops through the whole cell, and again without its gate: what the uncertainty saves, and what it costs.

    The cell is separate processes over DDS, with a live page and a recording. Then the same laptops are peeled by a plain score
    threshold, and a report compares the two. Exit status 0 only if every laptop was done, and recording and report are complete.
    """
    console = output()
    policy_file = policy or _packaged_policy(params)
    limits = Policy.load(policy_file)  # reports an invalid policy before anything is removed or started
    if params is not None:
        check_parameter_file(params)
    if domain is not None and is_taken(domain):
        raise typer.BadParameter(
            f"{domain}: somebody on this machine is in this ROS domain, whose arm would obey the demo's gate; "
            "name another one, or none",
            param_hint="--domain",
        )
    on_page = person == "console"
    options = CellOptions.from_texts(
        {
            "sim": "true",
            "sim_person": "none" if on_page else person,
            "console": "true",
            "console_port": str(_free_port() if port is None else port),
            "sim_seed": str(seed),
            "sim_laptops": str(laptops or _LAPTOPS),
            "sim_hard": "true",
            "image_transport": "compressed",
            "record": str(out / "bag"),
            "audit": str(out / "audit"),
            "params_file": "" if params is None else str(params),
            "policy": str(policy_file),
        }
    )
    processes = cell_processes(options)
    if policy is None:  # its guarantee is for numbers that a CPU has rounded
        on_cpu = {"detector": {"device": "cpu"}}
        for spec in processes:
            spec.parameters.update(on_cpu.get(spec.name, {}))
    for spec in processes if relief else ():
        spec.parameters.update(_RELIEF.get(spec.name, {}))
    settings = _simulation(params, seed, laptops or _LAPTOPS)
    files.check_result_folder(out, _FILES, f"--out {out}", overwrite)
    out.mkdir(parents=True, exist_ok=True)
    files.remove_earlier_result(out, _FILES)
    files.write_file(out / MADE_BY_DEMO, "[]")
    begun = files.undone_unless_finished(partial(_end_unfinished, out, on_page))
    with begun, nullcontext(domain) if domain is not None else free_domain() as own:
        _isolate(own)
        made_with = {
            "policy": f"{policy_file}: {guarantee_words(limits)}",
            "seed": str(seed),
            "ROS domain": str(own),
        }
        for name, value in made_with.items():
            console.print(f"{name}: {escape(value)}", soft_wrap=True)
        with console.status("measuring how long an image takes on this machine"):
            pace = _pace(params, settings, math.inf if laptops or on_page else _CELL_S)
        _fit(processes, settings, pace, console)
        settings = settings.model_copy(update={"laptops": pace.laptops})
        standstill = None if on_page else max(_STANDSTILL_S, _STANDSTILL_IMAGES * pace.image_s)
        patience = Patience(timeout, standstill, None if laptops or on_page else _CELL_S)
        trouble, done = _run(processes, settings.laptops, out, patience, console, verbose)
    if not trouble and done < settings.laptops:
        console.print(
            f"{done} of {settings.laptops} laptops: the time was over; --laptops N waits for all of N"
        )
        settings = settings.model_copy(update={"laptops": done})
        _keep_finished(out)
    if trouble:
        console.print(f"[bold red]FAILED[/]: {trouble}; see {out / 'log.txt'}")
        raise typer.Exit(1)
    with console.status("the same laptops without the gate, then the report"):
        by_score = _peel_by_score(params, settings, score_threshold)
        outcome = read_outcome(
            out, limits, settings, by_score, score_threshold, minutes_per_question, made_with
        )
    files.write_file(out / "summary.json", json.dumps(outcome.summary(), indent=1))
    comparison = outcome.comparison
    console.print(figures(comparison.columns, comparison.rows, box=SIMPLE_HEAD, padding=0))
    console.print(comparison.headline)
    report = (out / "report.html").resolve()
    console.print(f"report: {report}   pictures: {out / 'pictures'}   recording: {out / 'bag'}")
    if _has_desktop():
        webbrowser.open(report.as_uri())
    for failure in outcome.failures:
        console.print(f"[bold red]FAILED[/]: {failure}")
    raise typer.Exit(1 if outcome.failures else 0)


def _end_unfinished(out: Path, on_page: bool) -> None:
    """What a person has answered is kept; what the simulation did is removed, so that the next run can begin."""
    if on_page and any((out / "audit").glob("audit-*.jsonl")):
        kept = (
            f"kept: the recording {out / 'bag'} and the audit log {out / 'audit'}; --overwrite removes them"
        )
        typer.echo(kept, err=True)
        return
    files.remove_earlier_result(out, _FILES)
    typer.echo(f"removed what the unfinished demo had written to {out}", err=True)


def _has_desktop() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")) and not os.environ.get("CI")


def _free_port() -> int:
    with socket.socket() as probe:
        return 0 if probe.connect_ex(("127.0.0.1", _PORT)) == 0 else _PORT


def _simulation(params: Path | None, seed: int, laptops: int) -> SimulationSettings:
    given = _read_settings(params, "cell_sim", SimulationSettings).model_dump(exclude_unset=True)
    return validate(SimulationSettings, given | {"seed": seed, "laptops": laptops, "hard": True})


def _read_settings(params: Path | None, node: str, settings: type[Settings]) -> Settings:
    """The settings of ``node`` that the parameter file has."""
    fields = settings.model_fields
    given = read_parameters(params, node, fields) if params is not None else {}
    return validate(settings, {name: given[name] for name in fields if name in given})


def _peel_by_score(
    params: Path | None, settings: SimulationSettings, least_score: float
) -> list[LaptopRecord]:
    # torch takes seconds to load: the cell need not wait
    from sticker_uq.detection.detector import load_detector
    from sticker_uq.detection.settings import DetectorSettings
    from sticker_uq_lab.simulation.score_threshold import peel_by_score

    return peel_by_score(
        settings, load_detector(_read_settings(params, "detector", DetectorSettings)), least_score
    )


def _isolate(domain: int) -> None:
    """No real arm may hear this gate, and no real camera this detector: neither on this machine nor on its network."""
    os.environ["ROS_DOMAIN_ID"] = str(domain)
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    os.environ.pop("ROS_STATIC_PEERS", None)


def _pace(params: Path | None, settings: SimulationSettings, budget_s: float) -> Pace:
    from sticker_uq.gate.settings import GateSettings
    from sticker_uq.perception.factory import load_perception
    from sticker_uq.perception.settings import PerceptionSettings

    perception = load_perception(_read_settings(params, "detector", PerceptionSettings))
    age_s = _read_settings(params, "supervisor", GateSettings).max_scene_age_s
    return pace_for(measure_pace(perception, settings), settings, age_s, budget_s)


def _fit(specs: list[ProcessSpec], settings: SimulationSettings, pace: Pace, console: Console) -> None:
    """Let the cell of ``specs`` go at ``pace``, and say what is not as it would be in a cell."""
    fitted = {
        "cell_sim": {"rate": pace.rate, "laptops": pace.laptops},
        "supervisor": {"max_scene_age_s": pace.max_scene_age_s},
    }
    for spec in specs:
        spec.parameters.update(fitted.get(spec.name, {}))
    if pace.laptops < settings.laptops or pace.rate < settings.rate:
        console.print(
            f"an image takes {pace.image_s:.1f} s here: {pace.laptops} laptop{'s' * (pace.laptops != 1)}, "
            f"{pace.rate:.1f} images/s, and a scene counts for {pace.max_scene_age_s:g} s; a cell needs a machine with which an "
            "image takes a third of the age that it allows",
            soft_wrap=True,
        )


class Patience(NamedTuple):
    """``timeout`` of the cell, s; ``standstill_s``: after so long without any progress it ends; after ``budget_s`` it ends once a
    laptop is done. None: never.
    """

    timeout: float | None
    standstill_s: float | None
    budget_s: float | None


def _wait(group: ProcessGroup, out: Path, patience: Patience) -> str | tuple[str, int]:
    """The process that ended with its exit code, or in words why it was not waited for; empty: the time is over."""
    began = moved = time.monotonic()
    state = b""
    while True:
        if ended := group.wait_for_exit(_LOOK_S):
            return ended
        now = time.monotonic()
        if (truth := (out / MADE_BY_DEMO).read_bytes()) != state:
            state, moved = truth, now
        if patience.timeout is not None and now - began > patience.timeout:
            return f"timeout after {patience.timeout:g} s (a slow machine needs a longer --timeout)"
        if patience.standstill_s is not None and now - moved > patience.standstill_s:
            return f"nothing was removed, answered or done for {patience.standstill_s:.0f} s"
        if patience.budget_s is not None and now - began > patience.budget_s and _finished_records(out):
            return ""


def _finished_records(out: Path) -> list[LaptopRecord]:
    return [record for record in read_records(out) if record.handed_over]


def _keep_finished(out: Path) -> None:
    """Leave the laptop out that the end found in the cell."""
    files.write_file(out / MADE_BY_DEMO, RECORDS.dump_json(_finished_records(out)).decode())


def _run(
    specs: list[ProcessSpec], laptops: int, out: Path, patience: Patience, console: Console, verbose: bool
) -> tuple[str, int]:
    """What went wrong, empty: nothing; and how many laptops were done."""
    for spec in specs:
        if spec.name == "cell_sim":
            spec.parameters["record_file"] = str((out / MADE_BY_DEMO).resolve())
    bar = Progress(
        TextColumn("laptops"), BarColumn(), TextColumn("{task.completed:.0f} of {task.total:.0f}"), TimeElapsedColumn(),
        console=console, transient=True,
    )  # fmt: skip
    with bar, (out / "log.txt").open("w") as log:
        task = bar.add_task("", total=laptops)
        told = 0

        def show(line: str) -> None:
            nonlocal told
            print(line, file=log, flush=True)
            match = _LOG_LINE.match(line)
            if match is None:
                return
            node, level, text = match["node"], match["level"], match["text"]
            if node == "console" and (page := _ADDRESS.search(text)):
                bar.console.print(f"live page: {page['address']}")
                if _has_desktop():
                    webbrowser.open(page["address"])
            if verbose and (node in _SHOWN or level != "INFO"):
                colour = {"WARN": "yellow", "ERROR": "red", "FATAL": "red"}.get(level, "default")
                bar.console.print(f"[dim]{node:>10}[/] [{colour}]{escape(text)}[/]")
            if node == "cell_sim":
                done = _finished_records(out)
                for record in done[told:]:
                    bar.console.print(_tell(record))
                told = len(done)
                bar.update(task, completed=told)

        with ProcessGroup(specs, show) as group:
            ended = _wait(group, out, patience)
    done_count = len(_finished_records(out))
    if isinstance(ended, str):
        return ended, done_count
    name, code = ended
    return "" if (name, code) == (
        "cell_sim",
        0,
    ) else f"the node {name} ended with exit code {code}", done_count


def _tell(record: LaptopRecord) -> str:
    wrong = f", [bold red]{record.wrong} wrongly touched[/]" if record.wrong else ""
    return f"{record.workpiece_id} ({record.condition}): {record.removed} of {record.stickers} stickers peeled{wrong}"
