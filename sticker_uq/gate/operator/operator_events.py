"""The gate's part that listens to people: answers, hold, reset, and another workpiece."""

from __future__ import annotations

from dataclasses import replace

from sticker_uq.gate.box_overlap import Box, is_proper, same_place
from sticker_uq.gate.events import (
    AnswerGiven,
    CancelGoal,
    Hold,
    Release,
    Reply,
    Reset,
    Severity,
    WorkpieceChanged,
)
from sticker_uq.gate.operator.answers import Answer, SceneAnswer
from sticker_uq.gate.state import NO_STREAK, GateState, Request
from sticker_uq.gate.step_context import StepContext


def answer_given(turn: StepContext, event: AnswerGiven) -> None:
    """Take a person's answer to the open request, or refuse it and change nothing."""
    request = turn.state.request
    refusal = _refusal(turn.state, request, event)
    if request is None or refusal:
        turn.emit(Reply(False, refusal))
        return
    memory = turn.state.memory.remember(event.answers)
    if event.scene_answer is SceneAnswer.CLEAN:
        memory = memory.clean()
    elif event.scene_answer is SceneAnswer.NONE and request.whole_scene:
        memory = memory.checked()
    turn.close_request()
    turn.set(memory=memory, attempts=(), streak=NO_STREAK, undecided_ns=0)
    turn.log(Severity.INFO, f"{event.person} answered {request.request_id}: {_words(event)}")
    if event.scene_answer is SceneAnswer.SKIP_LAPTOP:
        turn.set(skipped=True)
        turn.declare_done(False, f"{event.person} left it to people")
    elif event.scene_answer is SceneAnswer.FAULT:
        turn.set(fault=f"{event.person} reported that something is wrong")
    turn.emit(Reply(True, _words(event)))


def _refusal(state: GateState, request: Request | None, event: AnswerGiven) -> str:
    """Why an answer is not accepted; empty when it is."""
    if request is None or event.request_id != request.request_id:
        return f"request {event.request_id!r} is not open"
    if not event.person.strip():
        return "person is empty: say who answers"
    if event.answers and state.reference is not None and state.reference.source != request.source:
        return "the camera has changed since the question was asked: answer for the scene, e.g. to look again"
    for given in event.answers:
        problem = _unusable(given.answer, given.box, state)
        if problem:
            return problem
    if event.scene_answer is not SceneAnswer.NONE:
        return ""
    if not event.answers:
        return "the answer is empty: answer the objects, draw what was missed or answer for the scene"
    open_boxes = [b for b in request.boxes if not any(same_place(b, given.box) for given in event.answers)]
    if open_boxes:
        return f"not answered: the objects at {'; '.join(map(_place, open_boxes))}"
    return ""


def _unusable(answer: Answer, box: Box, state: GateState) -> str:
    if answer is Answer.UNKNOWN:
        return f"the answer about the object at {_place(box)} is UNKNOWN"
    if not is_proper(box):
        return f"box {_place(box)} has no area or is not finite"
    width, height = state.reference.image_size if state.reference is not None else (0, 0)
    if box[0] < 0 or box[1] < 0 or box[2] > width or box[3] > height:
        return f"box {_place(box)} lies outside the image of {width} x {height} px"
    return ""


def _place(box: Box) -> str:
    return ", ".join(f"{value:.0f}" for value in box)


def _words(event: AnswerGiven) -> str:
    said = [given.answer.name for given in event.answers]
    if event.scene_answer is not SceneAnswer.NONE:
        said.append(f"scene {event.scene_answer.name}")
    return ", ".join(said)


def hold(turn: StepContext, _: Hold) -> None:
    """Close the gate until it is released."""
    turn.set(held=True)


def release(turn: StepContext, _: Release) -> None:
    """End a hold. Where nobody says which workpiece lies in the cell, another one may lie there now."""
    if turn.state.held and not turn.state.workpiece_id:
        turn.forget_workpiece()
        turn.set(workpiece_ns=turn.now, counts_after_ns=turn.now)
    turn.set(held=False)


def reset(turn: StepContext, _: Reset) -> None:
    """Acknowledge a fault or a broken assumption. A goal whose end was never reported is cancelled and waited for again."""
    state = turn.state
    if not state.fault and not state.assumption:
        turn.emit(Reply(False, "there is no fault to reset"))
        return
    permit = state.permit
    if state.request is not None and state.request.request_id == state.assumption_request:
        turn.close_request()
    turn.set(fault="", stop_demanded=False, assumption="", assumption_request="", streak=NO_STREAK)
    said = ["the fault is reset"] if state.fault else []
    said += ["the watch over what the policy rests on begins anew"] if state.assumption else []
    message = "; ".join(said)
    if permit is not None and permit.lost:
        turn.set(permit=None)
        message += f"; goal {permit.goal_id} was lost with the arm's server and is given up"
    elif permit is not None:
        turn.set(permit=replace(permit, revoked_ns=turn.now, escalated=False))
        turn.emit(CancelGoal(permit.goal_id))
        message += f"; the gate stays closed until the arm reports the end of goal {permit.goal_id}"
    turn.log(Severity.INFO, message)
    turn.emit(Reply(True, message))


def workpiece_changed(turn: StepContext, event: WorkpieceChanged) -> None:
    """Another workpiece lies in the cell: begin anew with images taken after the change."""
    if event.workpiece_id == turn.state.workpiece_id:
        return
    turn.forget_workpiece()
    changed = event.stamp_ns if 0 < event.stamp_ns <= turn.now else turn.now
    turn.set(workpiece_id=event.workpiece_id, workpiece_ns=changed, counts_after_ns=changed)
    turn.log(Severity.INFO, f"workpiece {event.workpiece_id or '(unnamed)'} lies in the cell")
