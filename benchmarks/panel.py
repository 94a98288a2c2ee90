# SPDX-License-Identifier: Apache-2.0
"""What a panel of monitors changes in the closed loop: wrongful removals and questions, with and without it.

    python -m benchmarks.panel --panel PANEL --data COCO_FOLDER --laptops 60 --kept FILE.jsonl

Rendered laptops come as they are, with things that no training picture had, and with objects between logo and sticker or between
sticker and lid (AmbiGuess on the crops of COCO_FOLDER, pasted in). One after the other is looked at, judged and changed as the
cell would do it: what the policy removes is gone from the next picture, a question is answered by somebody who knows the truth.
All variants share the pictures and the scores. PANEL is a folder of `sticker-uq monitors fit`, whose limits are used. Policies
are config/policy.yaml and those that are given; one whose panel is combined in its risk score hears the scores there, each other
one is run without the panel and with its objections. A removal that nobody was asked about is wrongful where no sticker lies: a
logo, the bare lid, a foreign object, or a thing that is half a sticker at most. What was measured of a laptop stays in the file
of --kept, and the same benchmark resumes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from scipy.stats import binomtest

from benchmarks.panel_laptops import KINDS, Assessments, Course, Variant, ambiguous_crops, laptop, run
from benchmarks.result_files import result_file
from sticker_uq.evaluation.metrics.statistics import clopper_pearson
from sticker_uq.gate import Policy
from sticker_uq.io.files import atomic_write
from sticker_uq.io.share import share_folder
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.scene import InvalidInput

SEED = 7_500_000
_PACKAGED = "packaged"
_RESAMPLED = 2000  # sets of laptops that intervals come from
Courses = dict[tuple[str, int], dict[str, Course]]
"""What was measured: by kind and number of the laptop, and by the name of the variant."""


def variants_of(policies: Mapping[str, Policy], votes: Sequence[str]) -> list[Variant]:
    """Every policy without and with the panel of ``votes``, the packaged one with each of them alone too."""
    found = []
    for name, policy in policies.items():
        if policy.panel is not None and policy.panel.combination == "risk":
            found.append(Variant(f"{name}: the panel, in its risk", policy, frozenset(votes)))
            continue
        found.append(Variant(f"{name}: nobody", policy, frozenset()))
        found.append(Variant(f"{name}: the panel, any", policy, frozenset(votes)))
        if name == _PACKAGED:
            found += [Variant(f"{name}: {vote}", policy, frozenset((vote,))) for vote in votes]
    return found


def measure(
    perception: Perception, variants: Sequence[Variant], data: Path, count: int, seed: int, kept: Path | None
) -> Courses:
    """The courses of ``count`` laptops of every kind; those that ``kept`` has of the same benchmark come from there."""
    named = {
        "model": perception.model_hash,
        "settings": perception.settings_hash,
        "panel": perception.panel_hash,
        "variants": [(v.name, v.policy.hash) for v in variants],
        "data": hashlib.sha256((data / "annotations.json").read_bytes()).hexdigest(),
        "seed": seed,
    }
    key = hashlib.sha256(json.dumps(named).encode()).hexdigest()[:16]
    courses = _known(kept, key)
    missing = [(kind, n) for n in range(count) for kind in KINDS if (kind, n) not in courses]
    if missing:
        made = ambiguous_crops(data, 0)
    for kind, number in missing:
        one = laptop(kind, number, seed, made)
        assessments = Assessments(one, perception)
        courses[kind, number] = {v.name: run(one, assessments, v) for v in variants}
        if kept is not None:
            found = {name: asdict(course) for name, course in courses[kind, number].items()}
            with kept.open("a", encoding="utf-8") as stream:
                stream.write(
                    json.dumps({"key": key, "kind": kind, "number": number, "courses": found}) + "\n"
                )
        print(f"{kind} {number}", file=sys.stderr, flush=True)
    return courses


def _known(kept: Path | None, key: str) -> Courses:
    courses: Courses = {}
    if kept is None or not kept.is_file():
        return courses
    for line in kept.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:  # the end of an interrupted run
            continue
        if row["key"] == key:
            courses[row["kind"], row["number"]] = {n: Course(**c) for n, c in row["courses"].items()}
    return courses


def as_markdown(variants: Sequence[Variant], courses: Courses, count: int) -> str:
    """One row for every kind of laptop and variant."""
    lines = [
        f"{count} laptops of each kind. Wrongful: laptops with a removal of what is no sticker without a question, with the 95 % "
        "interval of Clopper and Pearson; the other intervals (95 %) come from resampling the laptops.",
        "",
        "| laptops | policy: heard | wrongful | wrongful removals | questions per laptop | share of stickers removed without one "
        "| called clean with a sticker |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        for variant in variants:
            own = [courses[kind, number][variant.name] for number in range(count)]
            bad = sum(course.wrongful > 0 for course in own)
            low, high = clopper_pearson(bad, count)
            questions = _interval(own, lambda c: c.questions, lambda _: 1)
            alone = _interval(own, lambda c: c.alone, lambda c: c.stickers)
            lines.append(
                f"| {kind} | {variant.name} | {bad / count:.3f} ({low:.3f} to {high:.3f}) "
                f"| {sum(c.wrongful for c in own)} | {questions} | {alone} | {sum(c.left > 0 for c in own)} |"
            )
    return "\n".join([*lines, "", *_pairs(variants, courses, count)]) + "\n"


def _pairs(variants: Sequence[Variant], courses: Courses, count: int) -> list[str]:
    """Laptop by laptop: where the panel makes the difference, with the exact test of McNemar."""
    lines = [
        "| laptops | instead of | heard | wrongful only so | wrongful only instead | p |",
        "|---|---|---|---|---|---|",
    ]
    nobody = [v.name for v in variants if not v.heard]
    everybody = [v.name for v in variants if len(v.heard) > 1]
    for kind in KINDS:
        for first in nobody:
            for other in everybody:
                own = [courses[kind, number] for number in range(count)]
                bad = np.array([(c[first].wrongful > 0, c[other].wrongful > 0) for c in own])
                only, instead = int((bad[:, 1] & ~bad[:, 0]).sum()), int((bad[:, 0] & ~bad[:, 1]).sum())
                p = binomtest(only, only + instead).pvalue if only + instead else 1.0
                lines.append(f"| {kind} | {first} | {other} | {only} | {instead} | {p:.3g} |")
    return lines


def _interval(own: Sequence[Course], above: Callable[[Course], int], below: Callable[[Course], int]) -> str:
    """The ratio of two sums over the courses with the 95 % interval of resampled laptops."""
    values = np.array([(above(course), below(course)) for course in own], float)
    rows = np.random.default_rng(0).integers(0, len(own), (_RESAMPLED, len(own)))
    sums = values[rows].sum(axis=1)
    low, high = np.quantile(sums[:, 0] / np.maximum(sums[:, 1], 1), (0.025, 0.975))
    whole = values.sum(axis=0)
    return f"{whole[0] / max(whole[1], 1):.2f} ({low:.2f} to {high:.2f})"


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--panel", required=True, type=Path, help="folder of `sticker-uq monitors fit`")
    parser.add_argument(
        "--data", required=True, type=Path, help="COCO folder whose crops ambiguous objects are made of"
    )
    parser.add_argument("--laptops", type=int, default=60, help="laptops of each kind")
    parser.add_argument(
        "--policy",
        type=Path,
        action="append",
        default=[],
        help="policy file beside the packaged one, named as the file; may be given again",
    )
    parser.add_argument("--seed", type=int, default=SEED, help="of the first laptop")
    parser.add_argument("--kept", type=result_file, help="file for what was measured, JSON lines")
    parser.add_argument("--out", type=result_file, help="file for the table, Markdown")
    given = parser.parse_args()
    if given.laptops < 1:
        parser.error(f"--laptops {given.laptops}: expected 1 or more")
    try:
        policies = {_PACKAGED: Policy.load(share_folder() / "config" / "policy.yaml")}
        policies |= {path.stem: Policy.load(path) for path in given.policy}
        perception = Perception(PerceptionSettings(panel=str(given.panel)))
        variants = variants_of(policies, perception.votes)
        courses = measure(perception, variants, given.data, given.laptops, given.seed, given.kept)
    except InvalidInput as error:
        sys.exit(f"error: {error}")
    text = as_markdown(variants, courses, given.laptops)
    print(text)
    if given.out is not None:
        with atomic_write(given.out, "w") as stream:
            stream.write(text)


if __name__ == "__main__":
    main()
