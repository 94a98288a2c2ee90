# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq fleet``: many recordings of many cells, assessed on processes or on a Ray cluster, and one report of them."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from sticker_uq.cell.bundle import Bundle
from sticker_uq.cell.detector_settings import NODE_ONLY
from sticker_uq.cli.options import Jobs, RayAddress, output_file, output_folder, settings_options
from sticker_uq.cli.replay import MANY, policy_of, progress
from sticker_uq.evaluation.executors import executor
from sticker_uq.evaluation.fleet.cells import recordings_of
from sticker_uq.evaluation.fleet.figures import as_plain, read_fleet
from sticker_uq.evaluation.fleet.recordings import INDEX, FleetPlan, replay_recording, write_index
from sticker_uq.evaluation.replay.assessing import identity_of, process_count
from sticker_uq.evaluation.reporting.fleet_report import fleet_report
from sticker_uq.io.files import atomic_write
from sticker_uq.messages import printable
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.factory import load_perception
from sticker_uq.scene import InvalidInput

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def _about() -> None:
    """Many recordings of many cells: assess and judge all of them, and report which cell asks most, drifts, differs."""


@app.command()
@settings_options("settings", PerceptionSettings, "detector", also_known=NODE_ONLY)
def replay(
    recordings: Annotated[
        list[Path],
        typer.Argument(metavar="RECORDING...", help="What `sticker-uq replay` reads; each is one task."),
    ],
    settings: PerceptionSettings,
    params: Path | None,
    bundle: Bundle | None,
    out: Annotated[Path, output_folder("Folder for the Parquet files; an interrupted call resumes in it.")],
    cells: Annotated[
        Path | None,
        typer.Option(
            metavar="MAP.yaml",
            help="Lines CELL: [PATTERN, ...]: which cell a recording is from. Default: the folder that it lies in.",
        ),
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help="Policy file instead of the packaged one or the bundle's.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="Image topic of the recordings; only needed if they have several.")
    ] = None,
    jobs: Jobs = 0,
    ray_address: RayAddress = "",
) -> None:
    """Assess and judge every image of every RECORDING, and read the states of its gate, into Parquet files.

    The same call resumes after an interruption; with another policy only judgements are made anew. A recording that cannot be
    read does not stop the others; exit status 1 when there is one.
    """
    wanted = recordings_of(recordings, cells)
    limits = policy_of(policy or (bundle.policy if bundle is not None else None), params)
    settings = settings.rooted()
    plan = FleetPlan(settings, identity_of(load_perception(settings)), limits, out.absolute(), topic)
    out.mkdir(parents=True, exist_ok=True)
    at_once = min(jobs or process_count(settings, MANY), len(wanted))
    with progress() as bar, executor(at_once, ray_address) as execute:
        rows = list(
            bar.track(
                execute(partial(replay_recording, plan=plan), wanted), len(wanted), description="recordings"
            )
        )
    order = {str(one.path): number for number, one in enumerate(wanted)}
    rows.sort(key=lambda row: order[row["recording"]])
    write_index(rows, plan)
    made = Counter(kind for row in rows for kind in row["made"])
    typer.echo(
        f"{len(rows)} recordings, {sum(row['images'] for row in rows)} images; made in this call: "
        f"{', '.join(f'{made[kind]} {kind}' for kind in ('assessments', 'judgements', 'gates'))}; the others were there"
    )
    for row in rows:
        if row["note"]:
            typer.echo(printable(f"without gate: {row['note']}"), err=True)
    failed = [row for row in rows if row["error"]]
    for row in failed:
        typer.echo(printable(f"failed: {row['recording']} of {row['cell']}: {row['error']}"), err=True)
    typer.echo(f"index: {out / INDEX}")
    raise typer.Exit(1 if failed else 0)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Folder of `sticker-uq fleet replay`.")],
    out: Annotated[Path, output_file("The report, an HTML page.")],
    json_file: Annotated[
        Path | None, output_file("Also write the figures to this JSON file.", "--json")
    ] = None,
    level: Annotated[
        float, typer.Option(help="Highest expected share of wrong ones among the cells said to differ.")
    ] = 0.05,
    false_alarm: Annotated[
        float | None,
        typer.Option(min=1e-6, max=0.5, help="Of the assumption monitor; default: that of the supervisor."),
    ] = None,
) -> None:
    """Write one report of all cells from the Parquet files: questions, limits, scene distance, drift, differences."""
    if not 0.0 < level < 1.0:
        raise InvalidInput(f"--level {level:g}: expected a number between 0 and 1")
    fleet = read_fleet(folder, level, false_alarm)
    texts = {out: fleet_report(fleet)}
    if json_file is not None:
        texts[json_file] = json.dumps(as_plain(fleet), indent=2) + "\n"
    for file, text in texts.items():
        with atomic_write(file, "w") as stream:
            stream.write(text)
    for cell in fleet.differing():
        word = "more" if fleet.asks_more(cell) else "less"
        typer.echo(
            printable(
                f"{cell.cell} asks {word} than the rest of the fleet: {cell.per_100.value:.1f} per 100 laptops"
            )
        )
    typer.echo(f"report in {out}")
