"""The gate's part that reads scenes: is the newest one plausible, does it agree with the permit, what follows from K of them."""

from __future__ import annotations

from dataclasses import replace

from sticker_uq.scene import ObjectClass, ObjectVerdict, Outcome, Reason, SceneDecision, Verdict
from sticker_uq.supervision.boxes import as_box, iou, is_proper
from sticker_uq.supervision.events import RemovalVerified, SceneReceived, SceneUnreadable, SendGoal, Severity
from sticker_uq.supervision.settings import nanoseconds
from sticker_uq.supervision.state import NO_STREAK, Closed, Permit, SceneFacts, Streak, Target
from sticker_uq.supervision.turn import Turn


def may_be_removed(verdict: ObjectVerdict) -> bool:
    """Whether an arm may be sent to this object: a stable sticker, or one that a person approved."""
    observed = verdict.object
    sticker = observed.label is ObjectClass.STICKER and not observed.unstable
    return (
        verdict.verdict is Verdict.REMOVE
        and (sticker or verdict.by_person)
        and is_proper(as_box(observed.box))
    )


def receive(turn: Turn, event: SceneReceived) -> None:
    """Take in the newest scene and void a permit that it contradicts."""
    facts, decision = event.facts, event.decision
    problem, text = _problem(turn, facts, decision)
    reference = turn.state.reference if problem & Closed.FAILED_SCENE else facts
    turn.set(
        scene=facts,
        reference=reference,
        received_ns=turn.now,
        silent_ticks=0,
        decision=decision,
        problem=problem,
        problem_text=text,
    )
    permit = turn.state.permit
    if permit is not None and permit.open and not problem:
        contradiction = _contradiction(turn, permit, decision)
        if contradiction:
            turn.revoke(Closed.CONTRADICTED, contradiction)


def receive_unreadable(turn: Turn, event: SceneUnreadable) -> None:
    """Close until a scene comes that can be read."""
    turn.set(problem=Closed.FAILED_SCENE, problem_text=event.text)


def _problem(turn: Turn, facts: SceneFacts, decision: SceneDecision) -> tuple[Closed, str]:
    if not facts.usable or decision.outcome not in (Outcome.WORK, Outcome.ASK, Outcome.CLEAN):
        return Closed.FAILED_SCENE, facts.text or "the scene could not be judged"
    text = _implausible(turn, facts, decision)
    return (Closed.IMPLAUSIBLE_SCENE, text) if text else (Closed.NONE, "")


def _implausible(turn: Turn, facts: SceneFacts, decision: SceneDecision) -> str:
    state = turn.state
    if not facts.finite:
        return "the scene holds values that are no finite numbers"
    if min(facts.image_size) <= 0:
        return f"the image has the size {facts.image_size[0]} x {facts.image_size[1]}"
    if facts.stamp_ns <= 0:
        return f"the stamp of the image is {facts.stamp_ns}"
    if facts.stamp_ns > turn.now + nanoseconds(turn.settings.max_clock_skew):
        return f"the stamp of the image lies {(facts.stamp_ns - turn.now) / 1e9:.3f} s in the future"
    if state.scene is not None and facts.stamp_ns <= state.scene.stamp_ns:
        return "the stamps of the images stand still or go back"
    if state.reference is not None and facts.identity != state.reference.identity:
        return "frame, image size, model, settings or policy have changed"
    if decision.outcome is Outcome.WORK and not (
        decision.removable() and all(map(may_be_removed, decision.removable()))
    ):
        return "the decision allows the removal of something that is no stable sticker"
    return ""


def _contradiction(turn: Turn, permit: Permit, decision: SceneDecision) -> str:
    """How a sound scene contradicts an open permit; empty when it does not.

    Until the arm has accepted the goal the object must be found again. After that the arm may hide it: then only an object
    that is seen at the place and may not be removed contradicts; doubts about the scene as a whole do not, because the arm
    itself is in the picture.
    """
    here = [v for v in decision.verdicts if _at(v, permit.target, turn.settings.match_iou)]
    if any(map(may_be_removed, here)):
        return (
            "" if permit.accepted or decision.outcome is Outcome.WORK else "the scene as a whole is in doubt"
        )
    if not permit.accepted:
        return "the object was not found again"
    for verdict in here:
        if verdict.object.label is ObjectClass.LOGO:
            return "a logo is seen at the place of the object"
        if verdict.verdict is not Verdict.KEEP or verdict.by_person:
            why = f": {verdict.reasons[0].text}" if verdict.reasons else ""
            return f"the object may not be removed any more{why}"
    return ""


def _at(verdict: ObjectVerdict, target: Target, match_iou: float) -> bool:
    return iou(as_box(verdict.object.box), target.box) >= match_iou


