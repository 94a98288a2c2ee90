# SPDX-License-Identifier: Apache-2.0
"""Prompts for image generators, sampled from the template of Table 1 of Lu et al. (S000)."""

from __future__ import annotations

import json
import string
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, StringConstraints, ValidationError, model_validator

from sticker_uq.io.files import atomic_write
from sticker_uq.io.reading import read_yaml
from sticker_uq.io.setting_fields import Frozen, words
from sticker_uq.scene import InvalidInput, Rng

PACKAGED_TEMPLATE = Path(__file__).with_name("prompts.yaml")

Phrase = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]
Phrases = Annotated[tuple[Phrase, ...], Field(min_length=1)]
Number = Annotated[int, Field(ge=1, le=20)]


@dataclass(frozen=True)
class Prompt:
    index: int  # place in the file, from 0
    seed: int
    stickers: int  # number of stickers in the text
    prompt: str


class PromptTemplate(Frozen):
    """The comments in the packaged file explain the phrases."""

    laptops: Phrases
    numbers: Annotated[dict[Number, Phrase], Field(min_length=1)]
    one: Phrase
    many: Phrase
    sticker: Phrase
    sizes: dict[Number, Phrases]
    styles: Phrases
    locations: dict[Number, Phrases]
    other: tuple[Phrases, ...] = ()

    @model_validator(mode="after")
    def _complete(self) -> PromptTemplate:
        for name in ("sizes", "locations"):
            missing = sorted(self.numbers.keys() - getattr(self, name).keys())
            if missing:
                raise ValueError(
                    f"{name}: expected an entry for {missing[0]} stickers as for every one of numbers"
                )
        for name, known in (("one", {"number"}), ("many", {"number"}), ("sticker", {"size", "style"})):
            _check_placeholders(name, getattr(self, name), known)
        return self

    @classmethod
    def load(cls, path: str | Path = PACKAGED_TEMPLATE) -> PromptTemplate:
        values = read_yaml(path, f"prompt template {path}")
        if not isinstance(values, dict):
            raise InvalidInput(
                f"prompt template {path}: expected laptops, numbers, ...; got {type(values).__name__}"
            )
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            problems = "; ".join(
                ": ".join(filter(None, (".".join(map(str, p["loc"])), words(p, cls)))) for p in error.errors()
            )
            raise InvalidInput(f"prompt template {path}: {problems}") from None

    def draw(self, seed: int, index: int = 0) -> Prompt:
        """The prompt of a seed: one phrase of every kind, styles without repetition while there are enough."""
        if seed < 0:
            raise InvalidInput(f"seed {seed}: expected 0 or more")
        rng = np.random.default_rng(seed)
        laptop = _one_of(rng, self.laptops)
        count = sorted(self.numbers)[rng.integers(len(self.numbers))]
        heading = (self.one if count == 1 else self.many).format(number=self.numbers[count])
        styles = rng.choice(len(self.styles), count, replace=count > len(self.styles))
        stickers = [
            self.sticker.format(size=_one_of(rng, self.sizes[count]), style=self.styles[style])
            for style in styles
        ]
        place = _one_of(rng, self.locations[count])
        other = [_one_of(rng, phrases) for phrases in self.other]
        return Prompt(index, seed, count, ", ".join((laptop, heading, *stickers, place, *other)))


def write_prompts(path: Path, prompts: Iterable[Prompt]) -> None:
    with atomic_write(path, "w") as stream:
        stream.writelines(json.dumps(asdict(prompt), ensure_ascii=False) + "\n" for prompt in prompts)


def _one_of(rng: Rng, phrases: tuple[str, ...]) -> str:
    return phrases[rng.integers(len(phrases))]


def _check_placeholders(name: str, phrase: str, known: set[str]) -> None:
    """Raise ValueError unless `phrase` can be formatted with the names in `known` alone."""
    try:
        used = {field for _, field, *_ in string.Formatter().parse(phrase) if field is not None}
    except ValueError as error:
        raise ValueError(f"{name}: {phrase!r}: {error}") from None
    if not used <= known:
        placeholders = ", ".join(f"{{{one}}}" for one in sorted(known))
        raise ValueError(f"{name}: {phrase!r}: expected no placeholder but {placeholders}")
