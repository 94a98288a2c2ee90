# SPDX-License-Identifier: Apache-2.0
"""One step of the gate's state machine under way: the state as far as it has changed, and the effects so far.

The modules of the gate (scenes, arm, operator) work on it one after the other; :func:`sticker_uq.gate.state_machine.step` wraps
it into a pure function.
"""

from dataclasses import replace
from typing import Any

from sticker_uq.gate import events as ev
from sticker_uq.gate.answers import OperatorAnswers, sticker_places
from sticker_uq.gate.box_overlap import Box, as_box, same_place
from sticker_uq.gate.settings import GateSettings, nanoseconds
from sticker_uq.gate.state import NO_STREAK, BlockReason, GateState, Request, Target
from sticker_uq.scene import ObjectVerdict, Reason, Verdict

_Reasons = tuple[Reason, ...]


class StepContext:
    """State, time and settings of one step, and what it makes happen."""

    def __init__(self, state: GateState, now_ns: int, settings: GateSettings) -> None:
        self.state = state
        self.now = now_ns
        self.settings = settings
        self.effects: list[ev.Effect] = []
        self.clock_jumped = False

    def set(self, **changes: Any) -> None:
        """Replace fields of the state; raises TypeError for a name that is none."""
        if not changes.keys() <= vars(self.state).keys():
            unknown = changes.keys() - vars(self.state).keys()
            raise TypeError(f"the gate's state has no {', '.join(sorted(unknown))}")
        state = object.__new__(GateState)  # dataclasses.replace takes half of a step's time
        object.__setattr__(state, "__dict__", vars(self.state) | changes)
        self.state = state

    def emit(self, effect: ev.Effect) -> None:
        self.effects.append(effect)

    def log(self, severity: ev.Severity, *reasons: Reason) -> None:
        self.emit(ev.Log(severity, reasons))

    def has_passed(self, since_ns: int, seconds: float) -> bool:
        return self.now - since_ns >= nanoseconds(seconds)

    def blocking_reasons(self) -> BlockReason:
        state = self.state
        reasons = BlockReason.NONE
        if not state.active:
            reasons |= BlockReason.NOT_ACTIVE
        if state.fault:
            reasons |= BlockReason.FAULT
        if state.held:
            reasons |= BlockReason.HELD
        if state.assumption:
            reasons |= BlockReason.ASSUMPTION
        if state.request is not None or state.skipped or state.refused is not None:
            reasons |= BlockReason.WAITING_FOR_OPERATOR
        for reason, _ in state.impediments:
            reasons |= reason
        if self.now <= 0 or self.clock_jumped:
            reasons |= BlockReason.CLOCK
        if state.permit is not None and not state.permit.open:
            # other reasons are still in the state by themselves; the goal may outlast a hold or a stale scene
            reasons |= state.permit.revoked & BlockReason.CONTRADICTED or BlockReason.ARM_FAILED
        reasons |= state.problem
        if state.scene is None:
            return reasons | BlockReason.NO_SCENE
        if self._stale():
            reasons |= BlockReason.STALE_SCENE
        return reasons

    def _stale(self) -> bool:
        state, limit = self.state, self.settings.max_scene_age_s
        assert state.scene is not None
        # ticks are counted too, because a clock that stands still makes nothing old
        silent = state.silent_ticks > self.settings.max_silent_ticks
        # a scene that came when the one before was too old promises no next one in time: a slow camera does not open and close,
        # nor does a slow machine of which one scene in a while comes in time
        silent |= max(state.waited_ns, state.usual_age_ns) >= nanoseconds(limit)
        return (
            silent
            or self.has_passed(state.received_ns, limit)
            or self.has_passed(state.scene.stamp_ns, limit)
        )

    def lease_end(self) -> int:
        """Until when a permit that rests on the newest scene may be valid."""
        scene = self.state.scene
        assert scene is not None
        freshest = min(scene.stamp_ns, self.state.received_ns) + nanoseconds(self.settings.max_scene_age_s)
        return min(self.now + nanoseconds(self.settings.lease_s), freshest)

    def revoke(self, reasons: BlockReason, *details: Reason) -> None:
        """Revoke the open permit, if there is one, and tell the arm to stop."""
        permit = self.state.permit
        if permit is None or not permit.open:
            return
        self.set(permit=replace(permit, revoked_ns=self.now, revoked=reasons, revoked_for=details))
        self.emit(ev.CancelGoal(permit.goal_id))
        self.log(ev.Severity.WARNING, Reason.of("permit_revoked", goal=permit.goal_id), *details)

    def ask(self, reasons: _Reasons, objects: tuple[ObjectVerdict, ...], whole_scene: bool = False) -> None:
        """Ask the operator, unless a question is open already. ``whole_scene``: the scene itself is in doubt."""
        state, decision = self.state, self.state.decision
        if state.request is not None or decision is None:
            return
        number = state.requests + 1
        request_id = f"{decision.decision_id[:12]}-{number}"
        boxes = tuple(as_box(verdict.object.box) for verdict in objects)
        objectors = tuple(dict.fromkeys(name for verdict in objects for name in verdict.objectors))
        if objects:
            reasons += (Reason.of("objects_to_decide", count=len(objects)),)
        if objectors:
            reasons += (Reason.of("monitors_object", names=", ".join(objectors)),)
        stickers = sticker_places((*objects, *decision.verdicts))
        source = state.reference.source if state.reference is not None else ()
        request = Request(
            request_id,
            reasons,
            boxes,
            stickers,
            whole_scene,
            self.now,
            source=source,
            objectors=objectors,
            stamp_ns=decision.stamp_ns,
        )
        self.set(request=request, requests=number, streak=NO_STREAK, undecided_ns=0)
        shown = decision.stamp_ns, decision.frame_id, decision.decision_id
        self.emit(ev.OpenIntervention(request_id, reasons, *shown, state.workpiece_id, objects))
        self.log(ev.Severity.WARNING, Reason.of("request_opened", request=request_id), *reasons)

    def ask_about(self, target: Target, *reasons: Reason) -> None:
        verdict = ObjectVerdict(target.verdict.object, Verdict.ASK, (Reason("removal_incomplete"),))
        self.ask(reasons, (verdict,))

    def close_request(self) -> None:
        if self.state.request is not None:
            self.emit(ev.CloseIntervention(self.state.request.request_id))
            self.set(request=None)

    def declare_done(self, clean: bool, reason: Reason) -> None:
        state, decision = self.state, self.state.decision
        if state.done or decision is None:
            return
        self.set(done=True)
        shown = decision.stamp_ns, decision.frame_id, decision.decision_id
        self.emit(ev.DeclareDone(state.workpiece_id, clean, reason, *shown))
        done = Reason.of("workpiece_done", workpiece=state.workpiece_id or "(unnamed)")
        self.log(ev.Severity.INFO, done, reason)

    def attempt_failed(self, permit_target: Target, *reasons: Reason) -> None:
        """A removal did not work: try again a bounded number of times, then ask the operator."""
        box = permit_target.box
        failures = 1 + max((n for place, n in self.state.attempts if same_place(place, box)), default=0)
        self.forget_attempts(box)
        self.set(attempts=(*self.state.attempts, (box, failures)), streak=NO_STREAK)
        if failures >= self.settings.max_attempts:
            self.ask_about(permit_target, *reasons, Reason.of("removal_tried", count=failures))
        else:
            attempt = Reason.of("attempt_failed", count=failures, most=self.settings.max_attempts)
            self.log(ev.Severity.WARNING, attempt, *reasons)

    def forget_attempts(self, box: Box) -> None:
        self.set(attempts=tuple(found for found in self.state.attempts if not same_place(found[0], box)))

    def forget_places(self, same_pixels: bool) -> None:
        """Camera, image size or calibration has changed: forget what was approved and tried at places, which were px.

        What a person said to leave alone stays so where the ``same_pixels`` show it; else it cannot be found again, and a person
        must look first.
        """
        memory, removed = self.state.memory.prohibitions(), self.state.removed
        if memory.answers and not same_pixels:
            lost = Reason("places_lost")
            self.set(held=True, held_for=(*(r for r in self.state.held_for if r != lost), lost))
            self.log(ev.Severity.ERROR, lost)
        if not same_pixels:
            memory, removed = OperatorAnswers(), ()
        memory = replace(memory, scene_clean=self.state.memory.scene_clean)
        self.set(memory=memory, attempts=(), removed=removed, verification=None, relief=None)

    def forget_workpiece(self, *reasons: Reason) -> None:
        """The workpiece has left: forget what was answered and done about it."""
        self.revoke(BlockReason.CONTRADICTED, *(reasons or (Reason("another_workpiece"),)))
        permit = self.state.permit
        if permit is not None:
            self.set(permit=replace(permit, foreign=True))
        if self.state.request is not None and self.state.request.request_id == self.state.assumption_request:
            self.set(assumption_request="")  # not answered yet: it is asked again
        self.close_request()
        self.set(
            workpieces=self.state.workpieces + 1,
            memory=OperatorAnswers(),
            attempts=(),
            removed=(),
            verification=None,
            skipped=False,
            done=False,
            streak=NO_STREAK,
            undecided_ns=0,
        )
