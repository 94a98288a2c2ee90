# SPDX-License-Identifier: Apache-2.0
"""Whether a second view of the same laptop saves questions: another exposure, another light, a small turn.

    python -m benchmarks.second_view --out FILE [--laptops N] [--first SEED] [--jobs N]

Rendered laptops as they are and under glare, overexposure, low light and motion blur, a third of the laptops in each of three
strengths, the packaged detector and config/policy.yaml. Every picture is assessed once and kept in the file of --cache, so that
an interrupted run continues. Questions are compared at the policy's limits, and at the same rate of wrongful releases: the limits
on objects are multiplied until every method is wrong as seldom as asking at once.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.hard_measure import MeasuredScene
from benchmarks.hard_methods import Decision, result
from benchmarks.hard_scenes import NONE, SPLITS, STRENGTHS
from benchmarks.second_view_measure import Laptop, Seen, measure
from benchmarks.second_view_scenes import (
    AGAIN,
    AVERAGED,
    CIRCUMSTANCES,
    EXPOSURE,
    FIRST,
    LIGHT,
    TURN,
    strength_of,
)
from sticker_uq.evaluation.reporting.document import Table, as_markdown
from sticker_uq.gate import Answer, OperatorAnswer, OperatorAnswers, Policy, judge
from sticker_uq.gate.box_overlap import Box, as_box
from sticker_uq.gate.policy.signals import DISTANCE, OBJECT_NOVELTY
from sticker_uq.gate.second_view import Answering, Places, join, may_answer, view_for
from sticker_uq.io.files import atomic_write
from sticker_uq.io.json_store import JsonStore
from sticker_uq.io.share import share_folder
from sticker_uq.messages import VIEWS
from sticker_uq.scene import (
    FloatArray,
    InvalidInput,
    Outcome,
    Reason,
    SceneAssessment,
    SceneDecision,
    Verdict,
)

ONCE = "ask at once"
SECOND = {"same view again": AGAIN, "other exposure": EXPOSURE, "other light": LIGHT, "small turn": TURN}
"""Methods with a second view, and the view of each."""
CASCADE = "exposure, light, turn"
UNFAMILIAR = "other exposure, also of unfamiliar scenes"
ALONE = ", first view forgotten"
MEAN = "mean of two pictures"
FIGURES = ("asked", "wrong", "dirty_clean", "right", "objects_asked")
"""Pictures with a question, with a wrongful release, called clean with a sticker; stickers released; objects asked about."""
SCALES = np.arange(28, 46) / 40
"""Factors on the limits of an object, 0.7 to 1.125."""
RESAMPLES = 2000
_PLAIN = int(np.flatnonzero(SCALES == 1.0)[0])


def scaled(policy: Policy, factor: float) -> Policy:
    """``policy`` with every limit on the doubt about one object multiplied by ``factor``; limits on the scene stay."""
    shares = ("min_probability", "min_detection_rate")
    limits = (
        "max_variation_ratio",
        "max_shannon_entropy",
        "max_mutual_information",
        "max_relative_total_variance",
        "max_relative_predictive_surface",
        "max_logo_overlap",
        "max_object_novelty",
    )
    found = {name: max(0.0, 1.0 - (1.0 - getattr(policy, name)) * factor) for name in shares}
    return policy.model_copy(update=found | {name: getattr(policy, name) * factor for name in limits})


@dataclass(frozen=True)
class Ended:
    """How a laptop ends: places ``released`` for removal, ``objects`` in question, and whether a person is ``asked`` at all."""

    released: tuple[Box, ...]
    objects: int
    asked: bool


def _removable(decision: SceneDecision, places: Places) -> tuple[Box, ...]:
    if decision.outcome is not Outcome.WORK:
        return ()
    return tuple(places.in_first(as_box(v.object.box)) for v in decision.removable())


def _gone(memory: OperatorAnswers, boxes: Sequence[Box]) -> OperatorAnswers:
    return memory.remember(OperatorAnswer(Answer.NOT_THERE, box) for box in boxes)


Begun = tuple[Ended, SceneDecision, OperatorAnswers]
"""What one view does, the decision that is left once the released objects are gone, and what is known of those."""


def once(seen: Seen, policy: Policy) -> Begun:
    """What one view does, the decision that is left once the released objects are gone, and what is known of those."""
    decision = judge(seen.assessment, policy)
    released = _removable(decision, Places())
    memory = _gone(OperatorAnswers(), released)
    left = judge(seen.assessment, policy, memory) if released else decision
    return _ended(released, left), left, memory


def _ended(released: tuple[Box, ...], left: SceneDecision) -> Ended:
    objects = sum(v.verdict is not Verdict.KEEP for v in left.verdicts)
    return Ended(released, objects, left.outcome is not Outcome.CLEAN)


def also_unfamiliar(view: str, reason: Reason) -> bool:
    """Whether ``view`` may answer ``reason``, were an unfamiliar scene or object a matter of the picture alone."""
    return reason.subject in (DISTANCE, OBJECT_NOVELTY) or may_answer(view, reason)


def looked_again(
    laptop: Laptop,
    policy: Policy,
    views: Sequence[str],
    joined: bool = True,
    answers: Answering = may_answer,
    begun: Begun | None = None,
) -> Ended:
    """What the first view and, where it asks and another picture may answer, the second views of ``views`` in turn do.

    ``joined``: whether the first view still counts then. ``begun``: what :func:`once` says of the first view, if known.
    """
    ended, left, memory = once(laptop.seen[FIRST], policy) if begun is None else begun
    first = laptop.seen[FIRST].assessment
    for name in views:
        # the same view again is given every chance: as if it could show what any view shows
        kind = name if name in VIEWS else EXPOSURE
        if left.outcome is not Outcome.ASK or (joined and view_for(left, (kind,), answers) is None):
            break
        seen = laptop.seen[name].assessment
        places = Places.of(laptop.seen[name].to_first)

        def decided(
            memory: OperatorAnswers,
            seen: SceneAssessment = seen,
            kind: str = kind,
            places: Places = places,
        ) -> SceneDecision:
            if joined:
                return join(first, seen, policy, kind, memory, places=places, answers=answers)
            return judge(seen, policy, places.memory_in_second(memory))

        decision = decided(memory)
        if released := _removable(decision, places):
            memory = _gone(memory, released)
            decision = decided(memory)
        ended = _ended((*ended.released, *released), decision)
        if not ended.asked:
            break
        left = judge(first, policy, memory)
    return ended


def _again(laptop: Laptop, policy: Policy, begun: Begun, **how: Any) -> Ended:
    return looked_again(laptop, policy, begun=begun, **how)


METHODS: dict[str, Callable[[Laptop, Policy, Begun], Ended]] = {
    ONCE: lambda laptop, policy, begun: begun[0],
    **{name: partial(_again, views=(view,)) for name, view in SECOND.items()},
    CASCADE: partial(_again, views=(EXPOSURE, LIGHT, TURN)),
    UNFAMILIAR: partial(_again, views=(EXPOSURE,), answers=also_unfamiliar),
    **{name + ALONE: partial(_again, views=(view,), joined=False) for name, view in SECOND.items()},
    MEAN: lambda laptop, policy, begun: once(laptop.seen[AVERAGED], policy)[0],
}
"""What is compared, each by what it does with a laptop under a policy after what its first view does."""


def counts_of(laptop: Laptop, ended: Ended) -> tuple[float, ...]:
    """FIGURES of one picture, then the number of its stickers."""
    truth = laptop.truth
    none = np.zeros((0, 4), np.float32)
    scene = MeasuredScene(
        "",
        "",
        laptop.circumstance,
        "",
        laptop.seed,
        truth.boxes,
        truth.labels,
        none,
        none,
        truth.assessment,
        {},
    )
    boxes = np.array(ended.released, np.float32).reshape(-1, 4)
    found = result(scene, Decision(boxes, ended.asked))
    return (ended.asked, found.wrong > 0, found.dirty_clean, found.right, ended.objects, found.stickers)


def table_of(
    laptops: Sequence[Laptop], policy: Policy, progress: Callable[[], None] = lambda: None
) -> FloatArray:
    """Counts (method, factor, laptop and circumstance, figure) of all METHODS at all SCALES."""
    found = np.zeros((len(METHODS), len(SCALES), len(laptops), len(FIGURES) + 1))
    policies = [scaled(policy, float(factor)) for factor in SCALES]
    for column, laptop in enumerate(laptops):
        for step, own in enumerate(policies):
            begun = once(laptop.seen[FIRST], own)
            for row, method in enumerate(METHODS.values()):
                found[row, step, column] = counts_of(laptop, method(laptop, own, begun))
        progress()
    return found


def groups_of(laptops: Sequence[Laptop]) -> dict[str, Any]:
    """Which pictures (N,) each row of the tables is about."""
    circumstance = np.array([laptop.circumstance for laptop in laptops])
    strength = np.array([strength_of(laptop.seed) for laptop in laptops])
    found = {"all": circumstance != "", "unchanged": circumstance == NONE}
    found |= {name.replace("_", " "): circumstance == name for name in CIRCUMSTANCES[1:]}
    found |= {
        f"{name} circumstance": (circumstance != NONE) & (strength == number)
        for number, name in enumerate(STRENGTHS)
    }
    return {name: chosen for name, chosen in found.items() if chosen.any()}


def at_limits(table: FloatArray, chosen: Any) -> list[dict[str, Any]]:
    """Every figure of every method at the policy's own limits: events and of how many."""
    rows = []
    for name, own in zip(METHODS, table[:, _PLAIN][:, chosen], strict=True):
        events = own.sum(axis=0)
        of = {"right": int(events[-1])}
        row: dict[str, Any] = {"method": name}
        for number, figure in enumerate(FIGURES):
            row[figure] = [int(events[number]), of.get(figure, len(own))]
        rows.append(row)
    return rows


