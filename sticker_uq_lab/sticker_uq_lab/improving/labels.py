# SPDX-License-Identifier: Apache-2.0
"""Labelled pictures of the laptops of an audit log, divided by laptop and time into parts with different uses."""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from sticker_uq.gate.answers import Answer, OperatorAnswers, SceneAnswer
from sticker_uq.gate.assumptions.drift import uniform
from sticker_uq.gate.box_overlap import as_box, same_place
from sticker_uq.io.coco import EncodedScene, read_coco, write_coco
from sticker_uq.scene import InvalidInput, ObjectClass, SceneDecision, Verdict
from sticker_uq_lab.datasets import from_audit
from sticker_uq_lab.improving.visits import Group, Visit
from sticker_uq_lab.qualifying.parts import write_part

LEARN, FIT = 0.6, 0.2
"""Shares of the laptops, without spot checked and newest ones, to train on and to fit limits on; the others prove."""
_DAY_NS = 86_400 * 10**9
_WORST = from_audit.LabelledBox((0.0, 0.0, 1.0, 1.0), ObjectClass.STICKER, "unknown")
"""What stands for an unknown label: whatever is released is wrong, and a laptop called clean is not."""


class Part(StrEnum):
    """The use of a laptop's pictures: the ``judge`` part is the newest and takes part in nothing before the verdict."""

    LEARN = "learn"
    FIT = "fit"
    PROVE = "prove"
    JUDGE = "judge"


@dataclass(frozen=True)
class Labelled:
    """A picture (H, W, 3) BGR with its boxes and their ``origin``."""

    visit: Visit
    part: Part
    decision_id: str
    picture: NDArray[np.uint8]
    boxes: tuple[from_audit.LabelledBox, ...]
    origin: str


class Noted(BaseModel):
    """What the picture ``name`` of a part stands for; the fields are those of :class:`Labelled`."""

    model_config = ConfigDict(frozen=True)

    name: str
    visit: str
    group: Group
    origin: str


def divide(visits: Sequence[Visit], policy_hash: str, newest_days: float) -> dict[str, Part]:
    """The part of every laptop, by the name of its visit.

    Those that another policy decided about train only, because their groups are not those of the policy ``policy_hash``. Of the
    others the newest ``newest_days`` judge; older spot-checked ones prove only, for there are few.
    """
    since = max(visit.time_ns for visit in visits) - round(newest_days * _DAY_NS)
    parts: dict[str, Part] = {}
    for visit in visits:
        drawn = uniform(f"{visit.time_ns} {visit.decision_id}", "improve")
        if visit.policy_hash != policy_hash:
            parts[visit.name] = Part.LEARN
        elif visit.time_ns > since:
            parts[visit.name] = Part.JUDGE
        elif visit.group is Group.CHECKED:
            parts[visit.name] = Part.PROVE
        else:
            other = Part.FIT if drawn < LEARN + FIT else Part.PROVE
            parts[visit.name] = Part.LEARN if drawn < LEARN else other
    missing = {Part.LEARN, Part.JUDGE} - set(parts.values())
    if missing:
        days = (max(v.time_ns for v in visits) - min(v.time_ns for v in visits)) / _DAY_NS
        what = " or ".join(sorted(missing))
        raise InvalidInput(
            f"--newest {newest_days:g}: of {len(visits)} laptops in {days:.3g} days none is left to {what} with; expected a "
            "number of days that leaves laptops of the active bundle before and after"
        )
    return parts


