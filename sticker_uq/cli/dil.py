"""``sticker-uq dil``: distinctive localization, what the detector saw and did not say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sticker_uq.cli.options import checked
from sticker_uq.datasets.abnormal_coco import CLEAN, AbnormalImage, read_abnormal
from sticker_uq.detection.detector import load_detector
from sticker_uq.detection.settings import MODEL_NAMES, DetectorSettings
from sticker_uq.detection.weights import packaged_weights
from sticker_uq.evaluation.dil_records import record_case
from sticker_uq.evaluation.dil_report import Tables, as_markdown, write_study
from sticker_uq.evaluation.dil_study import (
    PAPER_DIL,
    SCORE,
    effects,
    missed_detection,
    rates,
    separation,
    thresholds,
)
from sticker_uq.localization import LocalizationSettings
from sticker_uq.scene import InvalidInput

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def _about() -> None:
    """Distinctive localization (DiL): what the detector saw and did not say."""


@app.command()
def study(
    data: Annotated[
        Path, typer.Option(help="Folder that `dataset abnormal` wrote: one COCO folder per case.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the tables, and for what was measured.")],
    model: Annotated[
        list[str] | None,
        typer.Option(help="Model; may be repeated. Default: every model with packaged weights."),
    ] = None,
    weights: Annotated[
        list[str] | None,
        typer.Option(help="Weights file of each --model, in their order; '' for the packaged ones."),
    ] = None,
    min_size: Annotated[int, typer.Option(help="FPN models only: shorter side of the picture, px.")] = 480,
    passes: Annotated[int, typer.Option(help="Stochastic passes per scene.")] = DetectorSettings().passes,
    count: Annotated[int, typer.Option(help="Scenes of each case; 0: all.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of the dropout masks.")] = 0,
) -> None:
    """Print and write the DiL paper's tables 2 and 3 and figures 4 and 5 for every model, with intervals.

    What was measured stays in --out; the same study goes on from there.
    """
    if count < 0:
        raise InvalidInput(f"--count {count}: expected 0 or more")
    cases = _cases(data, count)
    models = model or [name for name in MODEL_NAMES if packaged_weights(name) is not None]
    files = weights or [""] * len(models)
    if len(files) != len(models):
        raise InvalidInput(f"{len(files)} --weights for {len(models)} --model: expected one for each")
    chosen = [
        checked(
            DetectorSettings,
            {
                "model": name,
                "weights": file,
                "min_size": min_size,
                "passes": passes,
                "device": device,
                "seed": seed,
            },
        )
        for name, file in zip(models, files, strict=True)
    ]
    out.mkdir(parents=True, exist_ok=True)
    tables: Tables = {settings.model: _tables(settings, cases, out) for settings in chosen}
    written = write_study(tables, out)
    typer.echo(as_markdown(tables))
    typer.echo(f"{len(written)} files in {out}")


def _cases(data: Path, count: int) -> dict[str, list[AbnormalImage]]:
    folders = sorted(path.parent for path in data.glob("*/annotations.json"))
    cases = {folder.name: read_abnormal(folder)[: count or None] for folder in folders}
    if CLEAN not in cases or len(cases) < 2:
        raise InvalidInput(
            f"{data}: expected folders of `sticker-uq dataset abnormal`, {CLEAN!r} and at least one other case; "
            f"found {', '.join(cases) or 'none'}"
        )
    return {CLEAN: cases.pop(CLEAN), **cases}


def _tables(
    settings: DetectorSettings, cases: dict[str, list[AbnormalImage]], out: Path
) -> dict[str, pd.DataFrame]:
    localization = LocalizationSettings()
    detector = load_detector(settings)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    records = {}
    with Progress(*columns) as bar:
        task = bar.add_task(settings.model, total=sum(map(len, cases.values())))
        for case, images in cases.items():
            cache = out / f"{settings.model}_{case}.json"
            records[case] = record_case(
                detector, localization, images, cache, progress=lambda: bar.advance(task)
            )
    threshold, alpha = localization.decision_threshold, localization.alpha
    return {
        "Effect of each case": effects(records, cases, threshold),
        "Clean against abnormal": separation(records),
        "Missed stickers": missed_detection(records),
        "Rates of DiL": rates(records, PAPER_DIL),
        "Rates of unexplained objectness": rates(records, SCORE),
        "Thresholds": thresholds(records, cases, threshold, alpha),
    }