def at_equal_risk(table: FloatArray, seeds: Any, chosen: Any) -> list[dict[str, Any]]:
    """Share of the pictures asked about by every method, minus that of asking at once, at the same rate of wrongful releases.

    The rate is that of asking at once at the policy's limits. Every method, asking at once too, has the loosest limits that are
    wrong at most as often, chosen anew in every resample of the laptops; percentile intervals at 95 %.
    """
    laptops, owner = np.unique(seeds[chosen], return_inverse=True)
    counted = np.zeros((len(METHODS), len(SCALES), len(laptops), 3))
    np.add.at(counted, (slice(None), slice(None), owner), table[:, :, chosen][..., :3])  # type: ignore[arg-type]
    pictures = np.bincount(owner).astype(float)
    drawn = np.random.default_rng(0).integers(0, len(laptops), (RESAMPLES, len(laptops)))
    weights = np.stack([np.ones(len(laptops)), *(np.bincount(d, minlength=len(laptops)) for d in drawn)])
    sums = np.einsum("rl,msli->rmsi", weights, counted)
    level = sums[:, 0, _PLAIN, 1]
    wrong = np.maximum.accumulate(sums[..., 1], axis=2)
    step = (wrong <= level[:, None, None] + 1e-9).sum(axis=2) - 1  # -1: no factor is strict enough
    kept = np.take_along_axis(sums, np.maximum(step, 0)[:, :, None, None], axis=2)[:, :, 0]
    total = weights @ pictures
    asked = np.where(step >= 0, kept[..., 0], np.nan) / total[:, None]
    again = list(METHODS).index("same view again")
    rows = []
    for number, name in enumerate(METHODS):
        found = step[0, number] >= 0
        rows.append(
            {
                "method": name,
                "factor": float(SCALES[step[0, number]]) if found else None,
                "asked": [int(kept[0, number, 0]), int(total[0])],
                "wrong": [int(kept[0, number, 1]), int(total[0])],
                "dirty_clean": [int(kept[0, number, 2]), int(total[0])],
                "more_than_at_once": _difference(asked[:, number] - asked[:, 0]),
                "more_than_again": _difference(asked[:, number] - asked[:, again]),
            }
        )
    return rows


