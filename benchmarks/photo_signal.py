# SPDX-License-Identifier: Apache-2.0
"""What the second opinion of the photo network is worth, beside the other doubts about what is called a sticker.

    python -m benchmarks.photo_signal --photographs FOLDER... --shift FOLDER... --work FOLDER --out FILE.json

COCO folders: labelled photographs, of which laptops left out in FOLDS parts are judged by a head that learned from the others;
rendered laptops, under a shift each, judged by the packaged head, and so are the photographs. --start FILE --fit FOLDER: by the
network of scripts/photo_start.py as well. WORK keeps assessments; FILE keeps the sets of earlier calls. The hypothesis is in
docs/results/photo.md, and was there before anything was measured.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.result_files import argument_parser, result_file
from sticker_uq.calibration.making import assess_sources
from sticker_uq.calibration.outcomes import MATCH_IOU
from sticker_uq.calibration.records import number_units
from sticker_uq.detection.detector import load_detector
from sticker_uq.evaluation.metrics.decisions import match_label
from sticker_uq.evaluation.metrics.statistics import area_under_roc, cluster_bootstrap
from sticker_uq.evaluation.reporting.document import Table, as_markdown
from sticker_uq.gate.policy.signals import object_signals
from sticker_uq.io.coco import LabelledImage, read_coco, read_picture
from sticker_uq.io.files import atomic_write
from sticker_uq.io.labelled_images import LabelledSource
from sticker_uq.perception.factory import load_perception
from sticker_uq.perception.novelty.photo_network import PACKAGED, PhotoNetwork, load_photo_network
from sticker_uq.perception.photo import PhotoHead, photo_features, photo_file, read_photo_head
from sticker_uq.perception.settings import PerceptionSettings
from sticker_uq.scene import FloatArray, IntArray, InvalidInput, ObjectClass
from sticker_uq_lab.training.photo_head import CALLED_FROM, PhotoExamples, examples_of, fit_photo_head

FOLDS, RESAMPLES = 5, 1000
ALLOWED = (0, 1, 2)
"""Laptops with a wrongful release, at which the released stickers are compared."""
DOUBTS = {
    "one pass": ("single_pass_improbability",),
    "mean of 20": ("improbability",),
    "Shannon entropy": ("shannon_entropy",),
    "mutual information": ("mutual_information",),
    "close-up": ("close_up_improbability",),
    "mean of 20, close-up": ("improbability", "close_up_improbability"),
}
"""Doubts by name: the mean of these signals."""
_WITH = {
    "": (),
    ", close-up": ("close_up_improbability",),
    ", mean of 20": ("improbability",),
    ", mean of 20, close-up": ("improbability", "close_up_improbability"),
}
COSTED = 20
"""Pictures that the cost is measured on."""


@dataclass(frozen=True)
class Called:
    """What is called a sticker on the pictures of a set, N in all.

    ``laptop`` (N,); ``sticker`` (N,): number of the labelled sticker, -1: wrong; ``signals`` by name and ``features`` by network:
    (N,) and (N, F); ``laptops`` and ``stickers`` of the whole set; ``names`` of the laptops.
    """

    laptop: IntArray
    sticker: IntArray
    signals: dict[str, FloatArray]
    features: dict[str, FloatArray]
    laptops: int
    stickers: int
    names: tuple[str, ...]


def gathered(folders: Sequence[Path], nets: Mapping[str, PhotoNetwork], work: Path) -> Called:
    """What the packaged detector calls a sticker in ``folders``, and the features that ``nets`` have of it."""
    settings = PerceptionSettings(device="cpu", threads=torch.get_num_threads())
    rows, names, stickers = [], [], 0
    features: dict[str, list[FloatArray]] = {name: [] for name in nets}
    for folder in folders:
        source = LabelledSource(folder)
        (part,) = assess_sources([source], settings, work / "assessments.sqlite", jobs=1)
        for record, item in zip(part.records, source.items.values(), strict=True):
            names.append(item.workpiece_id or f"{folder} {record.name}")
            called = [one for one in record.assessment.objects if one.label is ObjectClass.STICKER]
            picture = read_picture(item) if called else None
            for name, net in nets.items():
                if picture is not None:
                    features[name].append(photo_features(net, picture, [one.box for one in called]).numpy())
            for one in called:
                place, _ = match_label(one.box, record.boxes, MATCH_IOU)
                right = place >= 0 and record.labels[place] == ObjectClass.STICKER
                number = stickers + place if right else -1
                rows.append((len(names) - 1, number, object_signals(one, record.assessment)))
            stickers += len(record.labels)
    laptops = number_units(names)
    return Called(
        laptops[[row[0] for row in rows]],
        np.array([row[1] for row in rows]),
        {key: np.array([row[2][key] for row in rows]) for key in rows[0][2]},
        {name: np.concatenate(part) for name, part in features.items()},
        len(np.unique(laptops)),
        sum(
            int((item.labels == ObjectClass.STICKER).sum())
            for folder in folders
            for item in read_coco(folder)
        ),
        tuple(dict.fromkeys(names)),
    )


def doubts_of(called: Called, photo: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """All doubts (N,); ``photo``: probability of sticker by networks and heads."""
    known = {name: np.nan_to_num(values, nan=1.0) for name, values in called.signals.items()}
    found = {name: np.mean([known[one] for one in parts], axis=0) for name, parts in DOUBTS.items()}
    for name, values in photo.items():
        for more, parts in _WITH.items():
            found[name + more] = np.mean([1 - values, *(known[one] for one in parts)], axis=0)
    return found


def rows_of(called: Called, doubts: Mapping[str, FloatArray]) -> list[dict[str, Any]]:
    """Area under the curve with its interval over laptops, and stickers released at ALLOWED."""
    wrong = called.sticker < 0
    rows = []
    for name, doubt in doubts.items():

        def area(drawn: IntArray, doubt: FloatArray = doubt) -> FloatArray:
            values, bad = doubt[drawn], wrong[drawn]
            return np.array([area_under_roc(values[~bad], values[bad])])

        low, high = cluster_bootstrap(area, called.laptop, RESAMPLES)
        auroc = [round(float(v[0]), 4) for v in (area(np.arange(len(doubt))), low, high)]
        rows.append(
            {"doubt": name, "auroc": auroc, "released": [released(called, doubt, n) for n in ALLOWED]}
        )
    return rows


def released(called: Called, doubt: FloatArray, allowed: int) -> int:
    """Stickers under the loosest limit on ``doubt`` at which at most ``allowed`` laptops have a wrong one."""
    wrong = called.sticker < 0
    worst = np.full(called.laptop.max(initial=-1) + 2, np.inf)
    np.minimum.at(worst, called.laptop[wrong], doubt[wrong])
    limit = np.sort(worst)[min(allowed, len(worst) - 1)]
    return len(np.unique(called.sticker[~wrong & (doubt < limit)]))


def probabilities(head: PhotoHead, features: FloatArray) -> FloatArray:
    with torch.inference_mode():
        return np.asarray(head(torch.from_numpy(features)).softmax(1)[:, ObjectClass.STICKER].numpy(), float)


def cross_fitted(
    called: Called, examples: PhotoExamples, names: Sequence[str], net: PhotoNetwork, name: str
) -> FloatArray:
    """Probabilities by heads that saw none of the pictures of the laptop; ``names`` of the laptops of ``examples``."""
    order = np.random.default_rng(0).permutation(len(called.names))
    fold_of = {laptop: int(place) % FOLDS for laptop, place in zip(called.names, order, strict=True)}
    own, theirs = (np.array([fold_of[n] for n in part]) for part in (called.names, names))
    found = np.full(len(called.laptop), np.nan)
    for fold in range(FOLDS):
        rows, learned = own[called.laptop] == fold, theirs[examples.laptops] != fold
        part = PhotoExamples(examples.features[learned], examples.classes[learned], examples.laptops[learned])
        found[rows] = probabilities(fit_photo_head(part, net), called.features[name][rows])
    return found


def learned_from(items: Sequence[LabelledImage], net: PhotoNetwork) -> PhotoExamples:
    detector = load_detector(
        PerceptionSettings(device="cpu", threads=torch.get_num_threads(), score_floor=CALLED_FROM)
    )
    return examples_of(detector, net, items)


def cost(folder: Path, threads: int) -> dict[str, float]:
    """Median ms of the photo stage and of a whole assessment without it, and the largest share of COSTED pictures."""
    perception = load_perception(PerceptionSettings(device="cpu", threads=threads, photo=True))
    perception.warm_up()
    timings = [perception.assess(read_picture(item)).timings for item in read_coco(folder)[:COSTED]]
    photo, rest = (
        np.array([t["photo"] for t in timings]),
        np.array([t["total"] - t["photo"] for t in timings]),
    )
    return {"photo_ms": round(float(np.median(photo)), 1), "assessment_ms": round(float(np.median(rest)), 1),
            "share": round(float(photo.sum() / rest.sum()), 4), "threads": threads}  # fmt: skip


def measured(
    photographs: Sequence[Path], shift: Sequence[Path], work: Path, start: Path | None, fit: Path | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and comparison of the photographs, if there are any, and of every set of ``shift``."""
    nets = {"photo": load_photo_network(PACKAGED)}
    packaged = photo_file(PerceptionSettings(), "")
    assert packaged is not None
    rendered = {"photo": read_photo_head(packaged)}
    if start and fit:
        nets["start"] = load_photo_network(start)
        rendered["start"] = fit_photo_head(learned_from(read_coco(fit), nets["start"]), nets["start"])

    def by_rendered(called: Called) -> dict[str, FloatArray]:
        return {
            f"{name}, from rendered": probabilities(rendered[name], called.features[name]) for name in nets
        }

    if photographs:
        items = [item for folder in photographs for item in read_coco(folder)]
        laptops = [item.workpiece_id or f"picture {number}" for number, item in enumerate(items)]
        names = np.unique(laptops).tolist()
        called = gathered(photographs, nets, work)
        photo = {
            f"{name}, from photographs": cross_fitted(called, learned_from(items, net), names, net, name)
            for name, net in nets.items()
        }
        yield "photographs", summary(called, doubts_of(called, photo | by_rendered(called)))
    for folder in shift:
        called = gathered([folder], nets, work)
        yield folder.name, summary(called, doubts_of(called, by_rendered(called)))


