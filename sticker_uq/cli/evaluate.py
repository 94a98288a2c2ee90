# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq evaluate``: detection accuracy on labelled pictures."""

import json
import math
from pathlib import Path
from typing import Any

from rich.table import Table

from sticker_uq.cli import option
from sticker_uq.cli.options import check_settings, field_options, output_file
from sticker_uq.cli.terminal import figures, make_progress_bar, output
from sticker_uq.detection.detector import load_detector
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.evaluation.metrics.accuracy import (
    Accuracy,
    StochasticAccuracy,
    as_json,
    evaluate_detector,
    evaluate_passes,
)
from sticker_uq.io.coco import check_objects, read_coco
from sticker_uq.io.files import write_file

_LOWEST_FLOOR = 0.01  # so that the precision-recall curve is complete

Columns = dict[str, Accuracy]
_FIELDS = ("model", "weights", "dropout_rate", "score_floor", "min_size", "device", "seed")


@field_options("detector_values", DetectorSettings, *_FIELDS)
def command(
    detector_values: dict[str, Any],
    data: Path = option(..., "COCO folder: annotations.json and images/."),
    passes: int = option(0, "Also measure the clusters of this many stochastic passes; 0: do not."),
    json_file: Path | None = output_file(None, "Also write the results to this JSON file.", "--json"),
) -> None:
    """Print mAP@0.5, average precision, precision and recall by class on a labelled data set.

    --dropout-rate and --score-floor are those of the stochastic passes; without dropout the score floor is 0.01.
    """
    settings = check_settings(DetectorSettings, detector_values | ({"passes": passes} if passes else {}))
    items = read_coco(data, crowd=True)
    check_objects(items, str(data))
    sharp = load_detector(settings.model_copy(update={"score_floor": _LOWEST_FLOOR}))
    measured: StochasticAccuracy | None = None
    with make_progress_bar(transient=True) as bar:
        task = bar.add_task("one pass", total=len(items))
        accuracy = evaluate_detector(sharp, items, lambda: bar.advance(task))
        if passes:
            task = bar.add_task(f"{passes} passes", total=len(items))
            measured = evaluate_passes(load_detector(settings), items, progress=lambda: bar.advance(task))
    console = output()
    console.print(f"{settings.model} on {len(items)} pictures of {data}, weights {sharp.weights_hash[:12]}")
    console.print(_table(accuracy, measured))
    if measured is not None:
        console.print(_uncertainty(measured))
    if json_file is not None:
        content: dict[str, Any] = {
            "model": settings.model,
            "weights": sharp.weights_hash,
            "deterministic": as_json(accuracy),
        }
        if measured is not None:
            content["stochastic"] = as_json(measured)
        write_file(json_file, json.dumps(content, indent=2, allow_nan=False))


def _table(accuracy: Accuracy, measured: StochasticAccuracy | None) -> Table:
    columns: Columns = {"one pass, no dropout": accuracy}
    if measured is not None:
        name = f"clusters of {measured.passes} passes, dropout {measured.dropout_rate:g}"
        columns[name] = measured.accuracy
    table = figures(("", *columns), ())
    table.add_row("mAP@0.5", *(_figure(a.map50) for a in columns.values()), end_section=True)
    for label, row in accuracy.classes.items():
        name = label.name.lower()
        for what, field in (
            (f"AP@0.5 ({row.objects} objects)", "average_precision"),
            ("precision", "precision"),
            ("recall", "recall"),
        ):
            found = (_figure(getattr(a.classes[label], field)) for a in columns.values())
            table.add_row(f"{name} {what}", *found, end_section=field == "recall")
    table.caption = "precision and recall of detections with score >= 0.5"
    return table


def _uncertainty(measured: StochasticAccuracy) -> Table:
    rows = [("objects", f"{measured.objects_per_image:.2f}")]
    rows += [("unstable objects", f"{measured.unstable_per_image:.2f}")]
    rows += [(name.replace("_", " "), f"{value:.4g}") for name, value in measured.uncertainty.items()]
    return figures(("", "value"), rows, title="mean over the pictures")


def _figure(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"
