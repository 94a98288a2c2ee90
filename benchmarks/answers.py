# SPDX-License-Identifier: Apache-2.0
"""A person who knows the truth of a rendered laptop answers what a policy asks about it."""

from __future__ import annotations

from sticker_uq.calibration.records import Record
from sticker_uq.gate import Policy
from sticker_uq.gate.box_overlap import as_box
from sticker_uq.gate.judge import judge
from sticker_uq.gate.operator.answers import Answer, OperatorAnswer, OperatorAnswers, SceneAnswer
from sticker_uq.lab.datasets.from_audit import AnsweredQuestion, LabelledBox, label_case
from sticker_uq.scene import FloatArray, ObjectClass, ObjectVerdict, Verdict
from sticker_uq.uncertainty import iou_matrix

SAME_PLACE = 0.5
"""IoU from which what the person sees is what the detector saw."""
_MEANS = {ObjectClass.STICKER: Answer.REMOVE, ObjectClass.LOGO: Answer.KEEP}


def answered(record: Record, policy: Policy) -> tuple[LabelledBox, ...] | None:
    """What is known to lie on a laptop after the answer, as `sticker-uq dataset from-audit` takes it from the audit log.

    None when the policy does not ask about this laptop. Where something may be removed first, the cell asks about the rest
    afterwards; here both are one picture.
    """
    decision = judge(record.assessment, policy.model_copy(update={"validity": None}))
    asked = [verdict for verdict in decision.verdicts if verdict.verdict is Verdict.ASK]
    if not asked:
        return None
    answers = [_about(verdict, record) for verdict in asked]
    to_remove = [v.object.box for v in decision.verdicts if v.verdict is Verdict.REMOVE]
    to_remove += [v.object.box for v, a in zip(asked, answers, strict=True) if a.answer is Answer.REMOVE]
    for sticker in record.stickers:
        if not any(_overlap(sticker, box) >= SAME_PLACE for box in to_remove):
            answers.append(OperatorAnswer(Answer.MISSED, as_box(sticker)))
    question = AnsweredQuestion(
        "",
        decision.decision_id,
        "",
        record.assessment.stamp_ns,
        "ground truth",
        SceneAnswer.NONE,
        tuple(answers),
        OperatorAnswers(),
    )
    boxes, problem = label_case(question, decision)
    return None if problem else boxes


def _about(verdict: ObjectVerdict, record: Record) -> OperatorAnswer:
    overlaps = [_overlap(verdict.object.box, box) for box in record.boxes]
    best = max(range(len(overlaps)), key=overlaps.__getitem__, default=-1)
    there = best >= 0 and overlaps[best] >= SAME_PLACE
    answer = _MEANS[ObjectClass(int(record.labels[best]))] if there else Answer.NOT_THERE
    return OperatorAnswer(answer, as_box(verdict.object.box))


def _overlap(one: FloatArray, other: FloatArray) -> float:
    return float(iou_matrix(one[None], other[None])[0, 0])
