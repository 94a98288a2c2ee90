# SPDX-License-Identifier: Apache-2.0
"""The gate to the arm as a pure state machine: ``step(state, event, now_ns, settings) -> (state, effects)``.

To close is immediate and needs no reason; to open needs K consecutive, fresh and consistent scenes while nothing else is
wrong. A permit is a lease for one object of one decision: each step renews it or revokes it, nothing else keeps it alive.
There is one permit at a time, and none while the arm still owes the end of an earlier goal. A fault latches until a reset, a
request to the operator until the answer; neither ends by itself.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sticker_uq.gate import arm_events as arm
from sticker_uq.gate import events as ev
from sticker_uq.gate import operator_events as operator
from sticker_uq.gate import scene_events as scenes
from sticker_uq.gate.plausibility import why_stale
from sticker_uq.gate.settings import GateSettings, nanoseconds
from sticker_uq.gate.state import NO_STREAK, BlockReason, GateState, Phase
from sticker_uq.gate.step_context import StepContext
from sticker_uq.scene import Outcome, Reason


def step(
    state: GateState, event: ev.Event, now_ns: int, settings: GateSettings
) -> tuple[GateState, ev.Effects]:
    """The next state after ``event`` at ``now_ns``, and the effects in their order.

    Pure: the same arguments give the same result, nothing is read or written elsewhere. The gate is published first, so that
    it closes before anything else happens and a goal finds its permit.
    """
    context = StepContext(state, now_ns, settings)
    keep_time(context, event)
    _HANDLERS[type(event)](context, event)
    arm.watch_permit(context)
    _watch(context)
    if (
        isinstance(event, ev.SceneReceived)
        and not context.blocking_reasons()
        and context.state.permit is None
    ):
        scenes.conclude(context)
    _describe(context)
    unrecorded = BlockReason.AUDIT & context.state.reasons & ~state.reasons
    severity = ev.Severity.ERROR if unrecorded else ev.Severity.INFO
    if context.state.phase is not state.phase:
        severity = ev.Severity.ERROR if context.state.phase is Phase.FAULT else severity
        changed = Reason.of("phase_changed", before=state.phase.name, after=context.state.phase.name)
        context.log(severity, changed, *map(Reason, context.state.reasons.codes), *context.state.details)
    elif context.state.phase is Phase.BLOCKED and context.state.reasons != state.reasons:
        # else a person who corrects one cause after the other would not see in the log which one is next
        other = Reason("still_blocked")
        context.log(severity, other, *map(Reason, context.state.reasons.codes), *context.state.details)
    # between two permits the gate is closed, and said to be so
    now_shown = (context.state.phase, context.state.reasons)
    if isinstance(event, ev.Tick) or now_shown != (state.phase, state.reasons):
        context.effects.insert(0, ev.PublishGate(context.state))
    return context.state, tuple(context.effects)


def _watch(context: StepContext) -> None:
    """Whatever closes the gate also ends every count; what takes too long becomes a question to the operator."""
    state, settings = context.state, context.settings
    check, request = state.verification, state.request
    if state.assumption and not state.assumption_request and state.request is None:
        context.ask((Reason("assumption"), state.assumption), ())
        state, request = context.state, context.state.request
        context.set(assumption_request=request.request_id if request is not None else "")
    if context.blocking_reasons():
        context.set(streak=NO_STREAK, undecided_ns=0)
        if check is not None:
            context.set(verification=replace(check, since_ns=context.now, seen=0, gone=0))
        if (
            request is not None
            and not request.overdue
            and context.has_passed(request.opened_ns, settings.intervention_timeout_s)
        ):
            context.set(request=replace(request, overdue=True))
            context.log(ev.Severity.WARNING, Reason.of("request_overdue", request=request.request_id))
    elif check is not None and context.has_passed(check.since_ns, settings.verify_timeout_s):
        context.set(verification=None)
        context.ask_about(check.target, Reason.of("removal_unverified", seconds=settings.verify_timeout_s))
    elif (
        state.undecided_ns
        and context.has_passed(state.undecided_ns, settings.undecided_timeout_s)
        and state.decision is not None
    ):
        disagree = Reason.of("scenes_disagree", seconds=settings.undecided_timeout_s)
        doubts = state.decision.reasons if scenes.obstruction(state.decision) else (disagree,)
        scenes.ask_about_scene(context, state.decision, doubts)


def _describe(context: StepContext) -> None:
    state = context.state
    reasons = context.blocking_reasons()
    if reasons & BlockReason.FAULT:
        phase = Phase.FAULT
    elif state.request is not None:
        phase = Phase.INTERVENTION
        if (
            state.request.whole_scene
            and state.decision is not None
            and scenes.has_unexplained(state.decision)
        ):
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
        phase, reasons = Phase.MONITORING, _monitoring_reasons(state, context.settings)
    context.set(phase=phase, reasons=reasons, details=_details(state, reasons, context.settings))


def _monitoring_reasons(state: GateState, settings: GateSettings) -> BlockReason:
    if state.done:
        return BlockReason.NOTHING_TO_REMOVE
    reasons = BlockReason.NONE if state.arm_ready else BlockReason.ARM_FAILED
    if state.streak.count < settings.consecutive_scenes:
        reasons |= BlockReason.INCONSISTENT
    if state.streak.outcome is Outcome.ASK:
        reasons |= BlockReason.UNCERTAIN
        if state.decision is not None and scenes.has_unexplained(state.decision):
            reasons |= BlockReason.UNEXPLAINED
        if state.decision is not None and any(v.objectors for v in state.decision.verdicts):
            reasons |= BlockReason.PANEL
    if state.streak.outcome is Outcome.CLEAN:
        reasons |= BlockReason.NOTHING_TO_REMOVE
    return reasons or BlockReason.UNCERTAIN  # relief is awaited, or has just come


def _details(state: GateState, reasons: BlockReason, settings: GateSettings) -> tuple[Reason, ...]:
    """What is known about each of ``reasons``, beyond its name."""
    found = [*state.fault, *state.held_for]
    if state.refused is not None:
        found.append(state.refused.reason)
    if state.assumption is not None:
        found.append(state.assumption)
    found += [detail for reason, detail in (*state.problems, *state.impediments) if reason & reasons]
    if reasons & BlockReason.CLOCK and state.now_ns <= 0:
        found.append(Reason("clock_zero"))
    stale = why_stale(state, settings) if reasons & BlockReason.STALE_SCENE else None
    if stale is not None and not any(reason is BlockReason.STALE_SCENE for reason, _ in state.problems):
        found.append(stale)
    if state.request is not None:
        found += state.request.reasons
    elif state.skipped:
        found.append(Reason("workpiece_left"))
    elif (
        state.phase is Phase.MONITORING and state.decision is not None and scenes.obstruction(state.decision)
    ):
        found += scenes.obstruction(state.decision)
    elif state.phase is Phase.MONITORING and (awaited := scenes.relief_reason(state, settings)) is not None:
        found.append(awaited)
    if state.permit is not None and not state.permit.open:
        found += [Reason("arm_stopping"), *state.permit.revoked_for]
    return tuple(dict.fromkeys(found))


def _on_activated(context: StepContext, _: ev.Activated) -> None:
    context.set(active=True, scene=None, ages_ns=(), problems=(), silent_ticks=0)


def _on_restarted(context: StepContext, event: ev.Restarted) -> None:
    """Take over what outlived the last run. No scene, no approval and no permit did; a goal may have."""
    context.set(**event.kept.as_changes(context.settings, context.now, event.policy_hash))
    permit = context.state.permit
    if permit is not None:
        context.emit(ev.RecoverGoal(permit.goal_id, permit.target.decision_id))


def _on_deactivated(context: StepContext, _: ev.Deactivated) -> None:
    context.set(active=False)


def _on_tick(context: StepContext, _: ev.Tick) -> None:
    context.set(silent_ticks=min(context.state.silent_ticks, context.settings.max_silent_ticks) + 1)


def _on_fault(context: StepContext, event: ev.Fault) -> None:
    context.set(fault=context.state.fault or event.reasons or (Reason("internal_error"),))


def _on_impediment(context: StepContext, event: ev.Impediment) -> None:
    others = [item for item in context.state.impediments if item[0] is not event.reason]
    if event.detail is not None:
        others.append((event.reason, event.detail))
    elif len(others) < len(context.state.impediments):
        context.set(counts_after_ns=context.now)  # scenes under way may come from what has just ended
    context.set(impediments=tuple(others))


def _on_assumption_broken(context: StepContext, event: ev.AssumptionBroken) -> None:
    if not context.state.assumption:
        context.set(assumption=event.reason)
        context.log(ev.Severity.ERROR, Reason("assumption"), event.reason)


_HANDLERS: dict[type, Callable[[StepContext, Any], None]] = {
    ev.Activated: _on_activated,
    ev.Restarted: _on_restarted,
    ev.Deactivated: _on_deactivated,
    ev.Tick: _on_tick,
    ev.SceneReceived: scenes.receive,
    ev.SceneUnreadable: scenes.receive_unreadable,
    ev.ImageArrived: scenes.receive_image,
    ev.ReliefReceived: scenes.receive_relief,
    ev.ArmReady: arm.on_arm_ready,
    ev.ArmLost: arm.on_arm_lost,
    ev.GoalAccepted: arm.on_goal_accepted,
    ev.GoalRejected: arm.on_goal_rejected,
    ev.RemovalFinished: arm.on_removal_finished,
    ev.AnswerGiven: operator.on_answer_given,
    ev.Hold: operator.hold,
    ev.Release: operator.release,
    ev.Reset: operator.reset,
    ev.WorkpieceChanged: operator.on_workpiece_changed,
    ev.Fault: _on_fault,
    ev.Impediment: _on_impediment,
    ev.AssumptionBroken: _on_assumption_broken,
}


def keep_time(context: StepContext, event: ev.Event) -> None:
    """Take over the time. After a jump the scenes are forgotten and all waiting goes on from the new time.

    A clock that goes back is noticed by itself, one that leaps ahead by a steady clock that the ticks bring along.
    """
    state, now = context.state, context.now
    jump_ns = jump_since_tick(state, now, event.steady_ns) if isinstance(event, ev.Tick) else 0
    if now < state.now_ns or abs(jump_ns) >= nanoseconds(context.settings.max_clock_jump_s):
        _start_anew(context, jump_ns or now - state.now_ns)
    context.set(now_ns=now)
    if isinstance(event, ev.Tick):
        context.set(tick_ns=now, steady_ns=event.steady_ns)


def jump_since_tick(state: GateState, now_ns: int, steady_ns: int) -> int:
    if not steady_ns or not state.steady_ns:
        return 0
    return (now_ns - state.tick_ns) - (steady_ns - state.steady_ns)


def _start_anew(context: StepContext, jump_ns: int) -> None:
    state, now = context.state, context.now
    jumped = Reason.of("clock_ahead" if jump_ns > 0 else "clock_back", seconds=abs(jump_ns) / 1e9)
    context.clock_jumped = True
    context.revoke(BlockReason.CLOCK, jumped)
    context.log(ev.Severity.WARNING, jumped)
    ahead = max(jump_ns, 0)

    def move(then_ns: int) -> int:
        return min(then_ns + ahead, now)

    permit, check, request = context.state.permit, state.verification, state.request
    context.set(
        scene=None,
        ages_ns=(),
        picture=None,
        relief=None,
        streak=NO_STREAK,
        undecided_ns=0,
        workpiece_ns=move(state.workpiece_ns),
        counts_after_ns=move(state.counts_after_ns),
        permit=permit
        and replace(permit, revoked_ns=now if permit.revoked_ns is None else move(permit.revoked_ns)),
        verification=check and replace(check, since_ns=now, seen=0, gone=0),
        request=request and replace(request, opened_ns=move(request.opened_ns)),
    )
