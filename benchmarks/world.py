# SPDX-License-Identifier: Apache-2.0
"""Weights for the study's cell: small stickers, and what must not be peeled.

    python -m benchmarks.world train --out out/first --large 300
    python -m benchmarks.world train --out out/world --start out/first/run-0/best.safetensors --epochs 2 --learning-rate 5e-4
    python -m benchmarks.world measure --work out/world --weights packaged cell=out/world/run-0/best.safetensors \\
        --out benchmarks/results/world.json

``train`` renders the pictures and trains; an interrupted run goes on. ``measure`` runs weights over laptops of seeds that train
nothing, as rendered for the cell and as large, and over labelled photographs (``--photographs``, COCO folders). Frozen before the
test seeds were looked at: a detection is right when it has the class of an object and overlaps it by 0.5; the threshold on the
score is the one with the highest F1 of stickers on the validation pictures. It is the same on photographs.
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.result_files import result_file
from sticker_uq.detection import DetectorSettings, StochasticDetector, load_detector
from sticker_uq.evaluation.executors import map_over
from sticker_uq.evaluation.metrics.matching import assign, match_classes
from sticker_uq.evaluation.metrics.statistics import area_under_roc, bootstrap
from sticker_uq.evaluation.reporting.document import COLOURS, MARKERS, Table, as_markdown, legend_below, svg
from sticker_uq.io.coco import ANNOTATIONS, EncodedScene, LabelledImage, read_coco, read_picture, write_coco
from sticker_uq.io.files import atomic_write
from sticker_uq.scene import METRICS, Detections, FloatArray, IntArray, InvalidInput, ObjectClass
from sticker_uq.uncertainty import iou_matrix, observe
from sticker_uq_lab.cli.train import stop_on_signal
from sticker_uq_lab.datasets.abnormal import EXPOSURE, abnormal_scenes
from sticker_uq_lab.rendering import encode_scene, render, sample_scene
from sticker_uq_lab.rendering.scene_sampling import Profile
from sticker_uq_lab.rendering.study_sampling import HEIGHT, WIDTH
from sticker_uq_lab.training.checkpoint import STATE
from sticker_uq_lab.training.training import TrainSettings, train


@dataclass(frozen=True)
class Part:
    """Pictures of one kind: the first seed, how many, and how they are rendered."""

    first: int
    count: int
    profile: Profile = "study"
    stickers: int | None = None
    size: tuple[int, int] = (960, 804)


TRAINING = {
    "study": Part(1_000_000, 1800),
    "bare": Part(1_100_000, 200, stickers=0),
    "large": Part(1_200_000, 1000, "large", size=(960, 720)),
}
EXPOSED = {"exposed": Part(1_600_000, 910, "large", size=(960, 720)), "exposed-study": Part(1_700_000, 910)}
"""Laptops of which `EXPOSURE_CASES` degrade one each, or lay on it what must not be peeled."""
EXPOSURE_CASES = (*EXPOSURE, "unknown-object")
ANCHOR_SCALES = (0.044, 0.082, 0.152, 0.29, 0.54, 0.96, 1.0)
PASSES = 20
SMALLEST = {"lid": 69.0, "flat": 52.0}
"""5th percentile of the shorter side of the cell's stickers by view, px of its pictures. `BAND`: how far from it a sticker
of that size may be, as a share.
"""
BAND = 0.15
WHOLE = 0.98
"""Visible share of a sticker that nothing covers."""
PRECISION = 0.95
SIGNALS = 100  # pictures of each part to run the passes on
EDGES = (40, 60, 80, 100, 120, 160, 420)
VALIDATION = Part(1_300_000, 120)
ROOT = Path(__file__).parents[1]
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
CELL = {
    "stickers, top": {"shorter": (69, 86, 95, 114, 160), "longer": (86, 98, 109, 141, 276)},
    "stickers, open": {"shorter": (52, 70, 81, 99, 140), "longer": (71, 88, 100, 129, 172)},
    "logos, top": {"shorter": (56, 73, 104, 118, 135), "longer": (64, 107, 142, 171, 208)},
    "logos, open": {"shorter": (17, 21, 26, 51, 131), "longer": (49, 82, 89, 119, 159)},
}
"""Sides of the labelled boxes of the study's cell, px of its pictures, at `LEVELS`. They are published test labels: who learns
from pictures rendered by them is no longer blind on that cell.
"""
TEST = {
    "study": Part(1_400_000, 400, size=(1224, 1024)),
    "large": Part(1_500_000, 200, "large", size=(960, 720)),
}


def _scene(seed: int, part: Part) -> EncodedScene:
    spec = sample_scene(seed, stickers=part.stickers, profile=part.profile)
    return encode_scene(seed, render(spec, part.size))


def rendered(out: Path, name: str, part: Part, jobs: int = 2) -> Path:
    """The COCO folder of a part, rendered unless it is there."""
    folder = out / name
    if not (folder / ANNOTATIONS).exists():
        seeds = range(part.first, part.first + part.count)
        write_coco(folder, map_over(partial(_scene, part=part), seeds, jobs, chunksize=8))
    return folder


def _exposed(case: str, out: Path, name: str) -> Path:
    folder = out / f"{name}-{case}"
    if not (folder / ANNOTATIONS).exists():
        items = read_coco(out / name)[EXPOSURE_CASES.index(case) :: len(EXPOSURE_CASES)]
        write_coco(folder, abnormal_scenes(items, case, seed=0))
    return folder


def exposed(out: Path, name: str, part: Part, jobs: int = 2) -> list[Path]:
    """A COCO folder of every case of `EXPOSURE_CASES`, each of other laptops, made unless it is there."""
    rendered(out, name, part, jobs)
    return list(map_over(partial(_exposed, out=out, name=name), EXPOSURE_CASES, jobs))


def _boxes(seed: int, size: tuple[int, int]) -> tuple[str, FloatArray, IntArray]:
    spec = sample_scene(seed, profile="study")
    scene = render(spec, size)
    view = "top" if spec.laptop.view == "lid" else "open"
    return view, scene.boxes * (WIDTH / size[0]), scene.labels


def quantiles(
    seeds: Sequence[int], size: tuple[int, int], jobs: int = 1
) -> dict[str, dict[str, list[float]]]:
    """Those of rendered boxes as in `CELL`; ``size`` of the pictures, of which a pixel is the least difference."""
    sides: dict[str, list[FloatArray]] = {kind: [] for kind in CELL}
    for view, boxes, labels in map_over(partial(_boxes, size=size), seeds, jobs, chunksize=8):
        for name, label in (("stickers", ObjectClass.STICKER), ("logos", ObjectClass.LOGO)):
            own = boxes[labels == label]
            sides[f"{name}, {view}"].append(own[:, 2:] - own[:, :2])
    joined = {kind: np.concatenate(parts) for kind, parts in sides.items()}
    return {
        kind: {
            name: np.quantile(ends(values, axis=1), LEVELS).round(1).tolist()
            for name, ends in (("shorter", np.min), ("longer", np.max))
        }
        for kind, values in joined.items()
    }


def train_weights(options: argparse.Namespace) -> None:
    """Render and train, or go on with it."""
    parts = TRAINING | {"large": replace(TRAINING["large"], count=options.large)}

    def more(part: Part) -> Part:
        return replace(part, count=round(part.count * options.pictures))

    data = [rendered(options.out, name, more(part), options.jobs) for name, part in parts.items()]
    exposure = [exposed(options.out, name, more(part), options.jobs) for name, part in EXPOSED.items()]
    settings = TrainSettings(
        data=tuple(data),
        exposure=tuple(itertools.chain.from_iterable(exposure)),
        out=options.out / f"run-{options.seed}",
        val_data=rendered(options.out, "validation", VALIDATION),
        start=options.start,
        epochs=options.epochs,
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        input_size=options.input_size,
        anchor_scales=tuple(options.anchor_scales),
        precision=options.precision,
        dropout=options.dropout,
        seed=options.seed,
        threads=options.threads,
    )
    with stop_on_signal() as stop:
        train(
            settings,
            resume=(settings.out / STATE).exists(),
            command="python -m benchmarks.world train",
            say=partial(print, flush=True),
            on_epoch=lambda r: print(
                f"epoch {r.epoch}: loss {r.loss:.3f}, logos {r.ap_logo:.3f}, stickers {r.ap_sticker:.3f}, {r.seconds:.0f} s",
                flush=True,
            ),
            stop=stop,
        )


@dataclass(frozen=True)
class Found:
    """Stickers and what is called one in a picture: how large they are relative to the smallest of their view (`SMALLEST`), which
    stickers are whole, found by a detection of which score (-1: by none), and which detections are right."""

    stickers: FloatArray
    whole: NDArray[np.bool_]
    by: FloatArray
    sizes: FloatArray
    scores: FloatArray
    right: NDArray[np.bool_]


def _seen(detector: StochasticDetector, image: NDArray[np.uint8]) -> Detections:
    """What one pass without dropout detects."""
    return detector.detect(detector.encode(image))


def _found(
    detected: Detections, item: LabelledImage, smallest: float, visible: FloatArray | None = None
) -> Found:
    hit, _ = match_classes(detected, item)
    chosen = detected.foreground_labels == ObjectClass.STICKER
    sides = (item.boxes[:, 2:] - item.boxes[:, :2]).min(axis=1) / smallest
    by = np.full(len(item.boxes), -1.0)
    by[hit[hit >= 0]] = detected.scores[hit >= 0]
    own = item.labels == ObjectClass.STICKER
    sizes = (detected.boxes[chosen, 2:] - detected.boxes[chosen, :2]).min(axis=1, initial=np.inf) / smallest
    whole = np.ones(len(own), bool) if visible is None else visible >= WHOLE
    return Found(sides[own], whole[own], by[own], sizes, detected.scores[chosen], hit[chosen] >= 0)


def _counts(found: Sequence[Found], threshold: float, small: bool) -> IntArray:
    """Stickers found, stickers, right detections and detections of every picture, (N, 4)."""

    def kept(sizes: FloatArray) -> NDArray[np.bool_]:
        return (sizes >= 1 - BAND) & (sizes <= 1 + BAND) if small else np.ones(len(sizes), bool)

    return np.array(
        [
            (
                (kept(f.stickers) & (f.by >= threshold)).sum(),
                kept(f.stickers).sum(),
                (kept(f.sizes) & (f.scores >= threshold) & f.right).sum(),
                (kept(f.sizes) & (f.scores >= threshold)).sum(),
            )
            for f in found
        ]
    )


def _rates(counts: IntArray) -> dict[str, Any]:
    """Recall and precision with intervals over pictures."""

    def rates(drawn: IntArray) -> FloatArray:
        found, stickers, right, detected = counts[drawn].sum(axis=0)
        return np.array([found / stickers if stickers else np.nan, right / detected if detected else np.nan])

    values = rates(np.arange(len(counts)))
    low, high = bootstrap(rates, [len(counts)], resamples=1000)
    recall, precision = (
        None if np.isnan(row[0]) else [round(float(x), 4) for x in row]
        for row in zip(values, low, high, strict=True)
    )
    return {"stickers": int(counts[:, 1].sum()), "recall": recall, "precision": precision}


def thresholds(found: Sequence[Found]) -> dict[str, float]:
    """The score with the highest F1 of stickers, and the lowest with a precision of `PRECISION` (1 if none has it)."""
    scores = np.unique(np.concatenate([f.scores for f in found]).round(3))
    sums = np.array([_counts(found, score, small=False).sum(axis=0) for score in scores])
    f1 = (sums[:, 0] + sums[:, 2]) / (sums[:, 1] + sums[:, 3])
    precise = scores[sums[:, 2] >= PRECISION * sums[:, 3]]
    return {"threshold": float(scores[np.argmax(f1)]), "precise": float(precise.min(initial=1.0))}


def _signals(detector: StochasticDetector, items: Sequence[LabelledImage]) -> dict[str, Any]:
    """AUROC of "wrong" of what clusters of the passes call a sticker, by signal."""
    rows: list[tuple[float, ...]] = []
    wrong: list[bool] = []
    for item in items:
        image = read_picture(item)
        samples = detector.sample(detector.encode(image), PASSES, item.image_id)
        objects = [o for o in observe(samples)[0] if o.label == ObjectClass.STICKER]
        boxes = np.array([o.box for o in objects], np.float32).reshape(-1, 4)
        own = item.boxes[item.labels == ObjectClass.STICKER]
        taken, _ = assign(iou_matrix(boxes, own), np.array([o.score for o in objects]))
        wrong += (taken < 0).tolist()
        rows += [(1 - o.score, 1 - o.detection_rate, *(getattr(o, m) for m in METRICS)) for o in objects]
    values, is_wrong = np.array(rows), np.array(wrong)
    names = ("1 - mean score", "missed passes", *(metric.words for metric in METRICS.values()))
    return {
        "objects": len(wrong),
        "wrong": int(is_wrong.sum()),
        "auroc": {
            name: round(area_under_roc(values[~is_wrong, i], values[is_wrong, i]), 3)
            for i, name in enumerate(names)
        },
    }


def _processor_ms(detector: StochasticDetector, items: Sequence[LabelledImage]) -> dict[str, float]:
    """Processor time per picture on one thread, which other programs change little: one pass, and the cell's passes clustered."""
    pictures = [read_picture(item) for item in items]

    def ms(measured: Callable[[NDArray[np.uint8]], object]) -> float:
        measured(pictures[0])
        started = time.process_time()
        for picture in pictures:
            measured(picture)
        return round(1000 * (time.process_time() - started) / len(pictures), 1)

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return {
            "one pass": ms(lambda p: detector.detect(detector.encode(p))),
            "passes": ms(lambda p: observe(detector.sample(detector.encode(p), PASSES, 0))),
        }
    finally:
        torch.set_num_threads(before)


