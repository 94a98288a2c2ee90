# SPDX-License-Identifier: Apache-2.0
"""Detectors that start with a backbone that has seen photographs beside those that start with what learned from rendered laptops.

    sticker-uq dataset render --profile study --count 500 --size 640x536 --seed 190100000 --out learn
    sticker-uq dataset render --profile study --count 120 --size 640x536 --seed 190300000 --out test
    sticker-uq dataset render --profile large --count 60 --size 640x480 --seed 190400000 --out large
    python -m benchmarks.eyes --work FOLDER --learn learn --test test large --out benchmarks/results/eyes.json

Every start learns the rendered laptops of --learn and says what is on those of --test; then it learns the photographs of
``benchmarks.public_laptops`` in its folds and says what is on those held out. FOLDER, outside of the repository, keeps what was
downloaded and made: an interrupted run goes on after the last training that was finished. --folds 1: only the first. Nothing is
chosen by what is measured.
"""

import csv
import json
import resource
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.public_laptops import (
    MODEL,
    PRECISION,
    SIDES,
    accuracy,
    downloaded,
    folds,
    found_by,
    stickers_of,
    stickers_seen,
)
from benchmarks.public_photographs import read as read
from benchmarks.public_photographs import write
from benchmarks.public_photographs_measure import product
from benchmarks.result_files import argument_parser, result_file
from sticker_uq.detection.catalogue import build_model
from sticker_uq.detection.names import PHOTO_MODEL
from sticker_uq.detection.weights import load_weights, network_settings, packaged_weights, save_weights
from sticker_uq.evaluation.metrics.accuracy import MatchTable
from sticker_uq.evaluation.metrics.statistics import bootstrap
from sticker_uq.evaluation.reporting.document import Table, as_markdown
from sticker_uq.io.coco import ANNOTATIONS, LabelledImage, read_coco
from sticker_uq.io.files import atomic_write
from sticker_uq.scene import Detections, FloatArray, IntArray, InvalidInput
from sticker_uq_lab.qualifying.parts import write_part
from sticker_uq_lab.training.training import BEST

INPUT = 320
"""Px: what torchvision builds, two fifths of the side of the packaged weights, so that an hour of a core is enough."""
STARTS = {
    "packaged weights": (MODEL, "packaged"),
    "photographs": (PHOTO_MODEL, "photographs"),
    "their backbone": (MODEL, ""),
}
"""Model, and what its training starts with; "": a file made here, the packaged backbone under random heads."""
EPOCHS = {MODEL: (3, 15), PHOTO_MODEL: (2, 11)}
"""On rendered laptops, then on photographs: about equal times, as a picture takes MobileNetV2 four thirds to three halves."""
RENDERED, PHOTOGRAPHS = ("--batch-size", 8), ("--batch-size", 4, "--dropout", 0.2)
RESAMPLES, LAST = 200, 5


def bare_backbone(file: Path, network: dict[str, Any]) -> Path:
    """The packaged backbone, without its coarser maps, under heads with random weights, in ``file``."""
    packaged = packaged_weights(MODEL)
    assert packaged is not None
    torch.manual_seed(0)
    model = build_model(MODEL, **network)
    taken = {k: v for k, v in load_weights(packaged)[0].items() if k.startswith("backbone.features.")}
    model.load_state_dict(taken, strict=False)
    file.parent.mkdir(parents=True, exist_ok=True)
    save_weights(model, file, {"model": MODEL, "network": network})
    return file


