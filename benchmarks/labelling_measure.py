# SPDX-License-Identifier: Apache-2.0
"""The pools, choices and trainings of benchmarks.labelling, and what its curves say."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from sklearn.isotonic import IsotonicRegression

from benchmarks.deliveries import coco_folder, known_laptop, new_laptop
from benchmarks.public_photographs_measure import download, import_set, labelled_sets
from sticker_uq.detection.detector import StochasticDetector
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.evaluation.metrics.match_table import MatchTable
from sticker_uq.evaluation.metrics.statistics import bootstrap
from sticker_uq.io.coco import LabelledImage, read_coco, read_picture
from sticker_uq.io.json_store import JsonStore
from sticker_uq.io.sources import SourceImage, open_source
from sticker_uq.lab.datasets.suggesting import (
    PoolPicture,
    Suggestion,
    measured_pool,
    scores_of,
    suggested,
)
from sticker_uq.lab.training.settings import Frozen
from sticker_uq.lab.training.training import BEST, Training, TrainSettings
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.scene import Detections, FloatArray, IntArray, InvalidInput, ObjectClass

START, KNOWN, NEW, DELIVERY, TEST = 770_000, 760_000, 750_000, 755_000, 720_000
"""First seeds of laptops: labelled at the start, of the known and the new kind in one pool, in the other pool, tested on."""
_SPARE = 1.25
"""Pictures that there are, as a multiple of those that a seed draws: each has another pool."""
RANDOM, SUGGEST = "random", "suggest"
METHODS = {
    RANDOM: "at random",
    SUGGEST: "`dataset suggest`",
    "score": "highest score",
    "distance": "farthest apart",
}
"""How pictures are chosen; the last two are the halves of the second by itself."""
_FLOOR = 0.01


class Sizes(BaseModel):
    """How much is labelled, trained and tested. ``budgets``: pictures to choose; ``further``: chosen at random only, which lets
    the curve of random choice go on where the other reaches more.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    pool: int = Field(200, ge=2)
    start: int = Field(10, ge=1)
    test: int = Field(100, ge=1)
    rare: float = Field(0.15, gt=0, lt=1)
    budgets: tuple[int, ...] = (20,)
    further: tuple[int, ...] = (60,)
    steps: int = Field(32, ge=1)
    batch: int = Field(4, ge=2)
    freeze: Frozen = "statistics"
    rate: float = Field(1e-3, gt=0)
    passes: int = Field(20, ge=2)


@dataclass(frozen=True)
class Pool:
    """Pictures to choose from: ``parts`` of folders with the share that a pool has of each; tested on ``test``.

    ``start``: labelled at the beginning, before anything is chosen. ``taught``: whether the packaged weights, which know
    nothing of these things, are trained on those before they judge the pool. ``rare``: the folder of the rare pictures.
    """

    name: str
    title: str
    parts: tuple[tuple[Path, float], ...]
    start: Path
    test: Path
    taught: bool = False
    rare: Path | None = None


def rendered(work: Path, sizes: Sizes, rare: bool, later: int = 0) -> Pool:
    """Rendered laptops: nearly all of the known kind and a few of the new kind, or the new kind alone.

    ``later``: added to the first seeds of the laptops, for others than the trainings learn from.
    """
    start = coco_folder(work / "start", START + later, 2 * sizes.start, known_laptop, "jpg")
    test = coco_folder(work / "test", TEST + later, sizes.test, new_laptop, "jpg")
    if not rare:
        new = coco_folder(work / "delivery", DELIVERY + later, round(_SPARE * sizes.pool), new_laptop, "jpg")
        return Pool("alike", "rendered laptops, all of a new kind", ((new, 1.0),), start, test)
    few = round(_SPARE * sizes.rare * sizes.pool)
    many = coco_folder(work / "known", KNOWN + later, round(_SPARE * sizes.pool) - few, known_laptop, "jpg")
    new = coco_folder(work / "new", NEW + later, few, new_laptop, "jpg")
    parts = ((many, 1 - sizes.rare), (new, sizes.rare))
    return Pool("rare", "rendered laptops, few of a new kind", parts, start, test, rare=new)


def photographs(name: str, work: Path) -> Pool:
    """The set ``name`` of public_photographs.yaml; InvalidInput when it cannot be had."""
    found = [one for one in labelled_sets() if one.name == name]
    if not found:
        known = ", ".join(one.name for one in labelled_sets())
        raise InvalidInput(f"--data {name}: expected rare, alike or one of {known}")
    (source,) = found
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "source").is_dir():
        download(source, work / "source")
    if not (work / "data").is_dir():
        import_set(source, work / "source", work / "data", "0.6,0,0.4")
    learn, test = (work / "data" / part for part in ("learn", "test"))
    return Pool(name, source.title, ((learn, 1.0),), learn, test, taught=True)