def conclude(turn: Turn) -> None:
    """What the newest scene, together with those before it, leads to. Called when nothing closes the gate."""
    state = turn.state
    assert state.scene is not None
    assert state.decision is not None
    if state.scene.stamp_ns <= state.counts_after_ns:
        turn.set(streak=NO_STREAK)
        return
    if state.verification is not None:
        _verify(turn, state.decision)
        return
    if state.done:
        if state.workpiece_id or state.decision.outcome is Outcome.CLEAN:
            return
        # nobody says which workpiece lies here: something new after the last one was done means another one
        turn.forget_workpiece()
    streak = _extended(turn, state.decision)
    turn.set(streak=streak, undecided_ns=state.undecided_ns or turn.now)
    if streak.count >= turn.settings.consecutive_scenes:
        turn.set(undecided_ns=0)
        _act(turn, streak, state.decision)


def _extended(turn: Turn, decision: SceneDecision) -> Streak:
    before = turn.state.streak
    if decision.outcome is not Outcome.WORK:
        return Streak(decision.outcome, before.count + 1 if before.outcome is decision.outcome else 1)
    found = before.target and _again(decision, before.target, turn.settings.match_iou)
    if found:
        return Streak(Outcome.WORK, before.count + 1, Target.of(found, decision))
    return Streak(Outcome.WORK, 1, Target.of(decision.removable()[0], decision))


def _again(decision: SceneDecision, target: Target, match_iou: float) -> ObjectVerdict | None:
    """The removable object that is the same as ``target`` of the scene before; the nearest one of several."""
    same = [
        v
        for v in decision.removable()
        if _at(v, target, match_iou) and (v.object.label, v.by_person) == (target.label, target.by_person)
    ]
    return max(same, key=lambda v: iou(as_box(v.object.box), target.box), default=None)


def _act(turn: Turn, streak: Streak, decision: SceneDecision) -> None:
    if streak.target is not None:
        if turn.state.arm_ready:
            _grant(turn, streak.target)
    elif streak.outcome is Outcome.ASK:
        ask_about_scene(turn, decision, tuple(r for r in decision.reasons if r.metric != "status"))
    else:
        said = turn.state.memory.scene_clean
        turn.declare_done(True, "a person said that no sticker is left" if said else "no sticker is left")
        if not turn.state.workpiece_id:
            turn.set(memory=turn.state.memory.without_approvals())


def _grant(turn: Turn, target: Target) -> None:
    number = turn.state.goals + 1
    permit = Permit(number, target, turn.settings, sent_ns=turn.now, valid_until_ns=turn.lease_end())
    turn.set(permit=permit, goals=number, streak=NO_STREAK)
    turn.emit(SendGoal(number, target))
    turn.log(Severity.INFO, f"permit {number} for object {target.object_id} of decision {target.decision_id}")


def ask_about_scene(turn: Turn, decision: SceneDecision, scene_reasons: tuple[Reason, ...]) -> None:
    """Call a person about what the decision leaves open.

    With ``scene_reasons`` the scene as a whole is in doubt, so that every possible sticker is in question, the sure ones too.
    """
    whole_scene = bool(scene_reasons)
    objects = tuple(v for v in decision.verdicts if _in_question(v, whole_scene))
    parts = [reason.text for reason in scene_reasons]
    if objects:
        parts.append(f"{len(objects)} object{'s' * (len(objects) > 1)} to be decided")
    turn.ask("; ".join(parts), objects, scene_reasons, whole_scene)


def _in_question(verdict: ObjectVerdict, whole_scene: bool) -> bool:
    if verdict.by_person:
        return False
    sticker = verdict.object.label is ObjectClass.STICKER
    return verdict.verdict in (Verdict.ASK, Verdict.UNKNOWN) or (whole_scene and sticker)


def _verify(turn: Turn, decision: SceneDecision) -> None:
    """Count the scenes since the removal in which its object is still seen, or gone."""
    check = turn.state.verification
    assert check is not None
    there = any(_is_sticker_at(v, check.target, turn.settings.match_iou) for v in decision.verdicts)
    check = replace(check, seen=check.seen + 1 if there else 0, gone=0 if there else check.gone + 1)
    turn.set(verification=check)
    if check.gone >= turn.settings.consecutive_scenes:
        turn.set(verification=None, memory=turn.state.memory.consume(check.target.box), streak=NO_STREAK)
        turn.forget_attempts(check.target.box)
        turn.emit(RemovalVerified(check.target))
        turn.log(
            Severity.INFO, f"object {check.target.object_id} of decision {check.target.decision_id} is gone"
        )
    elif check.seen >= turn.settings.consecutive_scenes:
        turn.set(verification=None)
        turn.attempt_failed(check.target, "the sticker is still there after its removal")


def _is_sticker_at(verdict: ObjectVerdict, target: Target, match_iou: float) -> bool:
    # a place that only a person drew is in every decision until its removal is verified: it proves nothing
    detected = verdict.object.detections > 0
    sticker = verdict.object.label is ObjectClass.STICKER or verdict.verdict is not Verdict.KEEP
    return detected and sticker and _at(verdict, target, match_iou)