def _difference(drawn: FloatArray) -> list[float | None]:
    """The first of ``drawn`` and the 95 % interval of the others; nothing where no limit was strict enough."""
    if not np.isfinite(drawn).all():
        return [None] * 3
    return [round(float(v), 4) for v in (drawn[0], *np.quantile(drawn[1:], [0.025, 0.975]))]


def summary(laptops: Sequence[Laptop], table: FloatArray) -> dict[str, Any]:
    """What the result file holds."""
    seeds = np.array([laptop.seed for laptop in laptops])
    groups = groups_of(laptops)
    return {
        "laptops": len(np.unique(seeds)),
        "first_seed": int(seeds.min()),
        "at_limits": {name: at_limits(table, chosen) for name, chosen in groups.items()},
        "at_equal_risk": {name: at_equal_risk(table, seeds, chosen) for name, chosen in groups.items()},
    }


def read(file: Path) -> dict[str, Any]:
    """What a run wrote to ``file``."""
    return dict(json.loads(file.read_text(encoding="utf-8")))


TABLES = ("limits", "equal_risk", "groups")
"""The tables of docs/results/second_view.md."""


def table(found: dict[str, Any], name: str = TABLES[0]) -> str:
    """One of TABLES, as Markdown."""
    made = {"limits": _limits, "equal_risk": _equal_risk, "groups": _groups}[name](found)
    return as_markdown([made]).strip()


