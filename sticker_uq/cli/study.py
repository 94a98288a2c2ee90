# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq study``: detectors compared for accuracy, uncertainty and adversarial robustness."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pandas as pd
import typer
from pydantic import ValidationError
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
from sticker_uq.cli.attack_options import ATTACK_HELP, attack_settings
from sticker_uq.cli.options import RayAddress, check_folder, field_options, output_folder
from sticker_uq.cli.terminal import output
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.io.setting_fields import words
from sticker_uq.io.stopping import resumable
from sticker_uq.lab.studies.detectors.analysis import RESAMPLES, Analysis, analyse
from sticker_uq.lab.studies.detectors.measures import BY_NAME, check_profile, label, read_results
from sticker_uq.lab.table_files import write_tables
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import InvalidInput

if TYPE_CHECKING:
    from sticker_uq.lab.studies.detectors.study_plan import ModelChoice

_OF_ALL_MODELS = ("passes", "score_floor", "precision", "seed")
"""Parameters of a detector that all models of a study share."""
_PRECISIONS = ("float32", "bfloat16")
_FIXED = (
    "nms_threshold",
    "max_detections",
    "min_cluster_size",
    "min_samples",
    "cluster_epsilon",
    "decision_threshold",
    "dil_technique",
    "dil_alpha",
    "region_objectness",
)
"""Parameters that change what a study measures, and that have their defaults in every study."""


@dataclass(frozen=True)
class Bundled:
    """What bundles bring into a study: their ``models``, their dropout ``rates``, and the ``values`` that all models share."""

    models: tuple[ModelChoice, ...] = ()
    rates: tuple[float, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)


def bundled(texts: Iterable[str], given: Mapping[str, Any]) -> Bundled:
    """The bundles of ``texts``, each [LABEL=]FOLDER, as models of a study; ``given``: the values of options.

    Raises InvalidInput for a bundle that cannot be read, that has other parameters than the study can measure with, or than
    another bundle, and for an option that gives what the bundles have themselves.
    """
    found = Bundled()
    for text in texts:
        if beside := [name for name in _OF_ALL_MODELS if name in given]:
            raise InvalidInput(
                f"--bundle and --{beside[0].replace('_', '-')}: expected one of them, a bundle has its own"
            )
        found = _with(found, text)
    return found


def _with(before: Bundled, text: str) -> Bundled:
    from sticker_uq.lab.studies.detectors.study_plan import ModelChoice

    name, equals, folder = text.partition("=")
    label = name if equals else Path(text).absolute().name
    if not re.fullmatch(r"[\w.-]+", label):
        raise InvalidInput(
            f"--bundle {text!r}: expected [LABEL=]FOLDER, LABEL of letters, digits, dots, - and _"
        )
    bundle = Bundle.load(folder if equals else text)
    settings = bundle.settings()
    _check(bundle.folder, settings)
    values = {name: getattr(settings, name) for name in _OF_ALL_MODELS}
    for name, value in values.items():
        if (expected := before.values.get(name, value)) != value:
            raise InvalidInput(
                f"bundle {bundle.folder}: {name} = {value!r}: expected {expected!r} as in the bundle before it, all models of a "
                "study are measured alike; study them one after the other"
            )
    model = ModelChoice(
        label=label,
        name=settings.model,
        weights=settings.weights,
        dropout_site=settings.dropout_site,
        min_size=settings.min_size,
    )
    rates = dict.fromkeys((*before.rates, settings.dropout_rate))
    return Bundled((*before.models, model), tuple(rates), values)


def _check(folder: Path, settings: PerceptionSettings) -> None:
    plain = PerceptionSettings()
    for name in _FIXED:
        if (value := getattr(settings, name)) != (expected := getattr(plain, name)):
            raise InvalidInput(
                f"bundle {folder}: {name} = {value!r}: expected {expected!r}, with which every study measures; "
                "`sticker-uq replay --bundle` assesses labelled images with it"
            )
    if settings.precision not in _PRECISIONS:
        raise InvalidInput(
            f"bundle {folder}: precision = {settings.precision!r}: expected {' or '.join(_PRECISIONS)} for a study"
        )


