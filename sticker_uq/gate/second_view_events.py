# SPDX-License-Identifier: Apache-2.0
"""How the gate's state machine takes a second view of a workpiece before it asks an operator.

Where another picture may answer the whole question, the cell is asked for one, once per workpiece. The gate stays closed until a
scene of the new view has come. Whatever else happens ends in the question; what the first view forbids stays forbidden
(:func:`sticker_uq.gate.second_view.guarded`).
"""

from __future__ import annotations

from dataclasses import replace

from sticker_uq.gate.events import RequestView, Severity, ViewForgotten, ViewJoined, ViewRefused, ViewTaken
from sticker_uq.gate.operator.answers import OperatorAnswers
from sticker_uq.gate.permit_consistency import left_out
from sticker_uq.gate.second_view import SAME_PLACES, view_for
from sticker_uq.gate.state import NO_STREAK, BlockReason, GateState, Question, SecondView
from sticker_uq.gate.step_context import StepContext
from sticker_uq.scene import ObjectVerdict, Reason, SceneDecision

PATIENT = (
    BlockReason.SECOND_VIEW
    | BlockReason.NO_SCENE
    | BlockReason.STALE_SCENE
    | BlockReason.FAILED_SCENE
    | BlockReason.IMPLAUSIBLE_SCENE
    | BlockReason.STAMP_ORDER
    | BlockReason.FROZEN_IMAGE
    | BlockReason.EXPOSURE
    | BlockReason.POSE
)
"""What may come and go while the cell changes light or angle; any other block reason ends the wait."""


def begin(
    context: StepContext,
    decision: SceneDecision,
    reasons: tuple[Reason, ...],
    objects: tuple[ObjectVerdict, ...],
    whole_scene: bool,
) -> bool:
    """Gate step: whether the cell is asked for a second view instead of the operator for an answer, and the request."""
    state, scene = context.state, context.state.scene
    view = view_for(decision, context.settings.views_offered) if _may_ask(state) else None
    if view is None or scene is None:
        return False
    number = state.views + 1
    question = Question(decision, scene.source, reasons, objects, whole_scene)
    places = None if view == "turn" else SAME_PLACES
    context.set(views=number, second_view=SecondView(number, view, context.now, question, places))
    context.emit(RequestView(number, view, state.workpiece_id, decision.decision_id, decision.stamp_ns))
    context.log(Severity.INFO, Reason("second_view_asked", view), *reasons)
    return True


def _may_ask(state: GateState) -> bool:
    """Whether no second view of this workpiece was taken, and nothing was said or tried that depends on the places of this one.

    A workpiece that was there before the supervisor, or that has no name, may have had one.
    """
    untouched = state.memory == OperatorAnswers() and not state.attempts
    return bool(state.workpiece_id) and state.fresh and state.second_view is None and untouched


def view_taken(context: StepContext, event: ViewTaken) -> None:
    """Gate step: the new view stands: images taken from now on show it. A map of places that cannot be is the question."""
    second = _awaited(context, event.number)
    if second is None:
        _taken_late(context, event)
        return
    reference, places = context.state.reference, event.places
    if reference is None or places is None or not places.is_turn(reference.image_size):
        places = None
    context.set(second_view=replace(second, answered=True, places=places), counts_after_ns=context.now)
    context.log(Severity.INFO, Reason("second_view_taken", second.view))
    if places is None:
        _end(context, Reason("places_unusable"))


def _taken_late(context: StepContext, event: ViewTaken) -> None:
    """The laptop was moved after the wait for it had ended: what was said and permitted about places is void."""
    second, request = context.state.second_view, context.state.request
    if (
        second is None
        or second.number != event.number
        or second.answered
        or second.refused
        or not second.ended
    ):
        return
    if event.places is not None and event.places == second.places:
        return
    late = Reason("second_view_late")
    context.revoke(BlockReason.CONTRADICTED, late)
    context.forget_places()
    second, permit = context.state.second_view, context.state.permit
    context.set(
        second_view=second and replace(second, answered=True),
        permit=permit and replace(permit, foreign=True),
        request=request and replace(request, moved=True),
        counts_after_ns=context.now,
        streak=NO_STREAK,
    )
    context.log(Severity.WARNING, late)


def view_refused(context: StepContext, event: ViewRefused) -> None:
    """Gate step: the cell has changed nothing: the operator is asked."""
    second = _awaited(context, event.number)
    if second is not None:
        context.set(second_view=replace(second, refused=True))
        _end(context, Reason.of("second_view_refused", detail=event.detail))


def view_forgotten(context: StepContext, event: ViewForgotten) -> None:
    """Gate step: an earlier run asked for a second view of a workpiece that may still lie in the cell."""
    context.set(viewed_before=event.workpiece_id)
    if not context.state.workpiece_id:  # it may lie there: scenes may come before the cell has said what does
        context.remember_second_view()


def scene_came(context: StepContext) -> None:
    """Gate step: a sound scene of the second view ends the wait. Its decision is joined with the first view already."""
    state, second = context.state, context.state.second_view
    if second is None or not second.waiting or not second.answered or state.decision is None:
        return
    repeated = state.picture is not None and state.picture.count > 1
    if state.decision.stamp_ns <= state.counts_after_ns or repeated or left_out(state.decision):
        return
    assert second.question is not None
    before = second.question.decision
    context.set(second_view=replace(second, joined=True))
    context.emit(
        ViewJoined(
            second.number,
            second.view,
            before.decision_id,
            before.stamp_ns,
            state.decision.decision_id,
            state.decision.stamp_ns,
        )
    )
    context.log(Severity.INFO, Reason.of("second_view_joined", first=before.decision_id))


def watch(context: StepContext) -> None:
    """Gate step: end a wait that takes too long, or that something else has ended."""
    second = context.state.second_view
    if second is None or not second.waiting:
        return
    other = context.blocking_reasons() & ~PATIENT
    if other:
        _end(context, Reason("second_view_ended"), *map(Reason, other.codes))
    elif context.passed(second.asked_ns, context.settings.second_view_timeout_s):
        _end(context, Reason.of("second_view_timeout", seconds=context.settings.second_view_timeout_s))


def _end(context: StepContext, why: Reason, *more: Reason) -> None:
    """Give the second view up, and ask the question of the first one."""
    second = context.state.second_view
    assert second is not None
    assert second.question is not None
    context.set(second_view=replace(second, ended=why))
    context.log(Severity.WARNING, why, *more)
    question = replace(second.question, reasons=(*second.question.reasons, why))
    context.put(question, moved=not second.refused and second.places != SAME_PLACES)


def _awaited(context: StepContext, number: int) -> SecondView | None:
    """The second view that is waited for, if ``number`` is its number and the cell has not answered yet."""
    second = context.state.second_view
    if second is not None and second.waiting and not second.answered and second.number == number:
        return second
    context.log(Severity.WARNING, Reason.of("second_view_unexpected", number=number))
    return None
