# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq robustness``: the robustness assessment method of Wozniak et al. as commands."""

from functools import partial
from pathlib import Path
from typing import Literal

import typer
from rich.table import Table

from sticker_uq.cell.bundle import Bundle
from sticker_uq.cell.node_settings import NODE_ONLY
from sticker_uq.cli import option
from sticker_uq.cli.options import check_file, output_folder, settings_options
from sticker_uq.cli.terminal import output, stage_bars
from sticker_uq.evaluation.reporting.document import REPORT, SUMMARY
from sticker_uq.gate import Policy
from sticker_uq.io.files import write_file
from sticker_uq.io.share import environment, share_folder
from sticker_uq.io.stopping import resumable
from sticker_uq.lab.robustness.assessment import RESULT, Assessment, assess, prepare
from sticker_uq.lab.robustness.frequencies import SourceSet, describe_source
from sticker_uq.lab.robustness.robustness_report import assessment_findings, write_report
from sticker_uq.lab.robustness.spec import PRESETS, Specification, preset_file
from sticker_uq.lab.robustness.systems import CellSystem, DetectorSystem
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import InvalidInput

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
        assessment = assess(
            spec,
            prepared,
            out,
            load,
            jobs=jobs,
            coverage=describe_source(spec, prepared.chosen),
            environment=environment(settings.model_dump(), *_PACKAGES),
            progress=advance,
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


app.command()(init)
app.command()(run)
