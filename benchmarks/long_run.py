# SPDX-License-Identifier: Apache-2.0
"""Whether a long run keeps alpha while the laptops change, what that costs, and whether an adaptive limit does better.

    python -m benchmarks.long_run --out benchmarks/results/long_run.json --jobs 2

Laptops are rendered and assessed once, as calibrated and in circumstances of three strengths. Each run draws a policy's proof and
a stream of laptops from them, both with replacement: until the drift begins the stream is exchangeable with the proof. What
becomes of a laptop is played by the gate (``benchmarks.long_run_laptop``), and the stream goes through the assumption monitor as
in the cell. All rules see the same streams and the same draws of spot checks.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.long_run_laptop import Played, play
from benchmarks.rendered import Recipe, records
from benchmarks.result_files import result_file
from benchmarks.shift import NAMES, STEPS, recipes
from sticker_uq.calibration.fitting import Levels, certify, fit_policy, limits_to_try, removal_tests
from sticker_uq.calibration.outcomes import outcomes_of, with_limits
from sticker_uq.calibration.records import Record
from sticker_uq.evaluation.reporting.chart_style import COLOURS, INK, legend_below, svg
from sticker_uq.gate import AssumptionSettings, Policy
from sticker_uq.gate.assumptions.assumption_monitor import AssumptionMonitor, assumption_monitor_of
from sticker_uq.gate.assumptions.drift import uniform
from sticker_uq.gate.operator.answers import SceneAnswer
from sticker_uq.io.files import atomic_write
from sticker_uq.io.json_store import JsonStore
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIT, POOL, SHIFTED = 240_000_000, 250_000_000, 260_000_000
"""First seeds of the laptops that the draft is fitted to, of those like them, and of those in each circumstance."""
KINDS = ("glare", "motion_blur", "sticker_residue", "unknown_make")
NONE = "none"
SHAPES = ("sudden", "slow")
LEVELS = Levels(alpha=0.02, beta=0.1, delta=0.1)
WINDOW, BIN = 500, 100


@dataclass(frozen=True)
class Sizes:
    """How much is measured. ``start``: laptops before the drift; ``ramp``: laptops over which a slow one grows."""

    fit: int = 800
    pool: int = 800
    proof: int = 600
    shifted: int = 100
    laptops: int = 3000
    start: int = 500
    ramp: int = 1500
    repetitions: int = 30


@dataclass(frozen=True)
class Rule:
    """What watches over the policy. ``step``: of the adaptive limit; 0: the limit stays as it was proved."""

    name: str
    signals: bool = False
    spot_checks: float = 0.0
    step: float = 0.0


RULES = (
    Rule("policy alone"),
    Rule("monitor, as shipped", signals=True),
    Rule("spot checks 10 %", spot_checks=0.1),
    Rule("monitor and spot checks 10 %", signals=True, spot_checks=0.1),
    Rule("adaptive limit, step 0.05", spot_checks=0.1, step=0.05),
    Rule("adaptive limit, step 0.2", spot_checks=0.1, step=0.2),
)


class AdaptiveLimit:
    """A limit of the risk that follows the losses of spot checks, never above the proved one.

    After each check the share of the objects fitted to that may be removed moves by ``step`` (alpha - loss), as in adaptive
    conformal inference (Gibbs and Candes 2021, eq 2); at 0 nothing is removed. Whatever the laptops are, the mean loss of
    n checks is at most alpha + (1 + 1 / step) / n, because a share below 0 has no loss.
    """

    def __init__(self, risks: FloatArray, proved: float, alpha: float, step: float) -> None:
        """``risks`` (N,): risk of each removable object of the laptops fitted to, in any order."""
        self._risks, self._proved = np.sort(risks), proved
        self._alpha, self._step = alpha, step
        self._most = self._share = float(np.mean(self._risks <= proved))

    @property
    def limit(self) -> float:
        """Highest risk of an object that is removed; 0: none is."""
        if self._share >= self._most:
            return self._proved
        index = math.floor(self._share * len(self._risks)) - 1
        return float(self._risks[index]) if index >= 0 else 0.0

    def observe(self, loss: bool) -> None:
        """Take in whether the policy at :attr:`limit` would have removed something wrong from a laptop drawn at random."""
        self._share = min(self._most, self._share + self._step * (self._alpha - loss))


class Laptop:
    """A measured laptop and what became of it under the limits tried so far."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._known: dict[tuple[float, bool], list[Played]] = {}

    def played(self, policy: Policy, limit: float, spot_check: bool) -> Played:
        """What becomes of it under ``policy`` with ``limit`` for the risk."""
        known = self._known.setdefault((policy.max_left_probability, spot_check), [])
        for one in known:
            if one.risks[0] <= limit < one.risks[1]:
                return one
        known.append(play(self.record, with_limits(policy, limit, policy.max_left_probability), spot_check))
        return known[-1]


