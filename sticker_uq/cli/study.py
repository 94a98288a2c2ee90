# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq study``: detectors compared for accuracy, uncertainty and adversarial robustness."""

from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.markdown import Markdown

from sticker_uq.cli.options import RayAddress, checked, field_options, output_folder
from sticker_uq.cli.terminal import output, stage_bars
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.evaluation.reporting.document import Block, as_markdown, write_tables
from sticker_uq.io.stopping import resumable
from sticker_uq.lab.studies.detectors.analysis import RESAMPLES, Analysis, analyse
from sticker_uq.lab.studies.detectors.measures import Profile, figures_table, label, read_results
from sticker_uq.lab.studies.detectors.study_plan import (
    RATES,
    DagSettings,
    ModelChoice,
    StudyData,
    StudySettings,
)
from sticker_uq.scene import InvalidInput


def statistics(
    results: Annotated[
        Path, typer.Option(help="Per-image results, .csv or .parquet: image, model, measures.")
    ],
    profile: Annotated[
        Profile, typer.Option(help="Definitions of the measures: correct, or those of the published code.")
    ] = "paper",
    out: Annotated[Path | None, output_folder("Folder to write every table to as CSV.")] = None,
    resamples: Annotated[
        int, typer.Option(min=0, help="Resamples of the bootstrap intervals; 0: no intervals.")
    ] = RESAMPLES,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
) -> None:
    """Friedman and Wilcoxon tests, effect sizes, tiers, best models and correlations of per-image results."""
    analysis = analyse(read_results(results), profile, resamples, seed)
    blocks: list[Block] = []
    for title, table in _shown(analysis).items():
        if not table.empty:
            blocks += [f"## {title}", figures_table(table)]
    output().print(Markdown(as_markdown(blocks)))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_tables(analysis.tables(), out)
        typer.echo(f"tables in {out}")


def _shown(analysis: Analysis) -> dict[str, pd.DataFrame]:
    friedman, pairs, pooled = analysis.friedman, analysis.pairs, analysis.pooled
    if not pairs.empty:
        pairs = pairs.loc[pairs["opened"] & (pairs["better"] != "")]
        pairs = pairs[
            ["dataset", "dropout_rate", "measure", "first", "second", "p_holm", "rbc", "band", "better"]
        ]
        pairs = pairs.assign(**{name: pairs[name].map(label) for name in ("first", "second", "better")})
    if not pooled.empty:
        pooled = pooled.assign(model=pooled["model"].map(label))
    return {
        "Friedman's test": friedman,
        "Pairs that differ significantly and relevantly": pairs,
        "Best models at every dropout rate": analysis.best,
        "Spearman correlation with mAP over all rates and data sets": pooled,
    }


app = typer.Typer(add_completion=False)
_FIELDS = ("adversarial", "images", "profile", "passes", "score_floor", "device", "precision", "seed")
_MODELS = "[LABEL:]MODEL[/in|/out][=WEIGHTS][@MIN_SIZE]"
_QUICK_MODELS = (DetectorSettings().model, f"dropout-out:{DetectorSettings().model}/out")


@app.callback(invoke_without_command=True)
@field_options("given", StudySettings, *_FIELDS)
@field_options("attack", DagSettings, "iterations", "gamma", "mode")
def run(
    context: typer.Context,
    given: dict[str, Any],
    attack: dict[str, Any],
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar=_MODELS,
            help="A model of the study; may be repeated. Default: the packaged one.",
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FOLDER",
            help="COCO folder; may be repeated.",
        ),
    ] = None,
    out: Annotated[Path, output_folder("Folder of the study; an interrupted run resumes in it.")] = Path(
        "out/study"
    ),
    rates: Annotated[
        str, typer.Option(help="Dropout rates, separated by commas. Default: 0 and 0.1 to 0.5 by 0.05.")
    ] = "",
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes, also of a local Ray cluster.")] = 1,
    ray_address: RayAddress = "",
    resamples: Annotated[int, typer.Option(min=0, help="Of the bootstrap intervals.")] = 1000,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small study on 12 rendered scenes, to see how it looks.")
    ] = False,
) -> None:
    """Compare detectors: accuracy, uncertainty and adversarial robustness (Lu et al.)."""
    if context.invoked_subcommand is not None:
        return
    from sticker_uq.evaluation.executors import executor
    from sticker_uq.lab.studies.detectors.study_report import write_report
    from sticker_uq.lab.studies.detectors.study_run import run_study

    values: dict[str, Any] = {"rates": _rates(rates) or RATES, **given}
    if quick:
        values |= {"rates": (0.1, 0.3), "passes": 5, "adversarial": 2, "images": 12}
        attack |= {"iterations": 3, "gamma": 4.0}
        model = model or list(_QUICK_MODELS)
        data = data or [f"rendered={_quick_scenes(out)}"]
    if not data:
        raise InvalidInput("--data is missing: expected a COCO folder, or --quick")
    values |= {
        "models": tuple(map(ModelChoice.parse, model or _QUICK_MODELS[:1])),
        "datasets": tuple(map(StudyData.parse, data)),
        "attack": checked(DagSettings, attack),
    }
    settings = checked(StudySettings, values)
    resumable("the same call resumes", out)
    with stage_bars() as advance, executor(jobs, ray_address) as execute:
        study = run_study(settings, out, execute, advance)
    output().print(write_report(study, out, resamples))
    typer.echo(
        f"report: {out / 'report.html'}, summary: {out / 'summary.md'}, results: {out / 'images.parquet'}"
    )


app.command()(statistics)


def _rates(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InvalidInput(
            f"--rates {text!r}: expected numbers separated by commas, for example 0,0.1,0.3"
        ) from None


def _quick_scenes(out: Path) -> Path:
    from sticker_uq.io.coco import ANNOTATIONS, write_coco
    from sticker_uq.lab.rendering import encode_scene, render, sample_scene

    folder = out / "scenes"
    if not (folder / ANNOTATIONS).is_file():
        made = (encode_scene(s, render(sample_scene(s), (320, 240)), "png") for s in range(60_000, 60_012))
        write_coco(folder, made)
    return folder
