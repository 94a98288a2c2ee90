"""The gate's part that talks with the arm: goals, their ends, and an arm that does not answer."""

from __future__ import annotations

from dataclasses import replace

from sticker_uq.gate.events import (
    ArmLost,
    ArmReady,
    CancelGoal,
    Escalate,
    GoalAccepted,
    GoalRejected,
    RemovalCode,
    RemovalFinished,
    Severity,
)
from sticker_uq.gate.state import NO_STREAK, WORDS, BlockReason, Permit, Verification
from sticker_uq.gate.step_context import StepContext

PERSONS_STOP = (
    BlockReason.HELD
    | BlockReason.NOT_ACTIVE
    | BlockReason.AUDIT
    | BlockReason.SECOND_GATE_PUBLISHER
    | BlockReason.UNKNOWN_GATE_PUBLISHER
)
"""A removal that was stopped for these reasons was no failed attempt."""


def arm_ready(turn: StepContext, event: ArmReady) -> None:
    """The arm came, or fell silent: counting begins anew. A silent one may still report the end of its goal."""
    if event.ready != turn.state.arm_ready:
        turn.set(arm_ready=event.ready, streak=NO_STREAK)


def arm_lost(turn: StepContext, _: ArmLost) -> None:
    """The arm's server is gone, and with it the end of its goal."""
    permit = turn.state.permit
    turn.set(arm_ready=False, streak=NO_STREAK, permit=permit and replace(permit, lost=True))


def goal_accepted(turn: StepContext, event: GoalAccepted) -> None:
    """The arm starts; one that accepts a goal nobody wants any more is told to stop."""
    permit = _awaited(turn, event.goal_id)
    if permit is None or not permit.open:
        turn.emit(CancelGoal(event.goal_id))
    if permit is not None:
        turn.set(permit=replace(permit, accepted=True))


def goal_rejected(turn: StepContext, event: GoalRejected) -> None:
    """The arm does not start."""
    permit = _awaited(turn, event.goal_id)
    if permit is None:
        return
    turn.set(permit=None, streak=NO_STREAK)
    if _counts(permit):
        turn.attempt_failed(permit.target, f"the arm rejected the goal {event.text}".rstrip())


def removal_finished(turn: StepContext, event: RemovalFinished) -> None:
    """The arm has stopped: the permit is used up, whatever the result."""
    permit = _awaited(turn, event.goal_id)
    if permit is None:
        turn.log(
            Severity.WARNING, f"the arm reported the end of goal {event.goal_id}, which nobody waits for"
        )
        return
    turn.set(permit=None, streak=NO_STREAK, counts_after_ns=turn.now)
    if permit.foreign:
        return
    if event.code is RemovalCode.NONE:
        turn.set(verification=Verification(permit.target, since_ns=turn.now))
        return
    text = f"the arm reported {event.code.name} {event.text}".rstrip()
    if not permit.open:
        text = f"the removal was stopped: {permit.revoked_text}"
    if event.code is RemovalCode.OPERATOR_ABORT and permit.open:
        turn.ask_about(permit.target, f"somebody stopped the arm: {text}")
    elif _counts(permit):
        turn.attempt_failed(permit.target, text)


def watch_permit(turn: StepContext) -> None:
    """Void a permit that has lost its ground, fault when the arm does not stop, renew what is left."""
    permit = turn.state.permit
    if permit is None:
        return
    if permit.open:
        reasons, text = _lost_ground(turn, permit)
        if reasons:
            turn.revoke(reasons, text)
        else:
            turn.set(permit=replace(permit, valid_until_ns=turn.lease_end()))
    permit = turn.state.permit
    if permit is None or permit.revoked_ns is None or permit.escalated:
        return
    if turn.passed(permit.revoked_ns, turn.settings.cancel_timeout_s):
        text = f"the arm did not report the end of goal {permit.goal_id} within {turn.settings.cancel_timeout_s:g} s"
        fault = turn.state.fault or text
        turn.set(permit=replace(permit, escalated=True), fault=fault, stop_demanded=True)
        turn.emit(Escalate(text))


def _lost_ground(turn: StepContext, permit: Permit) -> tuple[BlockReason, str]:
    """Why an open permit must end now, and that in words."""
    settings = turn.settings
    closing = turn.closing()
    if closing:
        return closing, "; ".join(words for reason, words in WORDS.items() if reason & closing)
    if not turn.state.arm_ready:
        return (
            BlockReason.ARM_FAILED,
            "the arm's action server is gone" if permit.lost else "the arm is silent",
        )
    if turn.now >= permit.valid_until_ns:
        return BlockReason.STALE_SCENE, "the permit was not renewed in time"
    if settings != permit.settings:
        return BlockReason.CONTRADICTED, "the settings of the gate have changed"
    if not permit.accepted and turn.passed(permit.sent_ns, settings.accept_timeout_s):
        return (
            BlockReason.ARM_FAILED,
            f"the arm did not accept the goal within {settings.accept_timeout_s:g} s",
        )
    if turn.passed(permit.sent_ns, settings.removal_timeout_s):
        return BlockReason.ARM_FAILED, f"the removal took more than {settings.removal_timeout_s:g} s"
    return BlockReason.NONE, ""


def _awaited(turn: StepContext, goal_id: int) -> Permit | None:
    permit = turn.state.permit
    return permit if permit is not None and permit.goal_id == goal_id else None


def _counts(permit: Permit) -> bool:
    return not permit.foreign and not permit.revoked & PERSONS_STOP
