# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq robustness``: the robustness assessment method of Wozniak et al. as commands."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import typer
from pydantic import ValidationError
from rich.table import Table

from sticker_uq.cell.bundle import Bundle
from sticker_uq.cell.node_settings import NODE_ONLY
from sticker_uq.cli import option
from sticker_uq.cli.options import check_file, output_folder, settings_options
from sticker_uq.cli.terminal import output, stage_bars
from sticker_uq.evaluation.reporting.document import REPORT, SUMMARY, write_tables
from sticker_uq.gate import Policy
from sticker_uq.io.files import write_file
from sticker_uq.io.reading import MOST_JSON, read_json, read_text
from sticker_uq.io.share import environment, share_folder
from sticker_uq.io.stopping import resumable
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import InvalidInput
from sticker_uq_lab import Progress
from sticker_uq_lab.robustness.assessment import (
    CASES,
    IMAGE_DISTANCES,
    RESULT,
    Assessment,
    Prepared,
    assess,
    prepare,
)
from sticker_uq_lab.robustness.frequencies import SourceSet, describe_source
from sticker_uq_lab.robustness.robustness_report import assessment_findings, write_report
from sticker_uq_lab.robustness.robustness_report import sheet as robustness_sheet
from sticker_uq_lab.robustness.spec import PRESETS, Specification, preset_file
from sticker_uq_lab.robustness.systems import CellSystem, DetectorSystem, ResultsSystem, System

_PACKAGES = ("sticker_uq", "torch", "torchvision", "numpy", "scikit-image", "scipy")


def init(
    out: Path = typer.Argument(Path("robustness.yaml"), help="YAML file to write.", callback=check_file),
    start: str = option(
        PRESETS[0],
        f"Specification to start from: one of the package ({', '.join(PRESETS)}) or a file.",
        metavar="NAME|FILE",
    ),
    force: bool = option(False, "Replace the file if it exists.", "--force"),
) -> None:
    """Write the specification of a cell.

    The comments in the file explain every value; edit it to fit the cell. An existing file is replaced only with --force.
    """
    if out.exists() and not force:
        raise InvalidInput(f"{out} exists already; --force replaces it")
    file = preset_file(start) if start in PRESETS else Path(start)
    spec = Specification.load(file)
    write_file(out, file.read_bytes())
    typer.echo(f"{len(spec.circumstances)} circumstances in {out}")


SPECIFICATION = "specification.yaml"


@settings_options("settings", PerceptionSettings, "detector", also_known=NODE_ONLY)
def run(
    settings: PerceptionSettings,
    bundle: Bundle | None,
    specification: Path = typer.Argument(..., help="YAML file, as `robustness init` writes it."),
    data: Path = option(..., "Source images: COCO folder."),
    out: Path = output_folder(
        Path("out/robustness"), "Folder of the assessment; follow-up images in it are not made again."
    ),
    system: Literal["cell", "detector"] = option(
        "cell", "System under assessment: detector with gate, or detector alone."
    ),
    images: int = option(100, "Number of source images, each transformed into every circumstance.", min=1),
    target: int = option(200, "Number of images with circumstances at their expected frequencies.", min=1),
    jobs: int = option(1, "Processes.", min=1),
    policy: Path | None = option(None, "Policy of the gate; default: the bundle's, or config/limits.yaml."),
) -> None:
    """Assess how robust a system is: follow-up images, performance, distances, verdicts, report.

    Writes OUT/report.html, summary.md, tables/ and assessment.json. Exit status 0 whatever the verdict is.
    """
    spec = Specification.load(specification)
    source = SourceSet.load(data)
    default = bundle.policy if bundle is not None else share_folder() / "config" / "limits.yaml"
    limits = Policy.load(policy or default)
    resumable("the same call resumes", out)
    load = partial(CellSystem, settings, limits) if system == "cell" else partial(DetectorSystem, settings)
    with stage_bars() as advance:
        prepared = prepare(spec, source, out, images, target, jobs, advance)
        write_file(out / SPECIFICATION, specification.read_bytes())
        _assess(spec, prepared, out, load, jobs, settings.model_dump(), advance)


_PICTURES = "pictures.json"
"""What the pictures of a folder were made from, so that results of them are judged by the same."""


