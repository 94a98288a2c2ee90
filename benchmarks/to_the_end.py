# SPDX-License-Identifier: Apache-2.0
"""Laptops to their end: what the cell releases is gone from its next picture, until nothing more is released.

    python -m benchmarks.to_the_end out/rendered --out out/rendered/rendered_end.csv

Proves FOLDER/policy.yaml on laptops of seeds on which nothing was learned, fitted or chosen, each profile and each circumstance
by itself: one-sided exact bounds. What is done is kept in FOLDER/ends.sqlite and not done again by the same policy and code.
Beside it stands what the first picture alone says of the same laptops, as `sticker-uq calibrate` infers it.
"""

import csv
import zlib
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch

from benchmarks.result_files import argument_parser, result_file
from sticker_uq import gate
from sticker_uq.evaluation.executors import map_over
from sticker_uq.evaluation.metrics.decisions import BLADE_IOU, harmful, released_regions
from sticker_uq.evaluation.metrics.matching import best_overlap
from sticker_uq.evaluation.metrics.statistics import upper_bound
from sticker_uq.evaluation.replay.assessing import code_fingerprint
from sticker_uq.gate import Policy, judge
from sticker_uq.gate.judge import once_peeled
from sticker_uq.io.coco import EncodedScene
from sticker_uq.io.files import atomic_write
from sticker_uq.io.images import decode_picture
from sticker_uq.io.json_store import JsonStore
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.scene import ObjectClass, Outcome
from sticker_uq_lab.datasets.abnormal import CASES, CLEAN, EXPOSURE, leave_untouched
from sticker_uq_lab.rendering import render, sample_scene
from sticker_uq_lab.rendering.scene_sampling import Profile

SIZES: dict[Profile, tuple[int, int]] = {"study": (1632, 1366), "large": (960, 720)}
BARE = "bare"
CIRCUMSTANCES = ("residue", "glare", "blur", "noise", "hand", "gripper", "unknown-object")
FIRST_SEED = 643_000_000
COUNTS = {CLEAN: 400, BARE: 60, **dict.fromkeys(CIRCUMSTANCES, 40)}
"""Laptops of each profile in each circumstance."""
DELTA = 0.1
"""1 - confidence of each bound."""
COLUMNS = (
    *("laptops", "circumstance", "of", "end with a question", "wrongful removal", "excluded above"),
    *("by overlap alone", "finished alone, keep a sticker", "excluded above"),
    *("first picture: with a question", "first picture: keep a sticker"),
)


class Job(NamedTuple):
    seed: int
    profile: Profile
    circumstance: str = CLEAN


class End(NamedTuple):
    """What became of a laptop: whether a person is ``asked`` in the end, something was ``wrongful`` on the way, also counted by
    overlap alone; stickers ``peeled`` and ``left``; and whether a person is asked and a sticker left by the ``first`` picture.
    """

    asked: bool
    wrongful: bool
    by_overlap: bool
    peeled: int
    left: int
    first_asked: bool
    first_left: bool


@cache
def _cell(policy: Path) -> tuple[Perception, Policy]:
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    free = Policy.load(policy).model_copy(update={"validity": None})
    return Perception(PerceptionSettings(device="cpu", threads=1)), free


def to_the_end(job: Job, policy: Path) -> End:
    """The laptop of ``job`` under ``policy``; stickers that its circumstance hides are on it all the same."""
    perception, rules = _cell(policy)
    case = job.circumstance
    spec = sample_scene(job.seed, profile=job.profile, stickers=0 if case == BARE else None)
    wrongful, by_overlap, peeled = False, False, 0
    first: tuple[bool, bool] | None = None
    while True:
        truth = render(spec, SIZES[job.profile])
        shown = leave_untouched(truth.image.copy(), truth.boxes, truth.labels)
        if case not in (CLEAN, BARE):  # the same hand, the same glare at every look
            rng = np.random.default_rng((job.seed, zlib.crc32(case.encode())))
            shown = (CASES | EXPOSURE)[case](shown, rng)
        sent = EncodedScene.of(shown.image, job.seed, "jpg", shown.boxes, shown.labels)
        scene = perception.assess(decode_picture(sent.data))
        decision = judge(scene, rules)
        released = released_regions(decision)
        harm = harmful(released, shown.boxes, shown.labels)
        places = best_overlap(released, shown.boxes, BLADE_IOU)[0]
        gone = {n for n in places.tolist() if n >= 0 and shown.labels[n] == ObjectClass.STICKER}
        wrongful |= bool(harm.any())
        by_overlap |= bool((np.append(shown.labels, 0)[places] != ObjectClass.STICKER).any())
        asked = once_peeled(decision, scene, rules).outcome is not Outcome.CLEAN
        stickers = int((truth.labels == ObjectClass.STICKER).sum())
        if first is None:
            first = asked, len(gone) < int((shown.labels == ObjectClass.STICKER).sum())
        if not gone:
            return End(asked, wrongful, by_overlap, peeled, stickers, first[0], first[1])
        peeled += len(gone)
        for place in gone:
            spec = spec.without_sticker(int(truth.ids[shown.origin[place]]))


