# SPDX-License-Identifier: Apache-2.0
"""Does the cell ask less once people's answers have been learned?  ``python -m benchmarks.learning --out out/learning``

A delivery of laptops comes whose four makes and some of whose stickers the packaged detector was never trained on. They go past
the policy; a person, played by the ground truth of the renderer, answers what is asked. The answered pictures, labelled as
`sticker-uq dataset from-audit` labels them, and pictures of the known kind go into a training that starts from the packaged
weights; another training of as many epochs on the known pictures alone tells what the answers brought from what longer training
brings. Each is done once per seed. Every detector gets a policy with the same promise, fitted and proved on the same laptops of
the delivery by the same procedure, and all are compared on laptops of it that nobody has seen: under the promise, and at the
same measured risk. Intervals are those of a paired bootstrap over these laptops.

The policies are proved on laptops drawn at random and not on the answered ones: those are the difficult ones, and a promise
holds only for laptops like those it was proved on. Everything is kept in ``--out``, so that an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cv2
import numpy as np
from scipy.stats import bootstrap

from benchmarks.answers import answered
from benchmarks.deliveries import coco_folder, encoded, known_laptop, new_laptop
from benchmarks.equal_risk import RESAMPLES, Answers, answers_of, fewer_asked
from benchmarks.result_files import result_folder
from sticker_uq.calibration.fitting import Levels, certify, fit_policy
from sticker_uq.calibration.measuring import measure
from sticker_uq.calibration.records import Record, assess
from sticker_uq.cli.replay import load_perception
from sticker_uq.evaluation.replay.assessing import one_by_one, side_by_side
from sticker_uq.gate import Policy
from sticker_uq.io.coco import ANNOTATIONS, EncodedScene, write_coco
from sticker_uq.io.files import atomic_write
from sticker_uq.io.json_store import JsonStore
from sticker_uq.io.labelled_images import LabelledSource
from sticker_uq.io.sources import ImageSource, SourceImage
from sticker_uq.lab.training.checkpoint import STATE
from sticker_uq.lab.training.training import BEST, TrainSettings, train
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.scene import FloatArray, IntArray, SceneAssessment

FIT, PROOF, TEST, ASKED, KNOWN = 700_000, 710_000, 720_000, 730_000, 740_000
"""First seeds of the laptops to fit on, to prove on, to test on, that go past the policy, and of the known kind."""
BATCH = 80
"""Laptops that go past the policy before the answers are counted again."""
AFTER = "after the answers"
CONTROL = "as many epochs without them"
PACKAGED = (
    Path(__file__).parents[1] / "sticker_uq/detection/weights/ssdlite320_mobilenet_v3_large.safetensors"
)
RATES = {
    "objects asked": (0, 1),
    "stickers removed": (2, 3),
    "images with a wrongful removal": (4, 5),
    "objects asked per laptop": (0, 5),
    "laptops that end with a question": (6, 5),
}
"""What is compared, as one column of :func:`counts` over another."""


@dataclass(frozen=True)
class Seen:
    """What one detector did with the laptops of the test: by its policy, and at every limit."""

    table: FloatArray
    answers: Answers


class Cell:
    """One detector with the assessments that it has made, kept in a file."""

    def __init__(self, weights: str, cache: JsonStore, jobs: int) -> None:
        self._settings = PerceptionSettings(weights=weights, threads=1)
        self._perception = Perception(self._settings)
        self._cache, self._jobs = cache, jobs

    def records(self, folder: Path) -> list[Record]:
        """The assessed pictures of a COCO folder."""
        identity = f"{self._perception.model_hash}:{self._perception.settings_hash}"
        return list(assess(LabelledSource(folder), self._run, self._cache, identity).records)

    def policy(self, fit: Path, proof: Path, levels: Levels) -> Policy:
        """A policy with the promise ``levels``."""
        seen = self.records(fit)
        return certify(fit_policy(seen, Policy(), level=levels.alpha), seen, self.records(proof), levels)

    def _run(self, images: ImageSource) -> Iterable[tuple[SourceImage, SceneAssessment]]:
        if self._jobs == 1:
            return one_by_one(images, self._perception)
        return side_by_side(images, partial(load_perception, self._settings), self._jobs)


def counts(records: list[Record], policy: Policy) -> FloatArray:
    """What the policy does about each laptop, (N, 7).

    Objects asked about, objects; stickers removed, stickers; whether a removal was wrongful, 1; whether it ends with a question.
    """
    rows = []
    for record in records:
        one = measure([record], policy)
        ask = one.verdicts["ask"]
        rows.append(
            (ask.events, ask.of, one.removed.events, one.removed.of, one.wrongful.events, 1, one.asked.events)
        )
    return np.array(rows, float)


def rate(table: FloatArray, name: str) -> float:
    """One of :data:`RATES` over the laptops of ``table``."""
    part, whole = RATES[name]
    return float(table[:, part].sum() / table[:, whole].sum())


def difference(
    before: Sequence[FloatArray], after: Sequence[FloatArray], name: str
) -> tuple[float, float, float]:
    """After minus before of one of :data:`RATES`, each the mean over its trainings, with its 95 % interval.

    Percentile bootstrap over the laptops, which all of them saw.
    """

    def of(rows: IntArray) -> float:
        means = [np.mean([rate(table[rows], name) for table in tables]) for tables in (after, before)]
        return float(means[0] - means[1])

    everyone = np.arange(len(before[0]))
    found = bootstrap(
        (everyone,),
        of,
        vectorized=False,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return of(everyone), float(found.low), float(found.high)


def gather(out: Path, cases: int, cell: Cell, policy: Policy) -> Path:
    """A COCO folder with ``cases`` answered pictures."""
    folder = out / "answered"
    if (folder / ANNOTATIONS).exists():
        return folder
    scenes: list[EncodedScene] = []
    laptops = 0
    while len(scenes) < cases:
        batch = coco_folder(out / f"asked-{laptops}", ASKED + laptops, BATCH, new_laptop)
        scenes += _answered(batch, cell, policy)
        laptops += BATCH
        print(f"{len(scenes)} answered cases of {laptops} laptops", flush=True)
    write_coco(folder, scenes[:cases])
    return folder


def _answered(folder: Path, cell: Cell, policy: Policy) -> Iterator[EncodedScene]:
    for record in cell.records(folder):
        boxes = answered(record, policy)
        if boxes is not None:
            image = np.asarray(cv2.imread(str(folder / "images" / f"{record.name}.png")), np.uint8)
            corners = np.array([box.box for box in boxes], np.float32).reshape(-1, 4)
            yield encoded(int(record.name), image, corners, np.array([box.label for box in boxes], np.int64))


def trained(out: Path, data: tuple[Path, ...], epochs: int, seed: int, options: argparse.Namespace) -> str:
    """Weights of a training on ``data`` that starts from the packaged ones; one that was interrupted goes on."""
    settings = TrainSettings(
        data=data, out=out, start=str(PACKAGED), epochs=epochs, learning_rate=options.learning_rate,
        freeze=options.freeze, seed=seed, threads=1,
    )  # fmt: skip
    train(
        settings,
        resume=(out / STATE).exists(),
        command="python -m benchmarks.learning",
        on_epoch=lambda r: print(f"{out.name}, epoch {r.epoch}: mAP@0.5 {r.map50:.3f}", flush=True),
    )
    return str(out / BEST)


Rows = dict[str, dict[str, object]]


def report(seen: dict[str, list[Seen]], levels: Sequence[float]) -> Rows:
    """Rates of every detector, means over its seeds, and what the answers changed, with intervals."""
    rows: Rows = {}
    for name, of in seen.items():
        rows[name] = {key: float(np.mean([rate(one.table, key) for one in of])) for key in RATES}
        rows[name] |= {
            _at(level): float(np.mean([one.answers.asked(level) for one in of])) for level in levels
        }
    if AFTER in seen:
        for name, of in seen.items():
            if name != AFTER:
                rows[f"{AFTER} minus {name}"] = _changes(of, seen[AFTER], levels)
    return rows


def _changes(before: list[Seen], after: list[Seen], levels: Sequence[float]) -> dict[str, object]:
    """What changed, with intervals; with as many seeds before as after, the mean of all of them is compared."""
    changes: dict[str, object] = {}
    for key in RATES:
        changes[key] = difference([one.table for one in before], [one.table for one in after], key)
    for level in levels:
        changes[_at(level)] = fewer_asked([b.answers for b in before], [a.answers for a in after], level)
    return changes


def _at(level: float) -> str:
    return f"objects asked at a measured risk of {100 * level:g} %"


def show(rows: Rows) -> None:
    """Print the table in Markdown."""
    heads = list(next(iter(rows.values())))
    print("|  | " + " | ".join(heads) + " |\n| --- |" + " --- |" * len(heads))
    for name, row in rows.items():
        cells = [
            f"{v[0]:+.3f} ({v[1]:+.3f} to {v[2]:+.3f})" if isinstance(v, tuple) else f"{v:.3f}"
            for v in row.values()
        ]
        print(f"| {name} | " + " | ".join(cells) + " |")


def main() -> None:
    """Print the table and write it as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=result_folder, default=Path("out/learning"))
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--known", type=int, default=300)
    parser.add_argument("--fit", type=int, default=300)
    parser.add_argument("--proof", type=int, default=1000)
    parser.add_argument("--test", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=2, help="trainings of either kind")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--learning-rate", type=float, default=7e-4)
    parser.add_argument("--freeze", default="statistics")
    parser.add_argument("--alpha", type=float, default=0.02)
    parser.add_argument("--beta", type=float, default=0.2)
    parser.add_argument("--delta", type=float, default=0.1)
    parser.add_argument(
        "--risks", type=float, nargs="*", default=[0.005, 0.01, 0.02], help="measured risks to compare at"
    )
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    out, levels = options.out, Levels(options.alpha, options.beta, options.delta)
    out.mkdir(parents=True, exist_ok=True)
    fit = coco_folder(out / "fit", FIT, options.fit, new_laptop)
    proof = coco_folder(out / "proof", PROOF, options.proof, new_laptop)
    test = coco_folder(out / "test", TEST, options.test, new_laptop)
    known = coco_folder(out / "known", KNOWN, options.known, known_laptop, "jpg")

    with JsonStore(out / "assessments.sqlite") as cache:
        cell = Cell(str(PACKAGED), cache, options.jobs)
        policy = cell.policy(fit, proof, levels)
        seen = {"packaged weights": [seen_by(cell, test, policy)]}
        answers = gather(out, options.cases, cell, policy)
        recipe = f"{options.freeze}-{options.learning_rate:g}-{options.epochs}-{options.known}"
        for seed in range(options.seeds):
            for name, data in ((AFTER, (known, answers)), (CONTROL, (known,))):
                folder = out / f"{name.replace(' ', '-')}-{recipe}-{seed}"
                cell = Cell(trained(folder, data, options.epochs, seed, options), cache, options.jobs)
                seen.setdefault(name, []).append(seen_by(cell, test, cell.policy(fit, proof, levels)))
            rows = report(seen, options.risks)
            with atomic_write(out / "learning.json", "w") as file:
                json.dump(rows, file, indent=1)
            show(rows)


def seen_by(cell: Cell, test: Path, policy: Policy) -> Seen:
    """What ``cell`` does with the laptops in the folder ``test``."""
    records = cell.records(test)
    return Seen(counts(records, policy), answers_of(records, policy))


if __name__ == "__main__":
    main()
