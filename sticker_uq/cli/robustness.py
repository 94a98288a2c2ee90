# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq robustness``: the robustness assessment method of Wozniak et al. as commands."""

from __future__ import annotations

import platform
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from sticker_uq.cell.bundle import Bundle
from sticker_uq.cell.node_settings import NODE_ONLY
from sticker_uq.cli.options import check_file, output_folder, settings_options
from sticker_uq.cli.terminal import output, stage_bars
from sticker_uq.gate import Policy
from sticker_uq.io.share import share_folder
from sticker_uq.io.stopping import resumable
from sticker_uq.lab.robustness.assessment import RESULT, Assessment, assess, prepare
from sticker_uq.lab.robustness.frequencies import SourceSet, describe_source
from sticker_uq.lab.robustness.robustness_report import REPORT, SUMMARY, assessment_findings, write_report
from sticker_uq.lab.robustness.spec import PRESETS, Specification, preset
from sticker_uq.lab.robustness.systems import CellSystem, DetectorSystem
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import InvalidInput

SCALES = {
    "exposure": (
        "How often is the cell in a situation in which this can happen at all?",
        (
            "Rare: once a year or less: at a rebuild",
            "Unusual: a few times a year: at maintenance",
            "Occasional: every few weeks: in some weather, with some deliveries",
            "Frequent: every day, at some hours or on some laptops",
            "Continuous: with every laptop",
        ),
    ),
    "likelihood": (
        "When the cell is in that situation, how likely is it that an image is affected?",
        (
            "Rare: fewer than 1 image in 1000",
            "Unlikely: 1 in 1000 to 1 in 100",
            "Possible: 1 in 100 to 1 in 10",
            "Likely: 1 in 10 to 1 in 2",
            "Certain: more than every second image",
        ),
    ),
    "severity": (
        "If detection fails on such an image, what is the worst that is likely to follow?",
        (
            "Insignificant: a person is asked once more than needed",
            "Minor: a sticker stays on, and inspection finds it",
            "Marginal: a laptop is shipped with a sticker, or a lid is scratched",
            "Critical: a brand logo or a lid is ruined",
            "Catastrophic: many laptops are ruined before anybody notices",
        ),
    ),
}
"""What 1 to 5 stand for in a cell, by factor of the significance; the names are those of Wozniak et al., table 5."""


def init(
    out: Annotated[Path, typer.Argument(help="YAML file to write.", callback=check_file)] = Path(
        "robustness.yaml"
    ),
    start: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            help=f"Specification to start from: one of the package ({', '.join(PRESETS)}) or a file.",
        ),
    ] = PRESETS[0],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write the specification of a cell.

    The comments in the file explain every value; edit it to fit the cell. An existing file is replaced only with --force.
    """
    if out.exists() and not force:
        raise InvalidInput(f"{out} exists already; --force replaces it")
    spec = preset(start) if start in PRESETS else Specification.load(start)
    spec.save(out, _comments(spec))
    typer.echo(f"{len(spec.circumstances)} circumstances in {out}")


def _comments(spec: Specification) -> dict[str, str]:
    """Comments for the specification file, by the name of the circumstance; "" is the header."""
    from sticker_uq.lab.corruptions import TRANSFORMATIONS

    scales = "\n".join(
        f"{factor}: {question}\n" + "\n".join(f"  {n} {value}" for n, value in enumerate(values, 1))
        for factor, (question, values) in SCALES.items()
    )
    comments = {
        "": "Robustness specification (Wozniak et al. 2024, tasks 1 and 2).\n\n"
        "significance = exposure * likelihood * severity, each 1 to 5:\n"
        f"{scales}\n\n"
        "strength: range from mild to severe from which follow-up images are sampled.\n"
        "probability: how likely an image is in the circumstance (relative_frequency: how often it was observed).\n"
        "exclusive_group: circumstances of one group never occur in the same image.\n"
        "relations: points (d, epsilon): permitted change epsilon of a metric at distance d from the source."
    }
    for circumstance in spec.circumstances:
        known = TRANSFORMATIONS.get(str(circumstance.transformation))
        if known is not None:
            comments[circumstance.name] = (
                f"strength in {known.unit}: {known.strength}; {known.limits[0]:g} to {known.limits[1]:g}"
            )
    return comments


SPECIFICATION = "specification.yaml"


@settings_options("settings", PerceptionSettings, "detector", also_known=NODE_ONLY)
def run(
    specification: Annotated[Path, typer.Argument(help="YAML file, as `robustness init` writes it.")],
    settings: PerceptionSettings,
    bundle: Bundle | None,
    data: Annotated[Path, typer.Option(help="Source images: COCO folder.")],
    out: Annotated[
        Path, output_folder("Folder of the assessment; follow-up images in it are not made again.")
    ] = Path("out/robustness"),
    system: Annotated[
        Literal["cell", "detector"],
        typer.Option(
            help="System under assessment: detector with gate, or detector alone.",
        ),
    ] = "cell",
    images: Annotated[
        int, typer.Option(min=1, help="Number of source images, each transformed into every circumstance.")
    ] = 100,
    target: Annotated[
        int, typer.Option(min=1, help="Number of images with circumstances at their expected frequencies.")
    ] = 200,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    tags: Annotated[
        Path | None, typer.Option(help="CSV file (image, tags): circumstances of source images.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help="Policy of the gate; default: the packaged one.")
    ] = None,
) -> None:
    """Assess how robust a system is: follow-up images, performance, distances, verdicts, report.

    Writes OUT/report.html, summary.md, tables/ and assessment.json. Exit status 0 whatever the verdict is.
    """
    spec = Specification.load(specification)
    source = SourceSet.load(data, tags)
    default = bundle.policy if bundle is not None else share_folder() / "config" / "policy.yaml"
    limits = Policy.load(policy or default)
    resumable("the same call resumes", out)
    load = partial(CellSystem, settings, limits) if system == "cell" else partial(DetectorSystem, settings)
    with stage_bars() as advance:
        prepared = prepare(spec, source, out, images, target, jobs, advance)
        if not (out / SPECIFICATION).exists() or not specification.samefile(out / SPECIFICATION):
            spec.save(out / SPECIFICATION)  # without the comments of the user's file
        assessment = assess(
            spec,
            prepared,
            out,
            load,
            jobs=jobs,
            coverage=describe_source(spec, prepared.chosen),
            environment=_environment(settings),
            progress=advance,
        )
    write_report(assessment, out)
    _print(assessment, out)


def _environment(settings: PerceptionSettings) -> dict[str, str]:
    found = {"Python": platform.python_version(), "machine": platform.platform()}
    for name in ("sticker_uq", "torch", "torchvision", "numpy", "scikit-image", "scipy"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found | {f"setting {name}": str(value) for name, value in settings.model_dump().items()}


def _print(assessment: Assessment, out: Path) -> None:
    table = Table(title=f"{assessment.system}: {assessment.finding}")
    table.add_column("circumstance")
    table.add_column("finding")
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


app.command()(init)
app.command()(run)
