# SPDX-License-Identifier: Apache-2.0
"""Shifts of a simulated cell, faster than time: laptops judged by a bundle, questions answered by a scripted operator, and the
recording and the audit log that a real cell would leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from rclpy.serialization import serialize_message
from sensor_msgs.msg import Image

from sticker_uq.evaluation.metrics.decisions import DecisionCounts, ends_with_question, touched
from sticker_uq.gate import Policy, judge
from sticker_uq.gate.audit import GENESIS, Entry
from sticker_uq.gate.box_overlap import as_box
from sticker_uq.gate.operator.answers import Answer, OperatorAnswers
from sticker_uq.io.bag_writer import BagWriter
from sticker_uq.nodes.common.conversions import decision_to_msg, header_of, scene_to_msg
from sticker_uq.perception import Perception
from sticker_uq.scene import FloatArray, ObjectClass, Outcome, SceneDecision, Verdict
from sticker_uq_msgs.msg import SceneAssessment as SceneAssessmentMsg
from sticker_uq_msgs.msg import SceneDecision as SceneDecisionMsg

TOPICS = {
    "image": ("sensor_msgs/msg/Image", Image),
    "scene": ("sticker_uq_msgs/msg/SceneAssessment", SceneAssessmentMsg),
    "decision": ("sticker_uq_msgs/msg/SceneDecision", SceneDecisionMsg),
}
SECOND = 10**9


class TrueScene(Protocol):
    """A picture (H, W, 3) uint8 BGR and the ``boxes`` (N, 4) px and ``labels`` (N,) of what is on it."""

    @property
    def image(self) -> NDArray[np.uint8]: ...
    @property
    def boxes(self) -> FloatArray: ...
    @property
    def labels(self) -> NDArray[np.int64]: ...


class AuditWriter:
    """An audit log whose entries have the times that its user sets as ``now_ns``."""

    def __init__(self, folder: Path, now_ns: int) -> None:
        folder.mkdir(parents=True)
        self._file = folder / "audit-000001.jsonl"
        self._head, self._number, self.now_ns = GENESIS, -1, now_ns

    def add(self, kind: str, **data: Any) -> None:
        self._number += 1
        entry = Entry.following(self._number, self._head, kind, data, self.now_ns)
        self._head = entry.hash
        with self._file.open("ab") as stream:
            stream.write(entry.line())


@dataclass(frozen=True)
class Operator:
    """A scripted person: ``errs`` in that share of the objects; ``always`` gives one answer; ``seconds`` for a question."""

    name: str = "Ada"
    errs: float = 0.02
    always: Answer | None = None
    seconds: float = 6.0

    def answer(self, truth: TrueScene, box: Any, rng: np.random.Generator) -> Answer:
        place, _ = touched(np.asarray(box, float), np.asarray(truth.boxes, float))
        sticker = place >= 0 and truth.labels[place] == ObjectClass.STICKER
        if rng.random() < self.errs:
            sticker = not sticker
        if self.always is not None:
            return self.always
        return Answer.REMOVE if sticker else Answer.KEEP if place >= 0 else Answer.NOT_THERE


@dataclass
class ShiftCounts:
    """``questions``: laptops that the policy asked about; ``objects`` on them that it was not sure of, at least one each;
    ``wrongful``, ``dirty``: laptops with a wrongful release, and those called clean with a sticker, without a person's answer.
    """

    laptops: int = 0
    questions: int = 0
    objects: int = 0
    checks: int = 0
    wrongful: int = 0
    dirty: int = 0


def run_shift(
    out: Path,
    laptops: Iterable[tuple[str, TrueScene]],
    perception: Perception,
    policy: Policy,
    operator: Callable[[int], Operator],
    spot_check_rate: float,
    start_ns: int,
    gap_ns: int = 600 * SECOND,
    seed: int = 0,
) -> ShiftCounts:
    """Work through named ``laptops`` every ``gap_ns`` from ``start_ns`` on; writes the new folders OUT/bag and OUT/audit."""
    rng = np.random.default_rng(seed)
    found = ShiftCounts()
    log = AuditWriter(out / "audit", start_ns)
    log.add("start", policy_hash=policy.hash)
    with BagWriter(out / "bag") as bag:
        for topic, (kind, _) in TOPICS.items():
            bag.add_topic(f"/{topic}", kind)
        for number, (name, truth) in enumerate(laptops):
            now = log.now_ns = start_ns + number * gap_ns
            scene = perception.assess(truth.image, now, "camera")
            decision = judge(scene, policy, OperatorAnswers(), name)
            height, width = truth.image.shape[:2]
            image = Image(
                header=header_of(now, "camera"), height=height, width=width, encoding="bgr8", step=3 * width
            )
            image.data.frombytes(truth.image.tobytes())
            for topic, message in (
                ("image", image),
                ("scene", scene_to_msg(scene)),
                ("decision", decision_to_msg(decision)),
            ):
                bag.write(f"/{topic}", now, serialize_message(message))
            log.add("workpiece", workpiece_id=name, stamp_ns=now)
            found.laptops += 1
            asked = ends_with_question(decision)
            first = decision.outcome is not Outcome.WORK
            checked = not (asked and first) and rng.random() < spot_check_rate
            found.questions += asked
            found.objects += asked and max(1, sum(v.verdict is Verdict.ASK for v in decision.verdicts))
            found.checks += checked
            if not (asked and first) and not checked:
                counts = DecisionCounts()
                counts.add("", truth.boxes, truth.labels, decision)
                measured = counts.measured()
                found.wrongful += measured.wrongful.events
                found.dirty += measured.missed.events
                if not first:
                    log.add("permit", goal_id=1, decision_id=decision.decision_id, policy_hash=policy.hash)
            if asked or checked:
                _ask(log, decision, truth, operator(number), checked, rng)
            log.add("done", workpiece_id=name, clean=True, decision_id=decision.decision_id)
    return found


def _ask(
    log: AuditWriter,
    decision: SceneDecision,
    truth: TrueScene,
    person: Operator,
    check: bool,
    rng: np.random.Generator,
) -> None:
    left = decision.outcome is Outcome.WORK and not check  # what was released is gone by then
    objects = [
        v
        for v in decision.verdicts
        if v.verdict is Verdict.ASK or (not left and v.object.label is ObjectClass.STICKER)
    ]
    boxes = [as_box(v.object.box) for v in objects]
    told = [{"answer": person.answer(truth, box, rng).name, "box": box} for box in boxes]
    stickers = truth.boxes[truth.labels == ObjectClass.STICKER]
    gone = [as_box(v.object.box) for v in decision.removable()] if left else []
    seen = np.array(boxes + gone, float).reshape(-1, 4)
    drawn = [as_box(box) for box in stickers if touched(box, seen)[0] < 0] if person.always is None else []
    told += [{"answer": Answer.MISSED.name, "box": box} for box in drawn]
    request = f"r-{decision.decision_id}"
    log.add(
        "request",
        request_id=request,
        decision_id=decision.decision_id,
        workpiece_id=decision.workpiece_id,
        image_stamp_ns=decision.stamp_ns,
        objects=[{"verdict": v.verdict.name, "box": box} for v, box in zip(objects, boxes, strict=True)],
        reasons=[{"code": "spot_check" if check else "not_sure"}],
    )
    log.now_ns += round(person.seconds * SECOND)
    clean = "NONE" if any(one["answer"] in ("REMOVE", "MISSED") for one in told) else "CLEAN"
    log.add("answer", request_id=request, person=person.name, scene_answer=clean, answers=told, accepted=True)