def read_labelled(
    visits: Sequence[Visit],
    parts: dict[str, Part],
    recordings: Sequence[Path],
    topic: str | None = None,
    on_read: from_audit.OnRead = lambda *_: None,
    left_out: Counter[str] | None = None,
) -> Iterator[Labelled]:
    """The pictures of ``visits`` in the order of the recordings, with labels; ``left_out`` counts what is not used, by reason."""
    left_out = Counter() if left_out is None else left_out
    wanted: dict[str, list[tuple[Visit, from_audit.AnsweredQuestion | None]]] = {}
    for visit in visits:
        last = {
            question.decision_id: question for question in visit.questions
        }  # a picture may be asked about again
        for decision_id, question in last.items():
            wanted.setdefault(decision_id, []).append((visit, question))
        if visit.decision_id not in last:
            wanted.setdefault(visit.decision_id, []).append((visit, None))
    for decision, picture in from_audit.recorded_decisions(recordings, set(wanted), topic, on_read):
        for visit, answered in wanted.pop(decision.decision_id, ()):
            part = parts[visit.name]
            arrival = decision.decision_id == visit.decision_id
            boxes, problem = _labels(visit, answered, decision)
            if problem:
                left_out[problem] += 1
            # arrivals are counted whether they have labels or not; of released ones few have
            counted = arrival and (
                part is Part.JUDGE or (part is Part.PROVE and visit.group is not Group.RELEASED)
            )
            if problem and counted:
                boxes = (_WORST,)
            elif (
                problem
                or (part in (Part.PROVE, Part.JUDGE) and not counted)
                or (part is Part.FIT and not arrival)
            ):
                continue
            origin = "unknown" if problem else _origin(visit, answered)
            yield Labelled(visit, part, decision.decision_id, picture, boxes, origin)
    left_out[from_audit.NO_PICTURE] += sum(map(len, wanted.values()))
    left_out += Counter()


def _origin(visit: Visit, question: from_audit.AnsweredQuestion | None) -> str:
    if question is None:
        return "answered" if visit.questions else "released"
    return "spot check" if question.spot_check else "answered"


def _labels(
    visit: Visit, question: from_audit.AnsweredQuestion | None, decision: SceneDecision
) -> tuple[tuple[from_audit.LabelledBox, ...], str]:
    if question is None:
        if visit.group is not Group.RELEASED:
            return (), "the question was not answered"
        if visit.complaint:
            return (), f"released, but {visit.complaint}"
        if problem := next((later.problem for later in visit.questions if later.problem), ""):
            return (), problem
        # what was in doubt beside it was asked about once it was gone, on a later picture; where it was, something else may show
        peeled = [as_box(one.object.box) for one in decision.verdicts if one.verdict is Verdict.REMOVE]
        said = tuple(
            answer
            for later in visit.questions
            for answer in later.answers
            if not any(same_place(answer.box, box) for box in peeled)
        )
        boxes, problem = from_audit.label_case(
            from_audit.AnsweredQuestion("", "", "", 0, "", SceneAnswer.NONE, said, OperatorAnswers()),
            decision,
        )
        return boxes, "an object was in doubt that nobody was asked about" if problem else ""
    boxes, problem = from_audit.label_case(question, decision)
    seen = [as_box(verdict.object.box) for verdict in decision.verdicts]
    about = (one.box for one in question.answers if one.answer is not Answer.MISSED)
    if not problem and any(not any(same_place(box, other) for other in seen) for box in about):
        return (), "an answer is about a place where the picture shows nothing: it has moved"
    return boxes, problem


def write_parts(folder: Path, pictures: Iterable[Labelled]) -> dict[Part, list[Noted]]:
    found: dict[Part, list[Noted]] = {part: [] for part in Part}
    everything = folder / "everything"
    shutil.rmtree(everything, ignore_errors=True)

    def scenes() -> Iterator[EncodedScene]:
        for number, one in enumerate(pictures):
            name = f"{one.visit.name}-{number:06d}"
            noted = Noted(name=name, visit=one.visit.name, group=one.visit.group, origin=one.origin)
            found[one.part].append(noted)
            yield from_audit.encode_labelled(
                one.picture, one.boxes, 0, {"workpiece_id": one.visit.name}, name=name
            )

    write_coco(everything, scenes(), description="Laptops of the cell with operators' answers")
    items = {item.path.stem: item for item in read_coco(everything)}
    for part, noted in found.items():
        chosen = [items[one.name] for one in noted]
        if chosen:
            write_part(folder / part, chosen, [item.workpiece_id for item in chosen])
    shutil.rmtree(everything)
    return found