@dataclass(frozen=True)
class Drawn:
    """What one seed has: labelled pictures to ``start`` with, and the ``pool``; of each name one picture."""

    start: dict[str, LabelledImage]
    pool: dict[str, LabelledImage]


def drawn(pool: Pool, sizes: Sizes, seed: int) -> Drawn:
    """The pictures of a seed: the start first, then a share of each part of the pool."""
    rng = np.random.default_rng((seed, 1))
    start = _sample(pool.start, read_coco(pool.start), sizes.start, rng)
    others: dict[str, LabelledImage] = {}
    for folder, share in pool.parts:
        free = [item for item in read_coco(folder) if _name(folder, item) not in start]
        others |= _sample(folder, free, min(round(share * sizes.pool), len(free)), rng)
    return Drawn(start, others)


def _sample(
    folder: Path, items: Sequence[LabelledImage], count: int, rng: np.random.Generator
) -> dict[str, LabelledImage]:
    return {_name(folder, items[n]): items[n] for n in rng.permutation(len(items))[:count].tolist()}


def _name(folder: Path, item: LabelledImage) -> str:
    return f"{folder.name}/{item.path.name}"


class Bench:
    """Trains and tests by ``sizes`` in the folder ``work``; what was finished is kept there."""

    def __init__(self, work: Path, sizes: Sizes, kept: JsonStore, threads: int = 1) -> None:
        self._work, self._sizes, self._kept, self._threads = work, sizes, kept, threads

    def run(self, pool: Pool, seed: int, methods: Sequence[str]) -> None:
        """All trainings of a seed that are not kept yet."""
        mine = drawn(pool, self._sizes, seed)
        weights = self._start(pool, mine, seed) if pool.taught else ""
        for method in methods:
            for budget in self.budgets(method):
                key = self.key(pool, seed, method, budget)
                if key in self._kept:
                    continue
                names = self._choose(mine, weights, method, budget, seed)
                items = [*mine.start.values(), *(mine.pool[name] for name in names)]
                found = self._tested(items, pool, weights or "packaged", seed)
                self._kept.put({key: {"chosen": names, "found": found}})
                print(f"{pool.name}, seed {seed}: {method} {budget}", flush=True)

    def budgets(self, method: str) -> tuple[int, ...]:
        """How many pictures ``method`` chooses, one after the other; random choice also none at all."""
        sizes = self._sizes
        return (0, *sizes.budgets, *sizes.further) if method == RANDOM else sizes.budgets

    def key(self, pool: Pool, seed: int, method: str, budget: int) -> str:
        """Under what a training is kept."""
        return f"{pool.name}:{seed}:{method}:{budget}:{self._sizes.model_dump_json(exclude={'budgets', 'further'})}"

    def kept(self, pool: Pool, seed: int, method: str, budget: int) -> dict[str, Any]:
        """A finished training: the names of the pictures "chosen", and what it "found" on the test pictures."""
        value: dict[str, Any] | None = self._kept.get(self.key(pool, seed, method, budget))
        if value is None:
            raise InvalidInput(f"{pool.name}, seed {seed}: {method} {budget} was not trained; run it again")
        return value

    def rare_found(self, pool: Pool, seeds: Sequence[int], counts: Sequence[int]) -> list[dict[str, Any]]:
        """How many pictures of the rare kind each method chooses, without a training: mean, fewest and most of the seeds."""
        assert pool.rare is not None
        rows = []
        for method in METHODS:
            for count in counts:
                names = [
                    self._choose(drawn(pool, self._sizes, seed), "", method, count, seed) for seed in seeds
                ]
                found = [sum(name.startswith(f"{pool.rare.name}/") for name in own) for own in names]
                rare = [round(float(np.mean(found)), 2), min(found), max(found)]
                rows.append({"method": method, "labels": count, "rare": rare})
        return rows

    def _start(self, pool: Pool, mine: Drawn, seed: int) -> str:
        """Weights that learned the start of a seed."""
        folder = self._work / f"start-{pool.name}-{seed}-{self._sizes.start}-{self._sizes.steps}"
        if not (folder / BEST).is_file():
            with tempfile.TemporaryDirectory(dir=self._work) as scratch:
                self._train(Path(scratch) / "start", list(mine.start.values()), pool, "packaged", seed)
                (Path(scratch) / "start").rename(folder)
        return str(folder / BEST)

    def _train(
        self, out: Path, items: Sequence[LabelledImage], pool: Pool, start: str, seed: int
    ) -> Training:
        """A training of exactly so many steps, however many pictures there are: they come as often as it takes."""
        sizes = self._sizes
        training = Training(
            TrainSettings(
                data=(pool.start,),
                val_data=pool.test,
                out=out,
                epochs=1,
                batch_size=sizes.batch,
                start=start,
                # a few batches of a few pictures tell too little of the statistics, and the start has them
                freeze="nothing" if start == "packaged" and pool.taught else sizes.freeze,
                learning_rate=0.0 if start == "packaged" and pool.taught else sizes.rate,
                seed=seed,
                threads=self._threads,
                device="cpu",
            )
        )
        training.items = [items[n % len(items)] for n in range(sizes.steps * sizes.batch)]
        training.batch_size = sizes.batch
        training.steps = training.steps_per_epoch = sizes.steps
        training.val_items = training.val_items[:1]  # there is one epoch, and nothing to choose among
        out.mkdir(parents=True)
        training.run(lambda progress: None, lambda result: None, lambda: False)
        return training

    def _tested(
        self, items: Sequence[LabelledImage], pool: Pool, start: str, seed: int
    ) -> list[list[list[float]]]:
        """Every box that a detector trained on ``items`` finds on each test picture: corners and two probabilities."""
        with tempfile.TemporaryDirectory(dir=self._work) as scratch:
            training = self._train(Path(scratch) / "out", items, pool, start, seed)
        settings = DetectorSettings(score_floor=_FLOOR, device="cpu", threads=self._threads)
        detector = StochasticDetector(training.average, settings, "")
        return [plain(detector.detect(detector.encode(read_picture(item)))) for item in self.test_items(pool)]

    def test_items(self, pool: Pool) -> list[LabelledImage]:
        """The pictures to test on."""
        return read_coco(pool.test)[: self._sizes.test]

    def _choose(self, mine: Drawn, weights: str, method: str, budget: int, seed: int) -> list[str]:
        if method == RANDOM:
            order = np.random.default_rng((seed, 2)).permutation(len(mine.pool))
            return [list(mine.pool)[n] for n in order[:budget].tolist()]
        known = self._measured(weights, {**mine.start, **mine.pool})
        covered = [known[name].features for name in mine.start]
        chosen = choose(method, [known[name] for name in mine.pool], budget, covered)
        return [one.picture.name for one in chosen]

    def _measured(self, weights: str, items: Mapping[str, LabelledImage]) -> dict[str, PoolPicture]:
        """What `dataset suggest` measures on ``items``, by their names."""
        perception: Perception | None = None
        found = {}
        for name, item in items.items():
            key = f"measured:{weights}:{self._sizes.passes}:{name}:{item.path}"
            value = self._kept.get(key)
            if value is None:
                perception = perception or Perception(
                    PerceptionSettings(
                        weights=weights, passes=self._sizes.passes, threads=self._threads, device="cpu"
                    )
                )
                ((one,), failed) = measured_pool([_source(name, item)], perception)
                if failed:
                    raise InvalidInput(f"{item.path}: {failed[0]}")
                value = {"signals": one.signals, "features": one.features.tolist()}
                self._kept.put({key: value})
            found[name] = PoolPicture(name, value["signals"], np.array(value["features"]))
        return found


