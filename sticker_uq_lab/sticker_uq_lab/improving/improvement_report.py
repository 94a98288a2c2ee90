# SPDX-License-Identifier: Apache-2.0
"""The page on which a person decides about a candidate: verdict, what it saves and risks, where its labels come from."""

import math
from collections import Counter

from sticker_uq.evaluation.bundle_comparison import QUESTIONS, RISKS, BundleComparison, Pairs
from sticker_uq.evaluation.metrics.statistics import Interval
from sticker_uq.evaluation.reporting.document import Block, Table, as_html
from sticker_uq.gate.assumptions.drift import uniform
from sticker_uq_lab.improving.improvement import Improvement
from sticker_uq_lab.improving.labels import Part
from sticker_uq_lab.improving.visits import Group
from sticker_uq_lab.qualifying.results import percent

REPORT = "report.html"
_MOST_LOOKED_AT = 20
_USES = {
    Part.LEARN: "train the candidate",
    Part.FIT: "fit limits",
    Part.PROVE: "prove the guarantee",
    Part.JUDGE: "judge, take part in nothing else",
}


def improvement_report(found: Improvement, comparison: BundleComparison, told: str) -> str:
    """One HTML page; ``told``: what became of the candidate, a sentence."""
    blocks: list[Block] = [
        f"# {comparison.verdict.capitalize()}",
        lead(comparison),
        told,
        "Nothing is promoted by itself. `sticker-uq bundle promote` takes the candidate while the bundle that it was compared "
        "with is active, and refuses one that is worse; `sticker-uq bundle rollback` goes back.",
        "## Candidate and active bundle",
        _comparison_table(found),
        "Rates are of laptops; the difference is candidate minus active, with a 95 % interval that holds at any number of "
        "laptops (Clopper and Pearson, by groups: the spot checked laptops stand for all that were released).",
        "## Guarantee",
        found.calibration.promise or f"None: {found.calibration.refused}.",
        "## Labels",
        _labels(found),
        _describe_left_out(found),
        *_describe_unasked(found),
        "## Persons",
        Table(
            ("", "questions", "faster than one can look", "contradicted by second opinions", "answers"),
            found.labels.persons,
        ),
        "A second opinion is another person's answer about the same place, or what the policy released in a spot check.",
        *[f"LOST: {one}" for one in found.labels.lost],
        "## How it was made",
        f"{found.settings.command or 'from Python'}. Active bundle: manifest {found.settings.active_hash[:12]}. "
        f"{found.training}. Novelty network: {found.novelty}.",
    ]
    return as_html(f"Candidate: {comparison.verdict}", blocks)


def lead(comparison: BundleComparison) -> str:
    value, low, high = comparison.saved
    more = comparison.more_laptops
    wait = "" if not more else f" About {more} more laptops like these would tell."
    if more is None:
        wait = " More laptops like these would not tell: the two bundles decide alike on them, or a risk cannot be measured."
    return (
        f"{'; '.join(comparison.reasons)}. It asks about {_more(-value)} of 100 laptops ({_more(-high)} to {_more(-low)}), "
        f"judged on the {comparison.laptops} newest laptops.{wait}"
    )


def _more(laptops: float) -> str:
    return f"{abs(laptops):.0f} {'more' if laptops > 0 else 'fewer'}"


def _comparison_table(found: Improvement) -> Table:
    compared = found.comparison.compared
    rows = [_row("questions per laptop, newest", compared.questions)]
    for name in RISKS:
        pairs = compared.risks[name]
        rates = pairs.rates()
        laptops = f"{pairs.asked.of} answered, {pairs.checked.of} spot checked of {pairs.of}"
        rows.append((f"{name}, newest", *map(_rate, rates), _interval(pairs.difference()), laptops))
    rows += [
        _row(f"{name}, old test set", compared.old[name])
        for name in (QUESTIONS, *RISKS)
        if name in compared.old
    ]
    return Table(("", "candidate", "active", "difference", "laptops"), rows)


def _row(name: str, pairs: Pairs) -> tuple[str, ...]:
    rates = ((pairs.both + only) / pairs.of for only in (pairs.candidate, pairs.active))
    return (name, *map(_rate, rates), _interval(pairs.difference()), str(pairs.of))


def _rate(rate: float) -> str:
    return "unknown" if math.isnan(rate) else percent(rate)


def _interval(one: Interval) -> str:
    return f"{100 * one.value:+.1f} ({100 * one.low:+.1f} to {100 * one.high:+.1f}) of 100"


def _labels(found: Improvement) -> Table:
    rows = []
    for part, use in _USES.items():
        noted = found.labels.pictures.get(part, ())
        origins = Counter(one.origin for one in noted)
        told = ", ".join(f"{count} {origin}" for origin, count in sorted(origins.items())) or "none"
        rows.append((use, str(len({one.visit for one in noted})), str(len(noted)), told))
    return Table(("use", "laptops", "pictures", "origin"), rows)


def _describe_unasked(found: Improvement) -> list[Block]:
    """What the labels take from the active policy, and pictures on which a person can see whether it is so."""
    noted = [
        f"{part}: {one.name}"
        for part in (Part.PROVE, Part.JUDGE)
        for one in found.labels.pictures.get(part, ())
        if one.group is Group.ASKED
    ]
    shown = sorted(noted, key=lambda name: uniform(name, "look"))[:_MOST_LOOKED_AT]
    text = (
        "What nobody was asked about is labelled as the active policy decided: a sticker that it keeps on a laptop that it asked "
        "about counts as none, unless the operator drew it, so the rate of stickers left may be higher than proved."
    )
    if not shown:
        return [text]
    return [
        f"{text} Look for stickers on these, drawn at random, in labels/ of the work folder:",
        Table(("",), [(one,) for one in shown]),
    ]


def _describe_left_out(found: Improvement) -> Block:
    left = found.labels.left_out
    if not left:
        return "Every answer could be used."
    rows = [(why, str(count)) for why, count in sorted(left.items(), key=lambda one: -one[1])]
    return Table(("could not be used", "pictures"), rows)
