# SPDX-License-Identifier: Apache-2.0
"""The report of a shadow: what a candidate would have decided differently, with intervals over laptops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sticker_uq.evaluation.metrics.statistics import NOTHING, Interval, clopper_pearson, mean_interval
from sticker_uq.evaluation.reporting.document import Block as Part
from sticker_uq.evaluation.reporting.document import Table, as_html
from sticker_uq.evaluation.shadow.differences import (
    ANSWERED,
    IMAGES,
    NO_ACTIVE,
    NO_CANDIDATE,
    OTHER_BUNDLE,
    OTHER_PIXELS,
    asks,
    outcome_key,
    total,
)
from sticker_uq.evaluation.shadow.record import Block, Example, Versions, read_blocks
from sticker_uq.scene import InvalidInput, Outcome

MOST_EXAMPLES = 20
_OUTCOMES = (Outcome.WORK, Outcome.ASK, Outcome.CLEAN, Outcome.BLOCKED)
_OUTCOME_WORDS = (
    "Images by what the two decided. Work: a sticker may be removed; ask: a person is asked; clean: no sticker is left; blocked: "
    "the image cannot be used."
)
_LEFT_OUT = {
    NO_CANDIDATE: "no scene of the candidate (it is slower, or was not there)",
    NO_ACTIVE: "no scene or decision of the active side",
    ANSWERED: "a person's answer or a spot check had decided",
    OTHER_PIXELS: "other pixels on the two sides",
    OTHER_BUNDLE: "the scene was not the candidate's",
}


@dataclass
class _Pair:
    """All that was counted of one candidate beside one active side; ``laptops``: the counts by laptop, ``unnamed``: those of each
    line without one.
    """

    since: str = ""
    until: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    laptops: dict[str, Counter[str]] = field(default_factory=dict)
    unnamed: list[Counter[str]] = field(default_factory=list)
    examples: list[tuple[str, Example]] = field(default_factory=list)

    def add(self, block: Block) -> None:
        self.since = self.since or block.since
        self.until = block.until
        self.counts.update(block.counts)
        if block.workpiece:
            self.laptops.setdefault(block.workpiece, Counter()).update(block.counts)
        else:
            self.unnamed.append(Counter(block.counts))
        if block.example is not None and len(self.examples) < MOST_EXAMPLES:
            self.examples.append((block.workpiece or "–", block.example))

    @property
    def compared(self) -> list[Counter[str]]:
        """For the shadow's report: counts of each laptop with a compared image; of each line where no laptop has a name."""
        units = [counts for counts in self.laptops.values() if counts[IMAGES]]
        return units or [counts for counts in self.unnamed if counts[IMAGES]]


def shadow_report(folder: Path) -> str:
    """The report of the counts in ``folder`` as one HTML page.

    Raises :class:`InvalidInput` when there is no such file, or no line of it can be read.
    """
    found: dict[Versions, _Pair] = {}
    unreadable = 0
    for block in read_blocks(folder):
        if block is None:
            unreadable += 1
        else:
            found.setdefault(block.versions, _Pair()).add(block)
    if not found:
        raise InvalidInput(
            f"{folder}: no counts in it yet; expected the folder of a shadow that has compared something"
        )
    parts: list[Part] = ["# Shadow", _LEAD]
    if unreadable:
        parts.append(f"{unreadable} lines could not be read and are left out: torn by a crash, or changed.")
    for number, (versions, pair) in enumerate(found.items(), 1):
        parts += _pair_parts(number, versions, pair)
    return as_html("Shadow", parts)


_LEAD = (
    "A candidate judged the same images as the active bundle, without a gate. What it would have decided differently is counted "
    "here; which of the two was right, only labels tell. A sticker is released where the outcome is “work” and the object may be "
    "removed. Objects are the same where their boxes overlap by at least half (IoU)."
)


