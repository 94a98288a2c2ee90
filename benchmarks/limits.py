# SPDX-License-Identifier: Apache-2.0
"""What limits and signals of the calibrated policy add, given the others, on the laptops that proved it.

    scripts/rendered_policy out/rendered
    python -m benchmarks.limits out/rendered --out benchmarks/results/limits.csv

One is left out, or a signal added, and the limit on the risk moves, also of the policy as it is, to where one laptop more would
have a wrongful removal. ``--prints FILE``: also what a policy does with prints on lids that is calibrated with some, labelled as
no sticker; needs the test laptops of a run of benchmarks.trade.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.result_files import argument_parser, result_file
from benchmarks.trade import FIT, TEST, records
from sticker_uq.calibration.fitting import FitSettings, Levels, fit_policy
from sticker_uq.calibration.making import split
from sticker_uq.calibration.measuring import measure
from sticker_uq.calibration.outcomes import outcomes_of, with_limits
from sticker_uq.calibration.proving import Trials
from sticker_uq.calibration.records import Record, units_of
from sticker_uq.evaluation.metrics.statistics import mean_interval
from sticker_uq.gate import Policy, judge
from sticker_uq.gate.judge import once_peeled
from sticker_uq.io.coco import write_coco
from sticker_uq.io.files import atomic_write
from sticker_uq.scene import FloatArray, Outcome
from sticker_uq_lab.rendering import encode_scene, sample_scene
from sticker_uq_lab.rendering.scene_sampling import with_prints

LIMITS: dict[str, dict[str, Any]] = {
    "`max_scene_distance`": {"max_scene_distance": 1e6, "unmeasured_novelty": "release"},
    "`saliency`": {"saliency": None},
    "`calibration` (0.5 and 0.7 are scores then)": {"calibration": None},
    "the close-up in what may be a sticker": {"close_up_weight": 0.0},
    "`min_logo_probability` 0.7 (0.5)": {"min_logo_probability": 0.5},
}
CASES = ("residue", "glare", "blur", "noise", "hand", "gripper", "unknown-object")
PRINTS = ("laptops", "policy", "end with a question", "with a wrongful removal", "stickers released")
COLUMNS = (
    "",
    "ends with a question, %",
    "more than config/policy.yaml (95 % interval)",
    "finished alone with a sticker left",
)


def at_as_many(policy: Policy, proof: Sequence[Record], wrongful: int) -> tuple[FloatArray, int]:
    """Percent that end with a question, (laptops,), and laptops called clean with a sticker, where ``wrongful`` go wrong."""
    objects, risk = outcomes_of(proof, policy).select_removable()
    worst = np.full(len(proof), np.inf)  # of each laptop, the risk from which something else is removed
    np.minimum.at(worst, objects.image[~objects.right], risk[~objects.right])
    limit = float(np.nextafter(np.sort(worst)[wrongful], 0.0))
    moved = with_limits(policy, limit, policy.max_left_probability)
    ends = [once_peeled(judge(record.assessment, moved), record.assessment, moved) for record in proof]
    asked = np.array([100.0 * (one.outcome is not Outcome.CLEAN) for one in ends])
    return asked, measure(proof, moved).left.events


def divided(known: Sequence[Record]) -> list[list[Record]]:
    """Those to fit on and those to prove with, as `sticker-uq calibrate` divides them."""
    return [[known[number] for number in numbers] for numbers in split(units_of(known), 0.4, 0)]


def calibrated(folder: Path, jobs: int) -> list[list[Record]]:
    """Those that the policy in ``folder`` was fitted to, and those that proved it."""
    cases = [f"{profile}-{case}/{case}" for case in CASES for profile in TEST]
    return [
        records([part / name for name in (*FIT, *cases)], jobs, "") for part in (folder, folder / "proof")
    ]


def printed(folder: Path, first: int, count: int, jobs: int) -> list[Record]:
    """Large laptops whose every second sticker is a print."""
    if not folder.is_dir():
        scenes = ((seed, with_prints(sample_scene(seed), 0.5)[0]) for seed in range(first, first + count))
        write_coco(folder, (encode_scene(*scene) for scene in scenes))
    return records([folder], jobs, "")


def with_a_person(folder: Path, jobs: int) -> list[list[Any]]:
    """What the policy in ``folder`` does with prints, and one that is calibrated with 300 such laptops beside the others."""
    fitted, proof = calibrated(folder, jobs)
    own = divided(printed(folder / "prints", 164_000_000, 300, jobs))
    policy = Policy.load(folder / "policy.yaml")
    assert policy.risk is not None
    used = [term.signal for term in policy.risk.terms]
    draft = fit_policy(
        fitted + own[0], Policy.load(folder / "base.yaml"), FitSettings(familiar=100, signals=used)
    )
    informed = Trials(draft, fitted + own[0], proof + own[1]).policy(Levels(0.02, 0.15, 0.1))
    tests = {
        "lids with prints": printed(folder / "test-prints", 165_000_000, 200, jobs),
        "the others": records([folder / "test-large"], jobs, ""),
    }
    rows = []
    for laptops, test in tests.items():
        for name, one in (("config/policy.yaml", policy), ("prints among the labels", informed)):
            found = measure(test, one)
            counts = (found.asked, found.wrongful, found.removed)
            rows.append([laptops, name, *(f"{count.events} of {count.of}" for count in counts)])
    return rows


def table(folder: Path, jobs: int) -> list[list[Any]]:
    """A row for the policy in ``folder`` and for every change of it."""
    fitted, proof = calibrated(folder, jobs)
    base = Policy.load(folder / "base.yaml")
    policy = Policy.load(folder / "policy.yaml").model_copy(update={"validity": None})
    assert policy.risk is not None
    assert policy.guarantee is not None
    assert policy.guarantee.wrongful_removal is not None
    wrongful = policy.guarantee.wrongful_removal.events
    used = [term.signal for term in policy.risk.terms]
    sets = {f"without {name}": [one for one in used if one != name] for name in used}
    measured = [
        name for name, one in outcomes_of(fitted, policy).detected.signals.items() if np.isfinite(one).all()
    ]
    sets |= {f"with {name}": [*used, name] for name in measured if name not in used}
    ways = {"config/policy.yaml": policy}
    ways |= {f"without {name}": policy.model_copy(update=opened) for name, opened in LIMITS.items()}
    ways |= {
        name: fit_policy(fitted, base, FitSettings(familiar=100, signals=one)) for name, one in sets.items()
    }
    ways["with all signals"] = fit_policy(fitted, base, FitSettings(familiar=100))
    ways["with `familiarity`"] = fit_policy(fitted, base, FitSettings(signals=used))
    found = {name: at_as_many(one, proof, wrongful) for name, one in ways.items()}
    asked = found["config/policy.yaml"][0]
    return [[name, f"{own.mean():.1f}", _more(own - asked), dirty] for name, (own, dirty) in found.items()]


def _more(difference: FloatArray) -> str:
    one = mean_interval(difference)
    return f"{one.value:+.1f} ({one.low:+.1f} to {one.high:+.1f})" if difference.any() else ""


def main() -> None:
    """Measure and write the table."""
    parser = argument_parser(__doc__)
    parser.add_argument("folder", type=Path, help="folder that scripts/rendered_policy filled")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=result_file, required=True, help="CSV file to write")
    parser.add_argument("--prints", type=result_file, help="CSV file to write, too")
    options = parser.parse_args()
    files: dict[Path, tuple[Any, Any]] = {options.out: (COLUMNS, table)}
    if options.prints:
        files[options.prints] = (PRINTS, with_a_person)
    for file, (head, rows) in files.items():
        with atomic_write(file, "w") as stream:
            csv.writer(stream, lineterminator="\n").writerows([head, *rows(options.folder, options.jobs)])


if __name__ == "__main__":
    main()
