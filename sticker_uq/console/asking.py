# SPDX-License-Identifier: Apache-2.0
"""The page that asks yes or no about the boxes of one laptop after the other: what it serves and what it accepts."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import cv2
from fastapi import FastAPI, HTTPException, Response
from pydantic import Field

from sticker_uq.calibration.answers import Answer, AnswerFile, Question
from sticker_uq.console.access import Access, Addresses
from sticker_uq.console.app import Said, image_response, page_app
from sticker_uq.console.server import AppServer, ConsoleSettings
from sticker_uq.io.images import read_image_file
from sticker_uq.scene import InvalidInput

_MOST_BOXES = 500
_KEPT_FILES = 4


class SaidOfLaptop(Said):
    """The answers about one picture, ``image`` its digest; ``same``: see :meth:`Question.with_answers`."""

    image: str = Field(max_length=200)
    boxes: list[Answer] = Field(max_length=_MOST_BOXES)
    same: list[bool | None] = Field(max_length=_MOST_BOXES**2)
    other: bool


class TakenBack(Said):
    """The picture whose answers, the last ones, are taken back."""

    image: str = Field(max_length=200)


class Asking:
    """The ``questions`` in their order, of which those without an answer in ``answers`` are asked. Thread-safe."""

    def __init__(self, questions: Sequence[Question], answers: AnswerFile) -> None:
        self._answers = answers
        self._lock = threading.Lock()
        self._questions = {one.image: one for one in questions}
        self._open = [one for one in questions if not self._is_answered(one)]

    def _is_answered(self, question: Question) -> bool:
        said = self._answers.answers.get(question.image)
        return said is not None and said.covers(question.boxes)

    def progress(self) -> str:
        return f"{len(self._questions) - len(self._open)} of {len(self._questions)} laptops answered"

    def state(self) -> dict[str, Any]:
        """What the page shows: the ``question``, None when all are answered, and the picture that comes ``next``."""
        with self._lock:
            first, last = self._open[0] if self._open else None, self._answers.last
            return {
                "answered": len(self._questions) - len(self._open),
                "of": len(self._questions),
                "question": first
                and {
                    "image": first.image,
                    "name": first.name,
                    "size": first.size,
                    "boxes": first.boxes,
                    "pairs": first.pairs,
                },
                "next": self._open[1].image if len(self._open) > 1 else None,
                "last": last and last.image,
            }

    def say(self, said: SaidOfLaptop) -> None:
        """Keep the answers about the picture that is asked about; InvalidInput for those about another one."""
        with self._lock:
            if not self._open or self._open[0].image != said.image:
                raise InvalidInput("another laptop is asked about by now")
            self._answers.say(self._open[0].with_answers(said.boxes, said.same, said.other))
            self._open.pop(0)

    def take_back(self, image: str) -> None:
        """Take the last answers back, which are those about ``image``; it is asked about next."""
        with self._lock:
            if self._answers.last is None or self._answers.last.image != image:
                raise InvalidInput("the last answers are about another laptop by now")
            self._answers.take_back()
            question = self._questions.get(image)
            if question is not None and not self._is_answered(question):
                self._open = [question, *(one for one in self._open if one is not question)]

    def picture(self, image: str) -> bytes:
        question = self._questions.get(image)
        return b"" if question is None else _jpeg(question.file)


@lru_cache(_KEPT_FILES)
def _jpeg(file: Path) -> bytes:
    try:
        return cv2.imencode(".jpg", read_image_file(file), [cv2.IMWRITE_JPEG_QUALITY, 95])[1].tobytes()
    except InvalidInput:
        return b""  # it was there when it was assessed; the page says that there is no picture, and takes no answer


def asking_app(
    asking: Asking, access: Access, addresses: Addresses, cookie: str, _: threading.Event
) -> FastAPI:
    app = page_app("ask.html", access, addresses, cookie)

    @app.get("/question")
    def question() -> dict[str, Any]:
        return asking.state()

    @app.get("/picture/{image}.jpg")
    def picture(image: str) -> Response:
        return image_response(asking.picture(image), "image/jpeg")

    @app.post("/answer")
    def answer(body: SaidOfLaptop) -> dict[str, Any]:
        with _report_refusals():
            asking.say(body)
        return asking.state()

    @app.post("/undo")
    def undo(body: TakenBack) -> dict[str, Any]:
        with _report_refusals():
            asking.take_back(body.image)
        return asking.state()

    return app


@contextmanager
def _report_refusals() -> Iterator[None]:
    """Tell the page what was refused, and what could not be written."""
    try:
        yield
    except InvalidInput as error:
        raise HTTPException(409, str(error)) from None
    except OSError as error:
        raise HTTPException(507, f"not kept: {error.strerror}") from None


@contextmanager
def serve(asking: Asking, settings: ConsoleSettings) -> Iterator[str]:
    """The address at which the page asks, until the block ends."""
    server = AppServer(lambda *reached_by: asking_app(asking, *reached_by), settings)
    try:
        yield server.address
    finally:
        server.close()
