# SPDX-License-Identifier: Apache-2.0
"""The gate and people: questions, answers, holds, and the workpieces they are about."""

from typing import Any

import pytest

from sticker_uq.gate import Answer, BlockReason, GateController, OperatorAnswer, Phase, Policy, SceneAnswer
from sticker_uq.gate import events as ev
from sticker_uq.scene import ObjectClass, Reason
from sticker_uq.testing.scenes import ELSEWHERE, HERE, SECOND, THERE, object_at
from test.helpers.gate import (
    SETTINGS,
    STICKER,
    UNSURE,
    Cell,
    K,
    answer,
    asking,
    codes,
    faulted,
    finish,
    permitted,
    removing,
    running,
    verifying,
)


def test_k_uncertain_scenes_ask_once():
    cell = running().scene(UNSURE, times=K - 1)
    assert cell.state.reasons == BlockReason.INCONSISTENT | BlockReason.UNCERTAIN
    assert cell.scene(UNSURE).phase is Phase.INTERVENTION
    (request,) = cell.sent(ev.OpenIntervention)
    assert request.workpiece_id == "laptop-1"
    assert request.decision_id == cell.state.decision.decision_id
    assert [v.object.id for v in request.objects] == [0]
    cell.scene(UNSURE, times=10).scene(STICKER, times=10).scene(times=10).tick(30)
    assert cell.phase is Phase.INTERVENTION
    assert len(cell.sent(ev.OpenIntervention)) == 1


def test_a_request_that_nobody_answers_stays_and_the_gate_stays_closed():
    cell = asking()
    while cell.now < cell.state.request.opened_ns + 20 * SECOND:
        cell.scene(UNSURE)
    assert cell.phase is Phase.INTERVENTION
    assert cell.state.request.overdue
    assert cell.logged.count(["request_overdue"]) == 1


def test_an_approved_object_is_removed_and_the_approval_is_used_up():
    cell = asking()
    assert answer(cell, OperatorAnswer(Answer.REMOVE, HERE))
    assert len(cell.sent(ev.CloseIntervention)) == 1
    assert cell.scene(UNSURE, times=K).phase is Phase.PERMITTED
    assert cell.state.permit.target.by_operator
    cell.send(ev.GoalAccepted(cell.goal))
    finish(cell).scene(times=K)
    assert cell.state.memory.answers == ()
    assert cell.scene(UNSURE, times=K).phase is Phase.INTERVENTION


def test_a_drawn_sticker_is_removed_and_verified():
    cell = running().scene(dil=0.9, times=K)
    assert cell.phase is Phase.INTERVENTION
    assert answer(cell, OperatorAnswer(Answer.MISSED, ELSEWHERE))
    assert cell.scene(dil=0.9, times=K).phase is Phase.PERMITTED
    cell.send(ev.GoalAccepted(cell.goal))
    cell.scene(dil=0.9)
    finish(cell).scene(dil=0.9, times=K)
    assert len(cell.sent(ev.RemovalVerified)) == 1
    cell.scene(dil=0.9, times=K)
    assert [e.clean for e in cell.sent(ev.DeclareDone)] == [True]


def test_a_doubt_about_the_scene_puts_every_sticker_in_question():
    cell = running().scene(STICKER, object_at(THERE, ObjectClass.LOGO), dil=0.9, times=K)
    (request,) = cell.sent(ev.OpenIntervention)
    assert (request.reasons[0].code, request.reasons[0].subject) == ("above_limit", "dil")
    assert [v.object.id for v in request.objects] == [0]
    assert not answer(cell)
    assert answer(cell, OperatorAnswer(Answer.REMOVE, HERE))
    assert cell.scene(STICKER, object_at(THERE, ObjectClass.LOGO), dil=0.9, times=K).phase is Phase.PERMITTED


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"request_id": "other"}, "request_not_open"),
        ({"person": " "}, "person_missing"),
        ({"answers": ()}, "answer_empty"),
        ({"answers": (OperatorAnswer(Answer.UNKNOWN, HERE),)}, "answer_unknown"),
        ({"answers": (OperatorAnswer(Answer.REMOVE, THERE),)}, "object_unanswered"),
        ({"answers": (OperatorAnswer(Answer.REMOVE, (9.0, 9.0, 5.0, 5.0)),)}, "box_without_area"),
        ({"answers": (OperatorAnswer(Answer.MISSED, (600.0, 400.0, 641.0, 470.0)),)}, "box_outside_image"),
        ({"answers": (OperatorAnswer(Answer.MISSED, (600.0, 400.0, 640.0, 481.0)),)}, "box_outside_image"),
        ({"answers": (OperatorAnswer(Answer.MISSED, (-1.0, 400.0, 640.0, 470.0)),)}, "box_outside_image"),
        ({"answers": (OperatorAnswer(Answer.MISSED, (0.0, -1.0, 640.0, 470.0)),)}, "box_outside_image"),
        (
            {"answers": (OperatorAnswer(Answer.REMOVE, HERE), OperatorAnswer(Answer.KEEP, HERE))},
            "answers_differ",
        ),
        ({"scene_answer": SceneAnswer.CLEAN}, "scene_answer_with_removal"),
        ({"image_ns": 0}, "answer_without_image"),
        ({"image_ns": 1}, "answer_without_image"),
        ({"image_ns": 0, "scene_answer": SceneAnswer.CLEAN, "answers": ()}, "answer_without_image"),
        ({"answers": (OperatorAnswer(Answer.MISSED, (0.0, 0.0, float("nan"), 9.0)),)}, "box_without_area"),
    ],
)
def test_a_bad_answer_is_refused_and_changes_nothing(given, code):
    cell = asking()
    before = cell.state
    values: dict[str, Any] = {
        "request_id": cell.state.request.request_id,
        "person": "Ada",
        "answers": (OperatorAnswer(Answer.REMOVE, HERE),),
        "image_ns": cell.state.request.stamp_ns,
    }
    cell.send(ev.AnswerGiven(**{**values, **given}))
    assert not cell.reply().accepted
    assert codes(cell.reply().reasons) == [code]
    assert cell.state == before


