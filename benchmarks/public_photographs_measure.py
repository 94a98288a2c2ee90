# SPDX-License-Identifier: Apache-2.0
"""What the uncertainty is worth on public sets of labelled photographs, measured for benchmarks.public_photographs.

A set is downloaded, imported and qualified with the commands of the product in a folder, where a later run takes what is there.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from benchmarks.photographs import sparse_clone
from sticker_uq.calibration.control import learn_then_test
from sticker_uq.calibration.fitting import FitSettings, Levels, fit_policy
from sticker_uq.calibration.making import FIT_SHARE, assess_sources, split
from sticker_uq.calibration.measuring import PLAIN, measure, scores
from sticker_uq.calibration.outcomes import MATCH_IOU, outcomes_of
from sticker_uq.calibration.probability import choose_kind
from sticker_uq.calibration.proving import Trials, limits_to_try, removal_tests
from sticker_uq.calibration.records import Record, units_of
from sticker_uq.detection.detector import load_detector
from sticker_uq.evaluation.metrics.accuracy import as_json, evaluate_detector, evaluate_passes
from sticker_uq.evaluation.metrics.decisions import Count, match_label
from sticker_uq.evaluation.metrics.matching import MATCH_IOU as SAME_IOU
from sticker_uq.evaluation.metrics.matching import find_overlapping
from sticker_uq.evaluation.metrics.statistics import area_under_roc, cluster_bootstrap
from sticker_uq.evaluation.replay.findings import BlockedBy
from sticker_uq.gate import Policy, judge
from sticker_uq.io.coco import LabelledImage, read_picture
from sticker_uq.io.json_store import JsonStore
from sticker_uq.io.labelled_images import LabelledSource
from sticker_uq.perception.image_novelty import novelty_from_network
from sticker_uq.perception.novelty.network import load_network
from sticker_uq.perception.settings import PerceptionSettings
from sticker_uq.scene import (
    METRICS,
    Detections,
    FloatArray,
    IntArray,
    InvalidInput,
    ObjectClass,
    ObservedObject,
)
from sticker_uq_lab.qualifying.candidate import NOVELTY, WEIGHTS

SOURCES = Path(__file__).with_name("public_photographs.yaml")
SPLIT = "0.45,0.275,0.275"
"""Shares of the pictures to learn from, and of two parts that are held out; the splits divide those two together."""
EPOCHS, SPLITS, RESAMPLES = 10, 20, 1000
ALPHAS, BETA = (0.1, 0.05), 0.5
SCORE = "score, one pass"
"""The doubt that the others are compared with: 1 - the score without dropout."""
_POLICY = Path(__file__).parents[1] / "config" / "limits.yaml"


class LabelledSet(BaseModel):
    """A public set of labelled photographs in ``folders`` of a repository of GitHub, and what its ``classes`` stand for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z]+$")
    title: str
    repository: str
    commit: str = Field(pattern=r"^[0-9a-f]{40}$")
    folders: tuple[str, ...] = Field(min_length=1)
    licence: str
    classes: dict[str, Literal["sticker", "logo", "ignore"]]


def labelled_sets(path: Path = SOURCES) -> list[LabelledSet]:
    """The list of sets in ``path``."""
    return [LabelledSet.model_validate(one) for one in yaml.safe_load(path.read_text(encoding="utf-8"))]


def download(source: LabelledSet, folder: Path) -> None:
    """Put the files of ``source`` into the new ``folder``, whole or not at all; InvalidInput when they cannot be had."""
    with tempfile.TemporaryDirectory(prefix=".download-", dir=folder.parent) as scratch:
        clone = Path(scratch) / "clone"
        sparse_clone(source.repository, source.commit, source.folders, clone)
        shutil.rmtree(clone / ".git")
        clone.replace(folder)


def prepare(source: LabelledSet, work: Path) -> str:
    """Download, import and qualify ``source`` in the folder ``work``, unless that was done; the verdict of ``qualify``.

    InvalidInput when a command of the product ends with an error.
    """
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "source").is_dir():
        download(source, work / "source")
    data = work / "data"
    if not data.is_dir():
        import_set(source, work / "source", data, SPLIT)
    given = ("--alpha", ALPHAS[0], "--beta", BETA, "--start", "packaged", "--epochs", EPOCHS)
    said = product(
        "qualify", "--data", data, "--out", work / "bundle", *given, "--no-robustness", ends=(0, 1)
    )
    found = re.search(r"(NOT )?READY: .*?(?=\nreport: |$)", said, re.DOTALL)
    return " ".join(found[0].split()) if found else ""


def import_set(source: LabelledSet, files: Path, out: Path, split: str) -> None:
    """Import the ``files`` of ``source`` into the folder ``out``, divided by ``split``; InvalidInput when that fails."""
    meanings = (f"--class={name}={meaning}" for name, meaning in source.classes.items())
    product("dataset", "import", files, "--split", split, "--repair", "--out", out, *meanings)