class State:
    """The measured laptops of one circumstance and strength, and the rate of wrongful removals at every limit."""

    def __init__(self, shown: Sequence[Record], draft: Policy) -> None:
        self.laptops = [Laptop(record) for record in shown]
        outcomes = outcomes_of(shown, draft)
        objects, risk = outcomes.removed()
        trials = removal_tests(objects, risk, outcomes.images, limits_to_try(risk))
        self._limits = [trial.limit for trial in trials]
        self._rates = [0.0, *(trial.events / trial.images for trial in trials)]

    def rate(self, limit: float) -> float:
        """Share of these laptops in whose first scene something wrong is released."""
        return self._rates[bisect_right(self._limits, limit)]


@dataclass(frozen=True)
class Stream:
    """Laptops in the order in which they come: the state and number of each, (N,); ``severity``: expected state, (N,)."""

    states: NDArray[np.int64]
    numbers: NDArray[np.int64]
    severity: FloatArray
    seed: int

    def digest(self, number: int) -> str:
        """The image digest of the laptop at ``number``: a laptop that is drawn twice has two images."""
        return f"{self.seed:016x}{number:016x}"


def stream_of(shape: str, counts: Sequence[int], sizes: Sizes, seed: int) -> Stream:
    """A stream that is ``NONE``, "sudden" (middling from the start of the drift on) or "slow" (growing to severe).

    ``counts``: measured laptops of each state, from as calibrated to severe.
    """
    rng = np.random.default_rng(seed)
    since = np.arange(sizes.laptops) - sizes.start
    severity = {
        NONE: np.zeros(sizes.laptops),
        "sudden": np.where(since >= 0, 2.0, 0.0),
        "slow": 3.0 * np.clip(since / sizes.ramp, 0.0, 1.0),
    }[shape]
    states = np.floor(severity + rng.uniform(size=sizes.laptops)).astype(np.int64)
    states = np.minimum(states, math.ceil(severity.max()))
    numbers = np.floor(np.array(counts)[states] * rng.uniform(size=sizes.laptops)).astype(np.int64)
    return Stream(states, numbers, severity, seed)


@dataclass
class Course:
    """One run, a value per laptop, (N,) each. ``risk``: rate of wrongful removals at the limit in force, 0 once closed.

    ``closed``: laptops before the gate was closed for good; None: it never was.
    """

    wrongful: NDArray[np.int64]
    questions: NDArray[np.int64]
    removed: NDArray[np.int64]
    risk: FloatArray
    closed: int | None = None


def run(stream: Stream, states: Sequence[State], policy: Policy, fit_risks: FloatArray, rule: Rule) -> Course:
    """What happens on ``stream`` under ``rule``. After the monitor closed the gate each laptop goes to a person: one question."""
    assert policy.risk is not None
    proved = policy.risk.max_removal
    adaptive = AdaptiveLimit(fit_risks, proved, LEVELS.alpha, rule.step) if rule.step else None
    monitor = _monitor(policy, rule)
    length = len(stream.states)
    counts = np.zeros((3, length), np.int64)
    limits = np.zeros(length)
    closed = None
    for n in range(length):
        limit = proved if adaptive is None else adaptive.limit
        laptop = states[stream.states[n]].laptops[stream.numbers[n]]
        checked = uniform(stream.digest(n), "spot check") < rule.spot_checks
        played = laptop.played(policy, limit, checked)
        if monitor.active:
            stopped = _alarm(monitor, laptop.record, stream.digest(n), played)
            if stopped is not None:
                asked = stopped if stopped else 1  # the alarm itself is a question
                counts[:, n] = played.wrongful and stopped > 0, asked, played.removed if stopped else 0
                closed = n
                break
        if adaptive is not None and checked and _said_something(played):
            adaptive.observe(played.would_be_wrongful)
        counts[:, n] = played.wrongful, len(played.questions), played.removed
        limits[n] = limit
    open_for = length if closed is None else closed
    counts[1, open_for + (closed is not None) :] = 1
    risk = np.zeros(length)
    risk[:open_for] = _risks(stream, states, limits)[:open_for]
    wrongful, questions, removed = counts
    return Course(wrongful, questions, removed, risk, closed)