def test_a_workpiece_that_is_left_to_people_stays_closed_until_the_next_one():
    cell = asking()
    assert answer(cell, scene=SceneAnswer.SKIP_LAPTOP)
    (done,) = cell.sent(ev.DeclareDone)
    assert not done.clean
    cell.scene(STICKER, times=5)
    assert (cell.phase, cell.state.reasons) == (Phase.BLOCKED, BlockReason.WAITING_FOR_OPERATOR)
    cell.send(ev.WorkpieceChanged("laptop-2", cell.now))
    assert cell.scene(STICKER, times=K + 1).phase is Phase.PERMITTED


def test_a_person_may_report_a_fault_or_a_clean_lid():
    cell = asking()
    assert answer(cell, scene=SceneAnswer.FAULT)
    assert cell.phase is Phase.FAULT
    assert cell.state.details == (Reason.of("operator_reported_fault", person="Ada"),)
    cell = asking()
    assert answer(cell, scene=SceneAnswer.CLEAN, not_stickers=(HERE,))
    cell.scene(UNSURE, STICKER, dil=0.9, times=K)
    assert [e.clean for e in cell.sent(ev.DeclareDone)] == [True]


def test_no_sticker_is_left_only_where_all_that_looks_like_one_is_meant_too():
    logo = object_at(ELSEWHERE, ObjectClass.LOGO)
    cell = running().scene(UNSURE, object_at(THERE, shannon_entropy=1.5), logo, times=K)
    before = cell.state
    for meant in ((), (HERE,), (THERE, ELSEWHERE), (HERE, (float("nan"), 0.0, 9.0, 9.0))):
        assert not answer(cell, scene=SceneAnswer.CLEAN, not_stickers=meant)
        (reason,) = cell.reply().reasons
        assert (reason.code, reason.box) == ("sticker_not_mentioned", THERE if HERE in meant else HERE)
        assert cell.state == before
    assert answer(cell, OperatorAnswer(Answer.KEEP, HERE), scene=SceneAnswer.CLEAN, not_stickers=(THERE,))


def test_what_newer_images_show_must_be_meant_too_and_what_was_left_before_need_not():
    cell = running().scene(UNSURE, times=K)
    assert answer(cell, OperatorAnswer(Answer.KEEP, HERE))
    assert cell.scene(UNSURE, dil=0.9, times=K).phase is Phase.INTERVENTION
    cell.scene(UNSURE, object_at(THERE), dil=0.9)
    assert not answer(cell, scene=SceneAnswer.CLEAN)
    assert cell.reply().reasons[0].box == THERE
    assert answer(cell, scene=SceneAnswer.CLEAN, not_stickers=(THERE,))


def test_scenes_that_never_agree_become_a_question():
    cell = running()
    for _ in range(25):
        cell.scene(STICKER).scene(UNSURE)
    assert cell.phase is Phase.INTERVENTION
    (request,) = cell.sent(ev.OpenIntervention)
    assert "scenes_disagree" in codes(request.reasons)


