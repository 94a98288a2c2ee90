# SPDX-License-Identifier: Apache-2.0
"""Pictures without labels, about whose boxes a person answers: what is asked, and the records of what was answered."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from sticker_uq.calibration.answers import ANSWERS, About, Answered, Question, read_answers
from sticker_uq.calibration.outcomes import with_open_limits
from sticker_uq.calibration.records import Assessed, Record
from sticker_uq.evaluation.metrics.decisions import released_regions
from sticker_uq.gate import Policy, judge
from sticker_uq.gate.box_overlap import as_box
from sticker_uq.io.coco import ANNOTATIONS
from sticker_uq.io.images import picture_files
from sticker_uq.io.labelled_images import LabelledSource
from sticker_uq.io.sources import ImageSource, SourceImage, is_recording, open_source
from sticker_uq.messages import printable
from sticker_uq.scene import FloatArray, InvalidInput, SceneAssessment


class AskedPictures(ImageSource):
    """The pictures in the folder ``path``, one of each laptop, and ``answers``: what was said about them, by their digests."""

    continuous = False
    recorded = False
    workpieces: tuple[tuple[int, str], ...] = ()

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_dir() or is_recording(path):
            raise InvalidInput(
                f"{path}: expected a folder of pictures, one of each laptop; `sticker-uq dataset frames` takes pictures out of a "
                "recording or a video"
            )
        if (path / ANNOTATIONS).exists():
            raise InvalidInput(
                f"{path}: has {ANNOTATIONS}, whose labels say all that would be asked: calibrate on them, or give a folder "
                "without"
            )
        self._pictures = open_source(path)
        self.remarks = self._pictures.remarks
        self.file = path / ANSWERS
        self.about: About | None = None
        self.answers: dict[str, Answered] = {}
        if self.file.exists():
            self.about, self.answers = read_answers(self.file)

    def __len__(self) -> int:
        return len(self._pictures)

    def __iter__(self) -> Iterator[SourceImage]:
        return iter(self._pictures)

    def refuse_others(self, found: About) -> None:
        """InvalidInput where weights or settings are others than those of the answers."""
        if self.about is not None:
            self.about.refuse_others(self.file, found)

    def questions(self, seen: Mapping[str, SceneAssessment], policy: Policy) -> list[Question]:
        """What is asked of the pictures, which were ``seen``, by name: the boxes that ``policy`` releases at some limit.

        In the order of their digests, which says nothing about them: the first ones are a random sample of all.
        """
        files = {printable(file.name): file for file in picture_files(self.path)}
        found = [
            Question(
                image=one.image_digest,
                name=name,
                file=files[name],
                size=one.image_size,
                boxes=tuple(as_box(box) for box in candidates(one, policy)),
            )
            for name, one in seen.items()
        ]
        return sorted(found, key=lambda question: question.image)

    def records(self, seen: Mapping[str, SceneAssessment]) -> Assessed:
        """The records of the pictures with answers, which were ``seen``, by name."""
        nothing = np.zeros((0, 4), np.float32), np.zeros(0, np.int64)
        records = tuple(
            Record(name, *nothing, one, said=self.answers[one.image_digest])
            for name, one in seen.items()
            if one.image_digest in self.answers
        )
        whole = hashlib.sha256()
        for record in records:
            assert record.said is not None
            whole.update(record.said.model_dump_json(exclude={"name", "time"}).encode())
        return Assessed(str(self.path), records, whole.hexdigest())

    def describe_unused(self, records: int) -> str:
        """What of the folder takes no part, of which ``records`` do; "" for nothing."""
        unanswered, elsewhere = len(self) - records, len(self.answers) - records
        parts = (
            [f"{unanswered} of {len(self)} pictures have no answers and prove nothing"] if unanswered else []
        )
        parts += [f"{elsewhere} answers are about pictures that are not there"] if elsewhere else []
        return f"{self.path}: {'; '.join(parts)}" if parts else ""


def candidates(assessment: SceneAssessment, policy: Policy) -> FloatArray:
    """The boxes (R, 4) px that ``policy`` releases at some limit on the risk; its validity is not asked."""
    return released_regions(judge(assessment, with_open_limits(policy).model_copy(update={"validity": None})))


def open_pictures(path: Path, topic: str | None = None) -> LabelledSource | AskedPictures:
    """The labelled images of ``path``, or its pictures with answers where there are these and no labels."""
    answered = (path / ANSWERS).is_file() and not (path / ANNOTATIONS).exists()
    return AskedPictures(path) if answered else LabelledSource(path, topic)