def _source(name: str, item: LabelledImage) -> SourceImage:
    return replace(next(iter(open_source(item.path))), name=name)


def choose(
    method: str, pool: Sequence[PoolPicture], count: int, covered: Sequence[FloatArray]
) -> list[Suggestion]:
    """``count`` pictures of ``pool`` by a method of METHODS other than at random; ``covered``: features of labelled pictures."""
    if method == SUGGEST:
        return suggested(pool, count, covered)
    if method == "score":
        scores = scores_of(pool)
        best = np.argsort(-scores, kind="stable")[:count].tolist()
        return [Suggestion(pool[n], float(scores[n]), np.nan) for n in best]
    # without signals every picture has the same score; asked for all, the function orders all by distance alone
    return suggested([replace(one, signals={}) for one in pool], len(pool), covered)[:count]


def plain(found: Detections) -> list[list[float]]:
    """Detections as JSON can hold them."""
    rows = np.concatenate([found.boxes, found.probabilities[:, 1:]], axis=1)
    return [[round(float(v), 4) for v in row] for row in rows]


def detections(rows: Sequence[Sequence[float]]) -> Detections:
    """What :func:`plain` made."""
    values = np.array(rows, np.float32).reshape(-1, 6)
    rest = 1 - values[:, 4:].sum(axis=1, keepdims=True)
    return Detections(values[:, :4], np.concatenate([rest, values[:, 4:]], axis=1))


