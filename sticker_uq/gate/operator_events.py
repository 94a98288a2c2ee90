# SPDX-License-Identifier: Apache-2.0
"""How the gate's state machine reacts to the operator: answers, hold, reset, and another workpiece."""

from dataclasses import replace

from sticker_uq.gate import events as ev
from sticker_uq.gate.answers import (
    Answer,
    OperatorAnswer,
    SceneAnswer,
    contradiction,
    find_unmentioned,
    sticker_places,
)
from sticker_uq.gate.box_overlap import is_proper, same_place
from sticker_uq.gate.settings import nanoseconds
from sticker_uq.gate.state import NO_STREAK, GateState, Refused, Request
from sticker_uq.gate.step_context import StepContext
from sticker_uq.scene import Reason

LONGEST_ID = 200
"""Characters of a workpiece's id, which stands in messages, in the audit log and in names of files."""
FRESH_S = 10.0
"""An announcement that was stamped longer ago, s, is no new one: a latched topic may send those of earlier laptops again."""


def on_answer_given(context: StepContext, event: ev.AnswerGiven) -> None:
    request = context.state.request
    refusal = _refusal(context.state, request, event)
    if request is None or refusal is not None:
        context.emit(ev.Reply(False, () if refusal is None else (refusal,)))
        return
    memory = context.state.memory.remember(event.answers)
    if event.scene_answer is SceneAnswer.CLEAN:
        memory = memory.clean()
    elif event.scene_answer is SceneAnswer.NONE and request.whole_scene:
        memory = memory.with_scene_checked()
    context.close_request()
    stickers = [given.box for given in event.answers if given.removes]
    removed = tuple(r for r in context.state.removed if not any(same_place(r, box) for box in stickers))
    context.set(memory=memory, attempts=(), removed=removed, streak=NO_STREAK, undecided_ns=0)
    told = Reason.of(
        "request_answered", person=event.person, request=request.request_id, detail=_describe(event)
    )
    context.log(ev.Severity.INFO, told)
    if event.scene_answer is SceneAnswer.SKIP_LAPTOP:
        context.set(skipped=True)
        context.declare_done(False, Reason.of("operator_left_workpiece", person=event.person))
    elif event.scene_answer is SceneAnswer.FAULT:
        context.set(fault=(Reason.of("operator_reported_fault", person=event.person),))
    context.emit(ev.Reply(True, (Reason("answer_taken"),)))


def _refusal(state: GateState, request: Request | None, event: ev.AnswerGiven) -> Reason | None:
    if request is None or event.request_id != request.request_id:
        return Reason.of("request_not_open", request=event.request_id)
    if not event.person.strip():
        return Reason("person_missing")
    judged = event.answers or event.scene_answer is SceneAnswer.CLEAN
    if judged and event.image_ns != request.stamp_ns:
        return Reason("answer_without_image")
    if event.answers and state.reference is not None and state.reference.source != request.source:
        return Reason("camera_changed_since")
    for given in event.answers:
        if problem := _unusable(given, request, state):
            return problem
    if problem := contradiction(event.answers, event.scene_answer):
        return problem
    if event.scene_answer is SceneAnswer.CLEAN:
        newest = () if state.decision is None else sticker_places(state.decision.verdicts)
        return find_unmentioned((*request.stickers, *newest), event.answers, event.not_stickers)
    if event.scene_answer is not SceneAnswer.NONE:
        return None
    if not event.answers:
        return Reason("answer_empty")
    open_boxes = (b for b in request.boxes if not any(same_place(b, given.box) for given in event.answers))
    return next((Reason("object_unanswered", box=box) for box in open_boxes), None)


def _unusable(given: OperatorAnswer, request: Request, state: GateState) -> Reason | None:
    box = given.box
    if given.answer is Answer.UNKNOWN:
        return Reason("answer_unknown", box=box)
    if not is_proper(box):
        return Reason("box_without_area", box=box)
    width, height = state.reference.image_size if state.reference is not None else (0, 0)
    if box[0] < 0 or box[1] < 0 or box[2] > width or box[3] > height:
        return replace(Reason.of("box_outside_image", width=width, height=height), box=box)
    return None


def _describe(event: ev.AnswerGiven) -> str:
    said = [given.answer.name for given in event.answers]
    if event.scene_answer is not SceneAnswer.NONE:
        said.append(f"scene {event.scene_answer.name}")
    return ", ".join(said)


def hold(context: StepContext, _: ev.Hold) -> None:
    context.set(held=True)


