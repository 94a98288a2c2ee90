# SPDX-License-Identifier: Apache-2.0
"""What a recording of the cell says, laptop by laptop: what was seen, decided, asked and done. ROS is not needed."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, TypeVar

from sticker_uq.gate.answers import Answer, SceneAnswer
from sticker_uq.io import messages
from sticker_uq.io.bags import Bag
from sticker_uq.io.topics import folder_of
from sticker_uq.messages import ANSWERS, SCENE_ANSWERS, gate_state, text_of
from sticker_uq.scene import InvalidInput, Reason, SceneAssessment, SceneDecision

_MESSAGES = "sticker_uq_msgs/msg/"


@dataclass(frozen=True)
class GateChange:
    """The gate went into another state, or its permit to another object. ``stamp_ns`` on the cell's clock."""

    stamp_ns: int
    state: str
    text: str
    decision_id: str
    object_id: int


@dataclass(frozen=True)
class AskedPerson:
    """A question to an operator about ``objects`` (ids), and what they said. ``answer`` is empty while nobody has answered."""

    stamp_ns: int
    text: str
    decision_id: str
    answered_ns: int = 0
    person: str = ""
    answer: str = ""
    removals: int = 0
    reasons: tuple[Reason, ...] = ()
    objects: tuple[int, ...] = ()


@dataclass
class RecordedLaptop:
    """``result``: empty when the recording ends before it left; ``left_ns``: image by which it was declared done, 0: never."""

    workpiece_id: str
    arrived_ns: int
    left_ns: int = 0
    result: str = ""
    clean: bool = False
    scenes: list[SceneAssessment] = field(default_factory=list)
    decisions: dict[str, SceneDecision] = field(default_factory=dict)
    gate: list[GateChange] = field(default_factory=list)
    questions: list[AskedPerson] = field(default_factory=list)

    def decision_of(self, scene: SceneAssessment) -> SceneDecision | None:
        return next((d for d in self.decisions.values() if d.stamp_ns == scene.stamp_ns), None)

    def removals(self) -> list[GateChange]:
        """When the arm was let to an object: one change per permit."""
        started: dict[tuple[str, int], GateChange] = {}
        for change in self.gate:
            if change.state == "removing":
                started.setdefault((change.decision_id, change.object_id), change)
        return list(started.values())

    def by_operator(self, removal: GateChange) -> bool:
        decision = self.decisions.get(removal.decision_id)
        verdicts = decision.verdicts if decision is not None else ()
        return any(v.by_operator for v in verdicts if v.object.id == removal.object_id)


@dataclass
class RecordedCell:
    """What a recording says: its ``laptops`` in the order in which they came, and what belongs to none of them.

    That is whatever came before the first laptop, or after one had left and before the next was announced.
    """

    laptops: list[RecordedLaptop]
    between: RecordedLaptop = field(default_factory=lambda: RecordedLaptop("", 0))

    def at(self, stamp_ns: int) -> RecordedLaptop:
        came = next((one for one in reversed(self.laptops) if one.arrived_ns <= stamp_ns), self.between)
        return self.between if 0 < came.left_ns < stamp_ns else came


def read_recording(bag: Bag) -> RecordedCell:
    """What ``bag`` says, laptop by laptop; InvalidInput when it lacks the cell's topics or their messages have other fields."""
    with messages.expect_fields(f"{bag.path}: a message of the cell"):
        cell = RecordedCell(_laptops(bag))
        _read_scenes(bag, cell)
        _read_gate(bag, cell)
        _read_questions(bag, cell)
        return cell


def _laptops(bag: Bag) -> list[RecordedLaptop]:
    laptops = [
        RecordedLaptop(message.id, messages.stamp_to_ns(message.header.stamp))
        for message in _messages(bag, "Workpiece")
    ]
    if not laptops:
        raise InvalidInput(f"{bag.path}: no laptop was announced in this recording")
    laptops.sort(key=lambda laptop: laptop.arrived_ns)
    for message in _messages(bag, "WorkpieceDone"):
        left_ns = messages.stamp_to_ns(message.header.stamp)
        for laptop in reversed(laptops):
            if laptop.workpiece_id == message.workpiece_id and laptop.arrived_ns <= left_ns:
                laptop.left_ns = left_ns
                laptop.result = text_of(messages.reason_from_msg(message.reason))
                laptop.clean = message.result == 1
                break
    return laptops


