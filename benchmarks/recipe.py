# SPDX-License-Identifier: Apache-2.0
"""What makes weights decide better: exposure, dropout in training, passes, or an ensemble.

    git show measurements-0.2:sticker_uq/detection/weights/ssdlite320_mobilenet_v3_large.safetensors > 0.2.safetensors
    python -m benchmarks.recipe train --start 0.2.safetensors --work out/recipe
    python -m benchmarks.recipe measure --start 0.2.safetensors --work out/recipe --out benchmarks/results/recipe.json

SSDLite of 320 px on large laptops, trained for as many steps by each of `RECIPES`, with each of `SEEDS`. Written down before the
test laptops were looked at. Measured: the share of pictures with a wrongful release where a person is asked about `ASKED` of all
pictures, `FEWER` and `MORE` beside. Supposed: with exposure it is lower than without; the mean score of 20 passes gains more over
one pass where dropout was trained; 20 passes are as good as 40; three weights with one pass each, which cost as much as 20
passes, are no worse. A difference counts where its 95 % interval over laptops, all seeds of a recipe together, excludes 0.
"""

from __future__ import annotations

import argparse
import json
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.hard_measure import DROPOUT, SINGLE, MeasuredScene, Seen
from benchmarks.hard_methods import ObjectLimit, improbability, limit_for, result
from benchmarks.hard_scenes import Case
from benchmarks.result_files import result_file
from benchmarks.world import EXPOSURE_CASES, Part, exposed, rendered
from sticker_uq.detection import DetectorSettings, StochasticDetector, load_detector
from sticker_uq.evaluation.metrics.statistics import bootstrap
from sticker_uq.evaluation.reporting.document import Table, as_markdown
from sticker_uq.io.files import atomic_write
from sticker_uq.lab.training.checkpoint import STATE
from sticker_uq.lab.training.training import TrainSettings, train
from sticker_uq.scene import Detections, FloatArray, StochasticSamples
from sticker_uq.uncertainty import iou_matrix, observe