def test_a_clean_workpiece_is_declared_once_and_left_alone():
    cell = running().scene(times=K - 1)
    assert cell.state.reasons == BlockReason.INCONSISTENT | BlockReason.NOTHING_TO_REMOVE
    cell.scene(times=20)
    (done,) = cell.sent(ev.DeclareDone)
    assert (done.workpiece_id, done.clean) == ("laptop-1", True)
    assert cell.state.reasons == BlockReason.NOTHING_TO_REMOVE
    # hands may be in the picture while it is taken away
    assert cell.scene(STICKER, times=5).scene(UNSURE, times=5).phase is Phase.MONITORING
    assert len(cell.sent(ev.SendGoal)) == len(cell.sent(ev.OpenIntervention)) == 0


def test_without_names_a_clean_lid_is_declared_each_time_something_new_came():
    cell = running(workpiece="").scene(UNSURE, times=K)
    answer(cell, OperatorAnswer(Answer.KEEP, HERE))
    cell.scene(UNSURE, times=K + 3)
    assert len(cell.sent(ev.DeclareDone)) == 1
    # something else lies there: nothing that was said before holds
    assert cell.scene(object_at(THERE), UNSURE, times=K).phase is Phase.PERMITTED
    assert cell.state.memory.answers == ()


def test_without_names_a_released_hold_may_have_brought_another_workpiece():
    cell = running(workpiece="").scene(UNSURE, times=K)
    answer(cell, OperatorAnswer(Answer.REMOVE, HERE))
    cell.send(ev.Hold())
    assert cell.state.memory.approvals
    cell.send(ev.Release())
    assert not cell.state.memory.approvals


@pytest.mark.parametrize("make", [running, permitted, removing, verifying, asking, faulted])
def test_deactivation_closes_and_keeps_what_must_be_kept(make):
    cell = make()
    request, fault, permit = cell.state.request, cell.state.fault, cell.state.permit
    cell.send(ev.Deactivated())
    assert not cell.state.open
    cell.send(ev.Activated())
    assert not cell.state.open
    assert (cell.state.request, cell.state.fault) == (request, fault)
    assert (cell.state.permit is None) == (permit is None)


def test_the_core_reads_no_clock_and_repeats():
    def run() -> list[Any]:
        cell = running().scene(STICKER, UNSURE, times=K)
        cell.send(ev.GoalAccepted(cell.goal))
        return finish(cell.tick(3)).scene(UNSURE, times=2 * K).effects

    assert [repr(e) for e in run()] == [repr(e) for e in run()]
    assert GateController(Policy()).state == GateController(Policy()).state


# --- at the limits of each rule ---------------------------------------------------------------------------------------------


def test_to_look_again_is_not_to_have_looked_over_the_whole_picture():
    cell = running().scene(dil=0.9, times=K)
    assert answer(cell, scene=SceneAnswer.RESCAN)
    assert not cell.state.memory.scene_checked
    cell = asking()
    assert answer(cell, OperatorAnswer(Answer.KEEP, HERE))
    assert not cell.state.memory.scene_checked, "only one object was in question"


def test_only_a_hold_can_be_released():
    cell = running(workpiece="").scene(UNSURE, times=K)
    cell.send(ev.Release())
    assert cell.phase is Phase.INTERVENTION
    cell = asking()
    assert answer(cell, OperatorAnswer(Answer.REMOVE, HERE))
    cell.send(ev.Hold())
    cell.send(ev.Release())
    assert cell.state.memory.approvals, "the cell says which workpiece it holds: it is still the same"


@pytest.mark.parametrize(("offset", "expected"), [(-SECOND, -SECOND), (0, 0), (SECOND, 0)])
def test_a_workpiece_that_comes_in_the_future_has_come_now(offset, expected):
    cell = running(workpiece="")
    cell.send(ev.WorkpieceChanged("laptop-2", cell.now + offset))
    assert cell.state.workpiece_ns == cell.now + expected
    cell.send(ev.WorkpieceChanged("laptop-3", 0))
    assert cell.state.workpiece_ns == cell.now


# --- which laptop lies in the cell ------------------------------------------------------------------------------------------


def _approved() -> Cell:
    """A cell whose operator has approved one place, and wants another left alone."""
    cell = running().scene(UNSURE, object_at(THERE, shannon_entropy=1.5), times=K)
    assert answer(cell, OperatorAnswer(Answer.REMOVE, HERE), OperatorAnswer(Answer.KEEP, THERE))
    return cell