def learned(out: Path, *options: object) -> None:
    """Train with ``options`` to ``out`` unless that is done; the processor's seconds are kept there.

    What was interrupted begins anew, as its time is measured.
    """
    if not (out / "seconds").exists():
        shutil.rmtree(out, ignore_errors=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        product("train", "--out", out, "--threads", 1, "--input-size", INPUT, *options)
        with atomic_write(out / "seconds", "w") as stream:
            json.dump(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, stream)


def seconds_of(out: Path) -> float:
    return float(json.loads((out / "seconds").read_text()))


def seen(out: Path, items: Sequence[LabelledImage], model: str, what: str) -> list[Detections]:
    """What the weights in ``out`` find on ``items``, kept in a file WHAT.npz beside them."""
    file = out / f"{what}.npz"
    if not file.exists():
        found = found_by(out / BEST, items, model)
        ends = np.cumsum([len(one) for one in found])
        boxes, probabilities = (
            np.concatenate([getattr(one, name) for one in found]) for name in ("boxes", "probabilities")
        )
        with atomic_write(file) as stream:
            np.savez(stream, ends=ends, boxes=boxes, probabilities=probabilities)
    with np.load(file) as kept:
        parts = (np.split(kept[name], kept["ends"][:-1]) for name in ("boxes", "probabilities"))
        return [Detections(*pair) for pair in zip(*parts, strict=True)]


def part(folder: Path, items: Sequence[LabelledImage]) -> Path:
    """``items`` as a COCO folder."""
    if not (folder / ANNOTATIONS).exists():
        write_part(folder, items, [item.workpiece_id for item in items])
    return folder


def measures(found: Sequence[Detections], items: Sequence[LabelledImage]) -> tuple[Any, Any]:
    """Functions of the pictures drawn: mAP, and the recall of stickers."""
    table = MatchTable(found, items)
    pictures = [stickers_of(*pair) for pair in zip(found, items, strict=True)]

    def precision(drawn: IntArray) -> float:
        return float(table.average_precision(np.bincount(drawn, minlength=len(items)).astype(float))[0])

    def recall(drawn: IntArray) -> float:
        return float(stickers_seen([pictures[n] for n in drawn]).mean())

    return precision, recall


def compared(found: dict[str, list[Detections]], items: Sequence[LabelledImage]) -> list[dict[str, Any]]:
    """Of every start its accuracy, with intervals over pictures, and by how much that of photographs is better."""
    of = {name: measures(one, items) for name, one in found.items()}
    sizes, rows = [len(items)], []
    for name, one in found.items():
        row: dict[str, Any] = {"start": name, **accuracy(one, items)}
        for key, own, best in zip(("map", "recall"), of[name], of["photographs"], strict=True):

            def both(drawn: IntArray, own: Any = own, best: Any = best) -> FloatArray:
                return np.array([own(drawn), best(drawn) - own(drawn)])

            values = both(np.arange(len(items)))
            low, high = bootstrap(both, sizes, RESAMPLES)
            made = np.stack([values, low, high], 1).round(4).tolist()
            row |= {f"{key}_interval": made[0], f"{key}_gain": made[1]}
        rows.append(row)
    return rows


def curve(out: Path) -> list[float]:
    """mAP of the last epochs on the photographs held out, which choose nothing."""
    with (out / "metrics.csv").open(newline="") as stream:
        return [round(float(row["map50"]), 4) for row in csv.DictReader(stream)][-LAST:]


def measured(work: Path, learn: Sequence[Path], test: Sequence[Path], count: int) -> dict[str, Any]:
    source, data = downloaded(work), work / "data"
    if not data.is_dir():
        product("dataset", "import", source, "--out", data)
    items, tests = read_coco(data), [item for folder in test for item in read_coco(folder)]
    parts = folds(items)[:count]
    shown = [items[n] for one in parts for n in one]
    packaged = packaged_weights(MODEL)
    assert packaged is not None
    scales = network_settings(packaged)["anchor_scales"]
    common = ("--device", "cpu", "--anchor-scales", ",".join(map(str, scales)))
    validation = part(work / "validation", tests[:: max(1, len(tests) // 20)])
    rendered: dict[str, list[Detections]] = {}
    held_out: dict[str, list[Detections]] = {name: [] for name in STARTS}
    curves: dict[str, list[list[float]]] = {name: [] for name in STARTS}
    seconds: dict[str, list[float]] = {}
    for name, (model, start) in STARTS.items():
        begin = start or bare_backbone(
            work / "bare.safetensors", {"input_size": INPUT, "anchor_scales": scales}
        )
        out, folders = work / f"rendered {name}", [one for folder in learn for one in ("--data", folder)]
        learned(
            out, *folders, "--val-data", validation, "--model", model, "--start", begin, "--epochs",
            EPOCHS[model][0], *RENDERED, *common,
        )  # fmt: skip
        seconds[name] = [seconds_of(out)]
        rendered[name] = seen(out, tests, model, "rendered")
    for fold, numbers in enumerate(parts):
        own = [items[n] for n in numbers]
        others = [items[n] for one in folds(items) if one != numbers for n in one]
        to_learn, to_test = part(work / f"learn {fold}", others), part(work / f"test {fold}", own)
        for name, (model, _) in STARTS.items():
            out, first = work / f"fold {fold} {name}", work / f"rendered {name}" / BEST
            learned(
                out, "--data", to_learn, "--val-data", to_test, "--model", model, "--start", first, "--epochs",
                EPOCHS[model][1], "--seed", fold, *PHOTOGRAPHS, *common,
            )  # fmt: skip
            seconds[name].append(seconds_of(out))
            curves[name].append(curve(out))
            held_out[name] += seen(out, own, model, "photographs")
    return {
        "title": "laptops",
        "input": INPUT,
        "folds": len(parts),
        "photographs": compared(held_out, shown),
        "rendered": compared(rendered, tests),
        "pictures": [len(shown), len(tests)],
        "curves": curves,
        "seconds": {name: [round(one) for one in row] for name, row in seconds.items()},
    }


def table(found: dict[str, Any], name: str) -> str:
    """The table ``name`` in Markdown: "photographs", "rendered" or "stability"."""
    one = found["sets"][0]
    return as_markdown([_stability(one) if name == "stability" else _accuracy(one[name])]).strip()


def _accuracy(rows: Sequence[dict[str, Any]]) -> Table:
    def of(interval: Sequence[float], sign: str = "") -> str:
        value, low, high = (format(number, f"{sign}.3f") for number in interval)
        return f"{value} ({low} to {high})"

    head = [
        "start", "mAP@0.5", "stickers", "logos", f"stickers found at a precision of {PRECISION}",
        f"below {SIDES[0]} px", f"{SIDES[0]} to {SIDES[1]} px", f"from {SIDES[1]} px",
        "mAP that photographs gain", "stickers found that they gain",
    ]  # fmt: skip
    cells = [
        (
            row["start"],
            of(row["map_interval"]),
            *(f"{row['classes'][c]['average_precision']:.3f}" for c in ("sticker", "logo")),
            of(row["recall_interval"]),
            *(f"{a} of {b}" for a, b in row["by_size"]),
            *(
                "-" if row["start"] == "photographs" else of(row[key], "+")
                for key in ("map_gain", "recall_gain")
            ),
        )
        for row in rows
    ]
    return Table(head, cells)


def _stability(one: dict[str, Any]) -> Table:
    rows = [
        (name, str(fold + 1), " ".join(f"{value:.3f}" for value in values), *map(str, one["seconds"][name][:1]),
         str(one["seconds"][name][fold + 1]))
        for name, curves in one["curves"].items()
        for fold, values in enumerate(curves)
    ]  # fmt: skip
    head = ("start", "fold", f"mAP@0.5 after the last {LAST} epochs", "s, rendered", "s, photographs")
    return Table(head, rows)


def main() -> int:
    """Measure and write the result."""
    parser = argument_parser(__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder for photographs and weights")
    parser.add_argument("--learn", type=Path, nargs="+", required=True, help="rendered laptops, COCO folders")
    parser.add_argument("--test", type=Path, nargs="+", required=True, help="others that nothing learns from")
    parser.add_argument("--folds", type=int, choices=range(1, 4), default=3, help="how many of the three")
    parser.add_argument("--out", type=result_file, required=True, help="file of the result")
    chosen = parser.parse_args()
    try:
        write(chosen.out, [measured(chosen.work, chosen.learn, chosen.test, chosen.folds)])
    except (InvalidInput, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