def equivalent(value: float, budgets: Sequence[int], curve: Sequence[float]) -> float:
    """How many labels at random reach the mAP ``value`` on a ``curve`` over ``budgets``, infinite where none does.

    The curve is made to rise (isotonic regression), because chance alone lets it fall, and is a straight line between budgets.
    """
    rising = IsotonicRegression().fit_transform(np.arange(len(curve)), np.asarray(curve, float))
    if value > rising[-1]:
        return np.inf
    place = int(np.searchsorted(rising, value, side="left"))
    if place == 0:
        return float(budgets[0])
    part = (value - rising[place - 1]) / (rising[place] - rising[place - 1])
    return float(budgets[place - 1] + part * (budgets[place] - budgets[place - 1]))


def curves(
    bench: Bench, pool: Pool, seeds: Sequence[int], methods: Sequence[str], resamples: int
) -> dict[str, Any]:
    """What the trainings of ``pool`` show: the curve of each method, differences from random choice, and labels saved.

    Each with its 95 % interval, of a bootstrap over seeds and test pictures, which all methods share.
    """
    items = bench.test_items(pool)
    points = [(method, budget) for method in methods for budget in bench.budgets(method)]
    tables = [
        [
            MatchTable(list(map(detections, bench.kept(pool, seed, *point)["found"])), items)
            for point in points
        ]
        for seed in seeds
    ]
    most = max(bench.budgets(RANDOM))

    def maps(rows: IntArray, pictures: IntArray) -> FloatArray:
        weights = np.bincount(pictures, minlength=len(items)).astype(float)
        counts = np.bincount(rows, minlength=len(seeds))
        every = [
            count * np.array([table.average_precision(weights)[0] for table in tables[n]])
            for n, count in enumerate(counts)
            if count
        ]
        return np.asarray(np.sum(every, axis=0) / counts.sum())

    def figures(rows: IntArray, pictures: IntArray) -> FloatArray:
        found = dict(zip(points, maps(rows, pictures).tolist(), strict=True))
        curve = [found[RANDOM, budget] for budget in bench.budgets(RANDOM)]
        others = [point for point in points if point[0] != RANDOM]
        ahead = [found[method, budget] - found[RANDOM, budget] for method, budget in others]
        saved = [
            min(equivalent(found[method, budget], bench.budgets(RANDOM), curve), most) - budget
            for method, budget in others
        ]
        return np.array([*found.values(), *ahead, *saved])

    value = figures(np.arange(len(seeds)), np.arange(len(items)))
    low, high = bootstrap(figures, [len(seeds), len(items)], resamples)
    cells = [[round(float(v), 4) for v in three] for three in zip(value, low, high, strict=True)]
    count = len([point for point in points if point[0] != RANDOM])
    rows, other = [], 0
    for place, (method, budget) in enumerate(points):
        row: dict[str, Any] = {"method": method, "labels": budget, "map": cells[place]}
        if method != RANDOM:
            row |= {
                "minus_random": cells[len(points) + other],
                "saved": cells[len(points) + count + other],
            }
            other += 1
        row["seeds"] = [round(float(of[place].average_precision()[0]), 4) for of in tables]
        rows.append(row | _composition(bench, pool, seeds, method, budget))
    return {"name": pool.name, "title": pool.title, "test": len(items), "most": most, "points": rows}


def _composition(
    bench: Bench, pool: Pool, seeds: Sequence[int], method: str, budget: int
) -> dict[str, float]:
    """Of the chosen pictures: objects of either class in each, and the share of the rare ones; means over seeds."""
    if not budget:
        return {}
    folders = dict.fromkeys(folder for folder, _ in pool.parts)
    items = {_name(folder, item): item for folder in folders for item in read_coco(folder)}
    names = [name for seed in seeds for name in bench.kept(pool, seed, method, budget)["chosen"]]
    found = {
        f"{label.name.lower()}s": round(float(np.mean([(items[n].labels == label).sum() for n in names])), 3)
        for label in (ObjectClass.LOGO, ObjectClass.STICKER)
    }
    if pool.rare is not None:
        found["rare"] = round(float(np.mean([name.startswith(f"{pool.rare.name}/") for name in names])), 3)
    return found