def _monitor(policy: Policy, rule: Rule) -> AssumptionMonitor:
    stops = not rule.step and (rule.signals or rule.spot_checks > 0)
    watched = policy if rule.signals else policy.model_copy(update={"reference": None})
    return assumption_monitor_of(
        watched, AssumptionSettings(watch_assumption=stops, spot_check_rate=rule.spot_checks)
    )


def _alarm(monitor: AssumptionMonitor, record: Record, digest: str, played: Played) -> int | None:
    """Questions answered about a laptop when it raised the alarm; None: it raised none. The calls are those of the gate."""
    monitor.next_workpiece()
    if monitor.see(replace(record.assessment, image_digest=digest), played.decision) is not None:
        return 0
    for number, question in enumerate(played.questions, 1):
        monitor.see(record.assessment, question.decision)
        monitor.asked()
        if monitor.answered(question.answer) is not None:
            return number
    return None


def _said_something(played: Played) -> bool:
    """Whether the first answer says what may be removed."""
    answers = (question.answer.scene_answer for question in played.questions[:1])
    return all(answer in (SceneAnswer.NONE, SceneAnswer.CLEAN) for answer in answers)


def _risks(stream: Stream, states: Sequence[State], limits: FloatArray) -> FloatArray:
    """Rate of wrongful removals at each of ``limits`` over the laptops that may come then, (N,)."""
    low = np.minimum(np.floor(stream.severity).astype(int), len(states) - 1)
    high = np.minimum(low + 1, len(states) - 1)
    share = stream.severity - low
    known: dict[tuple[int, float], float] = {}

    def rate(state: int, limit: float) -> float:
        if (state, limit) not in known:
            known[state, limit] = states[state].rate(limit)
        return known[state, limit]

    return np.array(
        [
            (1 - s) * rate(a, limit) + (s * rate(b, limit) if s else 0.0)
            for a, b, s, limit in zip(
                low.tolist(), high.tolist(), share.tolist(), limits.tolist(), strict=True
            )
        ]
    )


@dataclass
class Summary:
    """What a rule did in one kind and shape of drift, one value per repetition.

    ``wrongful``: laptops with a wrongful removal, ``questions`` asked and ``removed`` stickers without a person, each before and
    after the drift begins; ``worst_window``: most wrongful ones among ``WINDOW`` laptops in a row; ``above``: longest run
    of laptops at a rate of wrongful removals above alpha; ``closed``: laptops until the gate was closed, None: never.
    ``wrongful_course``, ``questions_course``: mean per laptop in bins of ``BIN`` laptops.
    """

    rule: str
    kind: str
    shape: str
    wrongful: list[tuple[int, int]] = field(default_factory=list)
    questions: list[tuple[int, int]] = field(default_factory=list)
    removed: list[tuple[int, int]] = field(default_factory=list)
    worst_window: list[int] = field(default_factory=list)
    above: list[int] = field(default_factory=list)
    closed: list[int | None] = field(default_factory=list)
    wrongful_course: list[float] = field(default_factory=list)
    questions_course: list[float] = field(default_factory=list)


def summarised(
    rule: str, kind: str, shape: str, courses: Sequence[Course], start: int, alpha: float
) -> Summary:
    """The summary of the ``courses`` of all repetitions; the drift begins after ``start`` laptops."""
    summary = Summary(rule, kind, shape)
    for course in courses:
        for name in ("wrongful", "questions", "removed"):
            values = getattr(course, name)
            getattr(summary, name).append((int(values[:start].sum()), int(values[start:].sum())))
        summary.worst_window.append(worst_window(course.wrongful, WINDOW))
        summary.above.append(longest_run(course.risk > alpha))
        summary.closed.append(course.closed)
    for name in ("wrongful", "questions"):
        mean = np.mean([getattr(course, name) for course in courses], axis=0)
        bins = [round(float(mean[n : n + BIN].mean()), 5) for n in range(0, len(mean), BIN)]
        setattr(summary, f"{name}_course", bins)
    return summary


def worst_window(events: NDArray[np.int64], width: int) -> int:
    """Most events in ``width`` places in a row of ``events`` (N,); all of them where there are fewer places."""
    total = np.concatenate([[0], np.cumsum(events)])
    width = min(width, len(events))
    return int((total[width:] - total[: len(total) - width]).max())


def longest_run(flags: NDArray[np.bool_]) -> int:
    """Length of the longest run of True in ``flags`` (N,)."""
    ends = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(int), [0]])))
    return int((ends[1::2] - ends[::2]).max(initial=0))


