# SPDX-License-Identifier: Apache-2.0
"""An arm and people who do not behave."""

from typing import Any

from sticker_uq.gate import BlockReason
from sticker_uq.testing.scripted_detector import Seen
from sticker_uq_msgs.msg import GateState, ObjectAnswer
from sticker_uq_msgs.srv import ResolveIntervention

Request = ResolveIntervention.Request


def test_arm_never_answers(hasty):
    """Not even whether it takes the goal: the permit ends, and a person is needed until it speaks again."""
    hasty.bring(GateState.STATE_PERMITTED)
    hasty.until_gate(reason=BlockReason.ARM_FAILED)
    assert hasty.until_gate(GateState.STATE_FAULT).details[0].code == "arm_does_not_stop"


def test_arm_takes_a_goal_and_never_ends_it(hasty):
    hasty.quiet()
    hasty.arm("deaf")
    hasty.camera.shows(Seen.STICKER)
    hasty.hold(False)
    permit = hasty.until_gate(GateState.STATE_REMOVING)
    hasty.camera.shows(Seen.NAN)
    hasty.until_gate(GateState.STATE_FAULT)
    assert not any(step.decision_id == permit.decision_id for step in hasty.steps)


def test_arm_reports_done_and_nothing_has_changed(cell):
    """A print, or a blade that slipped: only a person sends the arm there again, a look does not."""
    cell.bring(GateState.STATE_REMOVING)
    cell.arm("finish")
    cell.until_gate(GateState.STATE_INTERVENTION, code="sticker_still_there")
    first = cell.until(lambda: cell.requests[-1].request_id, "the request")
    said = len(cell.gates)
    assert cell.answer(Request.SCENE_RESCAN).accepted
    cell.until(lambda: cell.requests[-1].request_id not in ("", first), "the next request")
    assert not any(gate.open for gate in cell.gates[said:])
    cell.arm("move")
    sticker = ObjectAnswer(answer=ObjectAnswer.ANSWER_REMOVE, box=cell.requests[-1].objects[0].box)
    assert cell.answer(Request.SCENE_NONE, answers=[sticker]).accepted
    cell.until_moving()
    cell.quiet()
    cell.hold(False)


def test_arm_answers_twice(cell):
    """Two servers of one action both answer every goal: nobody knows which arm moves, so none may."""
    with cell.another(cell.node("arm")):
        # one alone may be late on a busy machine
        cell.until(lambda: len(cell.arm_servers()) == 2, "both arms")
        cell.until_gate(reason=BlockReason.ARM_FAILED)
        cell.stays_closed()


def test_a_persons_answer_comes_late_or_twice(cell):
    cell.bring(GateState.STATE_INTERVENTION)
    cell.until(lambda: cell.requests[-1].request_id, "the request")
    first = cell.requests[-1].request_id
    accepted = cell.answer(Request.SCENE_RESCAN)
    again = cell.answer(Request.SCENE_CLEAN, request_id=first)
    assert accepted.accepted
    assert not again.accepted
    assert [reason.code for reason in again.reasons] == ["request_not_open"]
    cell.until(lambda: cell.requests[-1].request_id not in ("", first), "the next request")
    assert not cell.answer(Request.SCENE_SKIP_LAPTOP, request_id=first).accepted

    def told_of_first() -> list[Any]:
        return [e.data for e in cell.check_audit() if e.kind == "answer" and e.data["request_id"] == first]

    # more where a busy supervisor was asked again
    cell.until(lambda: len(told_of_first()) >= 3, "three entries on the disk")
    first_told, *more = [(t["accepted"], t["person"]) for t in told_of_first()]
    assert (first_told, set(more)) == ((True, "Ada"), {(False, "Ada")})
    assert cell.answer(Request.SCENE_RESCAN).accepted
    cell.quiet()
    cell.hold(False)


def test_a_persons_answer_after_the_laptop_left(cell):
    cell.bring(GateState.STATE_INTERVENTION)
    cell.until(lambda: cell.requests[-1].request_id, "the request")
    old = cell.requests[-1].request_id
    cell.hold(True)
    cell.hold(False)  # another laptop may lie here now
    cell.until(lambda: cell.requests[-1].request_id != old, "the request is closed")
    assert not cell.answer(Request.SCENE_CLEAN, request_id=old).accepted
    cell.quiet()
    cell.hold(False)