@pytest.mark.parametrize(
    ("name", "stamp_s", "code"),
    [
        ("", 1, "workpiece_unnamed"),
        (" \t\n", 1, "workpiece_unnamed"),
        ("x" * 201, 1, "workpiece_id_too_long"),
        ("laptop-0", -1, "workpiece_older"),
    ],
)
def test_an_announcement_that_names_no_laptop_closes_until_another_one(name, stamp_s, code):
    cell = _approved()
    cell.wait(2.0)
    known = cell.state.announced_ns
    cell.send(ev.WorkpieceChanged(name, known + stamp_s * SECOND))
    cell.scene(STICKER, object_at(THERE), times=K + 1)
    assert (cell.phase, code in cell.details) == (Phase.BLOCKED, True)
    assert cell.state.reasons == BlockReason.WAITING_FOR_OPERATOR
    assert cell.state.memory.approvals == (), "approved on another laptop"
    assert cell.state.memory.against(THERE), "it may be the same laptop"
    by_a_person = (ev.Hold(), ev.Release()) if code != "workpiece_older" else ()
    for event in (*by_a_person, ev.WorkpieceChanged(name, known + stamp_s * SECOND)):
        cell.send(event)
        assert code in cell.details
    cell.scene(times=K + 1)
    assert not cell.sent(ev.DeclareDone), "nobody knows which laptop that would be"
    cell.send(ev.WorkpieceChanged("laptop-2", cell.now))
    assert cell.scene(STICKER, times=K).phase is Phase.PERMITTED


def test_an_announcement_that_seems_older_is_taken_once_a_person_has_held_and_released():
    """The clock of whoever announces was put back: nobody announces that laptop a second time."""
    cell = _approved()
    older = ev.WorkpieceChanged("laptop-2", cell.state.announced_ns - SECOND)
    cell.send(older)
    cell.send(ev.Release())  # nobody has looked
    assert "workpiece_older" in cell.details
    cell.send(ev.Hold())
    assert cell.scene(STICKER, times=K).phase is Phase.BLOCKED
    cell.send(ev.Release())
    assert (cell.state.workpiece_id, cell.state.memory.answers) == ("laptop-2", ())
    cell.send(older)  # as a latched topic repeats it
    assert cell.scene(STICKER, times=K).phase is Phase.PERMITTED
    assert cell.scene(times=1).state.workpiece_id == "laptop-2"


@pytest.mark.parametrize(
    ("ahead_s", "ago_s", "taken"), [(3600, 0.0, True), (0.1, 0.0, False), (3600, 10.1, False)]
)
def test_the_clock_of_this_machine_was_put_back_before_the_next_laptop_came(ahead_s, ago_s, taken):
    """The announcement before is of the future, which says nothing of a new one; one of an earlier laptop may come again."""
    cell = _approved()
    cell.wait(20.0)
    cell.send(ev.WorkpieceChanged("laptop-2", cell.now + round(ahead_s * SECOND)))
    cell.wait(0.05)
    cell.send(ev.WorkpieceChanged("laptop-3", cell.now - round(ago_s * SECOND)))
    assert (cell.state.workpiece_id == "laptop-3") == taken
    assert ("workpiece_older" in cell.details) != taken
    assert ahead_s > SETTINGS.max_clock_jump_s or not taken


def test_the_same_id_announced_again_is_another_laptop_and_the_same_announcement_is_not():
    cell = _approved()
    cell.send(ev.WorkpieceChanged("laptop-1", cell.state.announced_ns))
    assert cell.state.memory.approvals
    cell.wait(0.1)
    cell.send(ev.WorkpieceChanged("laptop-1", cell.now))
    assert cell.state.memory.answers == ()
    cell.scene(times=K)
    assert len(cell.sent(ev.DeclareDone)) == 1
    cell.wait(0.1)
    cell.send(ev.WorkpieceChanged("laptop-1", cell.now))
    assert cell.scene(STICKER, times=K).phase is Phase.PERMITTED, "the one before was clean, not this one"


def test_without_a_stamp_the_same_id_is_perhaps_another_laptop():
    """Nothing that was approved holds, and nothing that was forbidden is forgotten."""
    cell = running(workpiece="")
    cell.send(ev.WorkpieceChanged("laptop-1", 0))
    cell.scene(UNSURE, object_at(THERE, shannon_entropy=1.5), times=K)
    assert answer(cell, OperatorAnswer(Answer.REMOVE, HERE), OperatorAnswer(Answer.KEEP, THERE))
    cell.send(ev.WorkpieceChanged("laptop-1", 0))
    assert [given.answer for given in cell.state.memory.answers] == [Answer.KEEP]
    assert cell.phase is not Phase.INTERVENTION


def test_a_cell_that_announces_nothing_gets_out_by_a_hold_and_its_release():
    cell = running(workpiece="")
    cell.send(ev.WorkpieceChanged("", cell.now))
    assert cell.scene(STICKER, times=K).phase is Phase.BLOCKED
    cell.send(ev.Hold())
    cell.send(ev.Release())
    assert cell.scene(STICKER, times=K).phase is Phase.PERMITTED
