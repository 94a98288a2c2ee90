# SPDX-License-Identifier: Apache-2.0
"""The same simulated laptops peeled by a plain score threshold and through the gate: what each did wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import cv2
import numpy as np

from sticker_uq.evaluation.annotated_images import Shot
from sticker_uq.evaluation.replay.recording import RecordedLaptop
from sticker_uq.evaluation.report_model import ReportSection
from sticker_uq.scene import FloatArray, Verdict
from sticker_uq.uncertainty import iou_matrix
from sticker_uq_lab.simulation.simulated_cell import (
    TOUCH_IOU,
    ImageArray,
    LaptopRecord,
    SimulatedCell,
    SimulationSettings,
    Thing,
    Touch,
)

MOST_PICTURES = 6
_PICTURE_PX = (480, 360)
_OBJECTS = {"print": "print", "residue": "residue", "foreign object": "foreign object"}
_MARK = (40, 40, 230)


@dataclass(frozen=True)
class Ledger:
    """What was done to some laptops, by ground truth, and how often a person was asked."""

    laptops: int
    stickers: int
    removed: int
    left: int
    logos: int
    others: int
    """Removals that met a print, residue or a foreign object."""
    lid: int
    right: int
    """Laptops without a sticker at the end of which nothing else was touched."""
    questions: int
    unattended: int
    """Those of the right ones about which nobody was asked."""

    @classmethod
    def of(cls, records: Sequence[LaptopRecord], questions: Sequence[int]) -> Ledger:
        touched = [thing.kind for record in records for thing in record.touched]
        right = [not record.left and not record.wrong for record in records]
        return cls(
            laptops=len(records),
            stickers=sum(record.stickers for record in records),
            removed=sum(record.removed for record in records),
            left=sum(record.left for record in records),
            logos=touched.count(Touch.LOGO.value),
            others=sum(map(touched.count, _OBJECTS)),
            lid=touched.count(Touch.LID.value),
            right=sum(right),
            questions=sum(questions),
            unattended=sum(r and not q for r, q in zip(right, questions, strict=True)),
        )

    @property
    def wrong(self) -> int:
        return self.logos + self.others + self.lid


@dataclass(frozen=True)
class Fate:
    """What became of a thing in the two ways, in words and whether it was wrong; whether a person was asked about it."""

    laptop: int
    thing: Thing
    score: str
    gate: str
    score_wrong: bool
    gate_wrong: bool
    asked: bool

    @property
    def table_cells(self) -> tuple[str, str]:
        return self.score, f"{self.gate}{' after asking a person' if self.asked else ''}"


@dataclass(frozen=True)
class Comparison:
    """The same laptops peeled in two ways. ``minutes``: of a person for each question, an assumption."""

    least_score: float
    minutes: float
    score: Ledger
    gate: Ledger
    fates: tuple[Fate, ...]

    @property
    def differences(self) -> list[Fate]:
        return [one for one in self.fates if one.score_wrong != one.gate_wrong]

    @property
    def both_wrong(self) -> list[Fate]:
        return [one for one in self.fates if one.score_wrong and one.gate_wrong]

    @property
    def headline(self) -> str:
        score, gate = self.score, self.gate
        return (
            f"On the same {_count(gate.laptops, 'laptop')}, a score threshold peeled at "
            f"{_count(score.wrong, 'wrong place')} and left {_count(score.left, 'sticker')}; the gate peeled at "
            f"{_count(gate.wrong, 'wrong place')}, left {_count(gate.left, 'sticker')} and asked "
            f"{_count(gate.questions, 'question')}."
        )

    @property
    def columns(self) -> tuple[str, ...]:
        return ("", f"score threshold {self.least_score:g}", "gate")

    @property
    def rows(self) -> tuple[tuple[str, str, str], ...]:
        both = (self.score, self.gate)

        def row(title: str, *texts: str) -> tuple[str, str, str]:
            return (title, texts[0], texts[1])

        return (
            row("logos peeled", *(str(one.logos) for one in both)),
            row("prints, residue, foreign objects attacked", *(str(one.others) for one in both)),
            row("bare lid scraped", *(str(one.lid) for one in both)),
            row("stickers left", *(f"{one.left} of {one.stickers}" for one in both)),
            row("laptops right: clean and unharmed", *(f"{one.right} of {one.laptops}" for one in both)),
            row("of these, without a person", *(str(one.unattended) for one in both)),
            row("questions to a person", *(str(one.questions) for one in both)),
            row(f"minutes of a person, {self.minutes:g} a question", *(f"{one.questions * self.minutes:g}" for one in both)),
        )  # fmt: skip

    def summary(self) -> dict[str, object]:
        return {
            "least_score": self.least_score,
            "minutes_per_question": self.minutes,
            "score_threshold": asdict(self.score),
            "gate": asdict(self.gate),
            "headline": self.headline,
        }

    def sections(self, settings: SimulationSettings) -> tuple[ReportSection, ...]:
        how = (
            "The score threshold was run after the cell, without ROS: the same rendered laptops, the same weights in one pass "
            f"without dropout, the same simulated arm. It peels whatever scores {self.least_score:g} or more as a sticker and "
            "never asks. What a removal met is known from the drawing. Prints, residue, foreign objects, stickers on logos and "
            "dim light are put there on purpose, on five of six laptops: the counts are no rates of a real cell."
        )
        differ = self.differences
        nowhere = "" if differ else "Nowhere on these laptops. "
        sections = [
            ReportSection("Where they differ", nowhere + how, pictures=_draw_pictures(differ, settings))
        ]
        if differ[MOST_PICTURES:]:
            rows = tuple(
                (f"{one.laptop + 1}", one.thing.kind, *one.table_cells) for one in differ[MOST_PICTURES:]
            )
            columns = ("laptop", "thing", "score threshold", "gate")
            sections.append(ReportSection("Further differences", "", columns=columns, rows=rows, folded=True))
        if wrong := self.both_wrong:
            note = f"{len(wrong)} in all; pictures of {min(len(wrong), MOST_PICTURES)}."
            sections.append(
                ReportSection("What both got wrong", note, pictures=_draw_pictures(wrong, settings))
            )
        return tuple(sections)

    def shots(self, settings: SimulationSettings) -> tuple[Shot, ...]:
        """The comparison in a few pictures that need no words of the trade; the last one is the truth."""
        score, gate = self.score, self.gate
        stickers = [one for one in self.fates if one.thing.kind == Touch.STICKER.value]
        others = [one for one in self.fates if one.thing.kind != Touch.STICKER.value]
        sure = [one for one in stickers if not (one.score_wrong or one.gate_wrong or one.asked)]
        asked = sorted((one for one in self.fates if one.asked), key=lambda one: not one.score_wrong)
        spared = [one for one in others if not (one.gate_wrong or one.asked)]
        missed = [one for one in stickers if one.gate_wrong]
        harmed = [one for one in others if one.gate_wrong]
        chosen = (
            ("sure: peeled", sure),
            ("not sure: a person is asked", asked),
            ("no sticker: left alone", sorted(spared, key=lambda one: not one.score_wrong)),
            (f"missed: {gate.left} of {_count(gate.stickers, 'sticker')}", missed),
            (f"harmed: {_count(gate.wrong, 'wrong place')}", harmed),
        )
        what = f"{_count(gate.laptops, 'laptop')}, {_count(gate.stickers, 'sticker')}: which may be peeled?"
        shots = [Shot(what, _whole(settings))]
        for title, fates in chosen:
            seen = (one for one in fates if any(one.thing.box))  # of one below another there is no picture
            if one := next(seen, None):
                shots.append(Shot(title, _picture(one, settings), _lanes(one)))
        return (*shots, Shot("the truth", None, (_balance(score), _balance(gate))))


def compare(
    by_score: Sequence[LaptopRecord],
    through_gate: Sequence[LaptopRecord],
    recorded: Sequence[RecordedLaptop | None],
    least_score: float,
    minutes: float,
) -> Comparison:
    """Compare laptops peeled ``by_score`` with the same ones ``through_gate``, of which there is a recording."""
    asked = [_asked_boxes(laptop) for laptop in recorded]
    questions = [len(laptop.questions) if laptop is not None else 0 for laptop in recorded]
    fates = tuple(
        fate
        for index, (one, other) in enumerate(zip(by_score, through_gate, strict=True))
        for fate in _fates(index, one, other, asked[index])
    )
    ledgers = Ledger.of(by_score, [0] * len(by_score)), Ledger.of(through_gate, questions)
    return Comparison(least_score, minutes, *ledgers, fates)


def _asked_boxes(laptop: RecordedLaptop | None) -> list[FloatArray]:
    decisions = laptop.decisions if laptop is not None else {}
    ids = {question.decision_id for question in (laptop.questions if laptop is not None else ())}
    return [
        np.asarray(v.object.box, float)
        for i in ids & set(decisions)
        for v in decisions[i].verdicts
        if v.verdict is Verdict.ASK
    ]


def _fates(laptop: int, one: LaptopRecord, other: LaptopRecord, asked: list[FloatArray]) -> list[Fate]:
    # a place on the bare lid has no id: each is a thing of its own
    lid = [thing for record in (one, other) for thing in record.touched if thing.kind == Touch.LID.value]
    found = []
    for thing in (*one.things, *lid):
        (score_wrong, score), (gate_wrong, gate) = (_what_happened(thing, record) for record in (one, other))
        person = bool(asked) and bool((iou_matrix(np.array([thing.box]), np.stack(asked)) >= TOUCH_IOU).any())
        found.append(Fate(laptop, thing, score, gate, score_wrong, gate_wrong, person))
    return found


def _what_happened(thing: Thing, record: LaptopRecord) -> tuple[bool, str]:
    """Whether it was wrong, and in words."""
    touched = (
        thing in record.touched
        if thing.kind == Touch.LID.value
        else any((t.kind, t.id) == (thing.kind, thing.id) for t in record.touched)
    )
    if thing.kind == Touch.STICKER.value:
        return (not touched, "peeled" if touched else "left on the laptop")
    return (touched, "attacked" if touched else "left alone")


def _draw_pictures(fates: Sequence[Fate], settings: SimulationSettings) -> tuple[tuple[str, ImageArray], ...]:
    says = "Laptop {}, {}. Score threshold: {}. Gate: {}."
    return tuple(
        (says.format(one.laptop + 1, one.thing.kind, *one.table_cells), _picture(one, settings))
        for one in fates[:MOST_PICTURES]
    )


def _whole(settings: SimulationSettings) -> ImageArray:
    return cv2.resize(SimulatedCell(settings).picture(), _PICTURE_PX, interpolation=cv2.INTER_AREA)


def _lanes(one: Fate) -> tuple[tuple[tuple[str, bool | None], ...], ...]:
    """What the two ways did to a thing, in words for everybody."""
    sticker = one.thing.kind == Touch.STICKER.value
    right, wrong = ("peeled", "missed") if sticker else ("left alone", f"harmed: {one.thing.kind}")
    question = "printed" if one.thing.kind == Touch.PRINT.value else "a sticker"
    asked = ((f"asked: is this {question}?", None),) if one.asked else ()
    score, gate = (wrong if bad else right for bad in (one.score_wrong, one.gate_wrong))
    return ((score, one.score_wrong),), (*asked, (gate, one.gate_wrong))


def _balance(ledger: Ledger) -> tuple[tuple[str, bool | None], ...]:
    return (
        (_count(ledger.wrong, "wrong place"), ledger.wrong > 0),
        (f"{ledger.left} of {ledger.stickers} missed", ledger.left > 0),
        (_count(ledger.questions, "question"), None),
    )


def _picture(one: Fate, settings: SimulationSettings) -> ImageArray:
    image = SimulatedCell(settings, one.laptop).picture()
    height, width = image.shape[:2]
    x1, y1, x2, y2 = one.thing.box
    high = min(max(2.4 * (y2 - y1), 1.8 * (x2 - x1), height / 2.5), height)
    wide = min(high * width / height, width)
    left = round(min(max((x1 + x2 - wide) / 2, 0), width - wide))
    top = round(min(max((y1 + y2 - high) / 2, 0), height - high))
    cv2.rectangle(image, (round(x1), round(y1)), (round(x2), round(y2)), _MARK, 3, cv2.LINE_AA)
    part = image[top : top + round(high), left : left + round(wide)]
    return cv2.resize(part, _PICTURE_PX, interpolation=cv2.INTER_AREA)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