def pictures(
    specification: Path = typer.Argument(..., help="YAML file, as `robustness init` writes it."),
    data: Path = option(..., "Source images: COCO folder."),
    out: Path = output_folder(Path("out/robustness"), "Folder of the assessment."),
    images: int = option(100, "Number of source images, each transformed into every circumstance.", min=1),
    target: int = option(200, "Number of images with circumstances at their expected frequencies.", min=1),
    jobs: int = option(1, "Processes.", min=1),
) -> None:
    """Make the transformed pictures in OUT/cases, a COCO folder, for a system that is only known by its outputs.

    Run it on the source images and on OUT/cases, write COCO results of both, and give them to `robustness results`.
    """
    spec, source = Specification.load(specification), SourceSet.load(data)
    with stage_bars() as advance:
        prepare(spec, source, out, images, target, jobs, advance)
    write_file(out / SPECIFICATION, specification.read_bytes())
    made = {"data": str(data.resolve()), "images": images, "target": target}
    write_file(out / _PICTURES, json.dumps(made))
    typer.echo(f"transformed pictures in {out / CASES}; sources: {data}")


def results(
    case_results: Path = typer.Argument(..., help="COCO results of the pictures in OUT/cases: a JSON list."),
    source_results: Path = option(..., "COCO results of the source images."),
    folder: Path = option(..., "Folder that `robustness pictures` wrote.", "--out"),
) -> None:
    """Assess a system by its outputs alone: a black box (Wozniak et al.).

    Each entry of COCO results has image_id, category_id, bbox (x, y, width, height px) and score. A picture without an entry has
    no detections. Writes what `robustness run` writes; distances of features need a network and are not there.
    """
    made = read_json(folder / _PICTURES, f"{folder}: expected a folder that `robustness pictures` wrote")
    spec, source = Specification.load(folder / SPECIFICATION), SourceSet.load(made["data"])
    if spec.distance not in IMAGE_DISTANCES:
        raise InvalidInput(
            f"distance {spec.distance} needs the network's features, which results have not: choose one of "
            f"{', '.join(IMAGE_DISTANCES)} in {folder / SPECIFICATION}"
        )
    with stage_bars() as advance:
        prepared = prepare(spec, source, folder, made["images"], made["target"], 1, advance)
        system = ResultsSystem([(source_results, source.folder), (case_results, folder / CASES)])
        _assess(spec, prepared, folder, lambda: system, 1, {}, advance)


def sheet(folder: Path = typer.Argument(..., help="Folder of an assessment.", metavar="OUT")) -> None:
    """Write the three tabs of the paper's spreadsheet as CSV: OUT/sheet/specification, test_cases and evaluation."""
    text = read_text(folder / RESULT, MOST_JSON, f"{folder}: expected the folder of an assessment")
    try:
        assessment = Assessment.model_validate_json(text)
    except ValidationError as error:
        raise InvalidInput(
            f"{folder / RESULT}: no assessment of this version: {error.errors()[0]['msg']}"
        ) from None
    tabs = robustness_sheet(assessment)
    write_tables(tabs, folder / "sheet")
    typer.echo(f"{', '.join(f'{name}.csv' for name in tabs)} in {folder / 'sheet'}")


def _assess(
    spec: Specification,
    prepared: Prepared,
    out: Path,
    load: Callable[[], System],
    jobs: int,
    settings: dict[str, Any],
    progress: Progress,
) -> None:
    assessment = assess(
        spec,
        prepared,
        out,
        load,
        jobs=jobs,
        coverage=describe_source(spec, prepared.chosen),
        environment=environment(settings, *_PACKAGES),
        progress=progress,
    )
    write_report(assessment, out)
    _print(assessment, out)


def _print(assessment: Assessment, out: Path) -> None:
    table = Table("circumstance", "finding", title=f"{assessment.system}: {assessment.finding}")
    metrics = list(assessment.specification.relations)
    for metric in metrics:
        table.add_column(metric, justify="right")
    for name, finding in assessment.by_circumstance.items():
        checks = {c.metric: c for c in assessment.checks if c.circumstance == name}
        table.add_row(name, finding, *(f"{checks[m].change:+.3f}" for m in metrics))
    output().print(table)
    typer.echo(assessment_findings(assessment))
    typer.echo(f"report: {out / REPORT}, summary: {out / SUMMARY}, figures: {out / RESULT}")


app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def _about() -> None:
    """Assess the performance of a cell under circumstances such as glare, blur and occlusion (Wozniak et al.)."""


for _command in (init, run, pictures, results, sheet):
    app.command()(_command)
