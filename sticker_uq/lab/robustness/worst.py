# SPDX-License-Identifier: Apache-2.0
"""The follow-ups that went worst in a robustness assessment, each beside its source, as pictures for a person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from sticker_uq.evaluation.metrics.accuracy import count_matches
from sticker_uq.evaluation.metrics.matching import overlapping
from sticker_uq.evaluation.reporting.annotated_images import CLASS_COLOURS, ORANGE, RED
from sticker_uq.io.coco import LabelledImage, read_picture
from sticker_uq.io.files import atomic_write
from sticker_uq.io.images import Picture, encode_jpeg
from sticker_uq.lab.robustness.evaluating import AnsweredSet, hides_sticker
from sticker_uq.lab.robustness.result import WorstImage
from sticker_uq.lab.robustness.spec import Specification
from sticker_uq.lab.robustness.systems_interface import Answer, act_on_detections, consequence
from sticker_uq.scene import ObjectClass

FOLDER = "worst"
_WIDTH = 560  # of each of the two pictures, px
_HARM = 10  # of an action that is wrong, against 1 of an object that is missed or made up


@dataclass(frozen=True)
class _Candidate:
    harm: int
    circumstance: str
    place: int
    note: str
    of: AnsweredSet


def worst_images(
    spec: Specification, sets: Sequence[AnsweredSet], most: int, folder: Path
) -> tuple[WorstImage, ...]:
    """Draw the worst follow-up of each circumstance, at most ``most``, into ``folder``/worst; the most harmful first.

    Follow-ups that went no worse than their sources are left out. Raises OSError when the disk refuses.
    """
    worst: list[_Candidate] = []
    for one in sets:
        if one.cases.kind == "circumstance":
            found = [_candidate(spec, one, place) for place in range(len(one.replies))]
            worst += sorted(found, key=lambda c: (-c.harm, c.place))[:1]
    chosen = sorted((c for c in worst if c.harm > 0), key=lambda c: -c.harm)[:most]
    results = []
    (folder / FOLDER).mkdir(exist_ok=True)
    for candidate in chosen:
        name = f"{FOLDER}/{candidate.circumstance}.jpg"
        with atomic_write(folder / name) as stream:
            stream.write(encode_jpeg(_side_by_side(spec, candidate), 84))
        results.append(WorstImage(circumstance=candidate.circumstance, file=name, note=candidate.note))
    return tuple(results)


def _candidate(spec: Specification, one: AnsweredSet, place: int) -> _Candidate:
    case, answer = one.cases.cases[place], one.replies[place].answer
    index = int(one.origin[place])
    before = count_matches(
        one.source_replies[index].answer.detections, one.sources[index], spec.match_iou, spec.decision_score
    )
    after = count_matches(answer.detections, case.truth, spec.match_iou, spec.decision_score)
    action = answer.action or act_on_detections(answer.detections, spec.decision_score)
    stickers = case.boxes[case.labels == ObjectClass.STICKER]
    done = consequence(action, stickers, hides_sticker(case), spec.match_iou)
    lost = max(after.false_negatives - before.false_negatives, 0)
    made_up = max(after.false_positives - before.false_positives, 0)
    words = []
    if answer.failure:
        words.append(f"no answer: {answer.failure}")
    if done.wrong:
        words.append(f"{done.wrong} would be removed that {'is' if done.wrong == 1 else 'are'} no sticker")
    if done.missed:
        words.append("called clean with a sticker on it")
    if lost:
        words.append(f"{lost} object{'s' * (lost > 1)} lost")
    if made_up:
        words.append(f"{made_up} found that {'is' if made_up == 1 else 'are'} not there")
    if done.asked and words:
        words.append("a person is asked")
    strengths = ", ".join(f"{a.strength:g}" for a in case.applied)
    harm = _HARM * (done.wrong + done.missed) + lost + made_up
    return _Candidate(harm, case.circumstances[0], place, f"strength {strengths}: {'; '.join(words)}", one)


def _side_by_side(spec: Specification, candidate: _Candidate) -> Picture:
    one, place = candidate.of, candidate.place
    index, case = int(one.origin[place]), one.cases.cases[place]
    source = _drawn(spec, one.sources[index], one.source_replies[index].answer, "source")
    followup = _drawn(spec, case.truth, one.replies[place].answer, candidate.circumstance)
    gap = np.full((source.shape[0], 6, 3), 255, np.uint8)
    if followup.shape[0] != source.shape[0]:
        followup = np.asarray(cv2.resize(followup, (_WIDTH, source.shape[0])), np.uint8)
    return np.hstack([source, gap, followup])


def _drawn(spec: Specification, item: LabelledImage, answer: Answer, title: str) -> Picture:
    """The picture with its detections, the objects that none of them is, and what would be removed wrongly."""
    image = read_picture(item)
    scale = _WIDTH / image.shape[1]
    size = (_WIDTH, round(image.shape[0] * scale))
    small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    picture = Image.fromarray(np.ascontiguousarray(small[..., ::-1]))
    pen = ImageDraw.Draw(picture)
    font = ImageFont.load_default(13)
    found = answer.detections
    sure = found.scores >= spec.decision_score
    labels = found.foreground_labels
    for box, label, score in zip(found.boxes[sure], labels[sure], found.scores[sure], strict=True):
        kind = ObjectClass(int(label))
        _box(pen, box * scale, CLASS_COLOURS[kind], f"{kind.name.lower()} {score:.2f}", font, 2)
    for box, label in zip(item.boxes, item.labels, strict=True):
        same = sure & (labels == label)
        if not overlapping(box[None], found.boxes[same], spec.match_iou)[0]:
            _box(pen, box * scale, RED, f"missed {ObjectClass(int(label)).name.lower()}", font, 3)
    action = answer.action or act_on_detections(found, spec.decision_score)
    stickers = item.boxes[item.labels == ObjectClass.STICKER]
    for box in action.removed[~overlapping(action.removed, stickers, spec.match_iou)]:
        _box(pen, box * scale, ORANGE, "would be removed", font, 4)
    state = (
        "no answer" if answer.failure else "asks" if action.asked else "clean" if action.clean else "works"
    )
    pen.rectangle((0, 0, size[0], 20), fill=(18, 20, 24))
    pen.text((6, 10), f"{title}: {state}", font=font, fill=(245, 245, 245), anchor="lm")
    return np.ascontiguousarray(np.asarray(picture)[..., ::-1])


def _box(
    pen: ImageDraw.ImageDraw,
    box: NDArray[np.floating],
    colour: tuple[int, int, int],
    text: str,
    font: ImageFont.ImageFont | ImageFont.FreeTypeFont,
    width: int,
) -> None:
    x1, y1, x2, y2 = (float(v) for v in box)
    if x2 <= x1 or y2 <= y1:
        return
    pen.rectangle((x1, y1, x2, y2), outline=colour, width=width)
    top = y1 - 16 if y1 > 36 else y1 + 2
    pen.rectangle((x1, top, x1 + pen.textlength(text, font=font) + 6, top + 16), fill=(18, 20, 24))
    pen.text((x1 + 3, top + 8), text, font=font, fill=colour, anchor="lm")
