# SPDX-License-Identifier: Apache-2.0
"""What a question buys: laptops that end with one against laptops with a wrongful removal; nothing was fitted to these laptops.

    scripts/rendered_policy out/rendered
    python -m benchmarks.trade out/rendered --out benchmarks/results/trade.csv --figure docs/images/trade.svg
    python -m benchmarks.trade out/rendered --close-ups --out benchmarks/results/close_ups.csv

Policies of all signals and of one score alone are fitted to the same laptops of scripts/rendered_policy, with the base of
config/policy_rendered.yaml, and their limit moves over test laptops of both profiles. The shipped policy is measured beside
them; ``--old FILE`` adds the score of one pass of other weights to the table. ``--close-ups`` compares the policy of all signals
with that of the same laptops without close-ups, on laptops of its own. Supposed before these were rendered: with them fewer
wrongful removals on the study's where 20, 30 and 40 % end with a question (the interval of the difference lies below 0), not
more on large ones.
"""

import csv
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.result_files import argument_parser, result_file
from sticker_uq.calibration.fitting import fit_policy
from sticker_uq.calibration.making import assess_sources, split
from sticker_uq.calibration.measuring import measure
from sticker_uq.calibration.outcomes import with_limits
from sticker_uq.calibration.records import Record, units_of
from sticker_uq.evaluation.metrics.statistics import bootstrap
from sticker_uq.evaluation.reporting.document import legend_below, svg
from sticker_uq.gate import Policy
from sticker_uq.io.coco import write_coco
from sticker_uq.io.files import atomic_write
from sticker_uq.io.labelled_images import LabelledSource
from sticker_uq.lab.rendering import encode_scene, render, sample_scene
from sticker_uq.lab.rendering.scene_sampling import Profile
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import ObjectClass, SceneAssessment

TEST: dict[Profile, tuple[int, tuple[int, int]]] = {
    "study": (133_000_000, (1632, 1366)),
    "large": (133_100_000, (960, 720)),
}
"""First seed and size of the test laptops of each profile; nothing was trained, fitted or chosen on them."""
FIT = ("study", "large", "study-bare", "large-bare")
WAYS: dict[str, tuple[str, ...] | None] = {
    "all signals": None,
    "mean score of 20 passes": ("improbability",),
    "score of one pass": ("single_pass_improbability",),
    "scores of one pass, whole and close-up": ("single_pass_improbability", "close_up_improbability"),
}
FRESH = 5_000_000  # added to the seeds of TEST for --close-ups; one to four millions were used once each
ASKED, FINE = (0.2, 0.3, 0.4), np.geomspace(0.002, 0.9, 40)
LIMITS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.35)
COLUMNS = (
    "laptops",
    "way",
    "limit",
    "of",
    "asked",
    "wrongful removal",
    "stickers released",
    "finished alone with a sticker left",
)
OLD = "score of one pass, weights of 0.2"


def records(folders: Sequence[Path], jobs: int, weights: str) -> list[Record]:
    """The assessed pictures of COCO ``folders``."""
    done = assess_sources(
        [LabelledSource(folder) for folder in folders],
        PerceptionSettings(device="cpu", weights=weights),
        Path.home() / ".cache" / "sticker_uq" / "assessments.sqlite",
        lambda: None,
        jobs,
    )
    return [record for one in done for record in one.records]


def row(laptops: str, way: str, limit: float, policy: Policy, test: Sequence[Record]) -> list[Any]:
    """A row of the table, see COLUMNS."""
    found = measure(test, policy)
    counts = (found.asked.events, found.wrongful.events, f"{100 * found.removed.rate:.1f} %", str(found.left))
    return [laptops, way, round(limit, 3), found.images, *counts]


def without_close_ups(seen: Sequence[Record]) -> list[Record]:
    """``seen`` as if nothing had been looked at closely."""

    def plain(scene: SceneAssessment) -> SceneAssessment:
        passes = (
            replace(one, close_up=math.nan, label=ObjectClass(int(one.probabilities.argmax())))
            for one in scene.objects
        )
        return replace(scene, objects=tuple(passes))

    return [replace(record, assessment=plain(record.assessment)) for record in seen]