def _limits(found: dict[str, Any]) -> Table:
    head = (
        "method",
        "asked",
        "wrongful release",
        "called clean with a sticker",
        "stickers released",
        "objects asked about",
    )
    rows = [
        (
            row["method"],
            *(_share(row[figure]) for figure in ("asked", "wrong", "dirty_clean", "right")),
            str(row["objects_asked"][0]),
        )
        for row in found["at_limits"]["all"]
    ]
    return Table(head, rows)


def _equal_risk(found: dict[str, Any]) -> Table:
    head = (
        "method",
        "limits times",
        "wrongful release",
        "called clean with a sticker",
        "asked",
        "more asked than at once",
        "than with the same view again",
    )
    rows = [
        (
            row["method"],
            "-" if row["factor"] is None else f"{row['factor']:.2f}",
            *(_share(row[figure]) for figure in ("wrong", "dirty_clean", "asked")),
            *(_points(row[other]) for other in ("more_than_at_once", "more_than_again")),
        )
        for row in found["at_equal_risk"]["all"]
    ]
    return Table(head, rows)


def _groups(found: dict[str, Any]) -> Table:
    groups = found["at_equal_risk"]
    names = [row["method"] for row in groups["all"]]
    columns = [group for group in groups if group != "all"]
    rows = [
        (name, *(_points(groups[group][number]["more_than_at_once"]) for group in columns))
        for number, name in enumerate(names)
        if name != ONCE
    ]
    return Table(("method", *columns), rows)


def _share(value: Sequence[int]) -> str:
    return f"{value[0]} of {value[1]} ({100 * value[0] / value[1]:.1f} %)" if value[1] else "-"


def _points(value: Sequence[float | None]) -> str:
    share, low, high = value
    if share is None or low is None or high is None:
        return "-"
    star = "*" if low > 0 or high < 0 else ""
    return f"{100 * share:+.1f}{star} ({100 * low:+.1f} to {100 * high:+.1f})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing, and write the result file."""
    options = _options().parse_args(arguments)
    seeds = range(options.first, options.first + options.laptops)
    policy = Policy.load(share_folder() / "config" / "policy.yaml")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with JsonStore(options.cache) as cache, Progress(*columns, console=Console(stderr=True)) as bar:
        total = len(seeds) * len(CIRCUMSTANCES)
        looking = bar.add_task("views", total=total)
        laptops = measure(seeds, cache, options.jobs, lambda: bar.advance(looking))
        deciding = bar.add_task("decisions", total=total)
        found = summary(laptops, table_of(laptops, policy, lambda: bar.advance(deciding)))
    with atomic_write(options.out, "w") as stream:
        json.dump(found, stream, separators=(",", ":"))
    print(table(found))
    print(table(found, "equal_risk"))


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.second_view",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, help="JSON file for the result")
    parser.add_argument("--laptops", type=int, default=240, help="laptops, each in every circumstance")
    parser.add_argument("--first", type=int, default=SPLITS["test"][5000], help="seed of the first laptop")
    parser.add_argument("--jobs", type=int, default=1, help="processes that render and measure")
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path("out/benchmarks/second_view.sqlite"),
        help="file for what is measured",
    )
    return parser


if __name__ == "__main__":
    try:
        main()
    except InvalidInput as error:
        sys.exit(f"error: {error}")
