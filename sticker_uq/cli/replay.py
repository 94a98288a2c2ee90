# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq replay``: assesses recorded images with the perception and policy of the cell, without ROS."""

from __future__ import annotations

import json
import operator
import re
from collections import Counter
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from sticker_uq.cell.bundle import Bundle
from sticker_uq.cell.detector_settings import NODE_ONLY
from sticker_uq.cli.options import RayAddress, output_folder, settings_options, supervisor_parameters
from sticker_uq.cli.replay_job import ReplayJob, run_numbered
from sticker_uq.cli.terminal import output, tell_of_source
from sticker_uq.evaluation.executors import executor
from sticker_uq.evaluation.replay.assessing import process_count
from sticker_uq.evaluation.replay.candidate import Candidate
from sticker_uq.evaluation.replay.cells import CELL_SCHEMA, cell_of, cell_rows, read_images
from sticker_uq.evaluation.replay.replay import ReplaySummary
from sticker_uq.evaluation.replay.tables import table_writer
from sticker_uq.gate import Policy
from sticker_uq.io.outputs import check_output_folder
from sticker_uq.io.share import share_folder
from sticker_uq.messages import printable
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.factory import load_perception
from sticker_uq.scene import InvalidInput

MANY = 1_000_000
"""Number of images of a replay, where it is unknown."""


@settings_options("settings", PerceptionSettings, "detector", also_known=NODE_ONLY)
def command(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="SOURCE...",
            help="rosbag2 recordings (folder, .mcap, .db3), folders of pictures, pictures, or videos.",
        ),
    ],
    settings: PerceptionSettings,
    params: Path | None,
    bundle: Bundle | None,
    out: Annotated[
        Path,
        output_folder("Folder for the results, new or empty; with one folder for each of several sources."),
    ] = Path("out/replay"),
    topic: Annotated[
        str | None, typer.Option(help="Image topic of a recording; only needed if it has several.")
    ] = None,
    table_format: Annotated[
        str, typer.Option("--format", metavar="parquet|csv", help="Format of the two tables.")
    ] = "parquet",
    pictures: Annotated[
        str, typer.Option(metavar="all|none|N", help="Annotated pictures to keep: all, none, or a number.")
    ] = "all",
    policy: Annotated[
        Path | None, typer.Option(help="Policy file instead of the packaged one or the bundle's.")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="COCO folder with labels of the same images: what is decided is counted against them, and certain detections "
            "that they contradict are listed."
        ),
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(
            metavar="BUNDLE|POLICY",
            help="Bundle, or policy file, that judges the same images too: what it decides differently is counted, in the report "
            "and in the table candidate.",
        ),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            min=0,
            max=256,
            help="Parallel processes, one per source, or sharing the images of one source; 0: automatic.",
        ),
    ] = 0,
    ray_address: RayAddress = "",
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Compare with the recorded scenes of the cell; exit status 1 if one differs."
        ),
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Of several sources leave those that an interrupted call with the same options has finished.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print summary.json of each source in one line instead of tables.")
    ] = False,
) -> None:
    """Assess and judge every image of SOURCE with the same code as the cell.

    Writes tables of images, objects and limits (which one blocked how often), annotated pictures, report.html and summary.json.

    Images that cannot be read are rows with status FAILED; exit status 1 when all of a source are, and when a recording has lost
    images. Several sources are recordings of cells, each named after the folder that it lies in: the table cells says how often
    each asks. One that cannot be read does not stop the others.
    """
    if table_format not in ("parquet", "csv"):
        raise InvalidInput(f"--format {table_format}: expected parquet or csv")
    limits = policy_of(policy or (bundle.policy if bundle is not None else None), params)
    most = _pictures(pictures)
    several = len(sources) > 1
    spread = several or bool(ray_address)
    folders = _folders(sources, out) if several else [out]
    for folder in folders:
        check_output_folder(folder, f"--out {folder}", empty=not (resume and several))
    anywhere = Path.absolute if ray_address else Path  # another machine has another working folder
    own = settings.rooted() if ray_address else settings
    candidate = None if compare is None else _candidate(compare, own)
    replays = [
        ReplayJob(
            source=anywhere(source),
            topic=topic,
            settings=own,
            policy=limits,
            out=anywhere(folder),
            table_format=table_format,  # type: ignore[arg-type]  # checked above
            pictures=most,
            verify=verify,
            labels=labels if labels is None else anywhere(labels),
            processes=1 if spread else jobs,
            candidate=candidate,
        )
        for source, folder in zip(sources, folders, strict=True)
    ]
    failed: dict[Path, str] = {}
    whole = True
    if spread:
        for replay in replays:  # reports invalid input before the first process starts
            if not several or not replay.source.exists():
                replay.open()
        replays[0].labelled()
        told = {replay.out: replay.finished() for replay in replays if resume and several}
        missing = [replay for replay in replays if not told.get(replay.out)]
        at_once = max(min(jobs or process_count(settings, MANY), len(missing)), 1)
        with progress() as bar, executor(at_once, ray_address) as execute:
            numbered = execute(run_numbered, enumerate(missing))
            found = dict(bar.track(numbered, len(missing), description="sources"))
        failed = {missing[i].source: one for i, one in found.items() if isinstance(one, str)}
        if failed and not several:
            raise InvalidInput(*failed.values())
        ran = [(missing[i], one) for i, one in sorted(found.items()) if not isinstance(one, str)]
        if resume:
            typer.echo(f"{len(replays) - len(missing)} sources were finished before", err=as_json)
        for one in filter(None, told.values()):
            lost = tell_of_source(one["source"], one["remarks"], one["lost"])
            whole &= not lost and one["failed"] < one["images"]
    else:
        with progress() as bar:
            images = replays[0].open()
            task = bar.add_task(
                "loading the detector", total=replays[0].rounds * operator.length_hint(images, 0) or None
            )
            count = partial(bar.update, task, advance=1, description="images")
            ran = [(replays[0], replays[0].run(load_perception, count))]
    for replay, result in ran:
        if as_json:
            typer.echo(json.dumps(asdict(result.summary)))
        else:
            if several:
                typer.echo(f"{replay.source}:")
            _print_summary(result.summary, replay.out)
        tell_of_source(replay.source, result.summary.remarks, result.summary.lost)
        for line in result.differing:
            typer.echo(line, err=True)
        if result.compared:
            typer.echo(result.compared, err=as_json)
        if result.differences is not None:
            typer.echo(result.differences.summary(), err=as_json)
        if result.summary.failed == result.summary.images:
            typer.echo(f"{replay.source}: none of the images could be assessed; their rows say why", err=True)
    for source, error in failed.items():
        typer.echo(printable(f"failed: {source}: {error}"), err=True)
    if several:
        _print_cells(
            [replay.out for replay in replays if replay.source not in failed], out, table_format, as_json
        )
    if len({(one.summary.model_hash, one.summary.settings_hash) for _, one in ran}) > 1:
        typer.echo("machines differ in weights or device: their summaries have different hashes", err=True)
        failed = failed or {out: "machines differ"}
    whole &= all(one.summary.failed < one.summary.images and not one.summary.lost for _, one in ran)
    raise typer.Exit(0 if whole and not failed and all(result.agrees for _, result in ran) else 1)