def compared(
    fitted: Sequence[Record], base: Policy, tests: dict[Profile, Sequence[Record]]
) -> list[list[Any]]:
    """Wrongful removals at equal questions, or the fewest possible, without close-ups and with, and the difference, percent."""

    def counted(policy: Policy, test: Sequence[Record]) -> Any:
        moved = [with_limits(policy, float(limit), policy.max_left_probability) for limit in FINE[::-1]]
        each = [[measure([one], limited) for one in test] for limited in moved]
        return np.array([[(m.asked.events, m.wrongful.events) for m in ms] for ms in each]).transpose(2, 0, 1)

    rows = []
    ways = [(fit_policy(seen(fitted), base), seen) for seen in (without_close_ups, list)]
    for profile, test in tests.items():
        both = [counted(policy, seen(test)) for policy, seen in ways]

        def wrong(drawn: Any, both: Any = both) -> Any:
            lines = [counts[:, :, drawn].mean(axis=2) for counts in both]
            found = [100 * np.interp(ASKED, *line) for line in lines]
            return np.array([*found, found[1] - found[0]])

        values, (low, high) = wrong(np.arange(len(test))), bootstrap(wrong, [len(test)])
        for n, share in enumerate(ASKED):
            gain = f"{values[2, n]:+.1f} ({low[2, n]:+.1f} to {high[2, n]:+.1f})"
            rows.append([profile, f"{share:.0%}", *(f"{v:.1f}" for v in values[:2, n]), gain])
    return rows


def table(folder: Path, laptops: int, jobs: int, old: str = "", fresh: bool = False) -> list[list[Any]]:
    """The rows of all ways, limits and profiles; those of ``OLD`` for ``old`` weights, of :func:`compared` if ``fresh``."""
    base, ways = Policy.load(folder / "base.yaml"), WAYS
    if old:  # these have no novelty network: what they release, they release without
        base = base.model_copy(update={"unmeasured_novelty": "release"})
        ways = {OLD: WAYS["score of one pass"]}
    known = records([folder / name for name in FIT], jobs, old)
    part, _ = split(units_of(known), 0.4, 0)
    fitted = [known[number] for number in part]
    rows = []
    tests: dict[Profile, Sequence[Record]] = {}
    for profile, (seed, size) in TEST.items():
        test = folder / f"{'fresh' if fresh else 'test'}-{profile}"
        if not test.is_dir():
            seeds = range(seed + FRESH * fresh, seed + FRESH * fresh + laptops)
            scenes = ((n, render(sample_scene(n, profile=profile), size)) for n in seeds)
            write_coco(test, (encode_scene(*scene) for scene in scenes))
        tests[profile] = records([test], jobs, old)
    if fresh:
        return compared(fitted, base, tests)
    policies = {way: fit_policy(fitted, base, signals=signals) for way, signals in ways.items()}
    for profile, seen in tests.items():
        if not old:
            shipped = Policy.load(folder / "policy.yaml")
            assert shipped.risk is not None
            rows.append(row(profile, "policy_rendered.yaml", shipped.risk.max_removal, shipped, seen))
        for way, policy in policies.items():
            for limit in LIMITS:
                moved = with_limits(policy, limit, policy.max_left_probability)
                rows.append(row(profile, way, limit, moved, seen))
    return rows


def figure(rows: Sequence[Sequence[Any]]) -> str:
    """Wrongful removals over questions, percent of the laptops."""

    def draw(canvas: Any) -> None:
        for axes, profile in zip(canvas.subplots(1, len(TEST), sharey=True), TEST, strict=True):
            for way in dict.fromkeys(str(one[1]) for one in rows):
                own = [one for one in rows if one[0] == profile and one[1] == way]
                asked, wrong = ([100 * int(one[n]) / int(one[3]) for one in own] for n in (4, 5))
                style, size = ("o-", 3) if len(own) > 1 else ("*", 10)
                axes.plot(asked, wrong, style, label=way, markersize=size)
            axes.set(title=f"laptops of profile {profile}", xlabel="end with a question, %", xlim=(0, 100))
        canvas.axes[0].set(ylabel="wrongful removal, %", ylim=(0, None))
        legend_below(canvas, canvas.axes[0], columns=2)

    return f"{svg(draw, 6.5, 3.2, 'wrongful removals over questions, by profile and way to judge')}\n"


def main() -> None:
    """Measure, write the table and draw."""
    parser = argument_parser(__doc__)
    parser.add_argument("folder", type=Path, help="folder that scripts/rendered_policy filled")
    parser.add_argument("--laptops", type=int, default=400, help="test laptops of each profile")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--old", default="", help="weights whose score of one pass is added to --out")
    parser.add_argument("--out", type=result_file, required=True, help="CSV file to write")
    one = parser.add_mutually_exclusive_group(required=True)
    one.add_argument("--figure", type=result_file, help="SVG file to draw")
    one.add_argument("--close-ups", action="store_true", help="what they are worth, without a figure")
    options = parser.parse_args()
    rows = table(options.folder, options.laptops, options.jobs, options.old, options.close_ups)
    head = ("laptops", "asked", "wrongful, without", "with", "difference") if options.close_ups else COLUMNS
    if options.old:
        with options.out.open(encoding="utf-8") as stream:
            rows = [one for one in list(csv.reader(stream))[1:] if one[1] != OLD] + rows
    with atomic_write(options.out, "w") as stream:
        csv.writer(stream, lineterminator="\n").writerows([head, *rows])
    if options.figure:
        with atomic_write(options.figure, "w") as stream:
            stream.write(figure(rows))


if __name__ == "__main__":
    main()