# --- measuring --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """Some kinds of drift: everything that a process needs to measure them. ``shifted``: laptops by kind and strength."""

    shifted: dict[str, list[list[Record]]]
    pool: list[Record]
    draft: Policy
    policies: list[Policy]
    fit_risks: FloatArray
    sizes: Sizes


def measure(task: Task) -> list[Summary]:
    """The summaries of all rules for the kinds of drift of ``task``."""
    calibrated = State(task.pool, task.draft)  # shared: what becomes of its laptops is played once
    summaries = []
    for kind, shifted in task.shifted.items():
        states = [calibrated, *(State(shown, task.draft) for shown in shifted)]
        for shape in (NONE,) if kind == NONE else SHAPES:
            summaries += measure_shape(kind, shape, states, task)
    return summaries


def measure_shape(kind: str, shape: str, states: Sequence[State], task: Task) -> list[Summary]:
    """The summaries of all rules for one kind and shape of drift."""
    courses: dict[Rule, list[Course]] = {rule: [] for rule in RULES}
    counts = [len(state.laptops) for state in states]
    for repetition, policy in enumerate(task.policies):
        seed = repetition * 100 + 10 * (NONE, *SHAPES).index(shape) + (NONE, *KINDS).index(kind)
        stream = stream_of(shape, counts, task.sizes, seed)
        for rule in RULES:
            courses[rule].append(run(stream, states, policy, task.fit_risks, rule))
    return [
        summarised(rule.name, kind, shape, found, task.sizes.start, LEVELS.alpha)
        for rule, found in courses.items()
    ]


def tasks(sizes: Sizes, cache: JsonStore, jobs: int) -> list[Task]:
    """Measure the laptops, draw a proof for each repetition, and divide the kinds of drift among ``jobs`` processes."""
    settings = PerceptionSettings(device="cpu", threads=1)

    def of(wanted: Sequence[Recipe]) -> list[Record]:
        return records(wanted, settings, cache, jobs)

    fit = of([Recipe(FIT + n) for n in range(sizes.fit)])
    pool = of([Recipe(POOL + n) for n in range(sizes.pool)])
    draft = fit_policy(fit, Policy(), level=LEVELS.alpha)
    policies = []
    for repetition in range(sizes.repetitions):
        drawn = np.random.default_rng(10_000 + repetition).integers(len(pool), size=sizes.proof)
        policies.append(certify(draft, fit, [pool[n] for n in drawn], LEVELS))
    fit_risks = outcomes_of(fit, draft).removed()[1]
    steps = range(1, len(STEPS) + 1)
    shifted: dict[str, list[list[Record]]] = {NONE: []}
    shifted |= {kind: [of(recipes(kind, step, SHIFTED, sizes.shifted)) for step in steps] for kind in KINDS}
    parts = [{kind: shifted[kind] for kind in list(shifted)[job::jobs]} for job in range(jobs)]
    return [Task(part, pool, draft, policies, fit_risks, sizes) for part in parts if part]


def measured(sizes: Sizes, cache: Path, jobs: int) -> dict[str, Any]:
    """What ``read`` returns of the file that it is written to."""
    with JsonStore(cache) as store:
        made = tasks(sizes, store, jobs)
    if jobs == 1:
        found = [measure(task) for task in made]
    else:
        with multiprocessing.get_context("spawn").Pool(jobs) as workers:
            found = workers.map(measure, made, chunksize=1)
    kinds = (NONE, *KINDS)
    summaries = sorted((one for part in found for one in part), key=lambda one: kinds.index(one.kind))
    return {
        "alpha": LEVELS.alpha,
        "window": WINDOW,
        "bin": BIN,
        "sizes": asdict(sizes),
        "limits": [policy.risk.max_removal for policy in made[0].policies if policy.risk is not None],
        "runs": [asdict(summary) for summary in summaries],
    }


# --- tables -----------------------------------------------------------------------------------------------------------------


def read(file: Path) -> dict[str, Any]:
    """What was measured, from ``file``."""
    return dict(json.loads(file.read_text(encoding="utf-8")))


def table(found: dict[str, Any], name: str) -> str:
    """All rules on unchanged laptops ("none"), or in every kind of "sudden" or "slow" drift, in Markdown."""
    head = ["drift", "rule", "wrongful of 100 laptops", f"worst {found['window']} in a row, %"]
    head += ["longest run above alpha", "gate closed", "after laptops", "questions per 100"]
    head += ["stickers removed per 100"]
    if name == NONE:
        head.remove("drift")
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for one in found["runs"]:
        if one["shape"] == name:
            lines.append(f"| {' | '.join(_cells(one, found)[name == NONE :])} |")
    return "\n".join(lines)