def _print_cells(folders: list[Path], out: Path, table_format: str, quiet: bool) -> None:
    """Write and print (on standard error if ``quiet``) what each cell says in the replays in ``folders``."""
    if not folders:
        return
    rows = cell_rows(read_images(folder / f"images.{table_format}") for folder in folders)
    with table_writer(CELL_SCHEMA, out / f"cells.{table_format}") as write:
        write(rows)
    for row in rows:
        typer.echo(
            printable(
                f"{row['cell']}: {row['recordings']} recordings, {row['laptops']} laptops, asked about {row['asked']} "
                f"({row['asked_per_100']:.1f} per 100, 95 %: {row['asked_low']:.1f} to {row['asked_high']:.1f}), "
                f"released on {row['released']}"
            ),
            err=quiet,
        )
    typer.echo(f"cells: {out / f'cells.{table_format}'}", err=quiet)


def _candidate(path: Path, settings: PerceptionSettings) -> Candidate:
    """What ``--compare`` names: a bundle on this machine, or a policy for the assessments of the replay."""
    if path.is_dir():
        bundle = Bundle.load(path)
        return Candidate(str(path), bundle.settings(settings), Policy.load(bundle.policy))
    return Candidate(str(path), settings, Policy.load(path))


def _folders(sources: list[Path], out: Path) -> list[Path]:
    """A folder in ``out`` for each source, named after it, and below that of its cell where names are the same."""
    names = [source.stem if source.is_file() else source.resolve().name for source in sources]
    if len(set(names)) < len(names):
        names = [f"{cell_of(source)}/{name}" for source, name in zip(sources, names, strict=True)]
    for name, count in Counter(names).items():
        if count > 1:
            raise InvalidInput(
                f"{count} sources are named {name!r}: expected different names, or one replay each"
            )
    return [out / name for name in names]


def policy_of(file: Path | None, params: Path | None) -> Policy:
    """The policy of a replay's ``--policy``, else that of the supervisor in the parameter file, else the packaged one.

    Raises InvalidInput for a file that cannot be used.
    """
    given = supervisor_parameters(params)
    return Policy.load(file or given.get("policy") or share_folder() / "config" / "policy.yaml")


def _pictures(text: str) -> int | None:
    if text == "all":
        return None
    if text != "none" and not re.fullmatch(r"\d{1,6}", text):
        raise InvalidInput(f"--pictures {text}: expected all, none or a number")
    return 0 if text == "none" else int(text)


def progress() -> Progress:
    """The progress bar of a replay, on standard error."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True))


def _print_summary(summary: ReplaySummary, out: Path) -> None:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    rows: dict[str, object] = {
        "images": summary.images,
        **({} if summary.declared is None else {"images that the recording declares": summary.declared}),
        "failed": summary.failed,
        "objects": summary.objects,
        "detected in too few passes": summary.unstable,
        "stickers that may be removed": summary.removable,
        **{f"scenes judged {outcome}": count for outcome, count in summary.outcomes.items()},
        **({} if summary.labelled is None else summary.labelled.rows()),
        **{f"objections by {name}": count for name, count in summary.objections.items()},
        **{f"{stage}, ms": f"{ms:.1f}" for stage, ms in summary.timings_ms.items()},
        "images per second": f"{summary.images / summary.seconds:.1f}",
        "model busy": f"{summary.model_busy:.1%} of the time, {summary.processes} process(es)",
    }
    for name, value in rows.items():
        table.add_row(name, str(value))
    output().print(table)
    typer.echo(f"report: {out / 'report.html'}")
