# SPDX-License-Identifier: Apache-2.0
"""What it costs in questions that fewer laptops leave with a sticker on them, and that removals spare free logos.

    python -m benchmarks.finished out/rendered --out benchmarks/results/finished.json

On the laptops of FOLDER, which ``scripts/rendered_policy`` filled, that a policy is fitted to; those that prove it are not
looked at. They are divided into four parts by laptop: what is measured on a part is fitted to the other three. A description,
which proves nothing. The first picture of a laptop decides, as for ``sticker-uq calibrate``.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.result_files import argument_parser, result_file
from benchmarks.tables import markdown
from benchmarks.to_the_end import BARE, CIRCUMSTANCES, SIZES
from sticker_uq.calibration.fitting import FitSettings, fit_policy
from sticker_uq.calibration.making import assess_sources
from sticker_uq.calibration.measuring import measure
from sticker_uq.calibration.outcomes import outcomes_of, with_limits, worst_risk
from sticker_uq.calibration.records import Record, units_of
from sticker_uq.evaluation.metrics.statistics import clopper_pearson
from sticker_uq.gate import Policy
from sticker_uq.gate.policy.signals import SignalName
from sticker_uq.io.files import atomic_write
from sticker_uq.io.labelled_images import LabelledSource
from sticker_uq.perception import PerceptionSettings

PARTS = 4
ALPHA = 0.01
MARGINS = (0.0, 0.05, 0.1, 0.15)
"""Of :attr:`Policy.blade_margin`, of which the other tables have that of the base policy."""
LEFT_LIMITS = (1.0, 0.4, 0.3, 0.2, 0.15, 0.1, 0.06, 0.04)
SCORE, LIKELIEST = "score of all signals", "likeliest object that stays"
SIGNALS: Mapping[str, tuple[SignalName, ...]] = {
    "one pass and close-up": ("single_pass_improbability", "close_up_improbability"),
    "these and the overlap with logos": (
        "single_pass_improbability",
        "close_up_improbability",
        "logo_overlap",
    ),
}


def folders(folder: Path) -> dict[Path, str]:
    """The folders of labelled pictures in ``folder``, with the kind of their laptops."""
    found: dict[Path, str] = {}
    for profile in SIZES:
        found[folder / profile] = profile
        found[folder / f"{profile}-{BARE}"] = f"{profile}, bare"
        for case in CIRCUMSTANCES:
            found[folder / f"{profile}-{case}" / case] = f"{profile}, in circumstances"
    return found


def records(folder: Path, jobs: int) -> tuple[list[Record], list[str]]:
    """The pictures in ``folder`` and the kind of the laptop on each."""
    kinds = folders(folder)
    assessed = assess_sources(
        [LabelledSource(path) for path in kinds],
        PerceptionSettings(device="cpu"),
        Path.home() / ".cache" / "sticker_uq" / "assessments.sqlite",
        lambda: None,
        jobs,
    )
    own = [(record, kinds[Path(part.source)]) for part in assessed for record in part.records]
    return [record for record, _ in own], [kind for _, kind in own]


def fitted(known: Sequence[Record], base: Policy, signals: Sequence[SignalName]) -> Policy:
    """A policy of ``signals`` fitted to ``known``, with the loosest limit at which at most ALPHA of their laptops are harmed."""
    draft = fit_policy(known, base, FitSettings(familiar=100, signals=signals, level=ALPHA))
    seen = outcomes_of(known, draft)
    worst = np.sort(worst_risk(*seen.select_removable(), seen.images))
    return with_limits(draft, float(np.nextafter(worst[int(ALPHA * seen.images)], -np.inf)), 1.0)


def held_out(
    known: Sequence[Record], base: Policy, signals: Sequence[SignalName]
) -> Iterator[tuple[Policy, list[int]]]:
    """For each part the policy fitted to the others, and the numbers of its records."""
    units = units_of(known)
    part = np.random.default_rng(0).permutation(np.arange(units.max() + 1) % PARTS)[units]
    for number in range(PARTS):
        others = [known[n] for n in np.flatnonzero(part != number).tolist()]
        yield fitted(others, base, signals), np.flatnonzero(part == number).tolist()


def counted(
    policies: Sequence[tuple[Policy, list[int]]], known: Sequence[Record], wanted: set[int]
) -> dict[str, Any]:
    """What the policies do with the ``wanted`` ones of ``known``, each with its own part."""
    asked, wrongful, removed, left = (np.zeros(2, int) for _ in range(4))
    for policy, numbers in policies:
        found = measure([known[n] for n in numbers if n in wanted], policy)
        for total, count in zip(
            (asked, wrongful, removed, left),
            (found.asked, found.wrongful, found.removed, found.left),
            strict=True,
        ):
            total += (count.events, count.of)
    return {
        "laptops": int(asked[1]),
        "end with a question, %": _percent(*asked.tolist()),
        "with a wrongful removal, %": _percent(*wrongful.tolist()),
        "stickers released, %": _percent(*removed.tolist()),
        "finished alone": int(left[1]),
        "of these keep a sticker, %": _percent(*left.tolist()),
    }


def _percent(events: int, of: int) -> str:
    if not of:
        return ""
    low, high = clopper_pearson(events, of)
    return f"{100 * events / of:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def tables(known: Sequence[Record], kinds: Sequence[str], base: Policy) -> dict[str, list[dict[str, Any]]]:
    """All tables of the result file."""
    every = set(range(len(known)))
    found: dict[str, list[dict[str, Any]]] = {"harm": []}
    fits = {name: list(held_out(known, base, signals)) for name, signals in SIGNALS.items()}
    for name, signals in SIGNALS.items():
        for margin in MARGINS:
            policies = fits[name]
            if margin != base.blade_margin:
                other = base.model_copy(update={"blade_margin": margin})
                policies = list(held_out(known, other, signals))
            row = {"risk score of": name, "blade_margin": margin}
            found["harm"].append(row | counted(policies, known, every))
    policies = fits[list(SIGNALS)[-1]]
    for kind in dict.fromkeys(kinds):
        if BARE in kind:
            continue
        rows = found[kind.replace(", ", "_").replace(" ", "_")] = []
        wanted = {n for n, own in enumerate(kinds) if own == kind}
        for way in (SCORE, LIKELIEST):
            for limit in LEFT_LIMITS if way == SCORE else LEFT_LIMITS[1:]:  # 1 limits nothing, whatever it is
                changed = [(_limited(policy, way, limit), numbers) for policy, numbers in policies]
                row = counted(changed, known, wanted)
                rows.append({"what is limited": way, "max_left_probability": limit} | row)
    return found


def _limited(policy: Policy, way: str, limit: float) -> Policy:
    left = policy.left if way == SCORE else None
    return policy.model_copy(update={"left": left, "max_left_probability": limit})


def read(file: Path) -> dict[str, list[dict[str, Any]]]:
    """The tables in the result ``file``."""
    found: dict[str, list[dict[str, Any]]] = json.loads(file.read_text(encoding="utf-8"))
    return found


def table(found: dict[str, list[dict[str, Any]]], name: str = "study") -> str:
    """The table ``name`` of the result file, in Markdown."""
    return markdown(list(found[name][0]), [[str(value) for value in one.values()] for one in found[name]])


def main() -> None:
    """Measure and write the tables."""
    parser = argument_parser(__doc__)
    parser.add_argument("folder", type=Path, help="folder that scripts/rendered_policy filled")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=result_file, required=True, help="JSON file to write")
    options = parser.parse_args()
    known, kinds = records(options.folder, options.jobs)
    found = tables(known, kinds, Policy.load(options.folder / "base.yaml"))
    with atomic_write(options.out, "w") as stream:
        stream.write(json.dumps(found, indent=1) + "\n")
    for name in found:
        print(f"{name}\n{table(found, name)}\n")


if __name__ == "__main__":
    main()
