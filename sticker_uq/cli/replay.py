"""``sticker-uq replay``: recorded images through the same perception and policy as in the cell, without ROS."""

from __future__ import annotations

import operator
import platform
import re
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from sticker_uq.cli.options import settings_options
from sticker_uq.datasets.bags import Bag
from sticker_uq.datasets.sources import ImageSource, open_source
from sticker_uq.evaluation.assessing import Assessed, one_by_one, process_count, side_by_side
from sticker_uq.evaluation.comparison import Comparison, live_scenes
from sticker_uq.evaluation.replay import ReplaySummary, replay
from sticker_uq.nodes.parameter_files import read_parameters, refuse_unknown
from sticker_uq.nodes.perceiving import load_perception
from sticker_uq.nodes.processes import share_folder
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import InvalidInput, SceneAssessment
from sticker_uq.supervision import GateSettings, Policy, WatchSettings

# Parameters of the nodes that have no meaning for recorded images.
_DETECTOR_ONLY = (
    "image_transport",
    "image_reliability",
    "more_image_topics",
    "max_image_age_s",
    "annotated_rate",
)
_SUPERVISOR_ONLY = (
    "stop_service",
    "stop_service_type",
    "stop_topic",
    "arm_frame",
    "camera_pose",
    "lid_plane",
    "image_rectified",
    "max_calibration_age",
    "arm_silence",
    "listen_time",
    "audit_folder",
    "audit_file_mb",
)
_SUPERVISOR = ("policy", *GateSettings.model_fields, *WatchSettings.model_fields, *_SUPERVISOR_ONLY)


@settings_options("settings", PerceptionSettings, "detector", also_known=_DETECTOR_ONLY)
def command(
    source: Annotated[
        Path,
        typer.Argument(
            help="rosbag2 recording (folder, .mcap, .db3), folder of pictures, picture, or video."
        ),
    ],
    settings: PerceptionSettings,
    params: Path | None,
    out: Annotated[Path, typer.Option(help="Folder for the results, new or empty.")] = Path("out/replay"),
    topic: Annotated[
        str | None, typer.Option(help="Image topic of a recording; not needed if there is one.")
    ] = None,
    table_format: Annotated[
        str, typer.Option("--format", metavar="parquet|csv", help="Of the two tables.")
    ] = "parquet",
    pictures: Annotated[
        str, typer.Option(metavar="all|none|N", help="Annotated pictures to keep: all, none, or N of them.")
    ] = "all",
    policy: Annotated[Path | None, typer.Option(help="Policy file instead of the packaged one.")] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Compare with the scenes that a live cell recorded; exit 1 if one differs."
        ),
    ] = False,
) -> None:
    """Assess and judge every image of SOURCE with the same code as the cell, as fast as this machine allows.

    Writes tables of images and objects, annotated pictures, report.html and summary.json.

    Images that cannot be read are rows with status FAILED.
    """
    if table_format not in ("parquet", "csv"):
        raise InvalidInput(f"--format {table_format}: expected parquet or csv")
    limits = _policy(policy, params)
    most = _pictures(pictures)
    images = open_source(source, topic)
    live = _live(source, images) if verify else None
    expected = operator.length_hint(images, 0)
    with _progress() as bar:
        task = bar.add_task("images", total=expected or None)

        def on_image(assessment: SceneAssessment) -> None:
            bar.advance(task)
            if live is not None:
                live.add(assessment)

        summary = replay(
            images,
            str(source),
            _assessed(images, settings, expected),
            limits,
            out,
            table_format=table_format,  # type: ignore[arg-type]  # checked above
            pictures=most,
            environment=_environment(settings),
            on_image=on_image,
        )
    _print_summary(summary, out)
    if live is not None:
        raise typer.Exit(_print_comparison(live))


def _assessed(images: ImageSource, settings: PerceptionSettings, expected: int) -> Assessed:
    processes = process_count(settings, expected)
    if processes == 1:
        return one_by_one(images, load_perception(settings))
    return side_by_side(images, partial(load_perception, settings), processes)


def _policy(file: Path | None, params: Path | None) -> Policy:
    """The policy of ``--policy``, else that of the supervisor in the parameter file, else the packaged one."""
    given = {} if params is None else read_parameters(params, "supervisor")
    refuse_unknown(given, _SUPERVISOR, params)
    return Policy.load(file or given.get("policy") or share_folder() / "config" / "policy.yaml")


def _pictures(text: str) -> int | None:
    if text == "all":
        return None
    if text != "none" and not re.fullmatch(r"\d{1,6}", text):
        raise InvalidInput(f"--pictures {text}: expected all, none or a number")
    return 0 if text == "none" else int(text)


def _live(source: Path, images: ImageSource) -> Comparison:
    if not images.topic:
        raise InvalidInput(f"--verify: {source} is not a recording of a cell")
    return live_scenes(Bag(source), images.topic)


def _environment(settings: PerceptionSettings) -> dict[str, str]:
    packages = ("torch", "torchvision", "numpy", "opencv-python-headless", "hdbscan")
    versions = {name: _installed(name) for name in packages}
    return {
        "Python": platform.python_version(),
        "machine": platform.platform(),
        **{name: version for name, version in versions.items() if version},
        **{f"setting {name}": str(value) for name, value in settings.model_dump().items()},
    }


def _installed(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True))


def _print_summary(summary: ReplaySummary, out: Path) -> None:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    rows: dict[str, object] = {
        "images": summary.images,
        "of them unusable": summary.failed,
        "objects": summary.objects,
        "seen too seldom": summary.unstable,
        "stickers that may be removed": summary.removable,
        **{f"scenes judged {outcome}": count for outcome, count in summary.outcomes.items()},
        **{f"{stage}, ms": f"{ms:.1f}" for stage, ms in summary.timings_ms.items()},
        "images per second": f"{summary.images / summary.seconds:.1f}",
    }
    for name, value in rows.items():
        table.add_row(name, str(value))
    Console().print(table)
    typer.echo(f"report: {out / 'report.html'}")


def _print_comparison(live: Comparison) -> int:
    """Say how far the replay equals the live cell; returns the exit status."""
    for line in live.differing[:10]:
        typer.echo(line, err=True)
    if len(live.differing) > 10:
        typer.echo(f"... and {len(live.differing) - 10} more", err=True)
    typer.echo(
        f"{live.identical} of {len(live.live)} live assessments of {live.topic} repeated byte for byte, "
        f"{len(live.differing)} differ, {live.missing} without a recorded image"
    )
    return 0 if live.agrees else 1
