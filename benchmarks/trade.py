# SPDX-License-Identifier: Apache-2.0
"""What a question buys: laptops that end with one against laptops with a wrongful removal, and against laptops finished alone
with a sticker left; nothing was fitted to these laptops.

    scripts/rendered_policy out/rendered
    python -m benchmarks.trade out/rendered --out benchmarks/results/trade.csv --figure docs/images/trade.svg

Policies of all signals and of one score alone are fitted to the same laptops of scripts/rendered_policy, with the base of
config/policy.yaml, and their limit moves over test laptops of both profiles. The shipped policy is measured beside
them, also on pictures taken after its removals; ``--old FILE`` adds the score of one pass of other weights to the table.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.result_files import argument_parser, result_file
from benchmarks.to_the_end import SIZES, Job, ends
from sticker_uq.calibration.fitting import FitSettings, fit_policy
from sticker_uq.calibration.making import assess_sources
from sticker_uq.calibration.measuring import measure
from sticker_uq.calibration.outcomes import with_limits
from sticker_uq.calibration.records import Record
from sticker_uq.evaluation.metrics.decisions import Count
from sticker_uq.evaluation.reporting.document import legend_below, svg
from sticker_uq.gate import Policy
from sticker_uq.io.coco import write_coco
from sticker_uq.io.files import atomic_write
from sticker_uq.io.labelled_images import LabelledSource
from sticker_uq.perception import PerceptionSettings
from sticker_uq_lab.rendering import encode_scene, render, sample_scene
from sticker_uq_lab.rendering.scene_sampling import Profile

TEST: dict[Profile, tuple[int, tuple[int, int]]] = {
    "study": (163_000_000, SIZES["study"]),
    "large": (163_100_000, SIZES["large"]),
}
"""First seed and size of the test laptops of each profile; nothing was trained, fitted or chosen on them."""
FIT = ("study", "large", "study-bare", "large-bare")
WAYS: dict[str, tuple[str, ...] | None] = {
    "all signals": None,
    "mean score of 20 passes": ("improbability",),
    "score of one pass": ("single_pass_improbability",),
    "scores of one pass, whole and close-up": ("single_pass_improbability", "close_up_improbability"),
}
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
SHIPPED = "policy.yaml"
TO_THE_END = f"{SHIPPED}, looked at again after removals"


def records(folders: Sequence[Path], jobs: int, weights: str) -> list[Record]:
    """The assessed pictures of COCO ``folders``."""
    done = assess_sources(
        [LabelledSource(folder) for folder in folders],
        PerceptionSettings(device="cpu", weights=weights, last_look=not weights),
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


def end_row(profile: Profile, policy: Path, limit: float, laptops: int, jobs: int) -> list[Any]:
    """As :func:`row`, of the test laptops of ``profile`` peeled to the end."""
    seed, _ = TEST[profile]
    todo = [Job(number, profile) for number in range(seed, seed + laptops)]
    found = [end for _, end in ends(todo, policy, jobs, policy.with_name("ends.sqlite"))]
    peeled, left = (sum(values) for values in zip(*((one.peeled, one.left) for one in found), strict=True))
    alone = [one.left > 0 for one in found if not one.asked and one.peeled + one.left]
    counts = (sum(one.asked for one in found), sum(one.wrongful for one in found))
    share, kept = f"{100 * peeled / (peeled + left):.1f} %", str(Count(sum(alone), len(alone)))
    return [profile, TO_THE_END, round(limit, 3), len(found), *counts, share, kept]


def table(folder: Path, laptops: int, jobs: int, old: str = "") -> list[list[Any]]:
    """The rows of all ways, limits and profiles; those of ``OLD`` for ``old`` weights."""
    base, ways = Policy.load(folder / "base.yaml"), WAYS
    if old:  # these have no novelty network: what they release, they release without
        base = base.model_copy(update={"unmeasured_novelty": "release"})
        ways = {OLD: WAYS["score of one pass"]}
    fitted = records([folder / name for name in FIT], jobs, old)
    rows = []
    policies = {
        way: fit_policy(fitted, base, FitSettings(familiar=100, signals=signals))
        for way, signals in ways.items()
    }
    for profile, (seed, size) in TEST.items():
        test = folder / f"test-{profile}"
        if not test.is_dir():
            scenes = (
                (n, render(sample_scene(n, profile=profile), size)) for n in range(seed, seed + laptops)
            )
            write_coco(test, (encode_scene(*scene) for scene in scenes))
        seen = records([test], jobs, old)
        if not old:
            shipped = Policy.load(folder / "policy.yaml")
            assert shipped.risk is not None
            rows.append(row(profile, SHIPPED, shipped.risk.max_removal, shipped, seen))
            rows.append(end_row(profile, folder / "policy.yaml", shipped.risk.max_removal, laptops, jobs))
        for way, policy in policies.items():
            for limit in LIMITS:
                moved = with_limits(policy, limit, policy.max_left_probability)
                rows.append(row(profile, way, limit, moved, seen))
    return rows


def figure(rows: Sequence[Sequence[Any]]) -> str:
    """Wrongful removals, and stickers left on laptops finished alone, over questions, percent of the laptops."""

    def draw(canvas: Any) -> None:
        both = canvas.subplots(2, len(TEST), sharex=True, sharey="row")
        for column, profile in enumerate(TEST):
            for way in dict.fromkeys(str(one[1]) for one in rows):
                own = [one for one in rows if one[0] == profile and one[1] == way]
                asked, wrong = ([100 * int(one[n]) / int(one[3]) for one in own] for n in (4, 5))
                kept = [100 * Count(*map(int, str(one[7]).split(" of "))).rate for one in own]
                style, size = ("o-", 3) if len(own) > 1 else ("*", 10)
                for axes, shown in ((both[0, column], wrong), (both[1, column], kept)):
                    axes.plot(asked, shown, style, label=way, markersize=size)
            both[0, column].set(title=f"laptops of profile {profile}", ylim=(0, None))
            both[1, column].set(xlabel="end with a question, %", xlim=(0, 100), ylim=(0, None))
        both[0, 0].set(ylabel="wrongful removal, %")
        both[1, 0].set(ylabel="sticker left, %\nof those finished alone")
        legend_below(canvas, both[0, 0], columns=2)

    return f"{svg(draw, 6.5, 5.6, 'wrongful removals and stickers left over questions, by profile and way to judge')}\n"


def main() -> None:
    """Measure, write the table and draw."""
    parser = argument_parser(__doc__)
    parser.add_argument("folder", type=Path, help="folder that scripts/rendered_policy filled")
    parser.add_argument("--laptops", type=int, default=400, help="test laptops of each profile")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--old", default="", help="weights whose score of one pass is added to --out")
    parser.add_argument("--out", type=result_file, required=True, help="CSV file to write")
    parser.add_argument("--figure", type=result_file, required=True, help="SVG file to draw")
    options = parser.parse_args()
    rows = table(options.folder, options.laptops, options.jobs, options.old)
    if options.old:
        with options.out.open(encoding="utf-8") as stream:
            rows = [one for one in list(csv.reader(stream))[1:] if one[1] != OLD] + rows
    with atomic_write(options.out, "w") as stream:
        csv.writer(stream, lineterminator="\n").writerows([COLUMNS, *rows])
    with atomic_write(options.figure, "w") as stream:
        stream.write(figure(rows))


if __name__ == "__main__":
    main()
