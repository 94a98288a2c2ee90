# SPDX-License-Identifier: Apache-2.0
"""How the gate's state machine reacts to the arm: goals, their ends, and an arm that does not answer."""

from dataclasses import replace

from sticker_uq.gate import events as ev
from sticker_uq.gate.state import NO_STREAK, BlockReason, Permit, Verification
from sticker_uq.gate.step_context import StepContext
from sticker_uq.scene import Reason

ORDERED_STOP = (
    BlockReason.HELD
    | BlockReason.NOT_ACTIVE
    | BlockReason.AUDIT
    | BlockReason.SECOND_GATE_PUBLISHER
    | BlockReason.UNKNOWN_GATE_PUBLISHER
    | BlockReason.SECOND_IMAGE_PUBLISHER
    | BlockReason.SECOND_SCENE_PUBLISHER
)
"""A removal that was stopped for these reasons, not because of the arm or the scenes, was no failed attempt."""


def on_arm_ready(context: StepContext, event: ev.ArmReady) -> None:
    """The arm came, or its heartbeat stopped: counting begins anew. It may still report the end of its goal."""
    if event.ready != context.state.arm_ready:
        context.set(arm_ready=event.ready, streak=NO_STREAK)


def on_arm_lost(context: StepContext, _: ev.ArmLost) -> None:
    permit = context.state.permit
    context.set(arm_ready=False, streak=NO_STREAK, permit=permit and replace(permit, lost=True))


def on_goal_accepted(context: StepContext, event: ev.GoalAccepted) -> None:
    permit = _find_permit(context, event.goal_id)
    if permit is None or not permit.open:
        context.emit(ev.CancelGoal(event.goal_id))
    if permit is not None:
        context.set(permit=replace(permit, accepted=True))


def on_goal_rejected(context: StepContext, event: ev.GoalRejected) -> None:
    permit = _find_permit(context, event.goal_id)
    if permit is None:
        return
    context.set(permit=None, streak=NO_STREAK)
    if _counts(permit):
        context.attempt_failed(permit.target, Reason.of("goal_rejected", detail=event.detail))


def on_removal_finished(context: StepContext, event: ev.RemovalFinished) -> None:
    """The goal has ended: the permit is used up, whatever the result. An arm that could not stop is a fault."""
    permit = _find_permit(context, event.goal_id)
    if permit is None:
        context.log(ev.Severity.WARNING, Reason.of("goal_unknown", goal=event.goal_id))
        return
    context.set(permit=None, streak=NO_STREAK, counts_after_ns=context.now)
    if event.code is ev.RemovalCode.NOT_STOPPED:
        _demand_stop(context, Reason.of("arm_not_stopped", goal=event.goal_id, detail=event.detail))
        return
    if permit.foreign:
        return
    if event.code is ev.RemovalCode.NONE:
        verification = Verification(permit.target, since_ns=context.now)
        context.set(verification=verification, removed=(*context.state.removed, permit.target.box))
        return
    reported = Reason.of("arm_reported", event.code.name.lower(), detail=event.detail)
    if event.code is ev.RemovalCode.OPERATOR_ABORT and permit.open:
        context.ask_about(permit.target, Reason("arm_stopped"), reported)
    elif _counts(permit):
        why = (reported,) if permit.open else (Reason("removal_stopped"), *permit.revoked_for)
        context.attempt_failed(permit.target, *why)


def watch_permit(context: StepContext) -> None:
    """Void a permit that has lost its ground, fault when the arm does not stop, renew what is left."""
    permit = context.state.permit
    if permit is None:
        return
    if permit.open:
        reasons, details = _lost_ground(context, permit)
        if reasons:
            context.revoke(reasons, *details)
        else:
            context.set(permit=replace(permit, valid_until_ns=context.lease_end()))
    permit = context.state.permit
    if permit is None or permit.revoked_ns is None or permit.escalated:
        return
    patience_s = context.settings.cancel_timeout_s
    if context.has_passed(permit.revoked_ns, patience_s):
        context.set(permit=replace(permit, escalated=True))
        _demand_stop(context, Reason.of("arm_does_not_stop", goal=permit.goal_id, seconds=patience_s))


def _demand_stop(context: StepContext, reason: Reason) -> None:
    """The cell's own means must stop the arm, until a person has looked and resets."""
    context.set(fault=context.state.fault or (reason,), stop_demanded=True)
    context.emit(ev.Escalate(reason))


def _lost_ground(context: StepContext, permit: Permit) -> tuple[BlockReason, tuple[Reason, ...]]:
    settings = context.settings
    if closing := context.blocking_reasons():
        return closing, tuple(map(Reason, closing.codes))
    if not context.state.arm_ready:
        return BlockReason.ARM_FAILED, (Reason("arm_server_lost" if permit.lost else "arm_silent"),)
    if context.now >= permit.valid_until_ns:
        return BlockReason.STALE_SCENE, (Reason("permit_not_renewed"),)
    if settings != permit.settings:
        return BlockReason.CONTRADICTED, (Reason("gate_settings_changed"),)
    if not permit.accepted and context.has_passed(permit.sent_ns, settings.accept_timeout_s):
        return BlockReason.ARM_FAILED, (Reason.of("goal_not_accepted", seconds=settings.accept_timeout_s),)
    if context.has_passed(permit.sent_ns, settings.removal_timeout_s):
        return BlockReason.ARM_FAILED, (Reason.of("removal_too_long", seconds=settings.removal_timeout_s),)
    return BlockReason.NONE, ()


def _find_permit(context: StepContext, goal_id: int) -> Permit | None:
    permit = context.state.permit
    return permit if permit is not None and permit.goal_id == goal_id else None


def _counts(permit: Permit) -> bool:
    return not permit.foreign and not permit.revoked & ORDERED_STOP
