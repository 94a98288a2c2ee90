# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq quality``: quality of the class probabilities of detectors, or of any classifiers."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import typer
from rich.markdown import Markdown

from sticker_uq.cli import option
from sticker_uq.cli.options import check_settings, field_options, output_folder
from sticker_uq.cli.terminal import make_progress_bar, output
from sticker_uq.detection.names import MODEL_NAMES
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.evaluation.metrics.probability_quality import CODE, PAPER
from sticker_uq.evaluation.metrics.quality import (
    Vectors,
    both_kinds,
    measure_quality,
    read_vectors,
    vectors_of_detections,
)
from sticker_uq.evaluation.reporting.quality_report import write_quality
from sticker_uq.io.coco import check_objects, read_coco
from sticker_uq.scene import InvalidInput

_MODELS = ", ".join(MODEL_NAMES)
_PRESETS = {"paper": PAPER, "code": CODE}


@field_options("detector_values", DetectorSettings, "passes", "dropout_rate", "score_floor", "device", "seed")
def command(
    detector_values: dict[str, Any],
    out: Path = output_folder(..., "Folder for the results, new or empty.", empty=True),
    data: Path | None = option(None, "COCO folder of the pictures."),
    model: list[str] | None = option(
        None, f"Detector; may be repeated to compare several. One of {_MODELS}."
    ),
    weights: list[str] | None = option(
        None, "Weights file of each --model, in the same order; default: the packaged weights."
    ),
    vectors: list[Path] | None = option(
        None,
        "CSV of a classifier's probabilities in place of --data: columns p_CLASS and label, perhaps image; may be repeated.",
    ),
    preset: Literal["paper", "code"] = option(
        "paper", "Sampling for ACE: as in the paper, or as in its code."
    ),
    ratio: float = option(PAPER.ratio, "Share p of the objects in a subset."),
    subsets: int = option(PAPER.subsets, "Number m of subsets."),
    bootstrap: int = option(200, "Resamples of images for the intervals; 0: none.", min=0),
) -> None:
    """Measure ACE, EACE, VACE, Brier score, NLL and ECE of detections without dropout and of the clusters of T passes, by class;
    with --vectors those of any classifiers.

    --seed is that of masks, subsets and resamples. Writes quality.html, quality.csv, quality.md and charts.
    """
    if (data is None) == (not vectors) or (vectors and (model or weights)):
        raise InvalidInput("expected either --data, with --model and --weights, or --vectors alone")
    sampling = replace(_PRESETS[preset], ratio=ratio, subsets=subsets)
    seed = check_settings(DetectorSettings, detector_values).seed
    notes: list[str] = []
    if data is None:
        found = [read_vectors(path) for path in vectors or ()]
        if len({one.classes for one in found}) > 1 or len({one.name for one in found}) < len(found):
            files = "; ".join(f"{one.name}: {', '.join(one.classes)}" for one in found)
            raise InvalidInput(f"--vectors {files}: expected files of different names with the same classes")
    else:
        detectors = _detectors(model or [DetectorSettings().model], weights or [], detector_values)
        found = _detect_vectors(data, detectors, notes)
    measured = [measure_quality(one, sampling, bootstrap, seed) for one in found]
    out.mkdir(parents=True, exist_ok=True)
    output().print(Markdown(write_quality(measured, sampling, notes, out)))
    typer.echo(f"report: {out / 'quality.html'}")


def _detect_vectors(data: Path, detectors: Sequence[DetectorSettings], notes: list[str]) -> list[Vectors]:
    items = read_coco(data)
    check_objects(items, str(data))
    from sticker_uq.detection.detector import load_detector  # torch takes seconds to load

    notes.append(f"{len(items)} pictures of {data.name}.")
    found: list[Vectors] = []
    with make_progress_bar(transient=True) as bar:
        for number, settings in enumerate(detectors, 1):
            detector = load_detector(settings)
            notes.append(f"{settings.model}, weights {detector.weights_hash[:12]}.")
            task = bar.add_task(settings.model, total=len(items))
            prefix = "" if len(detectors) == 1 else f"{number} {settings.model}, "
            seen = both_kinds(detector, items, lambda task=task: bar.advance(task))  # type: ignore[misc]
            found += [vectors_of_detections(prefix + kind, passes, items) for kind, passes in seen.items()]
    return found


def _detectors(
    models: Sequence[str], weights: Sequence[str], common: dict[str, Any]
) -> list[DetectorSettings]:
    if weights and len(weights) != len(models):
        raise InvalidInput(
            f"{len(weights)} --weights for {len(models)} --model, expected as many, or none at all"
        )
    files = weights or [""] * len(models)
    return [
        check_settings(DetectorSettings, {"model": name, "weights": file, **common})
        for name, file in zip(models, files, strict=True)
    ]
