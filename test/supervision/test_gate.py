"""The gate, transition by transition. A witness checks the rules that always hold along the way."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sticker_uq.scene import InvalidInput, ObjectClass, Outcome, Status
from sticker_uq.supervision import Answer, Closed, PersonAnswer, Phase, Policy, SceneAnswer, Supervisor
from sticker_uq.supervision.events import (
    Activated,
    AnswerGiven,
    ArmReady,
    CancelGoal,
    CloseIntervention,
    Deactivated,
    DeclareDone,
    Escalate,
    Event,
    Fault,
    GoalAccepted,
    GoalRejected,
    Hold,
    Log,
    OpenIntervention,
    PublishGate,
    Release,
    RemovalCode,
    RemovalFinished,
    RemovalVerified,
    Reset,
    SceneReceived,
    SceneUnreadable,
    SendGoal,
    Tick,
    WorkpieceChanged,
)
from test.helpers.assessments import ELSEWHERE, HERE, SECOND, THERE, assessment, observed, rarely_seen
from test.helpers.gate import (
    SETTINGS,
    Cell,
    K,
    asking,
    faulted,
    permitted,
    removing,
    running,
    verifying,
)

STICKER = observed()
UNSURE = observed(shannon_entropy=1.5)
LOGO = observed(label=ObjectClass.LOGO)
NEARBY = observed((105.0, 103.0, 185.0, 163.0))
CANCELLED = RemovalCode.OPERATOR_ABORT

Make = Callable[[], Cell]


def finish(cell: Cell, code: RemovalCode = RemovalCode.NONE) -> Cell:
    cell.send(RemovalFinished(cell.goal, code))
    return cell


def answer(
    cell: Cell, *answers: PersonAnswer, scene: SceneAnswer = SceneAnswer.NONE, person: str = "Ada"
) -> bool:
    assert cell.state.request is not None
    cell.send(AnswerGiven(cell.state.request.request_id, person, scene, answers))
    return cell.reply().accepted


# --- opening ----------------------------------------------------------------------------------------------------------------


def test_starts_closed_and_says_why() -> None:
    cell = Cell()
    assert cell.phase is Phase.BLOCKED
    cell.tick()
    (gate,) = cell.sent(PublishGate)
    assert gate.reasons == Closed.NOT_ACTIVE | Closed.NO_SCENE
    cell.scene(STICKER, times=5)
    assert not cell.state.open


def test_k_agreeing_scenes_open_for_one_object_and_send_one_goal() -> None:
    cell = running()
    assert (cell.phase, cell.state.reasons) == (Phase.BLOCKED, Closed.NO_SCENE)
    cell.scene(STICKER, observed(THERE), times=K - 1)
    assert (cell.phase, cell.state.reasons) == (Phase.MONITORING, Closed.INCONSISTENT)
    cell.scene(NEARBY, observed(THERE))
    assert cell.phase is Phase.PERMITTED
    gate, goal = cell.last[:2]
    assert isinstance(gate, PublishGate)
    assert isinstance(goal, SendGoal)
    assert gate.open
    assert gate.target == goal.target
    assert goal.target.box == (105.0, 103.0, 185.0, 163.0)
    assert goal.target.decision_id == cell.state.decision.decision_id  # type: ignore[union-attr]
    assert goal.target.image_stamp_ns == cell.state.scene.stamp_ns  # type: ignore[union-attr]
    assert gate.valid_until_ns == cell.now + round(SETTINGS.lease * SECOND)
    cell.scene(STICKER, observed(THERE), times=4)
    assert len(cell.sent(SendGoal)) == 1


def test_without_an_arm_nothing_opens_until_it_is_ready() -> None:
    cell = running()
    cell.send(ArmReady(False))
    cell.scene(STICKER, times=K + 2)
    assert (cell.phase, cell.state.reasons) == (Phase.MONITORING, Closed.ARM_FAILED)
    cell.send(ArmReady(True))
    assert not cell.state.open
    cell.scene(STICKER, times=K)
    assert cell.phase is Phase.PERMITTED


@pytest.mark.parametrize(
    "between",
    [
        lambda cell: cell.scene(),
        lambda cell: cell.scene(UNSURE),
        lambda cell: cell.scene(observed(ELSEWHERE)),
        lambda cell: cell.scene(STICKER, dil=0.9),
        lambda cell: cell.scene(STICKER, status=Status.FAILED),
        lambda cell: cell.scene(STICKER, image_size=(800, 600)),
        lambda cell: cell.scene(STICKER, model_hash="other"),
        lambda cell: cell.scene(STICKER, age=0.5),
        lambda cell: cell.tick(12),
        lambda cell: (cell.send(Hold()), cell.send(Release())),
        lambda cell: cell.send(WorkpieceChanged("laptop-2", cell.now)),
        lambda cell: (cell.send(Deactivated()), cell.send(Activated())),
    ],
)
def test_any_interruption_begins_the_count_anew(between: Callable[[Cell], Any]) -> None:
    cell = running().scene(STICKER, times=K - 1)
    between(cell)
    cell.scene(STICKER, times=K - 1)
    assert not cell.state.open
    cell.scene(STICKER, times=2)
    assert cell.phase is Phase.PERMITTED


def test_images_from_before_the_workpiece_came_do_not_count() -> None:
    cell = running()
    cell.send(WorkpieceChanged("laptop-2", cell.now))
    cell.scene(STICKER, times=3, age=0.4)
    assert cell.state.streak.count == 0
    assert cell.state.decision is not None
    assert cell.state.decision.workpiece_id == ""
    cell.scene(STICKER)
    cell.scene(STICKER, times=K)
    assert cell.phase is Phase.PERMITTED
    assert cell.state.decision.workpiece_id == "laptop-2"


def test_the_object_must_be_the_same_from_scene_to_scene() -> None:
    cell = running()
    for box in (HERE, THERE, HERE, THERE):
        cell.scene(observed(box))
    assert not cell.state.open
    cell.scene(observed(HERE), observed(THERE))
    assert cell.phase is Phase.PERMITTED
    assert cell.state.permit is not None
    assert cell.state.permit.target.box == THERE


# --- the lease --------------------------------------------------------------------------------------------------------------


def test_ticks_renew_the_lease_only_while_the_scene_is_fresh() -> None:
    cell = permitted()
    stamp = cell.state.scene.stamp_ns  # type: ignore[union-attr]
    for _ in range(3):
        cell.tick()
        gate = cell.last[0]
        assert isinstance(gate, PublishGate)
        assert gate.valid_until_ns == cell.now + round(SETTINGS.lease * SECOND)
    cell.send(GoalAccepted(cell.goal))
    cell.tick(5)
    assert cell.last[0].valid_until_ns == stamp + SECOND  # type: ignore[union-attr]
    cell.tick(2)
    assert cell.phase is Phase.BLOCKED
    assert cell.state.reasons & Closed.STALE_SCENE


def test_a_permit_that_was_not_renewed_in_time_cannot_come_back() -> None:
    cell = permitted()
    cell.wait(SETTINGS.lease)
    cell.scene(STICKER)
    assert not cell.state.open
    assert cell.sent(CancelGoal) == [CancelGoal(1)]


def test_a_clock_that_stands_still_does_not_keep_the_gate_open() -> None:
    cell = removing()
    ticks = 0
    while cell.state.open:
        cell.send(Tick())
        ticks += 1
        assert ticks < 20
    assert cell.state.reasons & Closed.STALE_SCENE


def test_an_image_stamped_ahead_of_the_clock_is_fresh_no_longer_than_any_other() -> None:
    cell = running().scene(STICKER, age=-0.04)
    cell.tick(9)
    assert not cell.state.reasons & Closed.STALE_SCENE
    cell.tick()
    assert cell.state.reasons & Closed.STALE_SCENE


def test_images_without_a_size_open_nothing_however_many_agree() -> None:
    cell = running().scene(STICKER, times=K + 2, image_size=(0, 0))
    assert cell.state.reasons & Closed.IMPLAUSIBLE_SCENE
    assert not cell.sent(SendGoal)


def test_a_clock_at_zero_opens_nothing_even_for_images_that_seem_fresh() -> None:
    cell = Cell()
    cell.now = 0
    cell.send(Activated())
    cell.send(ArmReady(True))
    for stamp in range(1, 2 * K + 1):
        cell.assess(assessment(STICKER, stamp_ns=stamp * 1000))
    assert cell.state.reasons & Closed.IMPLAUSIBLE_SCENE
    assert not cell.sent(SendGoal)


@pytest.mark.parametrize(
    ("outcome", "usable"),
    [(Outcome.WORK, False), (Outcome.CLEAN, False), (Outcome.BLOCKED, True), (Outcome.UNKNOWN, True)],
)
def test_a_scene_fails_by_its_status_or_by_its_decision(outcome: Outcome, usable: bool) -> None:
    cell = permitted()
    scene, decision = cell.state.scene, cell.state.decision
    assert scene is not None
    assert decision is not None
    facts = replace(scene, stamp_ns=scene.stamp_ns + 1, usable=usable)
    cell.send(SceneReceived(replace(decision, outcome=outcome), facts))
    assert cell.state.reasons & Closed.FAILED_SCENE


# --- closing ----------------------------------------------------------------------------------------------------------------

CLOSING: dict[str, tuple[Callable[[Cell], Any], Closed]] = {
    "hold": (lambda cell: cell.send(Hold()), Closed.HELD),
    "fault": (lambda cell: cell.send(Fault("test")), Closed.FAULT),
    "deactivated": (lambda cell: cell.send(Deactivated()), Closed.NOT_ACTIVE),
    "arm gone": (lambda cell: cell.send(ArmReady(False)), Closed.ARM_FAILED),
    "other workpiece": (lambda cell: cell.send(WorkpieceChanged("x", cell.now)), Closed.CONTRADICTED),
    "failed scene": (lambda cell: cell.scene(status=Status.FAILED), Closed.FAILED_SCENE),
    "unknown status": (lambda cell: cell.scene(STICKER, status=Status.UNKNOWN), Closed.FAILED_SCENE),
    "unreadable scene": (lambda cell: cell.send(SceneUnreadable("arrays do not fit")), Closed.FAILED_SCENE),
    "NaN metric": (lambda cell: cell.scene(observed(shannon_entropy=float("nan"))), Closed.IMPLAUSIBLE_SCENE),
    "inf box": (lambda cell: cell.scene(observed((0, 0, float("inf"), 9))), Closed.IMPLAUSIBLE_SCENE),
    "NaN box of a rare object": (
        lambda cell: cell.scene(STICKER, unstable=[rarely_seen((0, 0, float("nan"), 9))]),
        Closed.IMPLAUSIBLE_SCENE,
    ),
    "other size": (lambda cell: cell.scene(STICKER, image_size=(320, 240)), Closed.IMPLAUSIBLE_SCENE),
    "no size": (lambda cell: cell.scene(STICKER, image_size=(0, 0)), Closed.IMPLAUSIBLE_SCENE),
    "other frame": (lambda cell: cell.scene(STICKER, frame_id="x"), Closed.IMPLAUSIBLE_SCENE),
    "other model": (lambda cell: cell.scene(STICKER, model_hash="x"), Closed.IMPLAUSIBLE_SCENE),
    "other settings": (lambda cell: cell.scene(STICKER, settings_hash="x"), Closed.IMPLAUSIBLE_SCENE),
    "stamp stands still": (
        lambda cell: cell.scene(STICKER, stamp_ns=cell.state.scene.stamp_ns),  # type: ignore[union-attr]
        Closed.IMPLAUSIBLE_SCENE,
    ),
    "stamp goes back": (
        lambda cell: cell.scene(STICKER, stamp_ns=cell.state.scene.stamp_ns - 1),  # type: ignore[union-attr]
        Closed.IMPLAUSIBLE_SCENE,
    ),
    "zero stamp": (lambda cell: cell.scene(STICKER, stamp_ns=0), Closed.IMPLAUSIBLE_SCENE),
    "stamp in the future": (lambda cell: cell.scene(STICKER, age=-0.2), Closed.IMPLAUSIBLE_SCENE),
    "old image": (lambda cell: cell.wait(0.2).scene(STICKER, stamp_ns=cell.now - SECOND), Closed.STALE_SCENE),
    "clock goes back": (lambda cell: cell.wait(-5.0).tick(), Closed.IMPLAUSIBLE_SCENE),
    "clock stands at zero": (
        lambda cell: cell.wait(-cell.now / SECOND - 0.1).tick(),
        Closed.IMPLAUSIBLE_SCENE,
    ),
    "no tick for long": (lambda cell: cell.wait(3600.0).tick(), Closed.STALE_SCENE),
    "logo at the place": (lambda cell: cell.scene(LOGO), Closed.CONTRADICTED),
    "uncertain now": (lambda cell: cell.scene(UNSURE), Closed.CONTRADICTED),
    "rarely seen now": (lambda cell: cell.scene(unstable=[rarely_seen()]), Closed.CONTRADICTED),
}


@pytest.mark.parametrize("name", CLOSING)
@pytest.mark.parametrize("make", [permitted, removing])
def test_closes_in_the_same_step_and_stops_the_arm(make: Make, name: str) -> None:
    happen, reason = CLOSING[name]
    cell = make()
    happen(cell)
    assert not cell.state.open
    assert cell.state.reasons & reason, cell.state.reasons
    assert cell.sent(CancelGoal) == [CancelGoal(1)]
    # nothing but the end of the goal makes way for another one
    cell.tick().scene(STICKER, times=K + 2)
    assert len(cell.sent(SendGoal)) == 1


@pytest.mark.parametrize(
    "happen",
    [
        lambda cell: cell.scene(),
        lambda cell: cell.scene(observed(THERE)),
        lambda cell: cell.scene(STICKER, dil=0.9),
    ],
)
def test_what_the_arm_hides_is_no_contradiction_once_it_works(happen: Callable[[Cell], Any]) -> None:
    cell = permitted()
    happen(cell)
    assert cell.state.reasons & Closed.CONTRADICTED
    cell = removing()
    happen(cell)
    assert cell.phase is Phase.REMOVING


def test_an_arm_that_does_not_accept_is_given_up() -> None:
    cell = permitted()
    while cell.state.open:
        cell.scene(STICKER)
    assert cell.state.reasons & Closed.ARM_FAILED
    assert cell.sent(CancelGoal) == [CancelGoal(1)]


def test_a_removal_that_takes_too_long_is_stopped() -> None:
    cell = removing()
    for _ in range(49):
        cell.scene(STICKER)
    assert cell.phase is Phase.REMOVING
    cell.scene(STICKER, times=2)
    assert cell.state.reasons & Closed.ARM_FAILED


def test_settings_and_policy_are_frozen_while_a_permit_is_out() -> None:
    cell = permitted()
    with pytest.raises(InvalidInput, match="hold the gate first"):
        cell.core.configure(Policy(max_dil=1.0, max_dil_clean=1.0), SETTINGS)
    assert cell.core.policy == Policy()
    finish(cell.tick(), RemovalCode.STALE_PERMIT)
    cell.scene(STICKER, times=K - 1)
    cell.core.configure(Policy(min_probability=0.9), SETTINGS)
    cell.scene(STICKER)
    assert cell.state.reasons & Closed.IMPLAUSIBLE_SCENE
    cell.scene(STICKER, times=K - 1)
    assert not cell.state.open
    cell.scene(STICKER)
    assert cell.phase is Phase.PERMITTED


# --- the arm ----------------------------------------------------------------------------------------------------------------


def test_a_removal_is_verified_on_images_taken_after_it() -> None:
    cell = verifying()
    end = cell.now
    cell.scene(times=2, stamp_ns=end)
    assert cell.state.verification is not None
    assert cell.state.verification.gone == 0
    cell.scene(times=K - 1)
    assert not cell.sent(RemovalVerified)
    cell.scene()
    assert [e.target.box for e in cell.sent(RemovalVerified)] == [HERE]
    assert cell.phase is Phase.MONITORING
    assert cell.state.attempts == ()


def test_scenes_must_agree_in_a_row_that_it_is_gone() -> None:
    cell = verifying()
    for _ in range(4):
        cell.scene()
        cell.scene(STICKER)
    assert cell.phase is Phase.VERIFYING
    cell.scene(NEARBY)
    assert cell.phase is Phase.MONITORING
    assert cell.state.attempts == ((HERE, 1),)


def test_a_logo_under_the_sticker_means_that_the_sticker_is_gone() -> None:
    cell = verifying().scene(LOGO, times=K)
    assert len(cell.sent(RemovalVerified)) == 1


def test_a_sticker_that_stays_is_tried_again_and_then_a_person_is_called() -> None:
    cell = verifying().scene(STICKER, times=K)
    assert cell.phase is Phase.MONITORING
    cell.scene(STICKER, times=K)
    assert cell.phase is Phase.PERMITTED
    cell.send(GoalAccepted(cell.goal))
    finish(cell).scene(STICKER, times=K)
    assert cell.phase is Phase.INTERVENTION
    (request,) = cell.sent(OpenIntervention)
    assert "still there" in request.text
    assert [v.object.box.tolist() for v in request.objects] == [list(HERE)]
    assert len(cell.sent(SendGoal)) == SETTINGS.max_attempts


def test_a_doubtful_verification_becomes_a_question() -> None:
    cell = verifying()
    for _ in range(16):
        cell.scene()
        cell.scene(STICKER)
    assert cell.phase is Phase.INTERVENTION
    assert "did not tell" in cell.sent(OpenIntervention)[0].text


@pytest.mark.parametrize("code", [c for c in RemovalCode if c not in (RemovalCode.NONE, CANCELLED)])
def test_failures_are_retried_a_bounded_number_of_times(code: RemovalCode) -> None:
    cell = finish(removing(), code)
    assert cell.phase is Phase.MONITORING
    cell.scene(NEARBY)
    cell.scene(STICKER, times=K)
    assert cell.phase is Phase.PERMITTED
    finish(cell, code)
    assert cell.phase is Phase.INTERVENTION
    assert code.name in cell.sent(OpenIntervention)[0].text
    cell.scene(STICKER, times=20)
    assert len(cell.sent(OpenIntervention)) == 1
    assert len(cell.sent(SendGoal)) == 2


def test_an_arm_that_somebody_else_stopped_calls_a_person_at_once() -> None:
    cell = finish(removing(), CANCELLED)
    assert cell.phase is Phase.INTERVENTION
    assert "somebody stopped the arm" in cell.sent(OpenIntervention)[0].text


def test_a_goal_that_we_cancelled_is_a_failure_unless_a_person_held_the_gate() -> None:
    cell = removing().scene(UNSURE)
    finish(cell, CANCELLED)
    assert cell.state.attempts == ((HERE, 1),)
    assert "stopped: the object may not be removed" in cell.sent(Log)[-2].text
    cell = removing()
    cell.send(Hold())
    finish(cell, CANCELLED)
    assert cell.state.attempts == ()
    assert cell.phase is Phase.BLOCKED


def test_a_rejected_goal_is_a_failed_attempt() -> None:
    cell = permitted()
    cell.send(GoalRejected(cell.goal, "busy"))
    assert cell.phase is Phase.MONITORING
    assert cell.state.attempts == ((HERE, 1),)


def test_an_arm_that_stops_in_time_is_no_fault() -> None:
    cell = removing()
    cell.send(Hold())
    assert "waiting for the arm to stop" in cell.state.text
    cell.tick(5)
    finish(cell, CANCELLED).send(Release())
    cell.scene(STICKER, times=K + 1)
    assert cell.phase is Phase.PERMITTED
    assert not cell.sent(Escalate)


def test_an_arm_that_does_not_stop_is_a_fault_and_is_escalated_once() -> None:
    cell = removing()
    cell.send(Hold())
    cell.tick(7)
    assert cell.phase is Phase.FAULT
    (escalation,) = cell.sent(Escalate)
    assert "goal 1" in escalation.text
    cell.tick(20)
    assert len(cell.sent(Escalate)) == 1


def test_a_fault_of_another_kind_does_not_hide_an_arm_that_does_not_stop() -> None:
    cell = faulted().tick(7)
    assert len(cell.sent(Escalate)) == 1
    assert "test" in cell.state.text


def test_a_removal_that_ended_well_after_it_was_revoked_is_verified_too() -> None:
    cell = removing().scene(UNSURE)
    finish(cell)
    assert cell.phase is Phase.VERIFYING


def test_an_arm_that_starts_too_late_is_stopped_again() -> None:
    cell = permitted()
    cell.send(Hold())
    cell.send(GoalAccepted(cell.goal))
    assert cell.sent(CancelGoal) == [CancelGoal(1), CancelGoal(1)]
    finish(cell, CANCELLED)
    cell.send(GoalAccepted(1))
    assert len(cell.sent(CancelGoal)) == 3


def test_words_of_the_arm_about_another_goal_change_nothing() -> None:
    cell = removing()
    before = replace(cell.state, now_ns=0)
    finish(cell)
    verified = replace(cell.state, now_ns=0)
    assert before != verified
    finish(cell, RemovalCode.MOTION_FAILED)  # answers twice
    cell.send(GoalRejected(cell.goal))
    cell.send(RemovalFinished(99, RemovalCode.NONE))
    assert replace(cell.state, now_ns=0) == verified


def test_a_goal_of_the_workpiece_before_counts_for_nothing() -> None:
    for code in (RemovalCode.NONE, RemovalCode.MOTION_FAILED):
        cell = removing()
        cell.send(WorkpieceChanged("laptop-2", cell.now))
        finish(cell, code)
        assert cell.state.verification is None
        assert cell.state.attempts == ()


# --- faults -----------------------------------------------------------------------------------------------------------------


def test_a_fault_latches_until_reset() -> None:
    cell = running().scene(STICKER)
    cell.send(Fault("judge broke"))
    cell.scene(STICKER, times=5)
    assert cell.phase is Phase.FAULT
    assert "judge broke" in cell.state.text
    cell.send(Reset())
    assert cell.reply().accepted
    assert not cell.state.open
    cell.scene(STICKER, times=K)
    assert cell.phase is Phase.PERMITTED


def test_reset_leaves_nothing_but_a_fault() -> None:
    for make in (running, permitted, removing, verifying, asking):
        cell = make()
        phase = cell.phase
        cell.send(Reset())
        assert not cell.reply().accepted
        assert cell.phase is phase


def test_a_reset_while_the_arm_has_not_stopped_stays_closed() -> None:
    cell = faulted().tick(7)
    cell.send(Reset())
    assert cell.reply().accepted
    assert cell.phase is Phase.BLOCKED
    assert cell.sent(CancelGoal) == [CancelGoal(1), CancelGoal(1)]
    cell.scene(STICKER, times=3)
    assert cell.phase is Phase.BLOCKED
    cell.tick(4)
    assert cell.phase is Phase.FAULT
    assert len(cell.sent(Escalate)) == 2
    cell.send(Reset())
    finish(cell, CANCELLED)
    cell.scene(STICKER, times=K + 1)
    assert cell.phase is Phase.PERMITTED


def test_a_goal_that_was_lost_with_the_arm_is_given_up_by_a_reset() -> None:
    cell = removing()
    cell.send(ArmReady(False))
    cell.tick(7)
    assert cell.phase is Phase.FAULT
    cell.send(ArmReady(True))
    assert cell.phase is Phase.FAULT
    cell.send(Reset())
    assert "given up" in cell.reply().message
    cell.scene(STICKER, times=K)
    assert cell.phase is Phase.PERMITTED
    assert cell.goal == 2


def test_a_scene_that_cannot_be_judged_is_a_fault() -> None:
    cell = permitted()
    cell.wait(0.1)
    broken = replace(assessment(STICKER), objects=(replace(STICKER, box=STICKER.box[:3]),))
    cell.assess(broken)
    assert cell.phase is Phase.FAULT
    assert "could not be judged" in cell.state.text


# --- people -----------------------------------------------------------------------------------------------------------------


def test_k_uncertain_scenes_ask_once() -> None:
    cell = running().scene(UNSURE, times=K - 1)
    assert cell.state.reasons == Closed.INCONSISTENT | Closed.UNCERTAIN
    cell.scene(UNSURE)
    assert cell.phase is Phase.INTERVENTION
    (request,) = cell.sent(OpenIntervention)
    assert request.workpiece_id == "laptop-1"
    assert request.decision_id == cell.state.decision.decision_id  # type: ignore[union-attr]
    assert [v.object.id for v in request.objects] == [0]
    cell.scene(UNSURE, times=10).scene(STICKER, times=10).scene(times=10).tick(30)
    assert cell.phase is Phase.INTERVENTION
    assert len(cell.sent(OpenIntervention)) == 1


def test_a_request_that_nobody_answers_stays_and_the_gate_stays_closed() -> None:
    cell = asking()
    while cell.now < cell.state.request.opened_ns + 20 * SECOND:  # type: ignore[union-attr]
        cell.scene(UNSURE)
    assert cell.phase is Phase.INTERVENTION
    assert cell.state.request is not None
    assert cell.state.request.overdue
    overdue = [e for e in cell.effects if "nobody has answered" in getattr(e, "text", "")]
    assert len(overdue) == 1


def test_an_approved_object_is_removed_and_the_approval_is_used_up() -> None:
    cell = asking()
    assert answer(cell, PersonAnswer(Answer.REMOVE, HERE))
    assert len(cell.sent(CloseIntervention)) == 1
    cell.scene(UNSURE, times=K)
    assert cell.phase is Phase.PERMITTED
    assert cell.state.permit is not None
    assert cell.state.permit.target.by_person
    cell.send(GoalAccepted(cell.goal))
    finish(cell).scene(times=K)
    assert cell.state.memory.answers == ()
    cell.scene(UNSURE, times=K)
    assert cell.phase is Phase.INTERVENTION


def test_what_a_person_keeps_is_asked_about_no_more() -> None:
    cell = asking()
    assert answer(cell, PersonAnswer(Answer.KEEP, HERE))
    cell.scene(UNSURE, times=K)
    assert cell.phase is Phase.MONITORING
    assert [e.clean for e in cell.sent(DeclareDone)] == [True]


def test_a_drawn_sticker_is_removed_and_verified() -> None:
    cell = running().scene(dil=0.9, times=K)
    assert cell.phase is Phase.INTERVENTION
    assert answer(cell, PersonAnswer(Answer.MISSED, ELSEWHERE))
    cell.scene(dil=0.9, times=K)
    assert cell.phase is Phase.PERMITTED
    cell.send(GoalAccepted(cell.goal))
    cell.scene(dil=0.9)
    finish(cell).scene(dil=0.9, times=K)
    assert len(cell.sent(RemovalVerified)) == 1
    cell.scene(dil=0.9, times=K)
    assert [e.clean for e in cell.sent(DeclareDone)] == [True]


def test_a_doubt_about_the_scene_puts_every_sticker_in_question() -> None:
    cell = running().scene(STICKER, observed(THERE, ObjectClass.LOGO), dil=0.9, times=K)
    (request,) = cell.sent(OpenIntervention)
    assert [reason.metric for reason in request.scene_reasons] == ["dil"]
    assert [v.object.id for v in request.objects] == [0]
    assert not answer(cell)
    assert answer(cell, PersonAnswer(Answer.REMOVE, HERE))
    cell.scene(STICKER, observed(THERE, ObjectClass.LOGO), dil=0.9, times=K)
    assert cell.phase is Phase.PERMITTED


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"request_id": "other"}, "not open"),
        ({"person": " "}, "person is empty"),
        ({"answers": ()}, "the answer is empty"),
        ({"answers": (PersonAnswer(Answer.UNKNOWN, HERE),)}, "UNKNOWN"),
        (
            {"answers": (PersonAnswer(Answer.REMOVE, THERE),)},
            "not answered: the objects at 100, 100, 180, 160",
        ),
        ({"answers": (PersonAnswer(Answer.REMOVE, (9.0, 9.0, 5.0, 5.0)),)}, "no area"),
        (
            {"answers": (PersonAnswer(Answer.MISSED, (600.0, 400.0, 700.0, 470.0)),)},
            "outside the image of 640 x 480",
        ),
        ({"answers": (PersonAnswer(Answer.MISSED, (0.0, 0.0, float("nan"), 9.0)),)}, "not finite"),
    ],
)
def test_a_bad_answer_is_refused_and_changes_nothing(given: dict[str, Any], message: str) -> None:
    cell = asking()
    assert cell.state.request is not None
    before = cell.state
    values: dict[str, Any] = {
        "request_id": cell.state.request.request_id,
        "person": "Ada",
        "answers": (PersonAnswer(Answer.REMOVE, HERE),),
    }
    cell.send(AnswerGiven(**{**values, **given}))
    assert not cell.reply().accepted
    assert message in cell.reply().message
    assert cell.state == before


def test_a_second_answer_comes_too_late() -> None:
    cell = asking()
    assert cell.state.request is not None
    event = AnswerGiven(cell.state.request.request_id, "Ada", answers=(PersonAnswer(Answer.KEEP, HERE),))
    cell.send(event)
    assert cell.reply().accepted
    cell.send(replace(event, answers=(PersonAnswer(Answer.REMOVE, HERE),)))
    assert not cell.reply().accepted
    assert cell.state.memory.approvals == ()


def test_look_again_asks_again() -> None:
    cell = asking()
    assert answer(cell, scene=SceneAnswer.RESCAN)
    assert cell.phase is Phase.MONITORING
    cell.scene(UNSURE, times=K)
    assert len({e.request_id for e in cell.sent(OpenIntervention)}) == 2


def test_a_workpiece_that_is_left_to_people_stays_closed_until_the_next_one() -> None:
    cell = asking()
    assert answer(cell, scene=SceneAnswer.SKIP_LAPTOP)
    (done,) = cell.sent(DeclareDone)
    assert not done.clean
    cell.scene(STICKER, times=5)
    assert (cell.phase, cell.state.reasons) == (Phase.BLOCKED, Closed.WAITING_FOR_PERSON)
    cell.send(WorkpieceChanged("laptop-2", cell.now))
    cell.scene(STICKER, times=K + 1)
    assert cell.phase is Phase.PERMITTED


def test_a_person_may_report_a_fault_or_a_clean_lid() -> None:
    cell = asking()
    assert answer(cell, scene=SceneAnswer.FAULT)
    assert cell.phase is Phase.FAULT
    assert "Ada" in cell.state.text
    cell = asking()
    assert answer(cell, scene=SceneAnswer.CLEAN)
    cell.scene(UNSURE, STICKER, dil=0.9, times=K)
    assert [e.clean for e in cell.sent(DeclareDone)] == [True]


def test_scenes_that_never_agree_become_a_question() -> None:
    cell = running()
    for _ in range(25):
        cell.scene(STICKER).scene(UNSURE)
    assert cell.phase is Phase.INTERVENTION
    (request,) = cell.sent(OpenIntervention)
    assert "disagreed" in request.text


def test_a_hold_closes_until_it_is_released() -> None:
    cell = running()
    cell.send(Hold())
    cell.scene(STICKER, times=5)
    assert (cell.phase, cell.state.reasons) == (Phase.BLOCKED, Closed.HELD)
    cell.send(Release())
    cell.scene(STICKER, times=K)
    assert cell.phase is Phase.PERMITTED


# --- workpieces -------------------------------------------------------------------------------------------------------------


def test_a_clean_workpiece_is_declared_once_and_left_alone() -> None:
    cell = running().scene(times=K - 1)
    assert cell.state.reasons == Closed.INCONSISTENT | Closed.NOTHING_TO_REMOVE
    cell.scene(times=20)
    (done,) = cell.sent(DeclareDone)
    assert (done.workpiece_id, done.clean) == ("laptop-1", True)
    assert cell.state.reasons == Closed.NOTHING_TO_REMOVE
    # hands may be in the picture while it is taken away
    cell.scene(STICKER, times=5).scene(UNSURE, times=5)
    assert cell.phase is Phase.MONITORING
    assert len(cell.sent(SendGoal)) == len(cell.sent(OpenIntervention)) == 0


def test_another_workpiece_begins_anew() -> None:
    cell = asking()
    cell.send(WorkpieceChanged("laptop-2", cell.now))
    assert len(cell.sent(CloseIntervention)) == 1
    assert cell.phase is Phase.MONITORING
    cell = asking()
    answer(cell, PersonAnswer(Answer.REMOVE, HERE))
    cell.send(WorkpieceChanged("laptop-2", cell.now))
    cell.scene(UNSURE, times=K + 1)
    assert cell.phase is Phase.INTERVENTION


def test_the_same_workpiece_said_again_changes_nothing() -> None:
    cell = asking()
    before = cell.state
    cell.send(WorkpieceChanged("laptop-1", cell.now))
    assert cell.state == before


def test_without_names_a_clean_lid_is_declared_each_time_something_new_came() -> None:
    cell = running(workpiece="").scene(UNSURE, times=K)
    answer(cell, PersonAnswer(Answer.KEEP, HERE))
    cell.scene(UNSURE, times=K + 3)
    assert len(cell.sent(DeclareDone)) == 1
    # something else lies there: nothing that was said before holds
    cell.scene(observed(THERE), UNSURE, times=K)
    assert cell.phase is Phase.PERMITTED
    assert cell.state.memory.answers == ()


def test_without_names_a_released_hold_may_have_brought_another_workpiece() -> None:
    cell = running(workpiece="").scene(UNSURE, times=K)
    answer(cell, PersonAnswer(Answer.REMOVE, HERE))
    cell.send(Hold())
    assert cell.state.memory.approvals
    cell.send(Release())
    assert not cell.state.memory.approvals


@pytest.mark.parametrize("make", [running, permitted, removing, verifying, asking, faulted])
def test_deactivation_closes_and_keeps_what_must_be_kept(make: Make) -> None:
    cell = make()
    request, fault, permit = cell.state.request, cell.state.fault, cell.state.permit
    cell.send(Deactivated())
    assert not cell.state.open
    cell.send(Activated())
    assert not cell.state.open
    assert (cell.state.request, cell.state.fault) == (request, fault)
    assert (cell.state.permit is None) == (permit is None)


def test_the_core_reads_no_clock_and_repeats() -> None:
    def run() -> list[Any]:
        cell = running().scene(STICKER, UNSURE, times=K)
        cell.send(GoalAccepted(cell.goal))
        return finish(cell.tick(3)).scene(UNSURE, times=2 * K).effects

    assert [repr(e) for e in run()] == [repr(e) for e in run()]
    assert Supervisor(Policy()).state == Supervisor(Policy()).state


def test_every_event_is_handled() -> None:
    from sticker_uq.supervision.gate import _HANDLERS

    assert set(_HANDLERS) == set(Event.__args__)
