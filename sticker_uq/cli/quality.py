# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq quality``: calibration of the probabilities of detectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.markdown import Markdown
from rich.progress import Progress

from sticker_uq.cli.options import checked, field_options, output_folder
from sticker_uq.cli.terminal import counting, output
from sticker_uq.detection.names import MODEL_NAMES
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.evaluation.metrics.probability_quality import BINS, CODE, PAPER, Method, Sampling
from sticker_uq.evaluation.metrics.quality import (
    Quality,
    QualitySettings,
    Vectors,
    cluster_vectors,
    measure_quality,
    one_pass_vectors,
    write_vectors,
)
from sticker_uq.evaluation.reporting.quality_report import as_markdown, write_quality
from sticker_uq.io.coco import check_objects, read_coco
from sticker_uq.scene import InvalidInput

_PRESETS = {"paper": PAPER, "code": CODE}
_METHODS: tuple[Method, ...] = ("isotonic", "temperature")
Seen = Literal["both", "one-pass", "clusters"]


@field_options("detector_values", DetectorSettings, "passes", "dropout_rate", "score_floor", "device", "seed")
def command(
    detector_values: dict[str, Any],
    out: Annotated[Path, output_folder("Folder for the results, new or empty.", empty=True)],
    data: Annotated[Path, typer.Option(help="COCO folder of the pictures.")],
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Detector; may be repeated to compare several. One of " + ", ".join(MODEL_NAMES) + "."
        ),
    ] = None,
    weights: Annotated[
        list[str] | None,
        typer.Option(help="Weights file of each --model, in the same order; default: the packaged weights."),
    ] = None,
    seen: Annotated[
        str,
        typer.Option(
            "--of",
            metavar="both|one-pass|clusters",
            help="What to measure: detections without dropout, clusters of T passes, or both.",
        ),
    ] = "both",
    calibration: Annotated[
        str,
        typer.Option(
            metavar="isotonic|temperature|both|none",
            help="Also show the result of this calibration, cross-fitted on other images.",
        ),
    ] = "isotonic",
    preset: Annotated[
        str, typer.Option(metavar="paper|code", help="Sampling for ACE: as in the paper, or as in its code.")
    ] = "paper",
    subsets: Annotated[
        int | None, typer.Option(help="Random subsets m instead of the preset's 1000.")
    ] = None,
    ratio: Annotated[
        float | None, typer.Option(help="Size of the subsets as a share p of the objects instead of 0.05.")
    ] = None,
    bins: Annotated[int, typer.Option(help="Bins of the calibration errors and diagrams.")] = BINS,
    bootstrap: Annotated[int, typer.Option(help="Resamples of images for the intervals; 0: none.")] = 200,
) -> None:
    """Measure ACE, EACE, VACE, Brier score, NLL, ECE, D-ECE and LaECE, by class, before and after calibration.

    --seed is that of masks, subsets, folds and resamples.

    Writes quality.html, quality.csv, quality.md, charts, and the probability vectors of each detector.
    """
    seed = checked(DetectorSettings, detector_values).seed
    settings = QualitySettings(_sampling(preset, subsets, ratio), bins, bootstrap, seed)
    methods = _methods(calibration)
    if seen not in ("both", "one-pass", "clusters"):
        raise InvalidInput(f"--of {seen}: expected both, one-pass or clusters")
    notes: list[str] = []
    detectors = _detectors(model or [DetectorSettings().model], weights or [], detector_values)
    found = _measured(data, detectors, seen, notes)  # type: ignore[arg-type]  # checked above
    measured: list[Quality] = []
    for one in found:
        measured += measure_quality(one, settings, methods)
    out.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(found, 1):
        write_vectors(one, out / f"vectors_{number}.csv")
    write_quality(measured, settings, notes, out)
    output().print(Markdown(as_markdown(measured, settings, notes)))
    typer.echo(f"report: {out / 'quality.html'}")


def _sampling(preset: str, subsets: int | None, ratio: float | None) -> Sampling:
    if preset not in _PRESETS:
        raise InvalidInput(f"--preset {preset}: expected {' or '.join(_PRESETS)}")
    base = _PRESETS[preset]
    return Sampling(
        base.subsets if subsets is None else subsets, base.ratio if ratio is None else ratio, base.relative
    )


def _methods(calibration: str) -> tuple[Method, ...]:
    if calibration not in (*_METHODS, "both", "none"):
        raise InvalidInput(f"--calibration {calibration}: expected isotonic, temperature, both or none")
    if calibration == "none":
        return ()
    return tuple(method for method in _METHODS if calibration in (method, "both"))


def _detectors(
    models: Sequence[str], weights: Sequence[str], common: dict[str, Any]
) -> list[DetectorSettings]:
    if weights and len(weights) != len(models):
        raise InvalidInput(
            f"{len(weights)} --weights for {len(models)} --model, expected as many, or none at all"
        )
    files = weights or [""] * len(models)
    return [
        checked(DetectorSettings, {"model": name, "weights": file, **common})
        for name, file in zip(models, files, strict=True)
    ]


def _measured(
    data: Path, detectors: Sequence[DetectorSettings], seen: Seen, notes: list[str]
) -> list[Vectors]:
    """Probability vectors of every detector: without dropout and of clusters, as ``seen`` selects."""
    from sticker_uq.detection.detector import load_detector  # torch takes seconds to load

    items = read_coco(data)
    check_objects(items, str(data))
    notes.append(f"{len(items)} pictures of {data.name}.")
    found = []
    with counting(transient=True) as bar:
        for number, settings in enumerate(detectors, 1):
            detector = load_detector(settings)
            prefix = "" if len(detectors) == 1 else f"{number} {settings.model}, "
            notes.append(f"{settings.model}, weights {detector.weights_hash[:12]}.")
            measurements: list[tuple[str, Callable[..., tuple[Vectors, str]]]] = []
            if seen != "clusters":
                measurements.append((f"{prefix}one pass", one_pass_vectors))
            if seen != "one-pass":
                measurements.append((f"{prefix}{settings.passes} passes", cluster_vectors))
            for title, measure in measurements:
                task = bar.add_task(title, total=len(items))
                one, note = measure(detector, items, title, _advance(bar, task))
                found.append(one)
                notes.append(f"{note}.")
    return found


def _advance(bar: Progress, task: object) -> Callable[[], None]:
    return lambda: bar.advance(task)  # type: ignore[arg-type]
