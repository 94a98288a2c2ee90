# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq dil``: studies of distinctive localization (DiL) and training of novelty detection."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import typer

from sticker_uq.cli import option
from sticker_uq.cli.options import check_settings, field_options, output_file, output_folder
from sticker_uq.cli.terminal import make_progress_bar, stage_bars
from sticker_uq.detection.detector import StochasticDetector, load_detector
from sticker_uq.detection.names import MODEL_NAMES
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.detection.weights import packaged_weights
from sticker_uq.evaluation.reporting.document import as_markdown
from sticker_uq.io.coco import check_objects, read_coco
from sticker_uq.perception.dil import LocalizationSettings
from sticker_uq.perception.novelty.network import (
    load_network,
    packaged_file,
    packaged_network,
    read_network,
    save_network,
)
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.datasets.abnormal import CLEAN, AbnormalImage, read_abnormal
from sticker_uq_lab.studies.dil import dil_report
from sticker_uq_lab.studies.dil.scene_records import NOVELTY, SceneRecord, record_case
from sticker_uq_lab.training.novelty_training import learn_novelty_network

app = typer.Typer(no_args_is_help=True, add_completion=False)
_PACKAGED = "packaged"


@app.callback()
def _about() -> None:
    """Distinctive localization (DiL): objectness that no predicted box explains; and novelty detection."""


@app.command()
@field_options("detector_values", DetectorSettings, "min_size", "passes", "device", "seed")
def study(
    detector_values: dict[str, Any],
    data: Path = option(..., "Folder that `dataset abnormal` wrote: one COCO folder per case."),
    out: Path = output_folder(..., "Folder for the tables, and for what was measured."),
    model: list[str] | None = option(
        None, "Model; may be repeated. Default: every model with packaged weights."
    ),
    weights: list[str] | None = option(
        None, "Weights file of each --model, in the same order; '' for the packaged ones."
    ),
    network: list[str] | None = option(
        None, "Novelty network of each --model, in the same order; '' for the packaged one, if there is one."
    ),
    ensemble: list[str] | None = option(
        None,
        "Weights of a member of a deep ensemble of the one --model, '' for the packaged ones; may be repeated.",
    ),
    count: int = option(0, "Scenes of each case; 0: all.", min=0),
) -> None:
    """Print and write the DiL paper's tables 2 and 3 and figures 4 and 5 for every model, with intervals.

    Measurements are kept in --out, from which the same study resumes.
    """
    cases = _cases(data, count)
    models = model or [name for name in MODEL_NAMES if packaged_weights(name) is not None]
    files, networks = weights or [""] * len(models), network or [""] * len(models)
    for name, given in (("--weights", files), ("--network", networks)):
        if len(given) != len(models):
            raise InvalidInput(f"{len(given)} {name} for {len(models)} --model: expected one for each")
    chosen = [
        check_settings(DetectorSettings, {"model": name, "weights": file, **detector_values})
        for name, file in zip(models, files, strict=True)
    ]
    if ensemble and (len(chosen) > 1 or len(ensemble) < 2):
        raise InvalidInput(
            f"{len(ensemble)} --ensemble for {len(chosen)} --model: expected two members or more, and one model"
        )
    members = [load_detector(chosen[0].model_copy(update={"weights": file})) for file in ensemble or []]
    out.mkdir(parents=True, exist_ok=True)
    records = {
        settings.model: _records(settings, cases, out, file, members)
        for settings, file in zip(chosen, networks, strict=True)
    }
    tables = {name: _tables(found, cases) for name, found in records.items()}
    charts = {name: dil_report.box_plot(found) for name, found in records.items()}
    written = dil_report.write_study(tables, out, charts)
    typer.echo(as_markdown(dil_report.blocks(tables)))
    typer.echo(f"{len(written)} files in {out}")