def release(context: StepContext, _: ev.Release) -> None:
    """The operator ends a hold. Where the workpiece is not named, another one may lie in the cell now; where one was announced
    that seemed to be older than the one before, as after a clock was put back, it does.
    """
    state, refused = context.state, context.state.refused
    older = refused is not None and refused.reason.code == "workpiece_older"
    if state.held and (older or not state.workpiece_id):
        context.forget_workpiece()
        context.set(workpiece_ns=context.now, counts_after_ns=context.now, refused=None)
        if older and refused is not None:
            context.set(workpiece_id=refused.workpiece_id, announced_ns=refused.stamp_ns)
    context.set(held=False, held_for=())


def reset(context: StepContext, _: ev.Reset) -> None:
    """The operator acknowledges a fault or a broken assumption.

    A goal whose end was never reported is cancelled and waited for again.
    """
    state = context.state
    if not state.fault and not state.assumption:
        context.emit(ev.Reply(False, (Reason("no_fault"),)))
        return
    permit = state.permit
    if state.request is not None and state.request.request_id == state.assumption_request:
        context.close_request()
    context.set(fault=(), stop_demanded=False, assumption=None, assumption_request="", streak=NO_STREAK)
    done = [Reason("fault_reset")] if state.fault else []
    done += [Reason("assumption_reset")] if state.assumption else []
    if permit is not None and permit.lost:
        context.set(permit=None)
        done.append(Reason.of("goal_given_up", goal=permit.goal_id))
    elif permit is not None:
        context.set(permit=replace(permit, revoked_ns=context.now, escalated=False))
        context.emit(ev.CancelGoal(permit.goal_id))
        done.append(Reason.of("goal_awaited", goal=permit.goal_id))
    context.log(ev.Severity.INFO, *done)
    context.emit(ev.Reply(True, tuple(done)))


def on_workpiece_changed(context: StepContext, event: ev.WorkpieceChanged) -> None:
    """Another workpiece lies in the cell: begin anew with images taken after the change.

    The same announcement once more, as a latched topic repeats it, changes nothing.
    """
    state, said = context.state, (event.workpiece_id, event.stamp_ns)
    known = said == (state.workpiece_id, state.announced_ns)
    if known and event.stamp_ns > 0:
        context.set(refused=None)
        return
    reason = _why_not_identified(context, event)
    if reason is not None or (known and said[0]):
        # another one may lie there, or the same one: nothing that was approved holds any more, and all that was forbidden does
        memory, skipped, removed = state.memory.prohibitions(), state.skipped, state.removed
        context.forget_workpiece(*([reason] if reason else ()))
        refused = None if reason is None else Refused(*said, reason)
        context.set(memory=memory, skipped=skipped, removed=removed, refused=refused)
    else:
        context.forget_workpiece()
        context.set(workpiece_id=event.workpiece_id, announced_ns=event.stamp_ns, refused=None)
    told = reason is None and 0 < event.stamp_ns <= context.now
    changed = event.stamp_ns if told else context.now
    context.set(workpiece_ns=changed, counts_after_ns=changed)
    if reason is not None:
        context.log(ev.Severity.ERROR, reason)
    else:
        context.log(ev.Severity.INFO, Reason.of("workpiece_arrived", workpiece=event.workpiece_id))


def _why_not_identified(context: StepContext, event: ev.WorkpieceChanged) -> Reason | None:
    """Why an announcement does not say which workpiece lies in the cell; None when it does."""
    state, now = context.state, context.now
    if not event.workpiece_id.strip():
        return Reason("workpiece_unnamed")
    if len(event.workpiece_id) > LONGEST_ID:
        return Reason.of("workpiece_id_too_long", characters=len(event.workpiece_id), most=LONGEST_ID)
    refused = state.refused
    if refused is not None and (event.workpiece_id, event.stamp_ns) == (
        refused.workpiece_id,
        refused.stamp_ns,
    ):
        return refused.reason
    # where the clock of whoever announces was put back, the second announcement after it counts; where it was that of this
    # machine, which takes the last one for one of the future, the first one that comes as it was stamped does
    newest_ns = state.announced_ns if refused is None else refused.stamp_ns
    future = newest_ns > now + nanoseconds(context.settings.max_clock_jump_s)
    put_back = future and 0 <= now - event.stamp_ns <= nanoseconds(FRESH_S)
    if 0 < event.stamp_ns < newest_ns and not put_back:
        seconds = round((newest_ns - event.stamp_ns) / 1e9, 1)
        return Reason.of("workpiece_older", workpiece=event.workpiece_id, seconds=seconds)
    return None