def _by_size(found: Sequence[Found], threshold: float) -> list[list[int]]:
    """Stickers found and stickers by their shorter side between `EDGES`; sizes in ``found`` are px of the cell's pictures."""
    sides, by = (np.concatenate([getattr(f, name) for f in found]) for name in ("stickers", "by"))
    parts = np.digitize(sides, EDGES[1:-1])
    return [
        [int((by[parts == n] >= threshold).sum()), int((parts == n).sum())] for n in range(len(EDGES) - 1)
    ]


def draw_sizes(found: dict[str, Any]) -> str:
    """A chart of the share of stickers found by size, SVG."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        names = [f"{low} to {high}" for low, high in itertools.pairwise(EDGES)]
        for number, (name, own) in enumerate(found["weights"].items()):
            shares = [100 * hits / max(count, 1) for hits, count in own["by_size"]]
            axes.plot(names, shares, color=COLOURS[number], marker=MARKERS[number], label=name)
        axes.set_xlabel("shorter side, px of a picture 2448 px wide")
        axes.set_ylabel("stickers found, %")
        axes.set_ylim(0, 100)
        legend_below(figure, axes, columns=3)

    return f"{svg(draw, 6.5, 3.0, 'share of rendered stickers found over their size')}\n"


def _truth(seed: int, part: Part) -> tuple[float, FloatArray]:
    """The 5th percentile of the shorter side of the cell's stickers in the view of a picture, px of the rendered picture, and the
    visible share of its objects."""
    spec = sample_scene(seed, stickers=part.stickers, profile=part.profile)
    view = "lid" if part.profile == "large" else spec.laptop.view
    return SMALLEST[view] * part.size[0] / WIDTH, render(spec, part.size).visible_fraction


def _at_precision(found: Sequence[Found], threshold: float) -> dict[str, dict[str, Any]]:
    """Recall of the smallest stickers and of the whole ones of them, and the precision of all."""
    precision = _rates(_counts(found, threshold, small=False))["precision"]
    whole = [replace(f, stickers=f.stickers[f.whole], by=f.by[f.whole]) for f in found]
    return {
        name: _rates(_counts(those, threshold, small=True)) | {"precision": precision}
        for name, those in (("precise", found), ("whole", whole))
    }


def measure(options: argparse.Namespace) -> None:
    """Measure all weights on all parts; a part that is in the file already is kept."""
    result = read(options.out) if options.out.exists() else {"quantiles": {}, "weights": {}}
    if not result["quantiles"]:
        result["quantiles"] = quantiles(range(5_000_000, 5_000_000 + 240), (WIDTH // 2, HEIGHT // 2), 2)
        _write(options.out, result)
    for text in options.weights:
        name, _, path = text.rpartition("=")
        settings = DetectorSettings(weights="" if path == "packaged" else path, score_floor=0.01)
        detector = load_detector(settings)
        own = result["weights"].setdefault(name or path, {"checksum": detector.weights_hash, "parts": {}})
        if own["checksum"] != detector.weights_hash:
            raise InvalidInput(f"{options.out}: has other weights as {name or path!r}, expected a new name")
        looked = partial(_seen, detector)
        passes = detector.with_settings(DetectorSettings(weights=settings.weights))
        if "precise" not in own:
            items = read_coco(rendered(options.work, "validation", VALIDATION))
            own |= thresholds([_found(looked(read_picture(item)), item, 1.0) for item in items])
            _write(options.out, result)
        if "processor_ms" not in own:
            items = read_coco(rendered(options.work, "validation", VALIDATION))
            own["processor_ms"] = _processor_ms(passes, items[:20])
            _write(options.out, result)
        if "by_size" not in own:
            items = read_coco(rendered(options.work, "test-study", TEST["study"]))
            px = TEST["study"].size[0] / WIDTH
            own["by_size"] = _by_size(
                [_found(looked(read_picture(item)), item, px) for item in items], own["threshold"]
            )
            _write(options.out, result)
        photographs = {f"photographs, {folder.name}": folder for folder in options.photographs}
        for part in (*TEST, *photographs):
            if part in own["parts"]:
                continue
            if part in TEST:
                items = read_coco(rendered(options.work, f"test-{part}", TEST[part]))
                seeds = range(TEST[part].first, TEST[part].first + TEST[part].count)
                truth: list[tuple[float, FloatArray | None]]
                truth = list(map_over(partial(_truth, part=TEST[part]), seeds, 2, chunksize=8))
            else:
                items = read_coco(photographs[part])
                truth = [(1.0, None)] * len(items)
            found = [
                _found(looked(read_picture(item)), item, *own_truth)
                for item, own_truth in zip(items, truth, strict=True)
            ]
            own["parts"][part] = {
                "pictures": len(items),
                "all": _rates(_counts(found, own["threshold"], small=False)),
                **(
                    {"smallest": _rates(_counts(found, own["threshold"], small=True))}
                    | _at_precision(found, own["precise"])
                    if part == "study"
                    else {}
                ),
                "signals": _signals(passes, items[:SIGNALS]),
            }
            _write(options.out, result)
            print(name or path, part, own["parts"][part], flush=True)
    if options.figure is not None:
        with atomic_write(options.figure, "w") as stream:
            stream.write(draw_sizes(result))


def read(file: Path) -> dict[str, Any]:
    """The result in ``file``."""
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _write(file: Path, result: dict[str, Any]) -> None:
    with atomic_write(file, "w") as stream:
        json.dump(result, stream, indent=1, allow_nan=False)
        stream.write("\n")


def table(found: dict[str, Any], name: str) -> str:
    """A table of docs/results/world.md in Markdown."""
    return as_markdown([TABLES[name](found)]).rstrip("\n")


def _quantile_table(found: dict[str, Any]) -> Table:
    rows = [
        (kind, f"{side} side", *(f"{a:.0f} / {b:g}" for a, b in zip(values, CELL[kind][side], strict=True)))
        for kind, sides in found["quantiles"].items()
        for side, values in sides.items()
    ]
    return Table(("", "px, rendered / cell", *(f"{100 * level:g} %" for level in LEVELS)), rows)


def _interval(values: Sequence[float] | None) -> str:
    if values is None:
        return "none detected"
    return "{:.3f} ({:.3f} to {:.3f})".format(*values)


def _found_table(found: dict[str, Any]) -> Table:
    rows = [
        (name, f"{part}{SIZE_NOTE[size]}", str(m[size]["stickers"]), *(_interval(m[size][k]) for k in RATES))
        for name, own in found["weights"].items()
        for part, m in own["parts"].items()
        for size in SIZE_NOTE
        if size in m
    ]
    return Table(("weights", "pictures", "stickers", *RATES), rows)


def _speed_table(found: dict[str, Any]) -> Table:
    rows = [
        (
            name,
            f"{own['threshold']:.2f}",
            *(f"{value:.0f} ms" for value in own["processor_ms"].values()),
            f"{2000 / own['processor_ms']['passes']:.1f}",
        )
        for name, own in found["weights"].items()
    ]
    head = ("weights", "threshold on the score", "processor time, one pass", f"{PASSES} passes")
    return Table((*head, f"pictures/s on two cores, {PASSES} passes, computed"), rows)


def _signal_table(found: dict[str, Any]) -> Table:
    columns = [
        (name, part, m["signals"])
        for name, own in found["weights"].items()
        for part, m in own["parts"].items()
        if "signals" in m
    ]
    names = columns[0][2]["auroc"]
    rows = [
        (name, part, f"{s['wrong']} of {s['objects']}", *(f"{s['auroc'][signal]:.2f}" for signal in names))
        for name, part, s in columns
    ]
    return Table(("weights", "pictures", "wrong", *names), rows)


TABLES: dict[str, Callable[[dict[str, Any]], Table]] = {
    "quantiles": _quantile_table,
    "found": _found_table,
    "speed": _speed_table,
    "signals": _signal_table,
}
RATES = ("recall", "precision")
SIZE_NOTE = {
    "all": "",
    "smallest": ", as small as the cell's smallest",
    "precise": f", the smallest, threshold for a precision of {PRECISION:g}",
    "whole": ", of these the whole ones",
}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    training = commands.add_parser("train")
    training.add_argument("--out", type=Path, required=True)
    training.add_argument("--start", default="packaged")
    training.add_argument(
        "--large", type=int, default=TRAINING["large"].count, help="pictures of large laptops"
    )
    training.add_argument(
        "--threads",
        type=int,
        default=1,
        help="the weights depend on it; beside a GPU: processes that prepare",
    )
    training.add_argument(
        "--pictures", type=float, default=1.0, help="times as many as the first weights had"
    )
    training.add_argument("--jobs", type=int, default=2, help="processes that render")
    training.add_argument("--epochs", type=int, default=1)
    training.add_argument("--batch-size", type=int, default=8)
    training.add_argument("--learning-rate", type=float, default=6e-4)
    training.add_argument("--input-size", type=int, default=800)
    training.add_argument("--anchor-scales", type=float, nargs="+", default=ANCHOR_SCALES)
    training.add_argument("--precision", default="float32")
    training.add_argument("--dropout", type=float, default=0.0)
    training.add_argument("--seed", type=int, default=0)
    training.set_defaults(run=train_weights)
    measuring = commands.add_parser("measure")
    measuring.add_argument(
        "--work", type=Path, required=True, help="folder of `train`, for the rendered pictures"
    )
    measuring.add_argument("--weights", nargs="+", required=True, metavar="NAME=FILE", help="or packaged")
    measuring.add_argument("--photographs", nargs="*", type=Path, default=[], help="COCO folders")
    measuring.add_argument(
        "--figure", type=result_file, help="SVG file to draw the stickers found by size to"
    )
    measuring.add_argument("--out", type=result_file, required=True)
    measuring.set_defaults(run=measure)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
