# SPDX-License-Identifier: Apache-2.0
"""What an audit log tells of every laptop, and which of its answers can become labels.

A laptop belongs to the group of the first thing that happened to it: the policy asked, a spot check asked, or something was
released. The policy asks about what it doubts, so the groups differ; within the last two a spot check is drawn at random. Two
of the three groups have answers, and together they stand for all laptops (see :mod:`sticker_uq_lab.improving.biased`).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from sticker_uq.gate.answers import Answer
from sticker_uq.gate.audit import Entry, entries
from sticker_uq.gate.box_overlap import same_place
from sticker_uq.gate.events import RemovalCode
from sticker_uq.io.messages import expect_fields
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.datasets.from_audit import AnsweredQuestion, answered_questions, is_spot_check


class Group(StrEnum):
    """What happened to a laptop first."""

    ASKED = "asked"
    CHECKED = "spot check"
    RELEASED = "released"


_COMPLAINTS = {"hold": "a person pressed HOLD", "fault": "a fault", "escalation": "the arm did not stop"}


@dataclass(frozen=True)
class Visit:
    """One laptop in the cell. ``decision_id``: of the picture on which it arrived; ``time_ns``: of the first decision;
    ``policy_hash``: what decided; ``questions``: the answered ones; ``complaint``: why what was released is no label, or "".
    """

    name: str
    workpiece_id: str
    group: Group
    decision_id: str
    time_ns: int
    policy_hash: str
    questions: tuple[AnsweredQuestion, ...] = ()
    complaint: str = ""


@dataclass
class _Open:
    workpiece_id: str = ""
    first: tuple[Group, str, int, str] | None = None
    requests: set[int] = field(default_factory=set)
    complaint: str = ""


def visits(audit_folder: Path, prefix: str = "0") -> list[Visit]:
    """The laptops about which something was decided, in their order, with names that begin with ``prefix``."""
    questions = {question.entry: question for question in answered_questions(audit_folder)}
    found: list[Visit] = []
    for one in _read_visits(audit_folder):
        if one.first is not None:
            said = tuple(questions[number] for number in sorted(one.requests & questions.keys()))
            name = f"{prefix}-{len(found):05d}"
            found.append(Visit(name, one.workpiece_id, *one.first, said, one.complaint))
    return found


def _read_visits(audit_folder: Path) -> Iterator[_Open]:
    one, policy_hash = _Open(), ""
    for entry in entries(audit_folder):
        with expect_fields(f"audit log {audit_folder}: entry {entry.number}"):
            data = entry.data
            policy_hash = str(data.get("policy_hash") or policy_hash)
            if entry.kind == "workpiece":
                yield one
                one = _Open(str(data["workpiece_id"]))
            elif entry.kind == "request":
                one.requests.add(entry.number)
            group = _group(entry)
            if group is not None and one.first is None and data["decision_id"]:
                one.first = group, str(data["decision_id"]), entry.time_ns, policy_hash
            one.complaint = one.complaint or _complaint(entry)
            if entry.kind == "done":
                yield one
                one = _Open(one.workpiece_id)
    yield one


def _group(entry: Entry) -> Group | None:
    if entry.kind == "request":
        return Group.CHECKED if is_spot_check(entry) else Group.ASKED
    return Group.RELEASED if entry.kind in ("permit", "done") else None


def _complaint(entry: Entry) -> str:
    if entry.kind == "result" and entry.data["code"] != RemovalCode.NONE.name:
        return "a removal failed"
    if entry.kind == "done" and not entry.data["clean"]:
        return "it was left to a person"
    return _COMPLAINTS.get(entry.kind, "")


GLANCE_S, _OBJECT_S = 1.0, 0.25
"""Time that a person needs for a picture, and for each object on it."""
_FAST, _FAST_OF = 0.2, 10
"""Of a person who answers faster than that in a larger share of at least so many questions no answer is used, ..."""
_ALIKE, _ALIKE_OF = 0.97, 40
"""nor of one who gives such a share of at least so many answers about objects alike, ..."""
_OPPOSED, _OPPOSED_OF = 0.3, 10
"""nor of one whom a larger share of at least so many second opinions contradict: another person's answers, or what the policy
released where it was spot checked."""


@dataclass
class PersonCounts:
    """Counts of one person's answers. ``kinds``: by answer about an object; ``refusal``: why none is used, or ""."""

    questions: int = 0
    fast: int = 0
    kinds: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    opinions: int = 0
    opposed: int = 0

    def refusal(self) -> str:
        total = sum(self.kinds.values())
        if self.questions >= _FAST_OF and self.fast > _FAST * self.questions:
            return f"{self.fast} of {self.questions} questions were answered faster than one can look"
        if total >= _ALIKE_OF and (most := max(self.kinds.values())) >= _ALIKE * total:
            return f"{most} of {total} answers about objects are the same one"
        if self.opinions >= _OPPOSED_OF and self.opposed > _OPPOSED * self.opinions:
            return f"{self.opposed} of {self.opinions} second opinions contradict the answers"
        return ""


