# SPDX-License-Identifier: Apache-2.0
"""Labelled pictures from operators' answers in the audit log and the recorded images.

Every answered intervention about objects gives one picture, labelled with the operator's answers and drawn boxes, earlier answers
about the same laptop, and the confident decisions of the policy. A picture with an undecided object is left out, because a
missing box would train the detector to miss it. So is one whose answers contradict each other, which the gate of earlier versions
accepted, and every later one of that laptop: what the gate decided then followed from the contradiction.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sticker_uq.gate.answers import (
    Answer,
    OperatorAnswer,
    OperatorAnswers,
    SceneAnswer,
    contradiction,
)
from sticker_uq.gate.audit import Entry, entries, verify
from sticker_uq.gate.box_overlap import Box, as_box, same_place
from sticker_uq.io.bags import Bag
from sticker_uq.io.coco import EncodedScene
from sticker_uq.io.messages import decision_from_msg, expect_fields, scene_from_msg, stamp_to_ns
from sticker_uq.io.sources import open_source
from sticker_uq.io.topics import folder_of
from sticker_uq.messages import text_of
from sticker_uq.scene import InvalidInput, ObjectClass, ObjectVerdict, SceneDecision, Verdict

_MESSAGES = "sticker_uq_msgs/msg/"
NO_PICTURE = "no recording has its decision and its image"
OnRead = Callable[[Path, Sequence[str], str], object]
"""Called with each recording, its remarks and what of it is lost."""
_READ = _DECISION, _SCENE = "SceneDecision", "SceneAssessment"
BY_PERSON, BY_POLICY = "person", "policy"
_MEANING = {
    Answer.REMOVE: ObjectClass.STICKER,
    Answer.MISSED: ObjectClass.STICKER,
    Answer.KEEP: ObjectClass.LOGO,
    Answer.NOT_THERE: ObjectClass.BACKGROUND,
}
"""The class of each answer. "Leave it" becomes a logo: the class of everything that must not be peeled."""
_UNUSABLE = {
    SceneAnswer.RESCAN: "the operator requested a rescan",
    SceneAnswer.SKIP_LAPTOP: "the operator skipped the laptop",
    SceneAnswer.FAULT: "the operator reported a fault",
}


@dataclass(frozen=True)
class AnsweredQuestion:
    """An accepted answer. ``before``: earlier ones about the same laptop; ``problem``: why it cannot be used.

    ``entry``: number of the request's entry; ``seconds`` from there to the answer; ``spot_check``: the policy itself would not
    have asked; ``released``: boxes of the objects asked about that the policy released itself.
    """

    request_id: str
    decision_id: str
    workpiece_id: str
    image_stamp_ns: int
    person: str
    scene_answer: SceneAnswer
    answers: tuple[OperatorAnswer, ...]
    before: OperatorAnswers
    problem: str = ""
    entry: int = -1
    seconds: float = math.inf
    spot_check: bool = False
    released: tuple[Box, ...] = ()


@dataclass(frozen=True)
class LabelledBox:
    """``box``: (x1, y1, x2, y2) px; ``source`` of the label: "person" or "policy"."""

    box: Box
    label: ObjectClass
    source: str


@dataclass(frozen=True)
class AnsweredCase:
    """One answered intervention: its picture (H, W, 3) BGR, None when ``problem`` says why it cannot be used, and its boxes."""

    question: AnsweredQuestion
    picture: NDArray[np.uint8] | None
    boxes: tuple[LabelledBox, ...]
    problem: str = ""


def answered_questions(audit_folder: Path) -> list[AnsweredQuestion]:
    """The accepted answers in their order; InvalidInput when there is no log or it was altered."""
    check = verify(audit_folder)
    if not check.whole:
        raise InvalidInput(
            f"audit log {audit_folder} was altered, its answers cannot be used: {check.findings[0]}"
        )
    asked: dict[str, Entry] = {}
    memories: dict[str, OperatorAnswers] = {}
    contradicted: set[str] = set()
    found = []
    for entry in entries(audit_folder):
        with expect_fields(f"audit log {audit_folder}: entry {entry.number}"):
            if entry.kind == "request":
                asked[str(entry.data["request_id"])] = entry
            elif entry.kind == "answer" and entry.data.get("accepted") and entry.data["request_id"] in asked:
                question = _question(asked[entry.data["request_id"]], entry, memories)
                problem = contradiction(question.answers, question.scene_answer)
                if problem is not None:
                    question = replace(question, problem=f"contradiction: {text_of(problem)}")
                    contradicted |= {question.workpiece_id} - {""}
                elif question.workpiece_id in contradicted:
                    problem_before = "an earlier answer about the laptop was a contradiction"
                    question = replace(question, problem=problem_before)
                found.append(question)
                memories[question.workpiece_id] = question.before.remember(question.answers)
    return found


def _question(request: Entry, answer: Entry, memories: dict[str, OperatorAnswers]) -> AnsweredQuestion:
    workpiece_id = str(request.data["workpiece_id"])
    return AnsweredQuestion(
        request_id=str(request.data["request_id"]),
        decision_id=str(request.data["decision_id"]),
        workpiece_id=workpiece_id,
        image_stamp_ns=int(request.data["image_stamp_ns"]),
        person=str(answer.data["person"]),
        scene_answer=SceneAnswer[answer.data["scene_answer"]],
        answers=tuple(
            OperatorAnswer(Answer[a["answer"]], as_box(tuple(a["box"]))) for a in answer.data["answers"]
        ),
        # without a workpiece id an earlier answer may be about another laptop
        before=memories.get(workpiece_id, OperatorAnswers()) if workpiece_id else OperatorAnswers(),
        entry=request.number,
        seconds=(answer.time_ns - request.time_ns) * 1e-9,
        spot_check=is_spot_check(request),
        released=tuple(
            as_box(tuple(one["box"])) for one in request.data.get("objects", ()) if one["verdict"] == "REMOVE"
        ),
    )


def is_spot_check(request: Entry) -> bool:
    return any(reason["code"] == "spot_check" for reason in request.data.get("reasons", ()))


def label_case(question: AnsweredQuestion, decision: SceneDecision) -> tuple[tuple[LabelledBox, ...], str]:
    """Labels by the answer: boxes on the picture of ``decision``, and why it cannot be used ("" when it can)."""
    if question.problem:
        return (), question.problem
    if question.scene_answer in _UNUSABLE:
        return (), _UNUSABLE[question.scene_answer]
    clean = question.scene_answer is SceneAnswer.CLEAN
    said = question.before.remember(question.answers).answers
    boxes: list[LabelledBox] = []
    for verdict in decision.verdicts:
        known = _label_verdict(verdict, said, clean)
        if known is None:
            return (), f"object {verdict.object.id} was not decided"
        if known.label is ObjectClass.BACKGROUND or (clean and known.label is ObjectClass.STICKER):
            continue
        # two detections of one object share one answer
        if not any(b.label is known.label and same_place(b.box, known.box) for b in boxes):
            boxes.append(known)
    for answer in question.answers:
        if answer.answer is Answer.MISSED and not any(same_place(b.box, answer.box) for b in boxes):
            boxes.append(LabelledBox(answer.box, ObjectClass.STICKER, BY_PERSON))
    return tuple(boxes), ""


def _label_verdict(verdict: ObjectVerdict, said: Sequence[OperatorAnswer], clean: bool) -> LabelledBox | None:
    box = as_box(verdict.object.box)
    answer = next((a for a in reversed(said) if same_place(a.box, box)), None)
    if answer is not None:
        return LabelledBox(box, _MEANING[answer.answer], BY_PERSON)
    label = verdict.object.label
    if verdict.verdict is Verdict.REMOVE:
        return LabelledBox(box, ObjectClass.STICKER, BY_POLICY)
    if verdict.verdict is Verdict.KEEP:
        is_logo = label is ObjectClass.LOGO and not verdict.object.unstable
        return LabelledBox(box, ObjectClass.LOGO if is_logo else ObjectClass.BACKGROUND, BY_POLICY)
    if clean:  # no sticker is left, whatever the detector says
        return LabelledBox(
            box, ObjectClass.LOGO if label is ObjectClass.LOGO else ObjectClass.BACKGROUND, BY_PERSON
        )
    return None


def encode_labelled(
    picture: NDArray[np.uint8],
    boxes: Sequence[LabelledBox],
    number: int,
    image_fields: dict[str, Any],
    **more: Any,
) -> EncodedScene:
    corners = np.array([box.box for box in boxes], np.float32).reshape(-1, 4)
    labels = np.array([box.label for box in boxes], np.int64)
    return EncodedScene.of(picture, number, "png", corners, labels, image_fields=image_fields, **more)


def answered_cases(
    audit_folder: Path,
    recordings: Sequence[Path],
    topic: str | None = None,
    on_read: OnRead = lambda *_: None,
) -> Iterator[AnsweredCase]:
    """One case per answered question, with its image from the recordings, or the reason why it cannot be used.

    ``recordings`` are the bags of the same time; ``topic`` is their image topic, needed when there are several. Raises
    :class:`InvalidInput` for an altered log and for a recording that cannot be read.
    """
    open_questions = {question.request_id: question for question in answered_questions(audit_folder)}
    wanted = {question.decision_id for question in open_questions.values()}
    for decision, picture in recorded_decisions(recordings, wanted, topic, on_read):
        for question in [q for q in open_questions.values() if q.decision_id == decision.decision_id]:
            del open_questions[question.request_id]
            boxes, problem = label_case(question, decision)
            yield AnsweredCase(question, None if problem else picture, boxes, problem)
    for question in open_questions.values():
        yield AnsweredCase(question, None, (), NO_PICTURE)


def recorded_decisions(
    recordings: Sequence[Path], wanted: set[str], topic: str | None = None, on_read: OnRead = lambda *_: None
) -> Iterator[tuple[SceneDecision, NDArray[np.uint8]]]:
    """The recorded decisions ``wanted``, each with its picture (H, W, 3) BGR; see :func:`answered_cases`."""
    for path in recordings:
        bag, source = Bag(path), open_source(path, topic)
        decisions: dict[int, list[SceneDecision]] = {}
        with expect_fields(f"{path}: a message of the cell"):
            found = _read_decisions(bag, wanted)
        for decision in found.values():
            decisions.setdefault(decision.stamp_ns, []).append(decision)
        for image in source:
            if image.image is not None:
                for decision in decisions.pop(image.stamp_ns, ()):
                    yield decision, image.image
        losses = (bag.loss(name) for kind in _READ for name in bag.topics_of(_MESSAGES + kind))
        on_read(path, source.remarks, "; ".join(filter(None, (source.lost, *losses))))


def _read_decisions(bag: Bag, wanted: set[str]) -> dict[str, SceneDecision]:
    messages = {m.decision_id: m for m in _messages(bag, _DECISION) if m.decision_id in wanted}
    stamps = {stamp_to_ns(message.header.stamp): message for message in messages.values()}
    decisions = {}
    for scene in _messages(bag, _SCENE):
        message = stamps.get(stamp_to_ns(scene.header.stamp))
        if message is not None:
            decisions[message.decision_id] = decision_from_msg(message, scene_from_msg(scene))
    return decisions


def _messages(bag: Bag, kind: str) -> Iterator[Any]:
    topics = bag.topics_of(_MESSAGES + kind)
    if not topics:
        raise InvalidInput(f"{bag.path}: no topic of {_MESSAGES}{kind}: expected a recording of the cell")
    if len(topics) > 1:
        # of several cameras the supervised one, whose scenes have the namespace of the decisions
        cell = {folder_of(topic) for topic in bag.topics_of(_MESSAGES + _DECISION)}
        topics = [topic for topic in topics if folder_of(topic) in cell]
    for topic in topics:
        yield from (item.message for item in bag.messages(topic) if not item.error)