def jobs_of(counts: dict[str, int]) -> list[Job]:
    """The laptops of both profiles, ``counts`` of them by circumstance; no two have a seed in common."""
    return [
        Job(FIRST_SEED + 1_000_000 * p + 10_000 * c + number, profile, circumstance)
        for p, profile in enumerate(SIZES)
        for c, (circumstance, count) in enumerate(counts.items())
        for number in range(count)
    ]


def ends(todo: Sequence[Job], policy: Path, processes: int, store: Path) -> Iterator[tuple[Job, End]]:
    """The end of each of ``todo``; ``store`` keeps those of this policy and code."""
    made_by = f"{Policy.load(policy).hash}:{code_fingerprint(Path(gate.__file__).parent)}"
    with JsonStore(store) as known:
        kept: dict[Job, Any] = {job: known.get(f"{made_by}:{':'.join(map(str, job))}") for job in todo}
        missing = [job for job in todo if kept[job] is None]
        found = map_over(partial(to_the_end, policy=policy), missing, processes)
        for number, (job, end) in enumerate(zip(missing, found, strict=True), 1):
            known.put({f"{made_by}:{':'.join(map(str, job))}": list(end)})
            kept[job] = list(end)
            print(f"\r{number} of {len(missing)} laptops", end="", flush=True)
    for job in todo:
        yield job, End(*kept[job])


def row(profile: str, circumstance: str, found: Sequence[End]) -> list[Any]:
    """A row of the table, see COLUMNS."""
    alone = [one for one in found if not one.asked and one.peeled + one.left]
    dirty, wrongful = sum(one.left > 0 for one in alone), sum(one.wrongful for one in found)
    first = [one for one in found if not one.first_asked and one.peeled + one.left]
    return [
        *(profile, circumstance, len(found), sum(one.asked for one in found)),
        *(wrongful, _bound(wrongful, len(found)), sum(one.by_overlap for one in found)),
        *(f"{dirty} of {len(alone)}", _bound(dirty, len(alone))),
        *(sum(one.first_asked for one in found), f"{sum(one.first_left for one in first)} of {len(first)}"),
    ]


def _bound(events: int, of: int) -> str:
    return f"{100 * upper_bound(events, of, DELTA):.3g} %" if of else ""


def table(found: Sequence[tuple[Job, End]]) -> list[list[Any]]:
    """A row for each profile and circumstance, and one for all circumstances of a profile together."""
    rows = []
    for profile in SIZES:
        own = [(job.circumstance, end) for job, end in found if job.profile == profile]
        for circumstance in dict.fromkeys(name for name, _ in own):
            rows.append(row(profile, circumstance, [end for name, end in own if name == circumstance]))
        changed = [end for name, end in own if name not in (CLEAN, BARE)]
        rows.append(row(profile, "all but clean and bare", changed))
    return rows


def main() -> None:
    """Follow the laptops and write the table."""
    parser = argument_parser(__doc__)
    parser.add_argument(
        "folder", type=Path, help="folder with the policy.yaml, as of scripts/rendered_policy"
    )
    parser.add_argument("--percent", type=int, default=100, help="share of the laptops, to try it")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=result_file, required=True, help="CSV file to write")
    options = parser.parse_args()
    todo = jobs_of({name: max(1, count * options.percent // 100) for name, count in COUNTS.items()})
    found = list(ends(todo, options.folder / "policy.yaml", options.jobs, options.folder / "ends.sqlite"))
    with atomic_write(options.out, "w") as stream:
        csv.writer(stream, lineterminator="\n").writerows([COLUMNS, *table(found)])


if __name__ == "__main__":
    main()
