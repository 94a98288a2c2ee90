# SPDX-License-Identifier: Apache-2.0
"""A person's answers about the boxes that could be released, and the file of them in a folder of pictures.

They decide the two events of a proof for every limit on the risk, as labelled boxes do. The file has a line of JSON for the
weights and settings that found the boxes, one for each answered laptop, and one for each answer that was taken back.
"""

import fcntl
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from sticker_uq.evaluation.metrics.decisions import Met
from sticker_uq.gate.box_overlap import Box, same_place
from sticker_uq.io.files import check_output_file, sync_folder
from sticker_uq.io.reading import MOST_JSON, parse_json, read_bytes
from sticker_uq.io.setting_fields import Finite, words
from sticker_uq.scene import FloatArray, InvalidInput

ANSWERS = "answers.jsonl"
SAME_BOX_PX = 0.05
"""Another machine finds the same box at most so far away."""
Answer = Literal["sticker", "no_sticker", "takes_logo"]


class About(Finite):
    """What found the boxes that the answers of a file are about, as in :class:`sticker_uq.scene.SceneAssessment`."""

    format: Literal["answers 1"] = "answers 1"
    model_hash: str
    settings_hash: str
    panel_hash: str

    @classmethod
    def of(cls, found: Any) -> Self:
        """Of an assessment, or of what makes it."""
        names = ("model_hash", "settings_hash", "panel_hash")
        return cls(**{name: getattr(found, name) for name in names})

    def refuse_others(self, path: Path, found: "About") -> None:
        """InvalidInput where ``found`` is something else than these answers, those of the file ``path``, are about."""
        for name, own in self:
            if (other := getattr(found, name)) != own:
                raise InvalidInput(
                    f"{path}: the answers are about boxes of {name} {own[:12] or 'none'}, and this is {other[:12] or 'none'}: "
                    "give the weights and settings that they were asked with, or remove the file and ask again"
                )


class AskedBox(Finite):
    """``same_as``: the number of the earlier box on the same sticker, where the two lie at the same place."""

    box: Box
    answer: Answer
    same_as: int | None = Field(None, ge=0)

    @property
    def takes_sticker(self) -> bool:
        return self.answer != "no_sticker"


class Answered(Finite):
    """What a person said of one picture, ``image`` its digest: of every box that could be released what its removal meets, and
    whether any ``other`` sticker is on the laptop.
    """

    image: str
    name: str
    boxes: tuple[AskedBox, ...]
    other: bool
    time: str = ""

    @model_validator(mode="after")
    def _same_is_earlier(self) -> Self:
        for number, one in enumerate(self.boxes):
            if one.same_as is None:
                continue
            if one.same_as >= number or not (one.takes_sticker and self.boxes[one.same_as].takes_sticker):
                raise ValueError(
                    f"same_as {one.same_as} of box {number}: expected an earlier one on a sticker"
                )
        return self

    @property
    def _stickers(self) -> list[int]:
        """The number of the sticker on which each box is, -1 for none."""
        numbers: list[int] = []
        for one in self.boxes:
            new = max(numbers, default=-1) + 1
            numbers.append(
                -1 if not one.takes_sticker else new if one.same_as is None else numbers[one.same_as]
            )
        return numbers

    @property
    def sticker_count(self) -> int:
        return max(self._stickers, default=-1) + 1 + self.other

    def met(self, regions: FloatArray) -> Met:
        """What removals of ``regions`` (R, 4) px meet; InvalidInput for one that nobody was asked about."""
        at, apart = self._nearest(regions)
        if (unknown := np.flatnonzero(apart > SAME_BOX_PX)).size:
            x1, y1, x2, y2 = regions[unknown[0]]
            raise InvalidInput(
                f"picture {self.name}: the box {x1:.0f} {y1:.0f} {x2:.0f} {y2:.0f} could be released, and nobody was asked "
                "about it: run `sticker-uq ask` again with this --base"
            )
        answers = [self.boxes[number].answer for number in at]
        sticker = np.array([self._stickers[number] for number in at], np.int64)
        return Met(
            sticker, (sticker >= 0).astype(float), np.array([a != "sticker" for a in answers], bool), None
        )

    def covers(self, boxes: Sequence[Box]) -> bool:
        """Whether a person was asked about all of ``boxes``."""
        return bool((self._nearest(np.array(boxes, float).reshape(-1, 4))[1] <= SAME_BOX_PX).all())

    def _nearest(self, regions: FloatArray) -> tuple[list[int], FloatArray]:
        """Which of the boxes each of ``regions`` (R, 4) is, and how far its edges are apart (R,), px."""
        own = np.array([one.box for one in self.boxes], float).reshape(-1, 4)
        if not len(own):
            return [0] * len(regions), np.full(len(regions), np.inf)
        apart = np.abs(regions[:, None] - own).max(axis=2)
        return apart.argmin(axis=1).tolist(), apart.min(axis=1)


