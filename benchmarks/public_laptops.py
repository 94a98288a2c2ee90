# SPDX-License-Identifier: Apache-2.0
"""Photographs of laptops from public test reports, from labels to a policy, cross-validated.

    python -m benchmarks.public_laptops --work FOLDER --out benchmarks/results/public_laptops.json

``public_laptops_labels.json`` has stickers and logos, drawn by hand; the photographs are downloaded at a fixed commit to FOLDER,
outside of the repository, which also keeps what was made: an interrupted run resumes there. The laptops are divided into FOLDS by
chance, and what is on the pictures of each is said by weights that learned from the others: all of them, and the first of SIZES.
Frozen before anything was measured: folds, sizes, epochs, alpha, splits, and the aims of AIMS.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.photographs import sparse_clone
from benchmarks.public_photographs import TABLES as SHARED
from benchmarks.public_photographs import read as read
from benchmarks.public_photographs import write
from benchmarks.public_photographs_measure import (
    ALPHAS,
    SCORE,
    auroc,
    decided,
    objects_of,
    one_pass_doubt,
    product,
    promise,
)
from benchmarks.result_files import argument_parser, result_file
from sticker_uq.calibration.making import assess_sources
from sticker_uq.calibration.records import Record
from sticker_uq.detection.detector import load_detector
from sticker_uq.evaluation.metrics.accuracy import as_detections, as_json, mean_average_precision
from sticker_uq.evaluation.metrics.matching import match_classes
from sticker_uq.evaluation.reporting.document import Table, as_markdown
from sticker_uq.gate import Policy
from sticker_uq.io.coco import ANNOTATIONS, LabelledImage, read_coco, read_picture
from sticker_uq.io.files import atomic_write
from sticker_uq.io.labelled_images import LabelledSource
from sticker_uq.io.share import share_folder
from sticker_uq.perception.settings import PerceptionSettings
from sticker_uq.scene import Detections, FloatArray, InvalidInput, ObjectClass
from sticker_uq_lab.datasets.default_boxes import sides_in_view
from sticker_uq_lab.qualifying.parts import write_part
from sticker_uq_lab.training.checkpoint import STATE
from sticker_uq_lab.training.training import BEST

LABELS = Path(__file__).with_name("public_laptops_labels.json")
FOLDS, SIZES, EPOCHS = 3, (20, 40), 30
TRAINING = ("--start", "packaged", "--epochs", EPOCHS, "--batch-size", 4, "--dropout", 0.2, "--threads", 1)
SPLITS, CALIBRATED = 20, 2 / 3
MODEL, SIDES = "ssdlite320_mobilenet_v3_large", (32, 48)
"""Model, and shorter sides in its input, px, between which stickers are counted."""
PRECISION = 0.6
"""Share of what is called a sticker that must be right where recall is measured."""
AIMS = {"map50": 0.55, "recall": 0.75, "auroc": 0.85, "wrongful": 0.02, "released": 1 / 3}
"""For a detector and a policy of 110 labelled photographs."""


def downloaded(work: Path) -> Path:
    """The photographs with their labels, a COCO folder in ``work``, there or downloaded; InvalidInput when they cannot be had."""
    document = json.loads(LABELS.read_text(encoding="utf-8"))
    info, names = document["info"], {image["file_name"] for image in document["images"]}
    folder = work / "source"
    if not (folder / ANNOTATIONS).exists():
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".download-", dir=work) as scratch:
            clone = Path(scratch) / "clone"
            sparse_clone(info["repository"], info["commit"], [info["folder"]], clone, lambda _: sorted(names))
            (clone / info["folder"]).replace(folder / "images")
        with atomic_write(folder / ANNOTATIONS, "w") as stream:
            json.dump(document, stream)
    return folder


def folds(items: Sequence[LabelledImage]) -> list[list[int]]:
    """The numbers of the pictures of each fold, in random order; all pictures of a laptop are in the same one."""
    laptops = sorted({item.workpiece_id for item in items})
    order = np.random.default_rng(0).permutation(len(laptops))
    fold_of = {laptops[place]: rank % FOLDS for rank, place in enumerate(order.tolist())}
    shuffled = np.random.default_rng(1).permutation(len(items)).tolist()
    return [[n for n in shuffled if fold_of[items[n].workpiece_id] == fold] for fold in range(FOLDS)]


def trained(work: Path, name: str, items: Sequence[LabelledImage]) -> Path:
    """Weights that learned from ``items``, trained unless they are there."""
    out, data = work / f"run-{name}", work / f"learn-{name}"
    if not (data / ANNOTATIONS).exists():
        write_part(data, items, [item.workpiece_id for item in items])
    if not (out / "done").exists():
        product(
            "train", "--data", data, "--out", out, *(["--resume"] if (out / STATE).exists() else TRAINING)
        )
        (out / "done").touch()
    return out / BEST


def found_by(weights: Path, items: Sequence[LabelledImage], model: str = MODEL) -> list[Detections]:
    settings = PerceptionSettings(model=model, weights=str(weights), device="cpu", score_floor=0.01)
    detector = load_detector(settings)
    return [detector.detect(detector.encode(read_picture(item))) for item in items]


@dataclass(frozen=True)
class Stickers:
    """Of a picture: ``scores`` (N,) of what is called a sticker and whether it is one, ``hits`` (N,).

    Of its labelled stickers the score that each was found by, ``best`` (M,), -1 for none, and its shorter side in the input px,
    ``sides`` (M,).
    """

    scores: FloatArray
    hits: NDArray[np.bool_]
    best: FloatArray
    sides: FloatArray


def stickers_of(detected: Detections, item: LabelledImage) -> Stickers:
    chosen = detected.foreground_labels == ObjectClass.STICKER
    places, scores = match_classes(detected, item)[0][chosen], detected.scores[chosen]
    score = np.full(len(item.labels), -1.0)  # that every labelled object was found by
    score[places[places >= 0]] = scores[places >= 0]
    wanted = item.labels == ObjectClass.STICKER
    return Stickers(scores, places >= 0, score[wanted], sides_in_view([item], MODEL, 0)[wanted])


def stickers_seen(pictures: Sequence[Stickers]) -> NDArray[np.bool_]:
    """Which labelled stickers of all ``pictures`` are found where ``PRECISION`` of those called are some."""
    scores, hits, best = (
        np.concatenate([getattr(one, name) for one in pictures]) for name in ("scores", "hits", "best")
    )
    order = np.argsort(-scores, kind="stable")
    right = np.cumsum(hits[order])
    precise = np.flatnonzero(right / np.arange(1, len(right) + 1) >= PRECISION)
    return np.asarray(best >= (scores[order][precise[-1]] if len(precise) else np.inf))


def accuracy(found: Sequence[Detections], items: Sequence[LabelledImage]) -> dict[str, Any]:
    """Average precision of ``found``, and how many stickers, also by size, are found where ``PRECISION`` of those called are."""
    pictures = [stickers_of(*pair) for pair in zip(found, items, strict=True)]
    seen = stickers_seen(pictures)
    size = np.digitize(np.concatenate([one.sides for one in pictures]), SIDES)
    by_size = [[int(seen[size == n].sum()), int((size == n).sum())] for n in range(len(SIDES) + 1)]
    recall = round(float(seen.mean()), 4)
    return {**as_json(mean_average_precision(found, items)), "recall": recall, "by_size": by_size}


def measured(work: Path) -> dict[str, Any]:
    """The whole way in the folder ``work``."""
    source, data = downloaded(work), work / "data"
    if not data.is_dir():
        product("dataset", "import", source, "--out", data)
    product("dataset", "check", data)
    items = read_coco(data)
    parts = folds(items)
    order = [n for part in parts for n in part]
    shown = [items[n] for n in order]
    learners = [
        [items[n] for k in range(FOLDS) for n in parts[(fold + k) % FOLDS] if k] for fold in range(FOLDS)
    ]
    curve: list[dict[str, Any]] = []
    records: list[Record] = []
    doubts: list[list[dict[str, float]]] = []
    for size in (0, *SIZES):
        found = []
        for fold, part in enumerate(parts):
            own = [items[n] for n in part]
            weights = trained(work, f"{fold}-{size or 'all'}", learners[fold][: size or None])
            one_pass = found_by(weights, own)
            found += one_pass
            if not size:
                write = work / f"test-{fold}"
                if not write.is_dir():
                    write_part(write, own, [item.workpiece_id for item in own])
                settings = PerceptionSettings(weights=str(weights), device="cpu")
                (assessed,) = assess_sources([LabelledSource(write)], settings, work / "assessments.sqlite")
                records += assessed.records
                doubts += [
                    [{SCORE: one_pass_doubt(seen, there)} for seen in record.assessment.objects]
                    for record, there in zip(assessed.records, one_pass, strict=True)
                ]
        pictures = round(np.mean([len(one[: size or None]) for one in learners]))
        curve.append({"pictures": pictures, **accuracy(found, shown)})
    clusters = [as_detections(record.assessment.objects) for record in records]
    objects = objects_of(records, doubts)
    shipped = Policy.load(share_folder() / "config" / "limits.yaml")
    base = shipped.model_copy(update={"unmeasured_novelty": "release"})
    return {
        "title": "laptops",
        "laptops": len({item.workpiece_id for item in items}),
        "curve": sorted(curve, key=lambda row: row["pictures"]),
        "clusters": accuracy(clusters, shown),
        "objects": [
            [int(objects.wrong[rows].sum()), int(rows.sum())] for rows in (objects.unit >= 0, objects.removal)
        ],
        "auroc": {"all": auroc(objects, False), "removals": auroc(objects, True)},
        "splits": [
            promise(records, seed, alpha, base, CALIBRATED, 0.0) for alpha in ALPHAS for seed in range(SPLITS)
        ],
        "packaged": {"as shipped": decided(records, shipped), "without novelty": decided(records, base)},
    }


def table(found: dict[str, Any], name: str) -> str:
    """The table ``name`` in Markdown: "curve", "aims", or one of those of benchmarks.public_photographs."""
    own = {"curve": _curve, "aims": _aims, "sizes": _sizes}
    return as_markdown([own[name](found["sets"][0]) if name in own else SHARED[name](found["sets"])]).strip()


def _curve(one: dict[str, Any]) -> Table:
    rows = [(f"one pass, learned from {row['pictures']} pictures", row) for row in one["curve"]]
    rows.append((f"clusters of 20 passes, {one['curve'][-1]['pictures']} pictures", one["clusters"]))
    cells = [
        (
            title,
            f"{row['map50']:.3f}",
            *(f"{row['classes'][c]['average_precision']:.3f}" for c in ("logo", "sticker")),
            f"{row['recall']:.3f}",
        )
        for title, row in rows
    ]
    return Table(("", "mAP@0.5", "logos", "stickers", f"stickers found at a precision of {PRECISION}"), cells)


def _sizes(one: dict[str, Any]) -> Table:
    head = [f"below {SIDES[0]} px", f"{SIDES[0]} to {SIDES[1]} px", f"from {SIDES[1]} px"]
    rows = [
        (str(row["pictures"]), *(f"{a} of {b}" for a, b in row.get("by_size", ()))) for row in one["curve"]
    ]
    return Table(("learned from", *head), rows)


def _aims(one: dict[str, Any]) -> Table:
    best = one["curve"][-1]
    doubts = {
        kind: next(row["auroc"][0] for row in rows if row["doubt"] == "mean score")
        for kind, rows in one["auroc"].items()
    }
    made = [row for row in one["splits"] if row["alpha"] == ALPHAS[0] and not row["refused"]]
    wrongful, released = (
        np.mean([row[key][0] / row[key][1] for row in made]) if made else np.nan
        for key in ("wrongful", "released")
    )
    promise_of = f"at a promise of {ALPHAS[0]:.0%}"
    rows = [
        ("mAP@0.5", f"{AIMS['map50']}", f"{best['map50']:.3f}"),
        (f"stickers found at a precision of {PRECISION}", f"{AIMS['recall']}", f"{best['recall']:.3f}"),
        ("AUROC of wrong, mean score, all objects", f"{AIMS['auroc']}", f"{doubts['all']:.2f}"),
        ("AUROC of wrong, mean score, called to be removed", f"{AIMS['auroc']}", f"{doubts['removals']:.2f}"),
        (f"stickers released {promise_of}", f"{AIMS['released']:.0%}", f"{released:.1%}"),
        (
            f"laptops with a wrongful removal {promise_of}, at most",
            f"{AIMS['wrongful']:.0%}",
            f"{wrongful:.1%}",
        ),
    ]
    return Table(("", "aim", f"from {best['pictures']} photographs"), rows)


def main() -> int:
    """Measure and write the result."""
    parser = argument_parser(__doc__)
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for photographs, weights and assessments"
    )
    parser.add_argument("--out", type=result_file, required=True, help="file of the result")
    chosen = parser.parse_args()
    try:
        write(chosen.out, [measured(chosen.work)])
    except (InvalidInput, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
