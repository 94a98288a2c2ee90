# SPDX-License-Identifier: Apache-2.0
"""A person who answers from labelled boxes what `sticker-uq ask` asks about a picture."""

from pathlib import Path

import numpy as np

from sticker_uq.calibration.answers import Answer, Answered, Question
from sticker_uq.calibration.asked import candidates
from sticker_uq.calibration.records import Record
from sticker_uq.evaluation.metrics.decisions import met_labels
from sticker_uq.gate import Policy
from sticker_uq.gate.box_overlap import as_box


def question_of(record: Record, policy: Policy) -> Question:
    """What is asked about the picture of ``record``."""
    seen = record.assessment
    boxes = tuple(as_box(box) for box in candidates(seen, policy))
    return Question(seen.image_digest, record.name, Path(record.name), seen.image_size, boxes)


Said = tuple[list[Answer], list[bool | None], bool]


def said_from_labels(question: Question, record: Record) -> Said:
    """What a person says who sees the labelled boxes of ``record``, and nothing else: of the boxes, pairs, and of others."""
    met = met_labels(np.array(question.boxes, float).reshape(-1, 4), record.boxes, record.labels)
    on, harm = met.sticker.tolist(), met.harm.tolist()
    answers: list[Answer] = [
        "no_sticker" if sticker < 0 else "takes_logo" if harms else "sticker"
        for sticker, harms in zip(on, harm, strict=True)
    ]
    same = [on[i] == on[j] if on[i] >= 0 and on[j] >= 0 else None for i, j in question.pairs]
    other = not set(range(record.sticker_count)) <= met.peeled_stickers
    return answers, same, other


def answer_from_labels(question: Question, record: Record) -> Answered:
    return question.with_answers(*said_from_labels(question, record))
