"""The gate to the arm as a pure state machine: ``step(state, event, now_ns, settings) -> (state, effects)``.

To close is immediate and needs no reason; to open needs K consecutive, fresh and consistent scenes while nothing else is
wrong. A permit is a lease for one object of one decision: each step renews it or revokes it, nothing else keeps it alive.
There is one permit at a time, and none while the arm still owes the end of an earlier goal. A fault latches until a reset, a
request to a person until the answer; neither ends by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sticker_uq.gate import arm_events as arm
from sticker_uq.gate import clock_events as timekeeping
from sticker_uq.gate import scene_events as scenes
from sticker_uq.gate.events import (
    Activated,
    AnswerGiven,
    ArmLost,
    ArmReady,
    AssumptionBroken,
    Deactivated,
    Effect,
    Event,
    Fault,
    GoalAccepted,
    GoalRejected,
    Hold,
    ImageArrived,
    Impediment,
    PublishGate,
    Release,
    RemovalFinished,
    Reset,
    SceneReceived,
    SceneUnreadable,
    Severity,
    Tick,
    WorkpieceChanged,
)
from sticker_uq.gate.operator import operator_events as people
from sticker_uq.gate.settings import GateSettings
from sticker_uq.gate.state import NO_STREAK, WORDS, BlockReason, GateState, Phase
from sticker_uq.gate.step_context import StepContext
from sticker_uq.scene import Outcome, Reason


def step(
    state: GateState, event: Event, now_ns: int, settings: GateSettings
) -> tuple[GateState, tuple[Effect, ...]]:
    """What ``event`` at ``now_ns`` makes of the gate: its next state and what is to happen, in this order.

    Pure: the same arguments give the same result, nothing is read or written elsewhere. The gate is published first, so that
    it closes before anything else happens and a goal finds its permit.
    """
    turn = StepContext(state, now_ns, settings)
    timekeeping.keep_time(turn, event)
    _HANDLERS[type(event)](turn, event)
    arm.watch_permit(turn)
    _watch(turn)
    if isinstance(event, SceneReceived) and not turn.closing() and turn.state.permit is None:
        scenes.conclude(turn)
    _describe(turn)
    if turn.state.phase is not state.phase:
        severity = Severity.ERROR if turn.state.phase is Phase.FAULT else Severity.INFO
        turn.log(severity, f"{state.phase.name} -> {turn.state.phase.name}: {turn.state.text or 'open'}")
    # between two permits the gate is closed, and said to be so
    if isinstance(event, Tick) or (turn.state.phase, turn.state.reasons) != (state.phase, state.reasons):
        turn.effects.insert(0, published(turn.state))
    return turn.state, tuple(turn.effects)


def published(state: GateState) -> PublishGate:
    """How the gate stands, for everybody else."""
    frame_id = state.scene.frame_id if state.scene is not None else ""
    permit = state.permit if state.open else None
    if permit is None:
        return PublishGate(state.phase, state.reasons, state.text, frame_id)
    return PublishGate(state.phase, state.reasons, state.text, frame_id, permit.target, permit.valid_until_ns)


def _watch(turn: StepContext) -> None:
    """Whatever closes the gate also ends every count; what waits too long becomes a question."""
    state, settings = turn.state, turn.settings
    check, request = state.verification, state.request
    if state.assumption and not state.assumption_request and state.request is None:
        turn.ask(f"{WORDS[BlockReason.ASSUMPTION]}: {state.assumption}", ())
        state, request = turn.state, turn.state.request
        turn.set(assumption_request=request.request_id if request is not None else "")
    if turn.closing():
        turn.set(streak=NO_STREAK, undecided_ns=0)
        if check is not None:
            turn.set(verification=replace(check, since_ns=turn.now, seen=0, gone=0))
        if (
            request is not None
            and not request.overdue
            and turn.passed(request.opened_ns, settings.intervention_timeout_s)
        ):
            turn.set(request=replace(request, overdue=True))
            turn.log(Severity.WARNING, f"nobody has answered {request.request_id}; the gate stays closed")
    elif check is not None and turn.passed(check.since_ns, settings.verify_timeout_s):
        turn.set(verification=None)
        turn.ask_about(
            check.target, f"the scenes did not tell within {settings.verify_timeout_s:g} s whether it is gone"
        )
    elif (
        state.undecided_ns
        and turn.passed(state.undecided_ns, settings.undecided_timeout_s)
        and state.decision is not None
    ):
        text = f"the scenes have disagreed for {settings.undecided_timeout_s:g} s"
        scenes.ask_about_scene(turn, state.decision, (Reason("undecided", text),))


def _describe(turn: StepContext) -> None:
    """Derive the phase, the reasons and their words from the rest of the state."""
    state = turn.state
    reasons = turn.closing()
    if reasons & BlockReason.FAULT:
        phase = Phase.FAULT
    elif state.request is not None:
        phase = Phase.INTERVENTION
        if state.request.whole_scene and state.decision is not None and scenes.unexplained(state.decision):
            reasons |= BlockReason.UNEXPLAINED
        if state.request.objectors:
            reasons |= BlockReason.PANEL
    elif reasons:
        phase = Phase.BLOCKED
    elif state.permit is not None:
        phase = Phase.REMOVING if state.permit.accepted else Phase.PERMITTED
    elif state.verification is not None:
        phase, reasons = Phase.VERIFYING, BlockReason.VERIFYING
    else:
        phase, reasons = Phase.MONITORING, _monitoring(state, turn.settings)
    turn.set(phase=phase, reasons=reasons, text=_text(state, reasons))


def _monitoring(state: GateState, settings: GateSettings) -> BlockReason:
    if state.done:
        return BlockReason.NOTHING_TO_REMOVE
    reasons = BlockReason.NONE if state.arm_ready else BlockReason.ARM_FAILED
    if state.streak.count < settings.consecutive_scenes:
        reasons |= BlockReason.INCONSISTENT
    if state.streak.outcome is Outcome.ASK:
        reasons |= BlockReason.UNCERTAIN
        if state.decision is not None and scenes.unexplained(state.decision):
            reasons |= BlockReason.UNEXPLAINED
        if state.decision is not None and any(v.objectors for v in state.decision.verdicts):
            reasons |= BlockReason.PANEL
    if state.streak.outcome is Outcome.CLEAN:
        reasons |= BlockReason.NOTHING_TO_REMOVE
    return reasons


def _text(state: GateState, reasons: BlockReason) -> str:
    details = {
        **dict(state.problems),
        BlockReason.FAULT: state.fault,
        **({BlockReason.ASSUMPTION: state.assumption} if state.assumption else {}),
        BlockReason.WAITING_FOR_OPERATOR: state.request.text
        if state.request is not None
        else "this workpiece is left to people",
        **dict(state.impediments),
    }
    parts = []
    for reason, words in WORDS.items():
        if reason in reasons:
            detail = details.get(reason, "")
            parts.append(f"{words}: {detail}" if detail else words)
    if state.permit is not None and not state.permit.open:
        parts.append(f"waiting for the arm to stop ({state.permit.revoked_text})")
    return "; ".join(parts)


def _activated(turn: StepContext, _: Activated) -> None:
    turn.set(active=True, scene=None, silent_ticks=0)


def _deactivated(turn: StepContext, _: Deactivated) -> None:
    turn.set(active=False)


def _ticked(turn: StepContext, _: Tick) -> None:
    turn.set(silent_ticks=min(turn.state.silent_ticks, turn.settings.max_silent_ticks) + 1)


def _faulted(turn: StepContext, event: Fault) -> None:
    turn.set(fault=turn.state.fault or event.text or "an internal error without a message")


def _impeded(turn: StepContext, event: Impediment) -> None:
    others = [item for item in turn.state.impediments if item[0] is not event.reason]
    if event.text:
        others.append((event.reason, event.text))
    turn.set(impediments=tuple(others))


def _assumption_broken(turn: StepContext, event: AssumptionBroken) -> None:
    if not turn.state.assumption:
        turn.set(assumption=event.text)
        turn.log(Severity.ERROR, f"{WORDS[BlockReason.ASSUMPTION]}: {event.text}")


_HANDLERS: dict[type, Callable[[StepContext, Any], None]] = {
    Activated: _activated,
    Deactivated: _deactivated,
    Tick: _ticked,
    SceneReceived: scenes.receive,
    SceneUnreadable: scenes.receive_unreadable,
    ImageArrived: scenes.receive_image,
    ArmReady: arm.arm_ready,
    ArmLost: arm.arm_lost,
    GoalAccepted: arm.goal_accepted,
    GoalRejected: arm.goal_rejected,
    RemovalFinished: arm.removal_finished,
    AnswerGiven: people.answer_given,
    Hold: people.hold,
    Release: people.release,
    Reset: people.reset,
    WorkpieceChanged: people.workpiece_changed,
    Fault: _faulted,
    Impediment: _impeded,
    AssumptionBroken: _assumption_broken,
}