def statistics(
    results: Annotated[
        Path, typer.Option(help="Per-image results, .csv or .parquet: image, model, measures.")
    ],
    profile: Annotated[
        str,
        typer.Option(
            metavar="paper|simula_rp",
            help="Definitions of the measures: correct, or those of the published code.",
        ),
    ] = "paper",
    out: Annotated[Path | None, output_folder("Folder to write every table to as CSV.")] = None,
    resamples: Annotated[
        int, typer.Option(help="Resamples of the bootstrap intervals; 0: no intervals.")
    ] = RESAMPLES,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
) -> None:
    """Friedman and Wilcoxon tests, effect sizes, tiers, best models and correlations of per-image results."""
    if resamples < 0:
        raise InvalidInput(f"--resamples {resamples}: expected 0 or more")
    if seed < 0:
        raise InvalidInput(f"--seed {seed}: expected 0 or more")
    chosen = check_profile(profile)
    analysis = analyse(read_results(results), chosen, resamples, seed)
    console = output()
    for title, table in _shown(analysis).items():
        if not table.empty:
            console.print(_table(title, table))
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


def _table(title: str, content: pd.DataFrame) -> Table:
    table = Table(title=title)
    for name in content.columns:
        numbers = pd.api.types.is_numeric_dtype(content[name])
        table.add_column(
            BY_NAME[name].short if name in BY_NAME else name, justify="right" if numbers else "left"
        )
    for row in content.itertuples(index=False):
        table.add_row(*map(_cell, row))
    return table


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.4g}"
    return BY_NAME[value].short if isinstance(value, str) and value in BY_NAME else str(value)


app = typer.Typer(add_completion=False)
_MODELS = "[LABEL:]MODEL[/in|/out][=WEIGHTS][@MIN_SIZE]"
_QUICK_MODELS = (DetectorSettings().model, f"dropout-out:{DetectorSettings().model}/out")