def product(*arguments: object, ends: Iterable[int] = (0,)) -> str:
    """What ``sticker-uq`` with ``arguments`` prints; InvalidInput when it ends with none of ``ends``."""
    command = [sys.executable, "-m", "sticker_uq.cli", *map(str, arguments)]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    print(done.stdout, flush=True)
    if done.returncode not in ends:
        raise InvalidInput(f"sticker-uq {' '.join(command[3:])}: ended with exit status {done.returncode}")
    return done.stdout


@dataclass(frozen=True)
class Objects:
    """The N objects that the passes cluster into on all pictures.

    ``unit`` (N,): number of the picture, or of its group of near duplicates; ``wrong`` (N,): it is not what its label says;
    ``removal`` (N,): it is called sticker; ``doubts`` by name, (N,) each, NaN where not measured.
    """

    unit: IntArray
    wrong: NDArray[np.bool_]
    removal: NDArray[np.bool_]
    doubts: dict[str, FloatArray]


def objects_of(records: Sequence[Record], further: Sequence[Sequence[dict[str, float]]]) -> Objects:
    """The objects of ``records``; ``further``: doubts that the assessment does not hold, of each object of each picture."""
    rows = []
    for unit, record, own in zip(units_of(records).tolist(), records, further, strict=True):
        for seen, more in zip(record.assessment.objects, own, strict=True):
            place, _ = match_label(seen.box, record.boxes, MATCH_IOU)
            wrong = place < 0 or record.labels[place] != seen.label
            doubts = {"mean score": 1 - seen.score, "detection rate": 1 - seen.detection_rate}
            doubts |= {METRICS[name].words: getattr(seen, name) for name in METRICS}
            rows.append((unit, wrong, seen.label == ObjectClass.STICKER, {**more, **doubts}))
    names = rows[0][3] if rows else ()
    return Objects(
        np.array([row[0] for row in rows], np.int64),
        np.array([row[1] for row in rows], bool),
        np.array([row[2] for row in rows], bool),
        {name: np.array([row[3][name] for row in rows], float) for name in names},
    )


def one_pass_doubt(seen: ObservedObject, found: Detections) -> float:
    """1 - the highest score that ``found`` without dropout has for the class of ``seen`` at its place, 1 without any there."""
    there = find_overlapping(found.boxes, seen.box[None], SAME_IOU)
    return 1.0 - float(found.probabilities[there, seen.label].max(initial=0.0))


def auroc(objects: Objects, removals_only: bool) -> list[dict[str, Any]]:
    """How well each doubt tells wrong objects from right ones, and the difference to SCORE; pictures are drawn anew.

    ``removals_only``: of the objects that are called stickers. An area is None where nothing can be measured.
    """
    kept = np.flatnonzero(objects.removal) if removals_only else np.arange(len(objects.unit))
    wrong = objects.wrong[kept]
    doubts = np.array([values[kept] for values in objects.doubts.values()])
    names = list(objects.doubts)

    def areas(rows: IntArray) -> FloatArray:
        bad = wrong[rows]
        found = np.array([area_under_roc(values[rows][~bad], values[rows][bad]) for values in doubts])
        return np.concatenate([found, found - found[names.index(SCORE)]])

    value = areas(np.arange(len(kept)))
    low, high = cluster_bootstrap(areas, objects.unit[kept], RESAMPLES)
    known = np.tile(np.isfinite(doubts).all(axis=1), 2)
    cells = [[None if not k or np.isnan(v) else round(float(v), 4) for v in three]
             for k, three in zip(known, zip(value, low, high, strict=True), strict=True)]  # fmt: skip
    count = len(names)
    return [
        {"doubt": name, "auroc": cells[n], "minus_score": cells[count + n]} for n, name in enumerate(names)
    ]


def promise(
    records: Sequence[Record], seed: int, alpha: float, base: Policy, share: float = 0.5, beta: float = BETA
) -> dict[str, Any]:
    """A ``share`` of ``records``, drawn by ``seed``, calibrates a policy for ``alpha``; what it decides about the others.

    As `sticker-uq calibrate` does it. "refused" says why nothing was proved; else counts of events and of how many. "score": what
    the loosest limit on the mean score alone decides that the same procedure proves.
    """
    own, test = ([records[n] for n in half] for half in split(units_of(records), share, seed))
    fit, proof = ([own[n] for n in part] for part in split(units_of(own), FIT_SHARE, seed))
    row: dict[str, Any] = {"seed": seed, "alpha": alpha, "refused": ""}
    levels = Levels(alpha, beta)
    try:
        draft = fit_policy(
            fit, base, FitSettings(kind=choose_kind(fit, "isotonic", MATCH_IOU).kind, level=alpha)
        )
        if (limited := score_limit(fit, proof, test, draft, levels)) is not None:
            row["score"] = limited
        found = measure(test, Trials(draft, fit, proof).policy(levels))
    except InvalidInput as error:
        return row | {"refused": str(error)}
    return row | {
        "wrongful": _pair(found.wrongful),
        "released": _pair(found.removed),
        "asked": _pair(found.asked),
    }


