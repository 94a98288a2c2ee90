# SPDX-License-Identifier: Apache-2.0
"""Asking a system about every image of an assessment, in several processes, resumed where it was interrupted."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from sticker_uq.evaluation.executors import worker_pool
from sticker_uq.io.coco import LabelledImage, read_picture
from sticker_uq.io.images import MOST_PICTURE, read_image_file
from sticker_uq.io.json_store import JsonStore
from sticker_uq.io.reading import read_bytes
from sticker_uq.lab.robustness.distances import ComparedPicture, ImageDistances
from sticker_uq.lab.robustness.followups import FollowUpCase
from sticker_uq.lab.robustness.systems_interface import Action, System, SystemAnswer
from sticker_uq.scene import CLASS_COUNT, Detections, InvalidInput

_FORMAT = 1
_HEADER = "system"
_IMAGE_DISTANCES = ("mse", "psnr", "ssim", "cw_ssim")


@dataclass(frozen=True)
class ImageQuestion:
    """One image that a system under robustness assessment is asked about: ``key`` is unique in the assessment; ``source``:
    the image it is compared with, None for a source image itself.
    """

    key: str
    item: LabelledImage
    source: LabelledImage | None = None


@dataclass(frozen=True)
class ImageReply:
    """The answer of a system under robustness assessment to one question, and how far its image is from its source (None for a
    source image).
    """

    answer: SystemAnswer
    distances: ImageDistances | None


def source_question(item: LabelledImage) -> ImageQuestion:
    """The question about a source image; its key tells its pixels."""
    digest = hashlib.blake2b(read_bytes(item.path, MOST_PICTURE), digest_size=8).hexdigest()
    return ImageQuestion(f"source-{item.path.stem}-{digest}", item)


def case_question(case: FollowUpCase) -> ImageQuestion:
    return ImageQuestion(case.case_id, case.truth, case.source)


class AnswerLog:
    """Replies of one system by the keys of their questions, in a file that survives a kill at any point.

    Raises InvalidInput when the file holds the answers of another system.
    """

    def __init__(self, path: Path, system: str) -> None:
        self._store = JsonStore(path)
        header = {"format": _FORMAT, "system": system}
        known = self._store.get(_HEADER)
        if known is None:
            self._store.put({_HEADER: header})
        elif known != header:
            raise InvalidInput(
                f"{path}: holds the answers of another system; give another folder or delete it"
            )

    def __contains__(self, key: str) -> bool:
        return key in self._store

    def __getitem__(self, key: str) -> ImageReply:
        entry = self._store.get(key)
        if entry is None:
            raise KeyError(key)
        return _reply_from(entry)

    def add(self, key: str, entry: str) -> None:
        """Keep a reply as :func:`ask_system` made it; it is on the disk when this returns."""
        self._store.put({key: json.loads(entry)})


def answer_all(
    questions: Sequence[ImageQuestion],
    log: AnswerLog,
    load: Callable[[], System],
    jobs: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Put every question that ``log`` has no reply to to a system; what is there is not asked again.

    ``load`` makes the system, in each process its own where ``jobs`` > 1; it must be picklable then. InvalidInput when an image
    cannot be read.
    """
    open_questions = [q for q in {q.key: q for q in questions}.values() if q.key not in log]
    total = len({q.key for q in questions})
    done = total - len(open_questions)
    progress(done, total)
    for key, entry in _replies(open_questions, load, jobs):
        log.add(key, entry)
        done += 1
        progress(done, total)


def _replies(
    questions: Sequence[ImageQuestion], load: Callable[[], System], jobs: int
) -> Iterator[tuple[str, str]]:
    if not questions:
        return
    if jobs == 1:
        system = load()
        try:
            for question in questions:
                yield question.key, ask_system(system, question)
        finally:
            system.close()
        return
    with worker_pool(jobs, partial(_begin, load)) as pool:
        yield from zip(
            (q.key for q in questions), pool.map(_ask_in_process, questions, chunksize=4), strict=True
        )


def ask_system(system: System, question: ImageQuestion) -> str:
    image = read_picture(question.item)
    answer = system.answer(image, question.key)
    distances = None if question.source is None else _reference(question.source.path).compare(image)
    return json.dumps(_entry_of(question.key, ImageReply(answer, distances)))


_system: System | None = None


def _begin(load: Callable[[], System]) -> None:
    global _system
    _system = load()


def _ask_in_process(question: ImageQuestion) -> str:
    assert _system is not None
    return ask_system(_system, question)


@lru_cache(maxsize=4)
def _reference(path: Path) -> ComparedPicture:
    return ComparedPicture(read_image_file(path))


def _entry_of(key: str, reply: ImageReply) -> dict[str, Any]:
    answer, action = reply.answer, reply.answer.action
    return {
        "key": key,
        "boxes": answer.detections.boxes.tolist(),
        "probabilities": answer.detections.probabilities.tolist(),
        "action": None
        if action is None
        else {"removed": action.removed.tolist(), "asked": action.asked, "clean": action.clean},
        "features": None
        if answer.features is None
        else base64.b64encode(answer.features.astype("<f4").tobytes()).decode(),
        "failure": answer.failure,
        "distances": None
        if reply.distances is None
        else {name: _finite(getattr(reply.distances, name)) for name in _IMAGE_DISTANCES},
    }


def _finite(value: float) -> float | None:
    """Infinity, the PSNR of equal pictures, is no JSON."""
    return value if math.isfinite(value) else None


def _reply_from(entry: Mapping[str, Any]) -> ImageReply:
    action, features, distances = entry["action"], entry["features"], entry["distances"]
    detections = Detections(
        np.array(entry["boxes"], np.float32).reshape(-1, 4),
        np.array(entry["probabilities"], np.float32).reshape(-1, CLASS_COUNT),
    )
    answer = SystemAnswer(
        detections,
        None
        if action is None
        else Action(np.array(action["removed"], np.float32).reshape(-1, 4), action["asked"], action["clean"]),
        None if features is None else np.frombuffer(base64.b64decode(features), "<f4"),
        entry["failure"],
    )
    if distances is None:
        return ImageReply(answer, None)
    values = {name: math.inf if value is None else value for name, value in distances.items()}
    return ImageReply(answer, ImageDistances(**values))