def _cells(one: dict[str, Any], found: dict[str, Any]) -> list[str]:
    sizes = found["sizes"]
    # without drift the whole run is told of, else what follows its start
    start = 0 if one["shape"] == NONE else sizes["start"]
    first = 0 if one["shape"] == NONE else 1
    laptops = sizes["laptops"] - start
    wrongful, questions, removed = (
        [100 * sum(values[first:]) / laptops for values in one[name]]
        for name in ("wrongful", "questions", "removed")
    )
    closed = [n - start for n in one["closed"] if n is not None]
    early = sum(n < 0 for n in closed)
    after = [n for n in closed if n >= 0]
    times = f"{len(closed)} of {len(one['closed'])}" + (f", {early} before it" if early else "")
    return [
        one["kind"].replace("_", " "),
        one["rule"],
        _interval(wrongful, 2),
        _interval([100 * n / found["window"] for n in one["worst_window"]], 1),
        _interval(one["above"], 0),
        times if one["rule"] not in _NEVER_CLOSES else "never",
        _interval(after, 0) if after else "",
        _interval(questions, 0),
        _interval(removed, 0),
    ]


_NEVER_CLOSES = {rule.name for rule in RULES if rule.step or not (rule.signals or rule.spot_checks)}


def _interval(values: Sequence[float], digits: int) -> str:
    """The mean, and in brackets where 90 % of the repetitions lie."""
    low, high = np.quantile(values, [0.05, 0.95])
    return f"{np.mean(values):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


_TICKS = (0, 2, 5, 10, 20, 50, 100)


def chart(found: dict[str, Any]) -> str:
    """Wrongful removals and questions over a slow drift of each kind, as SVG."""
    runs = [one for one in found["runs"] if one["shape"] == "slow"]
    kinds = [*dict.fromkeys(one["kind"] for one in runs)]
    middle = (np.arange(len(runs[0]["wrongful_course"])) + 0.5) * found["bin"]

    def draw(figure: Figure) -> None:
        grid = figure.subplots(2, len(kinds), sharex=True, sharey="row", squeeze=False)
        for column, kind in enumerate(kinds):
            for colour, one in zip(COLOURS, (one for one in runs if one["kind"] == kind), strict=False):
                for axes, name in zip(grid[:, column], ("wrongful", "questions"), strict=True):
                    course = 100 * np.array(one[f"{name}_course"])
                    axes.plot(middle, course, color=colour, lw=1.2, label=one["rule"])
            grid[0, column].axhline(100 * found["alpha"], color=INK, ls="--", lw=1)
            grid[0, column].set_title(
                f"{kind.replace('_', ' ')}, {NAMES[0]} to {NAMES[-1]}", fontsize="small"
            )
            grid[1, column].set_xlabel("laptops")
        grid[0, 0].set_yscale("symlog", linthresh=5.0)  # alpha and a rate of 80 % in one chart
        grid[0, 0].set_yticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
        grid[0, 0].set_ylim(0, 100)
        grid[0, 0].set_ylabel("wrongful removals\nof 100 laptops")
        grid[1, 0].set_ylabel("questions\nper 100 laptops")
        grid[1, 0].set_ylim(0, None)
        legend_below(figure, grid[0, 0], columns=3)

    return svg(draw, 9.0, 4.6, "Wrongful removals and questions while the laptops slowly change")


def main() -> None:
    """Measure, print the tables, and write the file and the chart."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=result_file, help="JSON file to write")
    parser.add_argument("--read", type=Path, help="measure nothing, take what this JSON file holds")
    parser.add_argument("--chart", type=result_file, help="SVG file to write")
    parser.add_argument("--cache", type=result_file, default=Path("out/benchmarks/long_run.sqlite"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=Sizes.repetitions)
    arguments = parser.parse_args()
    if arguments.read is None:
        found = measured(Sizes(repetitions=arguments.repetitions), arguments.cache, arguments.jobs)
    else:
        found = read(arguments.read)
    print(*(table(found, name) for name in (NONE, *SHAPES)), sep="\n\n")
    if arguments.out is not None:
        with atomic_write(arguments.out, "w") as stream:
            json.dump(found, stream)
    if arguments.chart is not None:
        with atomic_write(arguments.chart, "w") as stream:
            stream.write(chart(found))


if __name__ == "__main__":
    main()