def score_limit(
    fit: Sequence[Record], proof: Sequence[Record], test: Sequence[Record], draft: Policy, levels: Levels
) -> dict[str, list[int]] | None:
    """What the loosest limit on the mean score alone that ``proof`` allows decides about ``test``, None when it allows none."""
    tried, proved, seen = (
        next(one for one in scores(outcomes_of(part, draft)) if one.name == PLAIN)
        for part in (fit, proof, test)
    )
    tests = removal_tests(proved.objects, proved.doubt, proved.images, limits_to_try(tried.doubt))
    held = learn_then_test(tests, levels.alpha, levels.delta)
    if not len(held):
        return None
    limit = tests[held[-1]].limit
    (found,) = removal_tests(seen.objects, seen.doubt, seen.images, np.array([limit]))
    return {"wrongful": [found.events, found.images], "released": _pair(seen.count_removed(limit))}


def _pair(count: Count) -> list[int]:
    return [count.events, count.of]


def decided(records: Sequence[Record], policy: Policy) -> dict[str, Any]:
    """What ``policy`` decides about ``records``, and which limits held objects and pictures back."""
    found, blocked = measure(records, policy), BlockedBy()
    free = policy.model_copy(update={"validity": None})
    for record in records:
        blocked.add(judge(record.assessment, free))
    counts = {
        "wrongful": found.wrongful,
        "released": found.removed,
        "asked": found.asked,
        "missed": found.left,
    }
    rows = [{key: row[key] for key in ("about", "name", "blocked", "alone")} for row in blocked.rows()]
    return {name: _pair(count) for name, count in counts.items()} | {"blocked": rows}


def measured(source: LabelledSet, work: Path) -> dict[str, Any]:
    """All that is known of ``source`` after the whole way in the folder ``work``."""
    verdict = prepare(source, work)
    steps = {
        file.stem: json.loads(file.read_text()).get("result")
        for file in (work / "bundle.work/steps").glob("*.json")
    }
    novelty = work / "bundle.work/novelty"
    settings = PerceptionSettings(weights=str(novelty / WEIGHTS), device="cpu")
    held = [LabelledSource(work / "data" / part) for part in ("calibrate", "test")]
    items = [item for one in held for item in one.items.values()]
    parts = assess_sources(held, settings, work / "bundle.work/assessments.sqlite")
    records = [record for part in parts for record in part.records]
    with JsonStore(work / "measured.sqlite") as kept:
        accuracy = _accuracy(items, settings, kept)
        objects = objects_of(records, _further(items, records, settings, novelty / NOVELTY, kept))
    shipped = Policy.load(_POLICY)
    policies = {"as shipped": shipped}
    if steps["novelty"]["weakness"]:
        policies["without novelty"] = shipped.model_copy(update={"unmeasured_novelty": "release"})
    base = list(policies.values())[-1]
    return {
        **source.model_dump(include={"name", "title", "repository", "commit", "licence", "classes"}),
        "verdict": verdict,
        "parts": steps["check"]["parts"],
        "accuracy": accuracy,
        "novelty": steps["novelty"],
        "objects": [
            [int(objects.wrong[rows].sum()), int(rows.sum())] for rows in (objects.unit >= 0, objects.removal)
        ],
        "auroc": {"all": auroc(objects, False), "removals": auroc(objects, True)},
        "splits": [promise(records, seed, alpha, base) for alpha in ALPHAS for seed in range(SPLITS)],
        "packaged": {name: decided(records, policy) for name, policy in policies.items()},
    }


def _accuracy(
    items: Sequence[LabelledImage], settings: PerceptionSettings, kept: JsonStore
) -> dict[str, Any]:
    sharp = load_detector(settings.model_copy(update={"score_floor": 0.01}))
    key = f"accuracy:{sharp.weights_hash}"
    found: dict[str, Any] | None = kept.get(key)
    if found is None:
        found = {"one pass": as_json(evaluate_detector(sharp, items))}
        found["clusters"] = as_json(
            evaluate_passes(load_detector(settings), items, settings.cluster).accuracy
        )
        kept.put({key: found})
    return found


def _further(
    items: Sequence[LabelledImage],
    records: Sequence[Record],
    settings: PerceptionSettings,
    network_file: Path,
    kept: JsonStore,
) -> list[list[dict[str, float]]]:
    """The doubts of one pass and of the novelty network, used or not, about each object of each picture."""
    detector = load_detector(settings.model_copy(update={"score_floor": 0.01}))
    network = load_network(network_file) if network_file.is_file() else None
    rows = []
    for item, record in zip(items, records, strict=True):
        seen = record.assessment
        key = f"further:{seen.model_hash}:{seen.settings_hash}:{seen.image_digest}:{len(seen.objects)}"
        if (own := kept.get(key)) is None:
            picture = read_picture(item)
            found = detector.detect(detector.encode(picture))
            novelty = None if network is None else novelty_from_network(network, picture)
            own = [
                [one_pass_doubt(one, found), None if novelty is None else novelty.at(one.box)]
                for one in seen.objects
            ]
            kept.put({key: own})
        rows.append(
            [{SCORE: one, "novelty of the object": np.nan if new is None else new} for one, new in own]
        )
    return rows