@app.callback(invoke_without_command=True)
@field_options(
    "detector_values",
    DetectorSettings,
    "passes",
    "score_floor",
    "device",
    "precision",
    "seed",
)
def run(
    context: typer.Context,
    detector_values: dict[str, Any],
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar=_MODELS,
            help="A model of the study; may be repeated. Default: the packaged one, unless a bundle is given.",
        ),
    ] = None,
    bundle: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[LABEL=]FOLDER",
            help="Bundle whose detector and settings are studied beside the models, at its dropout rate too; may be repeated.",
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FOLDER",
            help="COCO folder, or a recording with annotations.json; may be repeated.",
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]TOPIC",
            help="Image topic of the recordings, or of the one named NAME; may be repeated.",
        ),
    ] = None,
    out: Annotated[Path, output_folder("Folder of the study; an interrupted run resumes in it.")] = Path(
        "out/study"
    ),
    rates: Annotated[
        str, typer.Option(help="Dropout rates, separated by commas. Default: 0 and 0.1 to 0.5 by 0.05.")
    ] = "",
    adversarial: Annotated[int, typer.Option(help="Attacked variants of each image and model.")] = 10,
    attack: Annotated[str, typer.Option(metavar="dag|pgd", help=ATTACK_HELP)] = "dag",
    iterations: Annotated[
        int | None, typer.Option(help="Highest number of iterations of an attack: 150 for dag, 40 for pgd.")
    ] = None,
    gamma: Annotated[
        float | None,
        typer.Option(help="Highest change of a pixel in one iteration of dag, grey levels: 0.5."),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Highest change of a pixel by pgd, grey levels: 4.")
    ] = None,
    mode: Annotated[
        str, typer.Option(metavar="swap|vanish|random", help="Target classes of an attack.")
    ] = "swap",
    patches: Annotated[
        int, typer.Option(help="Variants of each image and model with adversarial patches on stickers.")
    ] = 0,
    patch_steps: Annotated[int, typer.Option(help="Optimisation steps of a patch.")] = 40,
    transfer: Annotated[
        bool, typer.Option(help="Also evaluate every model on the attacks on the others.")
    ] = True,
    circumstance: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=STRENGTH", help="Transformation of every image; may be repeated."),
    ] = None,
    images: Annotated[int, typer.Option(help="Images of each data set; 0: all.")] = 0,
    profile: Annotated[
        str,
        typer.Option(
            metavar="paper|simula_rp",
            help="Definitions of the measures: correct, or those of the published code.",
        ),
    ] = "paper",
    jobs: Annotated[int, typer.Option(help="Number of processes, also of a local Ray cluster.")] = 1,
    ray_address: RayAddress = "",
    resamples: Annotated[int, typer.Option(help="Of the bootstrap intervals.")] = 1000,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small study on 12 rendered scenes, to see how it looks.")
    ] = False,
) -> None:
    """Compare detectors: accuracy, uncertainty and adversarial robustness (Lu et al.)."""
    if context.invoked_subcommand is not None:
        return
    for option, value, least in (("jobs", jobs, 1), ("resamples", resamples, 0)):
        if value < least:
            raise InvalidInput(f"--{option} {value}: expected {least} or more")
    brought = bundled(bundle or (), detector_values)
    from sticker_uq.evaluation.executors import executor
    from sticker_uq.lab.studies.detectors.study_plan import RATES, ModelChoice, StudyCircumstance, StudyData
    from sticker_uq.lab.studies.detectors.study_report import write_report
    from sticker_uq.lab.studies.detectors.study_run import run_study, with_topics

    values: dict[str, Any] = {
        "rates": _rates(rates) or RATES,
        "adversarial": adversarial,
        "patches": patches,
        "patch_steps": patch_steps,
        "images": images,
    }
    attack_values: dict[str, Any] = {
        "iterations": iterations, "gamma": gamma, "epsilon": epsilon, "mode": mode
    }  # fmt: skip
    values |= detector_values
    if quick:
        values |= {"rates": (0.1, 0.3), "passes": 5, "adversarial": 2, "images": 12}
        attack_values |= {"iterations": 3} | ({"gamma": 4.0} if attack == "dag" else {})
        model = model or ([] if brought.models else list(_QUICK_MODELS))
        data = data or [f"rendered={_quick_scenes(out)}"]
    if not data:
        raise InvalidInput("--data is missing: expected a COCO folder, or --quick")
    named = model or (() if brought.models else _QUICK_MODELS[:1])
    new = set(brought.rates) - set(values["rates"])
    values |= brought.values
    values |= {
        "models": (*map(ModelChoice.parse, named), *brought.models),
        # the rate of a bundle is the one that its cell works at
        "rates": tuple(sorted({*values["rates"], *brought.rates})) if new else values["rates"],
        "datasets": with_topics(tuple(map(StudyData.parse, data)), topic or ()),
        "circumstances": tuple(map(StudyCircumstance.parse, circumstance or ())),
        "attack": attack_settings(attack, attack_values),
        "transfer": transfer,
        "profile": profile,
    }
    settings = _settings(values)
    resumable("the same call resumes", out)
    with _stages() as advance, executor(jobs, ray_address) as execute:
        study = run_study(settings, out, execute, advance)
    output().print(write_report(study, out, resamples))
    typer.echo(
        f"report: {out / 'report.html'}, summary: {out / 'summary.md'}, results: {out / 'images.parquet'}"
    )


def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished study.", callback=check_folder)],
    resamples: Annotated[int, typer.Option(help="Of the bootstrap intervals.")] = 1000,
) -> None:
    """Write the report, the summary and the tables of a study again."""
    from sticker_uq.lab.studies.detectors.study_report import write_report
    from sticker_uq.lab.studies.detectors.study_run import Study

    if resamples < 0:
        raise InvalidInput(f"--resamples {resamples}: expected 0 or more")
    write_report(Study.load(folder), folder, resamples)
    typer.echo(f"report: {folder / 'report.html'}")


app.command()(statistics)
app.command()(report)


def _settings(values: dict[str, Any]) -> Any:
    from sticker_uq.lab.studies.detectors.study_plan import StudySettings

    try:
        return StudySettings.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        if not problem["loc"]:
            raise InvalidInput(words(problem)) from None
        option = str(problem["loc"][0]).replace("_", "-")
        raise InvalidInput(f"--{option} {problem['input']!r}: {words(problem)}") from None


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


@contextmanager
def _stages() -> Iterator[Callable[[str, int, int], None]]:
    """Progress bars on standard error, one per stage, with an estimate."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks: dict[str, Any] = {}

        def advance(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                # results of an earlier run must not count as speed
                tasks[stage] = bar.add_task(stage, total=total, completed=done)
            bar.update(tasks[stage], completed=done)

        yield advance