def _read_scenes(bag: Bag, cell: RecordedCell) -> None:
    scenes: dict[int, SceneAssessment] = {}
    for message in _messages(bag, "SceneAssessment"):
        scene = messages.scene_from_msg(message)
        scenes[scene.stamp_ns] = scene
        cell.at(scene.stamp_ns).scenes.append(scene)
    for message in _messages(bag, "SceneDecision"):
        about = scenes.get(messages.stamp_to_ns(message.header.stamp))
        if about is not None:
            decision = messages.decision_from_msg(message, about)
            cell.at(decision.stamp_ns).decisions[decision.decision_id] = decision


def _read_gate(bag: Bag, cell: RecordedCell) -> None:
    last: tuple[str, str, int] | None = None
    for message in _messages(bag, "GateState"):
        state = gate_state(message.state)
        now = (state, message.decision_id, message.object_id)
        if now == last:
            continue
        last = now
        stamp_ns = messages.stamp_to_ns(message.header.stamp)
        change = GateChange(stamp_ns, state, message.text, message.decision_id, message.object_id)
        cell.at(stamp_ns).gate.append(change)


def _read_questions(bag: Bag, cell: RecordedCell) -> None:
    answers = {m.request_id: m for m in _messages(bag, "InterventionAnswer")}
    seen: set[str] = set()
    for message in _messages(bag, "InterventionRequest"):
        if not message.request_id or message.request_id in seen:
            continue
        seen.add(message.request_id)
        stamp_ns = messages.stamp_to_ns(message.header.stamp)
        question = AskedPerson(
            stamp_ns,
            message.text,
            message.decision_id,
            reasons=tuple(map(messages.reason_from_msg, message.reasons)),
            objects=tuple(verdict.object_id for verdict in message.objects),
        )
        if answer := answers.get(message.request_id):
            question = replace(
                question,
                answered_ns=messages.stamp_to_ns(answer.header.stamp),
                person=answer.person,
                answer=_words(answer),
                removals=sum(known.removes for known in _known(Answer, (a.answer for a in answer.answers))),
            )
        cell.at(stamp_ns).questions.append(question)


def _words(answer: Any) -> str:
    words = [ANSWERS[known.name.lower()] for known in _known(Answer, (a.answer for a in answer.answers))]
    scene = _known(SceneAnswer, [answer.scene_answer])
    words += [SCENE_ANSWERS[known.name.lower()] for known in scene if known is not SceneAnswer.NONE]
    return ", ".join(words) or "nothing"


_Kind = TypeVar("_Kind", bound=IntEnum)


def _known(kind: type[_Kind], values: Iterable[int]) -> list[_Kind]:
    """The ``values`` that ``kind`` has: those of a later version are passed over."""
    return [kind(value) for value in values if value in kind.__members__.values()]


def _messages(bag: Bag, kind: str) -> Iterator[Any]:
    topics = bag.topics_of(_MESSAGES + kind)
    if len(topics) > 1 and kind == "SceneAssessment":
        # of several cameras the supervised one, whose scenes have the namespace of the cell
        cell = [folder_of(topic) for topic in bag.topics_of(_MESSAGES + "Workpiece")]
        topics = [topic for topic in topics if folder_of(topic) in cell]
    if len(topics) != 1:
        raise InvalidInput(
            f"{bag.path}: expected one topic of {_MESSAGES}{kind}, found {', '.join(topics) or 'none'}"
        )
    for item in bag.messages(topics[0]):
        if item.error:
            raise InvalidInput(f"{bag.path}: {topics[0]}: {item.error}")
        yield item.message