def summary(called: Called, doubts: Mapping[str, FloatArray]) -> dict[str, Any]:
    counts = {
        "laptops": called.laptops,
        "stickers": called.stickers,
        "called": len(called.sticker),
        "wrong": int((called.sticker < 0).sum()),
    }
    return {**counts, "doubts": rows_of(called, doubts)}


def read(file: Path) -> dict[str, Any]:
    """What a run wrote to ``file``."""
    return dict(json.loads(file.read_text(encoding="utf-8")))


def write(file: Path, found: Mapping[str, Any]) -> None:
    with atomic_write(file, "w") as stream:
        stream.write(re.sub(r"\n {4,}", " ", json.dumps(found, indent=1)) + "\n")


def table(found: Mapping[str, Any], name: str) -> str:
    """The table of the set ``name``, in Markdown; "cost": what the second opinion costs."""
    if name == "cost":
        one = found["cost"]
        row = (
            f"{one['photo_ms']:g} ms",
            f"{one['assessment_ms']:g} ms",
            f"{one['share']:.0%}",
            str(one["threads"]),
        )
        return as_markdown(
            [Table(("second opinion", "assessment without it", "share", "threads"), [row])]
        ).strip()
    one = found["sets"][name.replace("_", "-")]
    rows = [
        (row["doubt"], "{:.2f} ({:.2f} to {:.2f})".format(*row["auroc"]), *(str(n) for n in row["released"]))
        for row in one["doubts"]
    ]
    head = (f"{name}: {one['wrong']} wrong of {one['called']} called sticker", "AUROC",
            *(f"of {one['stickers']} released, {n} wrongful laptops of {one['laptops']}" for n in ALLOWED))  # fmt: skip
    return as_markdown([Table(head, rows)]).strip()


def main() -> int:
    parser = argument_parser(__doc__)
    parser.add_argument("--photographs", type=Path, nargs="*", default=[])
    parser.add_argument("--shift", type=Path, nargs="+", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="another network to compare with")
    parser.add_argument("--fit", type=Path, help="what its head learns from, as the packaged one did")
    parser.add_argument("--threads", type=int, default=2, help="of the cost")
    parser.add_argument("--out", type=result_file, required=True)
    asked = parser.parse_args()
    try:
        found = read(asked.out) if asked.out.exists() else {"sets": {}}
        for name, one in measured(asked.photographs, asked.shift, asked.work, asked.start, asked.fit):
            found["sets"][name] = one
            write(asked.out, found)
            print(table(found, name), flush=True)
        found["cost"] = cost(asked.shift[0], asked.threads)
        write(asked.out, found)
    except (InvalidInput, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(table(found, "cost"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
