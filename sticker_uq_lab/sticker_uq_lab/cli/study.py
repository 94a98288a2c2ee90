# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq study``: detectors compared for accuracy, uncertainty and adversarial robustness."""

from pathlib import Path
from typing import Any

import pandas as pd
import typer
from rich.markdown import Markdown

from sticker_uq.cli import option
from sticker_uq.cli.options import RayAddress, check_settings, field_options, numbers, output_folder
from sticker_uq.cli.terminal import output, stage_bars
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.evaluation.reporting.document import Block, as_markdown, write_tables
from sticker_uq.io.stopping import resumable
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.studies.detectors import study_plan
from sticker_uq_lab.studies.detectors.analysis import RESAMPLES, Analysis, analyse
from sticker_uq_lab.studies.detectors.measures import Profile, figures_table, label, read_results


def statistics(
    results: Path = option(..., "Per-image results, .csv or .parquet: image, model, measures."),
    profile: Profile = option(
        "paper", "Definitions of the measures: correct, or those of the published code."
    ),
    out: Path | None = output_folder(None, "Folder to write every table to as CSV."),
    resamples: int = option(RESAMPLES, "Resamples of the bootstrap intervals; 0: no intervals.", min=0),
    seed: int = option(0, "Seed of the bootstrap.", min=0),
) -> None:
    """Friedman and Wilcoxon tests, effect sizes, tiers, best models and correlations of per-image results."""
    analysis = analyse(read_results(results), profile, resamples, seed)
    blocks: list[Block] = []
    for title, table in _select_tables(analysis).items():
        if not table.empty:
            blocks += [f"## {title}", figures_table(table)]
    output().print(Markdown(as_markdown(blocks)))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_tables(analysis.tables(), out)
        typer.echo(f"tables in {out}")


def _select_tables(analysis: Analysis) -> dict[str, pd.DataFrame]:
    friedman, pairs, pooled = analysis.friedman, analysis.pairs, analysis.pooled
    if not pairs.empty:
        columns = ["dataset", "dropout_rate", "measure", "first", "second", "p_holm", "rbc", "band", "better"]
        pairs = pairs.loc[pairs["opened"] & (pairs["better"] != ""), columns]
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
_FIELDS = (
    "adversarial",
    "transfer",
    "images",
    "profile",
    "passes",
    "score_floor",
    "device",
    "precision",
    "seed",
)
_MODELS = "[LABEL:]MODEL[/in|/out][=WEIGHTS][@MIN_SIZE]"
_QUICK_MODELS = (DetectorSettings().model, f"dropout-out:{DetectorSettings().model}/out")


@app.callback(invoke_without_command=True)
@field_options("given", study_plan.StudySettings, *_FIELDS)
@field_options("attack", study_plan.DagSettings, "iterations", "gamma", "mode")
def run(
    context: typer.Context,
    given: dict[str, Any],
    attack: dict[str, Any],
    model: list[str] | None = option(
        None, "A model of the study; may be repeated. Default: the packaged one.", metavar=_MODELS
    ),
    data: list[str] | None = option(None, "COCO folder; may be repeated.", metavar="[NAME=]FOLDER"),
    out: Path = output_folder(Path("out/study"), "Folder of the study; an interrupted run resumes in it."),
    rates: str = option("", "Dropout rates, separated by commas. Default: 0 and 0.1 to 0.5 by 0.05."),
    jobs: int = option(1, "Number of processes, also of a local Ray cluster.", min=1),
    ray_address: RayAddress = "",
    resamples: int = option(1000, "Of the bootstrap intervals.", min=0),
    quick: bool = option(False, "A small study on 12 rendered scenes, to see how it looks.", "--quick"),
) -> None:
    """Compare detectors: accuracy, uncertainty and adversarial robustness (Lu et al.)."""
    if context.invoked_subcommand is not None:
        return
    from sticker_uq.evaluation.executors import executor
    from sticker_uq_lab.studies.detectors.study_report import write_report
    from sticker_uq_lab.studies.detectors.study_run import run_study

    values: dict[str, Any] = {"rates": numbers("--rates", rates) or study_plan.RATES, **given}
    if quick:
        values |= {"rates": (0.1, 0.3), "passes": 5, "adversarial": 2, "images": 12}
        attack |= {"iterations": 3, "gamma": 4.0}
        model = model or list(_QUICK_MODELS)
        data = data or [f"rendered={_quick_scenes(out)}"]
    if not data:
        raise InvalidInput("--data is missing: expected a COCO folder, or --quick")
    values |= {
        "models": tuple(map(study_plan.ModelChoice.parse, model or _QUICK_MODELS[:1])),
        "datasets": tuple(map(study_plan.StudyData.parse, data)),
        "attack": check_settings(study_plan.DagSettings, attack),
    }
    settings = check_settings(study_plan.StudySettings, values)
    resumable("the same call resumes", out)
    with stage_bars() as advance, executor(jobs, ray_address) as execute:
        study = run_study(settings, out, execute, advance)
    output().print(write_report(study, out, resamples))
    typer.echo(
        f"report: {out / 'report.html'}, summary: {out / 'summary.md'}, results: {out / 'images.parquet'}"
    )


app.command()(statistics)


def _quick_scenes(out: Path) -> Path:
    from sticker_uq.io.coco import ANNOTATIONS, write_coco
    from sticker_uq_lab.rendering import encode_scene, render, sample_scene

    folder = out / "scenes"
    if not (folder / ANNOTATIONS).is_file():
        made = (encode_scene(s, render(sample_scene(s), (320, 240)), "png") for s in range(60_000, 60_012))
        write_coco(folder, made)
    return folder