@app.command()
@field_options("detector_values", DetectorSettings, "model", "weights", "min_size", "device", "seed")
def learn(
    detector_values: dict[str, Any],
    data: list[Path] = option(
        ..., "COCO folder of clean pictures: thousands, or hundreds with --start; may be repeated."
    ),
    out: Path = output_file(..., "Safetensors file for the network."),
    epochs: int | None = option(
        None,
        "Epochs, each with other shapes; 0 with --start: only measure it anew. Default: 3, more with few "
        "pictures, 400 steps at least.",
    ),
    start: Path | None = option(
        None,
        "Trained network to continue from: a file, or packaged for the packaged one; default: the backbone of --model.",
    ),
    width: int | None = option(
        None,
        "Width of the input for a picture of 4:3, px: small stickers need more. Default: that of --start, else 384.",
        min=64,
        max=2048,
    ),
) -> None:
    """Train a novelty network on clean pictures with random shapes pasted on them (outlier exposure).

    A fifth of the pictures is held out. On them its quality is measured, which the file records: perception refuses a network
    that cannot tell the unknown from the known.
    """
    if epochs is not None and epochs < (0 if start else 1):
        raise InvalidInput(f"--epochs {epochs}: expected 1 or more, or 0 with --start")
    settings = check_settings(DetectorSettings, detector_values)
    pictures = [item for folder in data for item in read_coco(folder)]
    check_objects(pictures, ", ".join(map(str, data)))
    detector, seed = load_detector(settings), settings.seed
    begin = None if start is None else read_network(_start_of(start))
    with stage_bars() as progress:
        size = None if width is None else (width, width * 3 // 4)
        model = learn_novelty_network(detector, pictures, begin, epochs, seed, progress, size)
    save_network(model, detector, out)
    quality = model.quality
    assert quality is not None
    typer.echo(f"novelty network in {out}, measured on {quality.pictures} pictures held out:")
    typer.echo(f"AUROC of unknown objects {quality.objects}, of foreign scenes {quality.scenes}")
    if quality.weakness:
        typer.echo(f"TOO WEAK, perception will not use it: {quality.weakness}. {_remedy(start)}", err=True)
    elif quality.objects_weakness:
        typer.echo(
            f"TOO WEAK FOR OBJECTS, perception will use it for whole scenes only: {quality.objects_weakness}. {_remedy(start)}",
            err=True,
        )


def _start_of(start: Path) -> Path:
    """The file of the network to continue from, the packaged one for ``packaged``; raises :class:`InvalidInput` without it."""
    if str(start) != _PACKAGED:
        return start
    file = next((found for name in MODEL_NAMES if (found := packaged_file(name)) is not None), None)
    if file is None:
        raise InvalidInput("--start packaged: this installation has no packaged novelty network")
    return file


def _remedy(start: Path | None) -> str:
    if start is None:
        return "Continue from the packaged network (--start packaged), or learn from more pictures"
    return "Learn from more pictures, of all laptops and all light that the cell will see, and without foreign objects"


def _cases(data: Path, count: int) -> dict[str, list[AbnormalImage]]:
    folders = sorted(path.parent for path in data.glob("*/annotations.json"))
    cases = {folder.name: read_abnormal(folder)[: count or None] for folder in folders}
    if CLEAN not in cases or len(cases) < 2:
        raise InvalidInput(
            f"{data}: expected folders of `sticker-uq dataset abnormal`, {CLEAN!r} and at least one other case; "
            f"found {', '.join(cases) or 'none'}"
        )
    return {CLEAN: cases.pop(CLEAN), **cases}


def _records(
    settings: DetectorSettings,
    cases: dict[str, list[AbnormalImage]],
    out: Path,
    network_file: str,
    members: Sequence[StochasticDetector],
) -> dict[str, list[SceneRecord]]:
    localization = LocalizationSettings()
    detector = load_detector(settings)
    network = load_network(network_file, detector.device) if network_file else packaged_network(detector)
    records = {}
    with make_progress_bar() as bar:
        task = bar.add_task(settings.model, total=sum(map(len, cases.values())))
        for case, images in cases.items():
            cache = out / f"{settings.model}_{case}.json"
            records[case] = record_case(
                detector, localization, images, cache, lambda: bar.advance(task), network, members
            )
    return records


def _tables(
    records: dict[str, list[SceneRecord]], cases: dict[str, list[AbnormalImage]]
) -> dict[str, pd.DataFrame]:
    localization = LocalizationSettings()
    novel = NOVELTY in records[CLEAN][0].signals
    threshold, alpha = localization.decision_threshold, localization.alpha
    return {
        "Effect of each case": dil_report.case_effects(records, cases, threshold),
        "Clean against abnormal": dil_report.case_separation(records),
        "Missed stickers": dil_report.missed_sticker_separation(records),
        "Rates of DiL": dil_report.detection_rates(records, dil_report.PAPER_DIL),
        "Rates of unexplained objectness": dil_report.detection_rates(records, dil_report.SCORE),
        **({"Rates of novelty": dil_report.detection_rates(records, NOVELTY)} if novel else {}),
        "Thresholds": dil_report.threshold_table(records, cases, threshold, alpha),
    }
