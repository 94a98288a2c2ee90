# SPDX-License-Identifier: Apache-2.0
"""Which answers may teach: groups of laptops, persons who are tired or hostile, and what of them a report tells."""

from pathlib import Path

import pytest

from lab_helpers.shifts import AuditWriter
from sticker_uq.gate.answers import Answer
from sticker_uq.scene import InvalidInput
from sticker_uq.testing.scenes import HERE, THERE
from sticker_uq_lab.improving.visits import Group, all_visits, person_rows, screen, visits

SPOT_CHECK = [{"code": "spot_check"}]


class Log(AuditWriter):
    """An audit log written entry by entry, at times that the test chooses."""

    def laptop(self, name: str) -> None:
        self.now_ns += 60 * 10**9
        self.add("workpiece", workpiece_id=name, stamp_ns=1)

    def permit(self, decision_id: str) -> None:
        self.add("permit", goal_id=1, decision_id=decision_id, policy_hash="p")

    def question(
        self, request: str, person: str, *said: tuple[Answer, tuple[float, ...]], seconds: float = 5.0,
        reasons: object = (), verdict: str = "ASK", workpiece: str = "laptop",
    ) -> None:  # fmt: skip
        objects = [{"verdict": verdict, "box": list(box)} for _, box in said]
        asked = {"request_id": request, "decision_id": f"d-{request}", "workpiece_id": workpiece}
        self.add("request", **asked, image_stamp_ns=7, objects=objects, reasons=list(reasons))
        self.now_ns += round(seconds * 1e9)
        answers = [{"answer": answer.name, "box": list(box)} for answer, box in said]
        told = {"person": person, "scene_answer": "NONE", "answers": answers, "accepted": True}
        self.add("answer", request_id=request, **told)

    def done(self, clean: bool = True) -> None:
        self.add("done", workpiece_id="", clean=clean, decision_id="d-done")


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "audit", 10**18)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "audit"


def test_a_laptop_belongs_to_the_group_of_what_happened_first(log, folder):
    log.laptop("a")
    log.question("r1", "Ada", (Answer.REMOVE, HERE))
    log.permit("d1")
    log.done()
    log.laptop("b")
    log.question("r2", "Ada", (Answer.REMOVE, HERE), reasons=SPOT_CHECK, verdict="REMOVE")
    log.laptop("c")
    log.permit("d3")
    log.question("r3", "Ada", (Answer.KEEP, HERE))
    log.laptop("d")
    log.done()
    log.laptop("nothing was decided about this one")
    found = visits(folder)
    assert [(v.workpiece_id, v.group, v.decision_id, len(v.questions)) for v in found] == [
        ("a", Group.ASKED, "d-r1", 1), ("b", Group.CHECKED, "d-r2", 1), ("c", Group.RELEASED, "d3", 1),
        ("d", Group.RELEASED, "d-done", 0),
    ]  # fmt: skip
    assert [v.policy_hash for v in found] == ["", "p", "p", "p"]


@pytest.mark.parametrize(
    ("kind", "data"),
    [("hold", {}), ("fault", {}), ("result", {"code": "MOTION_FAILED"}), ("done", {"clean": False, "decision_id": ""})],
)  # fmt: skip
def test_what_somebody_complained_of_is_no_label(log, folder, kind, data):
    log.laptop("a")
    log.permit("d1")
    log.add("result", code="NONE")
    log.add(kind, **data)
    log.laptop("b")
    log.permit("d2")
    log.done()
    first, second = visits(folder)
    assert first.complaint
    assert second.complaint == ""


def _shift(log: Log, person: str, count: int, answer, seconds: float = 5.0, **more: object) -> None:
    for number in range(count):
        log.laptop(f"{person}-{number}")
        log.question(f"{person}-{number}", person, (answer(number), HERE), seconds=seconds, **more)


def careful(number: int) -> Answer:
    return (Answer.REMOVE, Answer.REMOVE, Answer.KEEP)[number % 3]


def problems(folder: Path, person: str) -> set[str]:
    found, _ = screen(visits(folder))
    return {q.problem for v in found for q in v.questions if q.person == person}


def test_a_careful_person_teaches_beside_a_tired_and_a_hostile_one(log, folder):
    _shift(log, "careful", 45, careful)
    _shift(log, "tired", 45, lambda number: Answer.REMOVE)
    _shift(log, "hasty", 45, careful, seconds=0.3)
    # what the policy released rightly, and a person denies
    _shift(log, "hostile", 12, lambda n: Answer.KEEP, reasons=SPOT_CHECK, verdict="REMOVE")
    assert problems(folder, "careful") == {""}
    for person in ("tired", "hasty", "hostile"):
        assert problems(folder, person) == {"no answer of this person is used"}, person
    _, persons = screen(visits(folder))
    told = {name: counts.refusal() for name, counts in persons.items()}
    assert "45 of 45 answers about objects are the same one" in told["tired"]
    assert "45 of 45 questions were answered faster" in told["hasty"]
    assert "12 of 12 second opinions contradict" in told["hostile"]


def test_one_hasty_answer_is_left_out_and_so_is_what_follows_from_it(log, folder):
    log.laptop("a")
    log.question("r1", "Ada", (Answer.REMOVE, HERE), seconds=0.4)
    log.question("r2", "Ada", (Answer.KEEP, THERE))
    log.laptop("b")
    log.question("r3", "Ada", (Answer.KEEP, THERE))
    found, _ = screen(visits(folder))
    assert [q.problem for v in found for q in v.questions] == [
        "answered faster than one can look", "an earlier answer about the laptop is not used", "",
    ]  # fmt: skip


def test_where_two_persons_disagree_neither_teaches(log, folder):
    log.laptop("a")
    log.question("r1", "Ada", (Answer.REMOVE, HERE))
    log.question("r2", "Bob", (Answer.NOT_THERE, HERE))
    log.laptop("b")
    log.question("r3", "Ada", (Answer.KEEP, HERE))
    log.question("r4", "Bob", (Answer.NOT_THERE, HERE))
    found, persons = screen(visits(folder))
    assert [[q.problem for q in v.questions] for v in found] == [
        ["two persons disagree", "two persons disagree"], ["", ""],
    ]  # fmt: skip
    assert {name: (one.opposed, one.opinions) for name, one in persons.items()} == {
        "Ada": (1, 2),
        "Bob": (1, 2),
    }


def test_a_report_counts_and_names_nobody_unless_asked(log, folder):
    _shift(log, "Bob", 2, careful)
    _shift(log, "Ada", 3, careful)
    _, persons = screen(visits(folder))
    assert [row[:2] for row in person_rows(persons, names=False)] == [("person 1", "3"), ("person 2", "2")]
    assert [row[0] for row in person_rows(persons, names=True)] == ["Ada", "Bob"]


def test_logs_without_a_decision_and_two_of_one_name_are_refused(log, folder):
    log.add("start")
    with pytest.raises(InvalidInput, match="nothing was asked or released"):
        all_visits([folder])
    with pytest.raises(InvalidInput, match="every log once"):
        all_visits([folder, folder])