def screen(found: Sequence[Visit], glance_s: float = GLANCE_S) -> tuple[list[Visit], dict[str, PersonCounts]]:
    """The laptops with the answers that may not teach marked by their ``problem``, and the counts of every person by name.

    An answer that is not used spoils later ones about the same laptop: what was asked then followed from it.
    """
    persons: dict[str, PersonCounts] = defaultdict(PersonCounts)
    disputed: set[tuple[str, int]] = set()
    for visit in found:
        for number, question in enumerate(visit.questions):
            person = persons[question.person]
            person.questions += 1
            person.fast += _too_fast(question, glance_s)
            for answer in question.answers:
                if answer.answer is not Answer.MISSED:
                    person.kinds[answer.answer.name] += 1
            for said in question.answers if question.spot_check else ():
                if any(same_place(said.box, box) for box in question.released):
                    person.opinions += 1
                    person.opposed += not said.removes
            for earlier in visit.questions[:number]:
                if earlier.person != question.person:
                    agreed = _agreements(earlier, question)
                    for one in (person, persons[earlier.person]):
                        one.opinions += len(agreed)
                        one.opposed += agreed.count(False)
                    if not all(agreed):
                        disputed |= {(visit.name, earlier.entry), (visit.name, question.entry)}
    refused = {name: counts.refusal() for name, counts in persons.items()}
    return [_mark(visit, disputed, refused, glance_s) for visit in found], dict(persons)


def _agreements(first: AnsweredQuestion, second: AnsweredQuestion) -> list[bool]:
    """Whether two persons meant the same, for each place that both answered about."""
    return [
        one.removes == other.removes
        for one in first.answers
        for other in second.answers
        if same_place(one.box, other.box)
    ]


def _too_fast(question: AnsweredQuestion, glance_s: float) -> bool:
    return glance_s > 0 and question.seconds < glance_s + _OBJECT_S * len(question.answers)


def _mark(visit: Visit, disputed: set[tuple[str, int]], refused: Mapping[str, str], glance_s: float) -> Visit:
    marked: list[AnsweredQuestion] = []
    for question in visit.questions:
        problem = question.problem
        if problem:
            pass
        elif refused[question.person]:
            problem = "no answer of this person is used"
        elif (visit.name, question.entry) in disputed:
            problem = "two persons disagree"
        elif _too_fast(question, glance_s):
            problem = "answered faster than one can look"
        elif any(one.problem for one in marked):
            problem = "an earlier answer about the laptop is not used"
        marked.append(replace(question, problem=problem))
    return replace(visit, questions=tuple(marked))


def person_rows(persons: Mapping[str, PersonCounts], names: bool) -> list[tuple[str, ...]]:
    """One row of counts for each person, by name if ``names``, else by a number that follows how much was answered."""
    ordered = sorted(persons.items(), key=lambda one: (-one[1].questions, one[0]))
    return [
        (
            name if names else f"person {number}",
            str(counts.questions),
            str(counts.fast),
            f"{counts.opposed} of {counts.opinions}",
            counts.refusal() or "used",
        )
        for number, (name, counts) in enumerate(ordered, 1)
    ]


def all_visits(audit_folders: Sequence[Path]) -> list[Visit]:
    if len({folder.resolve() for folder in audit_folders}) < len(audit_folders):
        raise InvalidInput(f"--audit {', '.join(map(str, audit_folders))}: expected every log once")
    found = [visit for n, folder in enumerate(audit_folders) for visit in visits(folder, str(n))]
    if not found:
        raise InvalidInput(
            f"--audit {', '.join(map(str, audit_folders))}: nothing was asked or released in these logs"
        )
    return sorted(found, key=lambda visit: visit.time_ns)
