# SPDX-License-Identifier: Apache-2.0
"""What every limit and signal of the calibrated policy adds, given the others, on the laptops that proved it.

    scripts/rendered_policy out/rendered
    python -m benchmarks.limits out/rendered --out benchmarks/results/limits.csv

One is left out, or a signal added, and the limit on the risk moves until as many laptops have a wrongful removal as before.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.result_files import argument_parser, result_file
from benchmarks.trade import FIT, TEST, records
from sticker_uq.calibration.fitting import fit_policy
from sticker_uq.calibration.making import split
from sticker_uq.calibration.outcomes import outcomes_of, with_limits
from sticker_uq.calibration.records import Record, units_of
from sticker_uq.evaluation.metrics.decisions import ends_with_question
from sticker_uq.evaluation.metrics.statistics import mean_interval
from sticker_uq.gate import Policy, judge
from sticker_uq.gate.policy.signals import SIGNALS
from sticker_uq.io.files import atomic_write
from sticker_uq.scene import FloatArray, Outcome

LIMITS: dict[str, dict[str, Any]] = {
    "`max_scene_distance`": {"max_scene_distance": 1.0, "unmeasured_novelty": "release"},
    "`familiarity`": {"familiarity": None},
    "`saliency`": {"saliency": None},
    "`calibration` (0.5 and 0.7 are scores then)": {"calibration": None},
    "the close-up in what may be a sticker": {"close_up_weight": 0.0},
    "`min_logo_probability` (0.5)": {"min_logo_probability": 0.5},
}
CASES = ("residue", "glare", "blur", "noise", "hand", "gripper", "unknown-object")
COLUMNS = ("", "ends with a question, %", "more than with it (95 % interval)", "called clean with a sticker")


def at_as_many(policy: Policy, proof: Sequence[Record], wrongful: int) -> tuple[FloatArray, int]:
    """Percent that end with a question, (laptops,), and laptops called clean with a sticker, where ``wrongful`` go wrong."""
    objects, risk = outcomes_of(proof, policy).removed()
    worst = np.full(len(proof), np.inf)  # of each laptop, the risk from which something else is removed
    np.minimum.at(worst, objects.image[~objects.right], risk[~objects.right])
    limit = float(np.nextafter(np.sort(worst)[wrongful], 0.0))
    moved = with_limits(policy, limit, policy.max_left_probability)
    decisions = [judge(record.assessment, moved) for record in proof]
    clean = [one.outcome is Outcome.CLEAN for one in decisions]
    dirty = sum(called and len(record.stickers) > 0 for called, record in zip(clean, proof, strict=True))
    return np.array([100.0 * ends_with_question(one) for one in decisions]), dirty


def table(folder: Path, jobs: int) -> list[list[Any]]:
    """A row for the policy in ``folder`` and for every change of it."""
    cases = [folder / f"{profile}-{case}" / case for case in CASES for profile in TEST]
    known = records([*map(folder.joinpath, FIT), *cases], jobs, "")
    part, others = split(units_of(known), 0.4, 0)
    fitted, proof = ([known[number] for number in numbers] for numbers in (part, others))
    base = Policy.load(folder / "base.yaml")
    policy = Policy.load(folder / "policy.yaml").model_copy(update={"validity": None})
    assert policy.risk is not None
    assert policy.guarantee is not None
    assert policy.guarantee.wrongful_removal is not None
    wrongful = policy.guarantee.wrongful_removal.events
    used = [term.signal for term in policy.risk.terms]
    sets = {f"without {name}": [one for one in used if one != name] for name in used}
    sets |= {f"with {name}": [*used, name] for name in SIGNALS if name not in used}
    ways = {"config/policy.yaml": policy}
    ways |= {f"without {name}": policy.model_copy(update=opened) for name, opened in LIMITS.items()}
    ways |= {name: fit_policy(fitted, base, signals=signals) for name, signals in sets.items()}
    ways["with all signals"] = fit_policy(fitted, base)
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
    options = parser.parse_args()
    rows = table(options.folder, options.jobs)
    with atomic_write(options.out, "w") as stream:
        csv.writer(stream, lineterminator="\n").writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
