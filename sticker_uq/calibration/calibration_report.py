# SPDX-License-Identifier: Apache-2.0
"""What a calibration found, as a page that a plant manager reads and an engineer checks: Markdown, or one HTML file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from markupsafe import Markup

from sticker_uq.calibration import control
from sticker_uq.calibration.fitting import Levels
from sticker_uq.calibration.making import Divided
from sticker_uq.calibration.measuring import PLAIN, Score, measure, scores
from sticker_uq.calibration.outcomes import outcomes_of
from sticker_uq.calibration.proving import limits_to_try, removal_tests
from sticker_uq.calibration.records import Record
from sticker_uq.evaluation.metrics.decisions import Count, Measured
from sticker_uq.evaluation.reporting.document import INK, Block, Table, as_html, as_markdown, svg
from sticker_uq.gate import Policy
from sticker_uq.gate.policy.policy_schema import Guarantee, Proof

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ON_LOGOS = "objects released for removal that are logos"
_LEVELS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
_ANSWERED = "Of pictures with answers in place of labels, the stickers that no box could release count as one for each laptop."


def calibration_report(
    policy: Policy, draft: Policy, divided: Divided, levels: Levels, html: bool = True
) -> str:
    """The report of a ``policy`` fitted as ``draft`` and proved on the labelled images as they are ``divided``.

    Figures about the policy are from the proof, the images that chose its limits; images that took no part in anything would
    show a little more risk and a little less coverage.
    """
    assert policy.guarantee is not None
    match_iou = policy.guarantee.match_iou
    fit, proof, sources = divided.fit, divided.proof, divided.proof_by_source()
    measured = measure(proof, policy, match_iou)
    seen = {score.name: score for score in scores(outcomes_of(proof, draft, match_iou))}
    answered = any(record.said is not None for record in proof)
    if answered:  # only about what could be released
        seen.pop(PLAIN, None)
    promises: list[Block] = []
    if fit:  # whose scores are the limits to try
        tried = {score.name: score for score in scores(outcomes_of(fit, draft, match_iou))}
        promises = [
            "## What these images could promise",
            "The largest share of stickers that can be removed without a person under each promise about wrongful removals, at "
            f"confidence {1 - levels.delta:g}. An empty cell: these images cannot prove it.",
            level_table(tried, seen, levels.delta),
        ]
    fitted = f"fitted on {len(fit)} images" if fit else "whose score was fitted elsewhere"
    parts: list[Block] = []
    if len(sources) > 1:
        parts = ["## By part of the labelled images", part_table(sources, policy)]
    blocks: list[Block] = [
        "# Calibration of the policy",
        guarantee_text(policy.guarantee),
        f"Policy {policy.hash[:12]}, {fitted}, proved on {len(proof)} others.",
        "## What was proved",
        proof_table(policy.guarantee),
        "## What the policy does with the images that proved it",
        tabulate_measured(measured),
        *([_ANSWERED] if answered else []),
        *parts,
        *promises,
        curve_drawing(list(seen.values()), levels.alpha),
    ]
    return as_html("Calibration of the policy", blocks) if html else as_markdown(blocks)


def guarantee_text(guarantee: Guarantee) -> str:
    """What was proved, in one paragraph without a formula."""
    sentences = []
    if (removal := guarantee.wrongful_removal) is not None:
        sentences.append(
            f"Of laptops like those that were labelled, on at most {_percent(removal.level)} something is released for removal "
            f"that is no sticker, or takes in a tenth of a logo that lies free. If the calibration were repeated with other "
            f"images, this would come out true at least {_percent(removal.confidence)} of the times; it rests on "
            f"{removal.images} labelled laptops, of which {removal.events} went wrong."
        )
    if (left := guarantee.sticker_left) is not None:
        sentences.append(
            f"Of the laptops with stickers that are finished without a person, at most {_percent(left.level)} still carry one "
            f"when they leave, with confidence {_percent(left.confidence)}; that rests on {left.images} laptops that had one and "
            f"would be finished without a person, {left.events} of them with a sticker left. Both promises together hold with "
            f"{_percent(1 - (1 - left.confidence) - (1 - removal.confidence if removal else 0))}."
        )
    else:
        sentences.append(
            "Nothing is promised about missed stickers: an operator checks every laptop before it is called clean."
        )
    sentences.append(
        "This holds for the same camera, light and kind of laptop as the labelled ones, and not against somebody who wants to "
        "deceive the camera."
    )
    if removal is not None and removal.parts:
        sentences.append(f"It holds for each part by itself: {', '.join(removal.parts)}.")
    return " ".join(sentences)


def proof_table(guarantee: Guarantee) -> Table:
    named = [("wrongful removal", guarantee.wrongful_removal), ("sticker left", guarantee.sticker_left)]
    proofs: list[tuple[str, Proof]] = [(name, proof) for name, proof in named if proof is not None]
    lines: dict[str, Callable[[Proof], str]] = {
        "promised rate": lambda p: _percent(p.level),
        "confidence": lambda p: _percent(p.confidence),
        "laptops": lambda p: str(p.images),
        "bad ones": lambda p: str(p.events),
        **{f"bad ones of {name}": partial(_of_part, name) for name in proofs[0][1].parts or {}},
        f"bound at the limit{', worst part' if proofs[0][1].parts else ''}": lambda p: _percent(p.bound),
        "lowest rate that so many could prove": lambda p: _percent(p.smallest_level),
        "limit": lambda p: f"{p.limit:.4g}",
        "limit for the rate on average": lambda p: (
            "" if p.expected_limit is None else f"{p.expected_limit:.4g}"
        ),
        "method": lambda p: p.method,
    }
    rows = ((line, *(show(proof) for _, proof in proofs)) for line, show in lines.items())
    return Table(("", *(name for name, _ in proofs)), tuple(row for row in rows if any(row[1:])))


def _of_part(name: str, proof: Proof) -> str:
    return "{} of {}".format(*(proof.parts or {})[name])


def tabulate_measured(measured: Measured) -> Table:
    rows = {
        "laptops": (str(measured.images), ""),
        "laptops with a wrongful removal": _count(measured.wrongful),
        **({} if measured.on_logo is None else {_ON_LOGOS: (str(measured.on_logo), "")}),
        "stickers removed without a person": _count(measured.removed),
        "laptops that end with a question": _count(measured.asked),
        "laptops with stickers, finished without a person, that keep one": _count(measured.left),
        "laptops without a sticker, finished without a person": _count(measured.clean),
        **{f"objects: {verdict}": _count(count) for verdict, count in measured.verdicts.items()},
    }
    return Table(("", "", "95 % interval"), tuple((name, *cells) for name, cells in rows.items()))


def part_table(sources: Mapping[str, Sequence[Record]], policy: Policy) -> Table:
    """What ``policy`` does with the images of each source that prove: it may serve one part less well."""
    assert policy.guarantee is not None
    rows = []
    for source, records in sources.items():
        found = measure(records, policy, policy.guarantee.match_iou)
        counts = (found.wrongful, found.asked, found.removed, found.left)
        rows.append((source, str(found.images), *(_count(count)[0] for count in counts)))
    head = (
        *("", "laptops", "with a wrongful removal", "end with a question"),
        *("stickers removed", "finished alone, of those with stickers, that keep one"),
    )
    return Table(head, tuple(rows))


def level_table(tried: dict[str, Score], seen: dict[str, Score], delta: float) -> Table:
    """The share of stickers removed under a limit that the images prove, at several levels and for each score."""
    names = [name for name in seen if name in tried]
    rows = []
    for level in _LEVELS:
        cells = []
        for name in names:
            score = seen[name]
            tests = removal_tests(score.objects, score.doubt, score.images, limits_to_try(tried[name].doubt))
            held = control.learn_then_test(tests, level, delta)
            cells.append(_percent(score.count_removed(tests[held[-1]].limit).rate) if len(held) else "")
        rows.append((_percent(level), *cells))
    return Table(("promise", *names), tuple(rows))


def curve_drawing(shown: Sequence[Score], level: float) -> Markup:
    """As SVG: rate of images with a wrongful removal over the share of stickers removed, a line per score."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for score in shown:
            axes.plot(score.curve.removed, score.curve.wrong_images, label=score.name, lw=2.5)
        axes.axhline(level, color=INK, ls="--", lw=1)
        axes.set(xlabel="stickers removed without a person", ylabel="images with a wrongful removal")
        axes.set(xlim=(0, 1), ylim=(0, max(5 * level, 0.05)))
        axes.legend()

    return svg(draw, 8.0, 4.5, "wrongful removals over stickers removed, by score")


def _percent(rate: float) -> str:
    return "n/a" if math.isnan(rate) else f"{100 * rate:.3g} %"


def _count(count: Count) -> tuple[str, str]:
    low, high = count.interval
    shown = f"{count.events} of {count.of} ({_percent(count.rate)})"
    return shown, f"{_percent(low)} to {_percent(high)}"