def _pair_parts(number: int, versions: Versions, pair: _Pair) -> list[Part]:
    active, candidate = dict(versions[0]), dict(versions[1])
    names = ("bundle", "model_hash", "settings_hash", "panel_hash", "policy_hash")
    hashes = Table(
        ("SHA-256", "active", "candidate"),
        [
            (
                name.removesuffix("_hash"),
                active.get(name, "")[:12] or "–",
                candidate.get(name, "")[:12] or "–",
            )
            for name in names
        ],
    )
    parts: list[Part] = [
        f"## Comparison {number}",
        f"{pair.since[:19]}Z to {pair.until[:19]}Z: {pair.counts[IMAGES]} images compared, {len(pair.laptops)} laptops "
        "announced.",
        hashes,
    ]
    if pair.counts[IMAGES]:
        parts += ["### Outcomes", _OUTCOME_WORDS, _matrix(pair.counts)]
        parts += ["### Differences", _note(pair), _differences(pair), _questions(pair)]
        parts += ["### Objects", _objects(pair.counts)]
        if total(pair.counts, "label"):
            parts.append(_labels(pair.counts))
    left_out = [(words, str(pair.counts[key])) for key, words in _LEFT_OUT.items() if pair.counts[key]]
    if left_out:
        parts += ["### Images that were not compared", Table(("why", "images"), left_out)]
    if pair.examples:
        parts += [
            "### Examples",
            "The first image of each line of the record with another outcome.",
            _examples(pair),
        ]
    return parts


def _note(pair: _Pair) -> str:
    alone = "No laptop was announced: each line of the record, at most a minute, counts as one."
    return (
        "Images of one laptop are alike, so the laptops are counted: those with at least one such image, and the exact 95 % "
        f"interval of their share (Clopper-Pearson). {'' if pair.laptops else alone}"
    ).strip()


def _matrix(counts: Counter[str]) -> Table:
    names = [outcome.name.lower() for outcome in _OUTCOMES]
    rows = [
        (f"active: {name}", *(str(counts[outcome_key(one, other)]) for other in _OUTCOMES))
        for name, one in zip(names, _OUTCOMES, strict=True)
    ]
    return Table(("", *(f"candidate: {name}" for name in names)), rows)


def _differences(pair: _Pair) -> Table:
    kinds: tuple[tuple[str, Callable[[Counter[str]], int]], ...] = (
        ("another outcome (images)", lambda c: total(c, "outcome", differing=True)),
        ("stickers released by the candidate only", lambda c: c["released candidate"]),
        ("stickers released by the active side only", lambda c: c["released active"]),
        ("the candidate asks, the active side does not (images)", lambda c: asks(c)[1] - asks(c)[2]),
        ("the active side asks, the candidate does not (images)", lambda c: asks(c)[0] - asks(c)[2]),
        ("another class at the same place (objects)", lambda c: total(c, "label")),
    )
    rows = []
    for words, count in kinds:
        hit, units = sum(count(one) > 0 for one in pair.compared), len(pair.compared)
        low, high = clopper_pearson(hit, units)
        rows.append(
            (words, str(count(pair.counts)), f"{hit} of {units}", str(Interval(hit / units, low, high)))
        )
    return Table(("difference", "count", "laptops with it", "share of laptops"), rows)


def _questions(pair: _Pair) -> Table:
    """Share of the images of a laptop about which a person would be asked, meaned over laptops."""
    shares = np.array([np.array(asks(one)[:2]) / one[IMAGES] for one in pair.compared], np.float64)
    values = {
        "active": shares[:, 0],
        "candidate": shares[:, 1],
        "candidate – active": shares[:, 1] - shares[:, 0],
    }
    known = len(shares) > 1  # the bootstrap over one laptop says nothing
    rows = [
        (name, f"{one.mean():.3f}", _range(mean_interval(one) if known else NOTHING))
        for name, one in values.items()
    ]
    return Table(
        ("images that ask a person, mean share per laptop", "mean", "95 % bootstrap over laptops"), rows
    )


def _range(interval: Interval) -> str:
    return "–" if np.isnan(interval.low) else f"[{interval.low:.3f}, {interval.high:.3f}]"


def _objects(counts: Counter[str]) -> Table:
    rows = [
        (words, *(str(counts[f"{kind} {side}"]) for side in ("both", "active", "candidate")))
        for kind, words in (("objects", "detected"), ("released", "released"), ("asked", "asked about"))
    ]
    return Table(("objects", "by both", "by the active side only", "by the candidate only"), rows)


def _labels(counts: Counter[str]) -> Table:
    rows = [
        (*key.removeprefix("label ").split(">"), str(n))
        for key, n in sorted(counts.items())
        if key.startswith("label ")
    ]
    return Table(("class of the active side", "class of the candidate", "objects"), rows)


def _examples(pair: _Pair) -> Table:
    rows: Sequence[Sequence[str]] = [
        (workpiece, str(one.stamp_ns), one.active.lower(), one.candidate.lower())
        for workpiece, one in pair.examples
    ]
    return Table(("laptop", "stamp of the image, ns", "active", "candidate"), rows)
