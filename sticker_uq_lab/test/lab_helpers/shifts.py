# SPDX-License-Identifier: Apache-2.0
"""Shifts of a simulated cell, faster than time: laptops judged by a bundle, questions answered by a scripted operator, and the
recording and the audit log that a real cell would leave.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from rclpy.serialization import serialize_message
from sensor_msgs.msg import Image

from sticker_uq.evaluation.metrics.decisions import match_label
from sticker_uq.gate import Policy, judge
from sticker_uq.gate.answers import Answer, OperatorAnswers
from sticker_uq.gate.audit import GENESIS, Entry
from sticker_uq.gate.box_overlap import as_box
from sticker_uq.gate.judge import once_peeled
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
        entry = Entry.create(self._number, self._head, kind, data, self.now_ns)
        self._head = entry.hash
        with self._file.open("ab") as stream:
            stream.write(entry.line())


ERRS = 0.02
"""Share of the objects about which the operator errs."""
ANSWER_S = 6
"""Time of the operator for a question."""


def _answer(truth: TrueScene, box: Any, rng: np.random.Generator) -> Answer:
    place, _ = match_label(np.asarray(box, float), np.asarray(truth.boxes, float))
    sticker = place >= 0 and truth.labels[place] == ObjectClass.STICKER
    if rng.random() < ERRS:
        sticker = not sticker
    return Answer.REMOVE if sticker else Answer.KEEP if place >= 0 else Answer.NOT_THERE


def run_shift(
    out: Path,
    laptops: Iterable[tuple[str, TrueScene]],
    perception: Perception,
    policy: Policy,
    spot_check_rate: float,
    start_ns: int,
    gap_ns: int,
) -> tuple[int, int]:
    """Work through named ``laptops`` every ``gap_ns`` from ``start_ns`` on; writes the new folders OUT/bag and OUT/audit.

    Returns how many laptops the policy asked about, and how many were spot checked.
    """
    rng = np.random.default_rng(0)
    questions = checks = 0
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
            asked = once_peeled(decision, scene, policy).outcome is not Outcome.CLEAN
            first = decision.outcome is not Outcome.WORK
            checked = not (asked and first) and rng.random() < spot_check_rate
            questions += asked
            checks += checked
            if not first and not checked:
                log.add("permit", goal_id=1, decision_id=decision.decision_id, policy_hash=policy.hash)
            if asked or checked:
                _ask(log, decision, truth, checked, rng)
            log.add("done", workpiece_id=name, clean=True, decision_id=decision.decision_id)
    return questions, checks


def _ask(
    log: AuditWriter, decision: SceneDecision, truth: TrueScene, check: bool, rng: np.random.Generator
) -> None:
    left = decision.outcome is Outcome.WORK and not check  # what was released is gone by then
    objects = [
        v
        for v in decision.verdicts
        if v.verdict is Verdict.ASK or (not left and v.object.label is ObjectClass.STICKER)
    ]
    boxes = [as_box(v.object.box) for v in objects]
    told = [{"answer": _answer(truth, box, rng).name, "box": box} for box in boxes]
    stickers = truth.boxes[truth.labels == ObjectClass.STICKER]
    gone = [as_box(v.object.box) for v in decision.removable()] if left else []
    seen = np.array(boxes + gone, float).reshape(-1, 4)
    drawn = [as_box(box) for box in stickers if match_label(box, seen)[0] < 0]
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
    log.now_ns += ANSWER_S * SECOND
    clean = "NONE" if any(one["answer"] in ("REMOVE", "MISSED") for one in told) else "CLEAN"
    log.add("answer", request_id=request, person="Ada", scene_answer=clean, answers=told, accepted=True)