SIZE = (480, 360)
PLAIN = Part(1_700_000, 1500, "large", size=SIZE)
EXPOSED = Part(1_710_000, 750 // len(EXPOSURE_CASES) * len(EXPOSURE_CASES), "large", size=SIZE)
VALIDATION = Part(1_720_000, 60, "large", size=SIZE)
RECIPES = {
    "exposure and dropout": (0.2, True),
    "without dropout": (0.0, True),
    "without exposure": (0.2, False),
}
"""Rate of dropout in training, and whether half of the pictures show what must not be peeled."""
BEST = "exposure and dropout"
SEEDS = (0, 1, 2)
LAPTOPS = range(320_000_000, 320_000_100)
NEW = ("printed lid", "torn stickers")
"""Kinds that no exposure shows."""
CASES = (
    Case("shift", "none", "none"),
    *(Case("shift", name, "medium") for name in ("residue", "glare", "noise", "hand", "motion blur", *NEW)),
    Case("novelty", "foreign object", "none"),
)
RATE, RATES = 0.2, (0.1, 0.2, 0.3, 0.4)
PASSES, COUNTS = 20, (5, 10, 20, 40)
FEWER, ASKED, MORE = 0.2, 0.3, 0.4
START = "weights of 0.2"

ONE = ObjectLimit("one pass", SINGLE, improbability(SINGLE))
MEAN = ObjectLimit("mean of passes", DROPOUT, improbability(DROPOUT))
Counts = FloatArray
"""Of every laptop: pictures with a wrongful release, pictures asked about, and pictures, (laptops, 3)."""


def folder(work: Path, recipe: str, seed: int) -> Path:
    """Where the weights of a recipe and a seed are."""
    return work / f"{recipe.replace(' ', '-')}-{seed}"


def train_all(work: Path, start: Path, threads: int) -> None:
    """Train every recipe with every seed, or go on with it."""
    plain = [
        rendered(work, f"plain-{n}", replace(PLAIN, first=PLAIN.first + 750 * n, count=750)) for n in (0, 1)
    ]
    beside, validation = exposed(work, EXPOSED), rendered(work, "validation", VALIDATION)
    for seed in SEEDS:
        for recipe, (dropout, is_exposed) in RECIPES.items():
            out = folder(work, recipe, seed)
            settings = TrainSettings(
                data=tuple(plain[: 1 if is_exposed else 2]),
                exposure=beside if is_exposed else (),
                out=out,
                val_data=validation,
                start=str(start),
                epochs=2,
                batch_size=8,
                learning_rate=7e-4,
                dropout=dropout,
                seed=seed,
                threads=threads,
            )
            print(f"{recipe}, seed {seed}", flush=True)
            train(
                settings,
                resume=(out / STATE).exists(),
                command="python -m benchmarks.recipe train",
                on_epoch=lambda r: print(
                    f"  epoch {r.epoch}: mAP {r.map50:.3f}, {r.seconds:.0f} s", flush=True
                ),
            )


def _of_passes(samples: StochasticSamples, passes: int) -> Seen:
    """What the first ``passes`` of ``samples`` saw."""
    own = samples.pass_index < passes
    first = StochasticSamples(samples.boxes[own], samples.probabilities[own], samples.pass_index[own], passes)
    clustered, rare, _ = observe(first)
    objects = (*clustered, *rare)
    return Seen(
        np.array([o.box for o in objects], np.float32).reshape(-1, 4),
        np.array([o.probabilities for o in objects], np.float32).reshape(-1, 3),
        np.array([o.detection_rate for o in objects], float),
        np.array([o.unstable for o in objects], bool),
        {},
    )


def _once(found: Detections) -> Seen:
    ones = np.ones(len(found))
    return Seen(found.boxes, found.probabilities, ones, ones == 0, {})


def _joined(members: Sequence[Detections]) -> Seen:
    """The objects of several networks, one pass of each: boxes that overlap by 0.5 are one object, where its best box is.

    Clusters of passes need more of them.
    """
    boxes, vectors = (np.concatenate([getattr(m, n) for m in members]) for n in ("boxes", "probabilities"))
    owner = np.repeat(np.arange(len(members)), [len(m) for m in members])
    score = np.concatenate([m.scores for m in members])
    same = iou_matrix(boxes, boxes) >= 0.5
    free = np.ones(len(boxes), bool)
    kept, means, rates = [], [], []
    for index in np.argsort(-score, kind="stable"):
        if free[index]:
            group = same[index] & free
            free &= ~group
            best = [np.flatnonzero(group & (owner == n))[:1] for n in range(len(members))]
            own = np.concatenate(best)
            kept.append(boxes[index])
            means.append(vectors[own].mean(axis=0))
            rates.append(len(own) / len(members))
    shape = np.array(kept, np.float32).reshape(-1, 4), np.array(means, np.float32).reshape(-1, 3)
    return Seen(*shape, np.array(rates, float), np.zeros(len(kept), bool), {})


def laptop(seed: int, detectors: dict[str, dict[float, StochasticDetector]]) -> list[dict[str, Any]]:
    """Of every case of the laptop of ``seed``: what is true, and what each of ``detectors`` sees, by name of the variant."""
    found = []
    for case in CASES:
        scene = case.scene(seed)
        seen: dict[str, Seen] = {}
        singles: dict[str, Detections] = {}
        for name, by_rate in detectors.items():
            for rate, detector in by_rate.items():
                features = detector.encode(scene.image)
                if rate == RATE:
                    singles[name] = detector.detect(features)
                    seen[f"{name}, one pass"] = _once(singles[name])
                samples = detector.sample(features, max(COUNTS) if rate == RATE else PASSES, seed)
                for count in COUNTS if rate == RATE else (PASSES,):
                    seen[f"{name}, {count} passes at {rate:g}"] = _of_passes(samples, count)
        for recipe in RECIPES:
            seen[f"{recipe}, ensemble"] = _joined([singles[f"{recipe}, seed {seed}"] for seed in SEEDS])
        found.append({"case": case.name, "scene": replace(scene, image=scene.image[:0]), "seen": seen})
    return found


def measured(work: Path, start: Path) -> list[dict[str, Any]]:
    """Every picture, as :func:`laptop` has them; those of a laptop are kept in ``work``."""

    def loaded(weights: Path, rates: Sequence[float]) -> dict[float, StochasticDetector]:
        return {
            rate: load_detector(
                DetectorSettings(weights=str(weights), dropout_rate=rate, threads=1, device="cpu")
            )
            for rate in rates
        }

    detectors: dict[str, dict[float, StochasticDetector]] = {}
    pictures: list[dict[str, Any]] = []
    (work / "seen").mkdir(exist_ok=True)
    for number, seed in enumerate(LAPTOPS):
        file = work / "seen" / f"{seed}.pickle"
        if not file.exists():
            if not detectors:
                detectors[START] = loaded(start, (RATE,))
                for recipe in RECIPES:
                    for n in SEEDS:
                        weights = folder(work, recipe, n) / "best.safetensors"
                        detectors[f"{recipe}, seed {n}"] = loaded(
                            weights, RATES if recipe == BEST else (RATE,)
                        )
            with atomic_write(file) as stream:
                pickle.dump(laptop(seed, detectors), stream)
            print(f"laptop {number + 1} of {len(LAPTOPS)}", flush=True)
        pictures += [one | {"laptop": number} for one in pickle.loads(file.read_bytes())]
    return pictures


def counts(pictures: Sequence[dict[str, Any]], variant: str, share: float) -> Counts:
    """`Counts` of a variant with the limit at which a person is asked about ``share`` of ``pictures``."""
    method, sampler = (ONE, SINGLE) if variant.endswith("one pass") else (MEAN, DROPOUT)
    scenes = []
    for one in pictures:
        truth = one["scene"]
        places = (truth.boxes, truth.labels, truth.hidden, truth.things)
        key = ("test", "", one["case"], "", one["laptop"])
        scenes.append(MeasuredScene(*key, *places, None, {sampler: one["seen"][variant]}))  # type: ignore[arg-type]
    limit = limit_for(method, scenes, ("asked", share))
    table = np.zeros((len(LAPTOPS), 3))
    for scene in scenes:
        found = result(scene, method.decide(scene, limit))
        table[scene.seed] += (found.wrong > 0, found.asked, 1)
    return table


def _share(
    of: Callable[[str, float], Counts], names: Sequence[str], share: float, column: int = 0
) -> FloatArray:
    """Percent of the pictures, mean over the variants ``names``, of every laptop (laptops,)."""
    tables = [of(name, share) for name in names]
    return 100 * np.mean([table[:, column] / table[:, 2].mean() for table in tables], axis=0)


def _interval(values: FloatArray) -> list[float]:
    """Mean over laptops and its 95 % interval."""
    low, high = bootstrap(lambda drawn: values[drawn].mean(), [len(values)], resamples=2000)
    return [round(float(v), 1) for v in (values.mean(), low, high)]


def summary(pictures: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures of the result file: rates by variant, and the differences that were supposed."""
    kept: dict[tuple[str, float, bool], Counts] = {}
    new = [one for one in pictures if one["case"] in NEW]

    def of(name: str, share: float, is_new: bool = False) -> Counts:
        key = (name, share, is_new)
        if key not in kept:
            kept[key] = counts(new if is_new else pictures, name, share)
        return kept[key]

    def seeds(recipe: str, what: str) -> list[str]:
        return [f"{recipe}, seed {n}, {what}" for n in SEEDS]

    usual = f"{PASSES} passes at {RATE:g}"
    variants = {f"{START}, one pass": [f"{START}, one pass"], f"{START}, {usual}": [f"{START}, {usual}"]}
    for recipe in RECIPES:
        whats = ["one pass", usual]
        if recipe == BEST:
            whats += [f"{n} passes at {RATE:g}" for n in COUNTS if n != PASSES]
            whats += [f"{PASSES} passes at {rate:g}" for rate in RATES if rate != RATE]
        variants |= {f"{recipe}, {what}": seeds(recipe, what) for what in whats}
        variants[f"{recipe}, ensemble"] = [f"{recipe}, ensemble"]
    rates = {
        name: {f"{share:g}": _interval(_share(of, own, share)) for share in (FEWER, ASKED, MORE)}
        | {
            "new": _interval(_share(partial(of, is_new=True), own, ASKED)),
            "asked": _interval(_share(of, own, ASKED, 1)),
        }
        for name, own in variants.items()
    }

    def gain(one: str, other: str) -> FloatArray:
        return _share(of, variants[one], ASKED) - _share(of, variants[other], ASKED)

    passes = {recipe: gain(f"{recipe}, {usual}", f"{recipe}, one pass") for recipe in RECIPES}
    differences = {
        "with exposure minus without, one pass": gain(f"{BEST}, one pass", "without exposure, one pass"),
        f"with exposure minus without, {PASSES} passes": gain(
            f"{BEST}, {usual}", f"without exposure, {usual}"
        ),
        f"with exposure minus {START}, one pass": gain(f"{BEST}, one pass", f"{START}, one pass"),
        **{f"{PASSES} passes minus one, {recipe}": values for recipe, values in passes.items()},
        "what passes add with trained dropout minus without": passes[BEST] - passes["without dropout"],
        f"40 passes minus {PASSES}": gain(f"{BEST}, 40 passes at {RATE:g}", f"{BEST}, {usual}"),
        f"10 passes minus {PASSES}": gain(f"{BEST}, 10 passes at {RATE:g}", f"{BEST}, {usual}"),
        f"ensemble minus {PASSES} passes": gain(f"{BEST}, ensemble", f"{BEST}, {usual}"),
    }
    return {
        "laptops": len(LAPTOPS),
        "pictures": len(pictures),
        "rates": rates,
        "differences": {name: _interval(values) for name, values in differences.items()},
    }


TABLES = ("rates", "differences")


def read(file: Path) -> dict[str, Any]:
    """What ``measure`` wrote to ``file``."""
    return dict(json.loads(file.read_text(encoding="utf-8")))


def table(found: dict[str, Any], name: str = TABLES[0]) -> str:
    """One of TABLES, as Markdown."""

    def cell(value: Sequence[float]) -> str:
        return f"{value[0]:.1f} ({value[1]:.1f} to {value[2]:.1f})"

    if name == "differences":
        rows = [(what, cell(value)) for what, value in found["differences"].items()]
        return as_markdown([Table(("difference", "points"), rows)]).strip()
    columns = {"0.2": "asked 20 %", "0.3": "30 %", "0.4": "40 %", "new": "30 %, kinds not shown"}
    lines = [(what, *(cell(row[key]) for key in columns)) for what, row in found["rates"].items()]
    return as_markdown([Table(("weights", *columns.values()), lines)]).strip()


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, or measure."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recipe",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("step", choices=("train", "measure"))
    parser.add_argument("--start", type=Path, required=True, help="weights to begin with")
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for pictures, weights and what was measured"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=result_file, help="JSON file for the result")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    options.work.mkdir(parents=True, exist_ok=True)
    if options.step == "train":
        train_all(options.work, options.start, options.threads)
        return
    found = summary(measured(options.work, options.start))
    print(table(found), table(found, "differences"), sep="\n\n")
    if options.out:
        with atomic_write(options.out, "w") as stream:
            json.dump(found, stream, indent=1)


if __name__ == "__main__":
    main()