@dataclass(frozen=True)
class Question:
    """A picture to ask about: ``image`` its digest, ``boxes`` px what could be released, ``size`` its width and height, px."""

    image: str
    name: str
    file: Path
    size: tuple[int, int]
    boxes: tuple[Box, ...]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Boxes at the same place, of which one goes with the other: of two on stickers a person says whether it is one."""
        numbers = range(len(self.boxes))
        return [(i, j) for j in numbers for i in range(j) if same_place(self.boxes[i], self.boxes[j])]

    def with_answers(self, answers: Sequence[Answer], same: Sequence[bool | None], other: bool) -> Answered:
        """The answers about it; ``same``: for each of :attr:`pairs` on stickers whether it is one. InvalidInput for others."""
        stickers = [answer != "no_sticker" for answer in answers]
        if len(answers) != len(self.boxes) or len(same) != len(self.pairs):
            raise InvalidInput(f"{len(answers)} answers and {len(same)} pairs, expected those of {self.name}")
        if any(
            (one is None) == (stickers[i] and stickers[j])
            for (i, j), one in zip(self.pairs, same, strict=True)
        ):
            raise InvalidInput(
                "expected of two boxes at one place whether it is one sticker, where both take one"
            )
        first = list(range(len(answers)))
        for (i, j), one in zip(self.pairs, same, strict=True):
            if one:
                low, high = sorted((first[i], first[j]))
                first = [low if number == high else number for number in first]
        boxes = [
            AskedBox(box=box, answer=answer, same_as=first[number] if first[number] < number else None)
            for number, (box, answer) in enumerate(zip(self.boxes, answers, strict=True))
        ]
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return Answered(image=self.image, name=self.name, boxes=tuple(boxes), other=other, time=now)


class _Undo(Finite):
    undo: str


def read_answers(path: Path) -> tuple[About, dict[str, Answered]]:
    """What the answers of the file ``path`` are about, and the last one about every picture, by its digest."""
    about, said, _ = _parse(path, read_bytes(path, MOST_JSON, str(path)))
    if about is None:
        raise InvalidInput(f"{path}: has no answers, expected those of `sticker-uq ask`")
    return about, _last(said)


def _last(said: Iterable[Answered]) -> dict[str, Answered]:
    return {one.image: one for one in said}


def _parse(path: Path, data: bytes) -> tuple[About | None, list[Answered], int]:
    """What is in the file, and how many bytes of it are whole lines: of the last one nobody was told that it was kept."""
    whole = data.rfind(b"\n") + 1
    about, said = None, list[Answered]()
    for number, line in enumerate(data[:whole].splitlines(), 1):
        name = f"{path}: line {number}"
        try:
            values = parse_json(line, name)
            if about is None:
                about = About.model_validate(values)
            elif isinstance(values, dict) and "undo" in values:
                if not said or said.pop().image != _Undo.model_validate(values).undo:
                    raise InvalidInput(f"{name}: takes back what was not the last answer")
            else:
                said.append(Answered.model_validate(values))
        except ValidationError as error:
            problem = error.errors()[0]
            why = ": ".join(filter(None, (name, ".".join(map(str, problem["loc"])), words(problem))))
            raise InvalidInput(f"{why}; expected a line of `sticker-uq ask`") from None
    return about, said, whole


class AnswerFile:
    """The file of answers at ``path``, made where there is none; nobody else may write it meanwhile.

    A line is on the disk before :meth:`say` and :meth:`take_back` return. Raises :class:`InvalidInput` for a file about something
    else, and OSError where nothing can be written: then nothing has changed.
    """

    def __init__(self, path: Path, about: About) -> None:
        check_output_file(path)
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise InvalidInput(f"{path}: another `sticker-uq ask` is writing it: end that first") from None
        try:
            found, self._said, self._end = _parse(path, read_bytes(path, MOST_JSON, str(path)))
            if found is None:
                self._append(about)
                sync_folder(path.parent)
            else:
                found.refuse_others(path, about)
        except BaseException:
            self.close()
            raise

    @property
    def answers(self) -> dict[str, Answered]:
        return _last(self._said)

    @property
    def last(self) -> Answered | None:
        return self._said[-1] if self._said else None

    def say(self, answered: Answered) -> None:
        self._append(answered)
        self._said.append(answered)

    def take_back(self) -> Answered:
        """Take the last answer back."""
        self._append(_Undo(undo=self._said[-1].image))
        return self._said.pop()

    def close(self) -> None:
        os.close(self._file)

    def _append(self, line: Finite) -> None:
        data = line.model_dump_json(exclude_none=True).encode() + b"\n"
        os.ftruncate(self._file, self._end)  # what an earlier attempt, or a crash, left unfinished
        os.lseek(self._file, self._end, os.SEEK_SET)
        rest = data
        while rest:
            rest = rest[os.write(self._file, rest) :]
        os.fsync(self._file)
        self._end += len(data)
