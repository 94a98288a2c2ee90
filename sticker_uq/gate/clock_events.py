# SPDX-License-Identifier: Apache-2.0
"""How the gate's state machine reacts to the clock: after a jump every age is wrong."""

from __future__ import annotations

from dataclasses import replace

from sticker_uq.gate.events import Event, Severity, Tick
from sticker_uq.gate.settings import nanoseconds
from sticker_uq.gate.state import NO_STREAK, BlockReason, GateState
from sticker_uq.gate.step_context import StepContext
from sticker_uq.scene import Reason


def keep_time(context: StepContext, event: Event) -> None:
    """Take over its time. After a jump the scenes are forgotten and all waiting goes on from the new time.

    A clock that goes back is noticed by itself, one that leaps ahead by a steady clock that the ticks bring along.
    """
    state, now = context.state, context.now
    jump_ns = jump_since_tick(state, now, event.steady_ns) if isinstance(event, Tick) else 0
    if now < state.now_ns or abs(jump_ns) >= nanoseconds(context.settings.max_clock_jump_s):
        _start_anew(context, jump_ns or now - state.now_ns)
    context.set(now_ns=now)
    if isinstance(event, Tick):
        context.set(tick_ns=now, steady_ns=event.steady_ns)


def jump_since_tick(state: GateState, now_ns: int, steady_ns: int) -> int:
    """How far its clock has moved against the steady one since the last tick; 0 where it is unknown."""
    if not steady_ns or not state.steady_ns:
        return 0
    return (now_ns - state.tick_ns) - (steady_ns - state.steady_ns)


def _start_anew(context: StepContext, jump_ns: int) -> None:
    state, now = context.state, context.now
    jumped = Reason.of("clock_ahead" if jump_ns > 0 else "clock_back", seconds=abs(jump_ns) / 1e9)
    context.clock_jumped = True
    context.revoke(BlockReason.CLOCK, jumped)
    context.log(Severity.WARNING, jumped)
    ahead = max(jump_ns, 0)

    def moved(then_ns: int) -> int:
        return min(then_ns + ahead, now)

    permit, check, request = context.state.permit, state.verification, state.request
    context.set(
        scene=None,
        picture=None,
        streak=NO_STREAK,
        undecided_ns=0,
        workpiece_ns=moved(state.workpiece_ns),
        counts_after_ns=moved(state.counts_after_ns),
        permit=permit
        and replace(permit, revoked_ns=now if permit.revoked_ns is None else moved(permit.revoked_ns)),
        verification=check and replace(check, since_ns=now, seen=0, gone=0),
        request=request and replace(request, opened_ns=moved(request.opened_ns)),
    )
