# SPDX-License-Identifier: Apache-2.0
"""The questions behind exposure, likelihood and severity of a robustness assessment, with scales for a person of the cell.

Practitioners find these three factors the hardest part of the method, because they are subjective (Wozniak et al., section
7.2.2). The names of the values are the paper's (table 5); what each means here is said in terms of laptops, shifts and damage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sticker_uq.lab.robustness.spec import Circumstance, Specification

Factor = Literal["exposure", "likelihood", "severity"]


@dataclass(frozen=True)
class Scale:
    """One factor of the significance of a circumstance: what is asked, and what 1 to 5 stand for."""

    factor: Factor
    question: str
    values: tuple[tuple[str, str], ...]


SCALES = (
    Scale(
        "exposure",
        "How often is the cell in a situation in which this can happen at all?",
        (
            ("Rare", "once a year or less: at a rebuild"),
            ("Unusual", "a few times a year: at maintenance"),
            ("Occasional", "every few weeks: in some weather, with some deliveries"),
            ("Frequent", "every day, at some hours or on some laptops"),
            ("Continuous", "with every laptop"),
        ),
    ),
    Scale(
        "likelihood",
        "When the cell is in that situation, how likely is it that an image is affected?",
        (
            ("Rare", "fewer than 1 image in 1000"),
            ("Unlikely", "1 in 1000 to 1 in 100"),
            ("Possible", "1 in 100 to 1 in 10"),
            ("Likely", "1 in 10 to 1 in 2"),
            ("Certain", "more than every second image"),
        ),
    ),
    Scale(
        "severity",
        "If detection fails on such an image, what is the worst that is likely to follow?",
        (
            ("Insignificant", "a person is asked once more than needed"),
            ("Minor", "a sticker stays on, and inspection finds it"),
            ("Marginal", "a laptop is shipped with a sticker, or a lid is scratched"),
            ("Critical", "a brand logo or a lid is ruined"),
            ("Catastrophic", "many laptops are ruined before anybody notices"),
        ),
    ),
)


@dataclass(frozen=True)
class Question:
    """One question about a circumstance of a robustness assessment: its ``text`` with the scale,
    and the ``default`` that stands so far.
    """

    circumstance: str
    factor: Factor
    text: str
    default: int


def questions(circumstance: Circumstance) -> list[Question]:
    """The three questions about the significance of `circumstance`, as each point of view calls it."""
    told = "\n".join(f"  {view}: {text}" for view, text in circumstance.views.items())
    return [
        Question(
            circumstance.name,
            scale.factor,
            f"{circumstance.name}\n{told}\n{scale.question}\n{scale_text(scale)}",
            getattr(circumstance, scale.factor),
        )
        for scale in SCALES
    ]


def scale_text(scale: Scale) -> str:
    """The values 1 to 5 of a circumstance's `scale` of exposure, likelihood or severity, one per line."""
    return "\n".join(f"  {n} {name}: {meaning}" for n, (name, meaning) in enumerate(scale.values, 1))


def ask_all(
    spec: Specification,
    ask: Callable[[Question], int],
    told: Callable[[Circumstance], None] = lambda circumstance: None,
) -> Specification:
    """The specification `spec` of a robustness assessment with the answers of `ask`, one per factor and circumstance.

    `told` gets each circumstance once it is answered.

    An answer outside 1..5 raises pydantic's ``ValidationError``.
    """
    answered = []
    for circumstance in spec.circumstances:
        values = circumstance.model_dump() | {q.factor: ask(q) for q in questions(circumstance)}
        answered.append(Circumstance.model_validate(values))
        told(answered[-1])
    return spec.model_copy(update={"circumstances": tuple(answered)})
