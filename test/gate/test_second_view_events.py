# SPDX-License-Identifier: Apache-2.0
"""The gate takes a second view before it asks: once per workpiece, closed all the while, and never against the first view."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sticker_uq.gate import Answer, GateSettings, OperatorAnswer, Phase, SceneAnswer, judge
from sticker_uq.gate.audit import Narrator
from sticker_uq.gate.box_overlap import as_box, same_place
from sticker_uq.gate.events import (
    Activated,
    ArmReady,
    AssumptionBroken,
    Deactivated,
    DeclareDone,
    Event,
    Fault,
    GoalAccepted,
    Hold,
    Impediment,
    OpenIntervention,
    Release,
    RemovalCode,
    RequestView,
    Reset,
    SendGoal,
    Tick,
    ViewForgotten,
    ViewJoined,
    ViewRefused,
    ViewTaken,
    WorkpieceChanged,
)
from sticker_uq.gate.second_view import SAME_PLACES, Places, guarded, without_object
from sticker_uq.gate.state import BlockReason
from sticker_uq.scene import (
    InvalidInput,
    ObjectClass,
    ObservedObject,
    Outcome,
    Reason,
    SceneAssessment,
    Status,
    Verdict,
)
from sticker_uq.testing.scenes import HERE, START, THERE, assessment, observed
from test.gate.test_second_view import POLICY, scenes
from test.helpers.gate import (
    CANCELLED,
    LOGO,
    STICKER,
    TWO_VIEWS,
    UNSURE,
    Cell,
    K,
    answer,
    arrived,
    codes,
    finish,
    running,
    waiting_for_view,
)

TURN = Places((1.0, 0.0, 90.0, 0.0, 1.0, 60.0, 0.0, 0.0, 1.0))
"""Where the laptop lay before it was moved, in px."""
OTHER_LIGHT = TWO_VIEWS.model_copy(update={"second_views": "light"})


def taken(cell: Cell, places: Places = SAME_PLACES) -> Cell:
    """The cell reports that the second view stands."""
    cell.wait(0.1).send(ViewTaken(cell.state.views, places))
    return cell


def question(cell: Cell) -> OpenIntervention:
    """The open question of a cell, the only one so far."""
    assert cell.phase in (Phase.INTERVENTION, Phase.FAULT)
    (asked,) = cell.sent(OpenIntervention)
    return asked


def moved(box: tuple[float, ...], places: Places = TURN) -> tuple[float, ...]:
    return places.in_second(box)  # type: ignore[arg-type]


# what is asked of the cell, and when


def test_the_cell_is_asked_instead_of_a_person() -> None:
    cell = waiting_for_view()
    (asked,) = cell.sent(RequestView)
    assert (asked.view, asked.workpiece_id) == ("turn", "laptop-2")
    assert cell.state.decision is not None
    assert asked.decision_id == cell.state.decision.decision_id
    assert cell.sent(OpenIntervention) == []
    assert BlockReason.SECOND_VIEW in cell.state.reasons
    assert cell.details == ["second_view_asked"]


def test_by_default_a_person_is_asked_at_once() -> None:
    assert GateSettings().second_views == ""
    cell = arrived(TWO_VIEWS.model_copy(update={"second_views": ""})).scene(UNSURE, times=K)
    assert cell.phase is Phase.INTERVENTION
    assert cell.sent(RequestView) == []


@pytest.mark.parametrize("text", ["sideways", "turn, sideways", "turn, turn", "turn light"])
def test_a_view_that_there_is_not_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="expected each of exposure, light, turn"):
        GateSettings(second_views=text)


def test_the_preferred_view_comes_first() -> None:
    assert GateSettings(second_views=" turn,light ").views_offered == ("turn", "light")


def test_a_question_that_no_view_answers_is_put_at_once() -> None:
    assert arrived().scene(observed(novelty=0.9), times=K).phase is Phase.INTERVENTION


def test_a_workpiece_without_a_name_or_of_before_the_start_may_have_had_one() -> None:
    assert running(TWO_VIEWS, "").scene(UNSURE, times=K).phase is Phase.INTERVENTION
    assert running(TWO_VIEWS).scene(UNSURE, times=K).phase is Phase.INTERVENTION
    early = running(TWO_VIEWS)
    early.wait(1.0).send(WorkpieceChanged("laptop-2", early.now - 10**9 - 1))
    assert early.scene(UNSURE, times=K).phase is Phase.INTERVENTION


def test_whoever_has_answered_about_this_laptop_is_asked_again() -> None:
    cell = arrived().scene(observed(novelty=0.9), times=K)
    assert answer(cell, OperatorAnswer(Answer.KEEP, HERE))
    cell.scene(LOGO, observed(THERE, shannon_entropy=1.5), times=K)
    assert cell.phase is Phase.INTERVENTION
    assert cell.sent(RequestView) == []


def test_a_workpiece_at_which_a_removal_failed_is_a_persons() -> None:
    cell = arrived().scene(STICKER, times=K)
    cell.send(GoalAccepted(cell.goal))
    finish(cell, RemovalCode.MOTION_FAILED).scene(UNSURE, times=K)
    assert cell.phase is Phase.INTERVENTION
    assert cell.sent(RequestView) == []


def test_a_workpiece_that_lost_its_name_has_no_second_view() -> None:
    cell = arrived()
    cell.wait(0.1).send(WorkpieceChanged("", cell.now))
    assert cell.state.second_view is None
    assert cell.scene(UNSURE, times=K).phase is Phase.INTERVENTION


def test_one_second_view_per_workpiece() -> None:
    cell = taken(waiting_for_view()).scene(UNSURE, times=K)
    question(cell)
    assert answer(cell, scene=SceneAnswer.RESCAN)
    cell.scene(UNSURE, times=K)
    assert cell.phase is Phase.INTERVENTION
    assert len(cell.sent(RequestView)) == 1
    cell.wait(0.1).send(WorkpieceChanged("laptop-3", cell.now))
    cell.scene(UNSURE, times=K)
    assert [asked.workpiece_id for asked in cell.sent(RequestView)] == ["laptop-2", "laptop-3"]
    assert [asked.number for asked in cell.sent(RequestView)] == [1, 2]


# what the second view shows


def test_a_sticker_that_the_second_view_shows_well_is_removed_where_it_lies_now() -> None:
    cell = taken(waiting_for_view(), TURN).scene(observed(moved(HERE)), times=K)
    (joined,) = cell.sent(ViewJoined)
    (asked,) = cell.sent(RequestView)
    assert joined.first_decision_id == asked.decision_id
    assert cell.phase is Phase.PERMITTED
    (goal,) = cell.sent(SendGoal)
    assert goal.target.box == pytest.approx(moved(HERE))
    assert cell.sent(OpenIntervention) == []


def test_only_scenes_of_after_the_answer_count() -> None:
    cell = waiting_for_view().scene(STICKER, times=K)
    assert cell.phase is Phase.SECOND_VIEW
    taken(cell).scene(STICKER, age=0.15)
    assert cell.phase is Phase.SECOND_VIEW
    assert cell.scene(STICKER).phase is Phase.MONITORING
    assert cell.scene(STICKER).phase is Phase.PERMITTED


def test_an_image_of_the_very_moment_of_the_answer_is_not_of_after_it() -> None:
    cell = taken(waiting_for_view())
    moment = cell.now
    assert cell.scene(STICKER, stamp_ns=moment).phase is Phase.SECOND_VIEW
    assert cell.scene(STICKER, stamp_ns=moment + 1).phase is Phase.MONITORING


def test_only_the_first_answer_to_the_newest_request_counts() -> None:
    cell = waiting_for_view()
    cell.send(ViewTaken(cell.state.views - 1, TURN))
    cell.send(ViewRefused(cell.state.views + 1))
    assert cell.scene(STICKER, times=K).phase is Phase.SECOND_VIEW
    taken(cell, TURN)
    taken(cell, SAME_PLACES)
    cell.send(ViewRefused(cell.state.views))
    assert cell.state.second_view is not None
    assert cell.state.second_view.places == TURN
    assert cell.scene(observed(moved(HERE)), times=K).phase is Phase.PERMITTED


def test_pictures_without_a_digest_are_no_two_views() -> None:
    cell = arrived(TWO_VIEWS.model_copy(update={"frozen_images": 0}))
    cell.scene(UNSURE, times=K, image_digest="")
    taken(cell).scene(STICKER, times=K, image_digest="")
    assert "views_not_comparable" in codes(question(cell).reasons)


@pytest.mark.parametrize(
    "changes", [{"status": Status.FAILED}, {"dil": None}, {"image_size": (0, 480)}, {"stamp_ns": 0}]
)
def test_an_incomplete_or_implausible_scene_is_no_second_view(changes: dict[str, object]) -> None:
    cell = taken(waiting_for_view()).scene(STICKER, **changes)
    assert not cell.sent(ViewJoined)
    assert not cell.state.open


def test_the_same_pixels_are_no_second_view() -> None:
    cell = waiting_for_view()
    assert cell.state.picture is not None
    taken(cell).scene(STICKER, image_digest=cell.state.picture.digest)
    assert cell.phase is Phase.SECOND_VIEW
    assert not cell.sent(ViewJoined)


def test_what_the_first_view_forbids_stays_forbidden_until_the_laptop_leaves() -> None:
    cell = arrived().scene(LOGO, observed(THERE, shannon_entropy=1.5), times=K)
    taken(cell).scene(STICKER, observed(THERE), times=K)
    # the sticker that the first view was unsure of is released, the logo that looks like one now is not
    (goal,) = cell.sent(SendGoal)
    assert goal.target.box == THERE
    cell.send(GoalAccepted(cell.goal))
    cell.scene(STICKER, times=2)
    finish(cell).scene(STICKER, times=K)
    assert len(cell.sent(SendGoal)) == 1
    cell.scene(STICKER, times=2 * K)
    assert codes(question(cell).objects[0].reasons) == ["views_disagree"]


def test_the_arm_may_hide_what_it_works_on_and_the_laptop_is_clean_when_it_is_gone() -> None:
    cell = taken(waiting_for_view(), TURN).scene(observed(moved(HERE)), times=K)
    cell.send(GoalAccepted(cell.goal))
    cell.scene(times=3)
    assert cell.phase is Phase.REMOVING
    finish(cell).scene(times=K)
    assert cell.phase is Phase.MONITORING
    cell.scene(times=2 * K)
    (done,) = cell.sent(DeclareDone)
    assert done.clean


def test_a_failed_removal_is_tried_again_under_both_views() -> None:
    cell = taken(waiting_for_view()).scene(STICKER, times=K)
    cell.send(GoalAccepted(cell.goal))
    finish(cell, RemovalCode.MOTION_FAILED).scene(STICKER, times=K)
    assert cell.phase is Phase.PERMITTED
    assert len(cell.sent(SendGoal)) == 2


def test_what_the_second_view_does_not_show_is_asked_about() -> None:
    cell = taken(waiting_for_view(), TURN).scene(times=2 * K)
    (asked,) = question(cell).objects
    assert codes(asked.reasons) == ["not_seen_again"]
    assert as_box(asked.object.box) == pytest.approx(moved(HERE))
    # the person's answer is about the laptop as it lies now
    assert answer(cell, OperatorAnswer(Answer.NOT_THERE, as_box(asked.object.box)))
    cell.scene(times=2 * K)
    assert cell.sent(DeclareDone)


def test_a_person_may_release_what_the_two_views_leave_open() -> None:
    cell = taken(waiting_for_view(), TURN).scene(observed(moved(HERE), shannon_entropy=1.5), times=K)
    (asked,) = question(cell).objects
    assert answer(cell, OperatorAnswer(Answer.REMOVE, as_box(asked.object.box)))
    cell.scene(observed(moved(HERE), shannon_entropy=1.5), times=K)
    assert cell.phase is Phase.PERMITTED
    cell.send(GoalAccepted(cell.goal))
    finish(cell).scene(times=3 * K)
    assert cell.sent(DeclareDone)


def test_where_the_laptop_lies_for_the_second_view_the_pose_is_taken() -> None:
    cell = taken(waiting_for_view(), TURN).scene(observed(moved(HERE)), times=K)
    (goal,) = cell.sent(SendGoal)
    assert cell.state.decision is not None
    assert goal.target.decision_id == cell.state.decision.decision_id
    assert goal.target.image_stamp_ns == cell.state.decision.stamp_ns


# whatever else happens


ENDS: dict[str, Callable[[Cell], object]] = {
    "refused": lambda cell: cell.send(ViewRefused(cell.state.views, "busy")),
    "no answer": lambda cell: cell.tick(11),
    "no scene": lambda cell: taken(cell, TURN).tick(11),
    "camera": lambda cell: cell.scene(STICKER, frame_id="other"),
    "camera, answered": lambda cell: taken(cell).scene(STICKER, frame_id="other"),
    "model": lambda cell: cell.scene(STICKER, model_hash="o" * 64),
    "hold": lambda cell: cell.send(Hold()),
    "fault": lambda cell: cell.send(Fault()),
    "deactivated": lambda cell: cell.send(Deactivated()),
    "clock": lambda cell: cell.tick().leap(100.0).send(Tick(cell.steady)),
    "clock back": lambda cell: cell.leap(-100.0).send(Tick(cell.steady)),
    "audit": lambda cell: cell.send(Impediment(BlockReason.AUDIT, Reason("audit_write_failed"))),
    "assumption": lambda cell: cell.send(
        AssumptionBroken(Reason.of("drift", "sharpness", count=3, rate=0.1))
    ),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("offered", [TWO_VIEWS, OTHER_LIGHT])
def test_everything_else_ends_in_the_question_of_the_first_view(end: str, offered: GateSettings) -> None:
    plain = arrived(offered.model_copy(update={"second_views": ""})).scene(UNSURE, times=K)
    cell = waiting_for_view(offered)
    ENDS[end](cell)
    asked, expected = question(cell), question(plain)
    assert asked.decision_id == expected.decision_id
    assert [as_box(v.object.box) for v in asked.objects] == [HERE]
    why = {
        "refused": "second_view_refused",
        "no answer": "second_view_timeout",
        "no scene": "second_view_timeout",
    }
    assert codes(asked.reasons) == [
        *codes(expected.reasons)[:-1],
        why.get(end, "second_view_ended"),
        "objects_to_decide",
    ]
    assert not cell.sent(SendGoal)


@pytest.mark.parametrize("end", ENDS)
def test_no_scene_alone_releases_anything_after_a_second_view_that_failed(end: str) -> None:
    cell = waiting_for_view()
    ENDS[end](cell)
    for event in (Activated(), Reset(), Impediment(BlockReason.AUDIT, None)):
        cell.send(event)
    cell.tick()
    if cell.state.request is not None:
        assert answer(cell, scene=SceneAnswer.RESCAN)
    cell.scene(STICKER, times=3 * K)
    if end == "refused":  # nothing was changed: the person looked, and the same view goes on
        assert cell.phase is Phase.PERMITTED
        return
    assert not cell.sent(SendGoal)


def test_a_new_workpiece_closes_the_matter_as_it_closes_a_question() -> None:
    cell = waiting_for_view()
    cell.wait(0.1).send(WorkpieceChanged("laptop-3", cell.now))
    assert cell.state.second_view is None
    assert cell.sent(OpenIntervention) == []
    assert ["second_view_ended", "another_workpiece"] in cell.logged
    assert cell.scene(STICKER, times=K).phase is Phase.PERMITTED


def test_a_late_answer_changes_nothing_but_the_log() -> None:
    cell = waiting_for_view(OTHER_LIGHT).tick(11)
    before = cell.state
    cell.send(ViewTaken(before.views, SAME_PLACES))
    assert replace(cell.state, now_ns=0) == replace(before, now_ns=0)
    assert cell.logged[-1] == ["second_view_unexpected"]


def test_places_in_a_picture_from_before_the_turn_are_not_answered() -> None:
    cell = waiting_for_view().tick(11)
    assert not answer(cell, OperatorAnswer(Answer.REMOVE, HERE))
    assert codes(cell.reply().reasons) == ["laptop_moved_since"]
    assert answer(cell, scene=SceneAnswer.RESCAN)
    cell.scene(STICKER, observed(THERE), times=K)
    asked = cell.sent(OpenIntervention)[-1]
    assert "views_not_comparable" in codes(asked.reasons)
    assert len(asked.objects) == 2
    assert answer(cell, OperatorAnswer(Answer.REMOVE, HERE), OperatorAnswer(Answer.KEEP, THERE))
    assert cell.scene(STICKER, observed(THERE), times=K).phase is Phase.PERMITTED


def test_places_can_be_answered_where_the_cell_has_moved_nothing() -> None:
    cell = waiting_for_view()
    cell.send(ViewRefused(cell.state.views, "the table is stuck"))
    assert answer(cell, OperatorAnswer(Answer.REMOVE, HERE))
    assert cell.scene(UNSURE, times=K).phase is Phase.PERMITTED


def test_places_are_the_same_where_only_the_light_has_changed() -> None:
    cell = waiting_for_view(OTHER_LIGHT).tick(11)
    assert answer(cell, OperatorAnswer(Answer.REMOVE, HERE))
    assert cell.scene(STICKER, times=K).phase is Phase.PERMITTED


def test_another_camera_of_the_same_size_makes_the_views_incomparable() -> None:
    cell = taken(waiting_for_view()).scene(UNSURE, times=1)
    cell.scene(STICKER, frame_id="other")
    cell.scene(STICKER, times=K + 1)
    assert "views_not_comparable" in codes(question(cell).reasons)


def test_after_a_restart_a_person_decides_about_a_laptop_that_had_a_second_view() -> None:
    cell = Cell(TWO_VIEWS)
    cell.send(Tick(cell.steady))
    cell.send(ViewForgotten("laptop-1"))
    cell.send(Activated())
    cell.send(ArmReady(True))
    cell.wait(0.1).send(WorkpieceChanged("laptop-1", cell.now))
    cell.scene(STICKER, times=3 * K)
    assert "views_not_comparable" in codes(question(cell).reasons)
    assert not cell.sent(SendGoal)
    cell.wait(0.1).send(WorkpieceChanged("laptop-2", cell.now))
    assert cell.scene(STICKER, times=K).phase is Phase.PERMITTED


def test_after_a_restart_nothing_is_released_before_the_laptop_is_named() -> None:
    cell = Cell(TWO_VIEWS)
    for event in (Tick(cell.steady), ViewForgotten("laptop-1"), Activated(), ArmReady(True)):
        cell.send(event)
    cell.scene(STICKER, times=3 * K)
    assert "views_not_comparable" in codes(question(cell).reasons)
    cell.wait(0.1).send(WorkpieceChanged("laptop-1", cell.now))
    cell.scene(STICKER, times=3 * K)
    assert cell.phase is Phase.INTERVENTION
    assert not cell.sent(SendGoal)


def test_the_audit_log_names_both_scenes() -> None:
    cell, told, narrator = arrived(), [], Narrator()
    happen = cell.core.handle

    def listening(event: Event, now_ns: int) -> tuple[object, ...]:
        before = cell.state
        effects = happen(event, now_ns)
        told.extend(narrator.entries_of_step(event, before, cell.state, effects))
        return effects

    cell.core.handle = listening  # type: ignore[method-assign,assignment]
    cell.scene(UNSURE, times=K)
    first = cell.state.decision
    taken(cell).scene(STICKER, times=K)
    entries = dict(told)
    assert first is not None
    assert entries["second_view"]["decision_id"] == first.decision_id
    assert entries["second_view_taken"]["places"] == list(SAME_PLACES.matrix)
    (joined,) = cell.sent(ViewJoined)
    assert entries["second_view_joined"] == {
        "number": 1,
        "view": "turn",
        "first_decision_id": first.decision_id,
        "first_image_stamp_ns": first.stamp_ns,
        "decision_id": joined.decision_id,
        "image_stamp_ns": joined.stamp_ns,
    }


# attacks: what a cell, an operator or a restart may do at the wrong moment


def approved_late(cell: Cell) -> Cell:
    """After a wait that timed out, a person looks again and lets the object at HERE be removed."""
    assert answer(cell.tick(11), scene=SceneAnswer.RESCAN)
    cell.scene(UNSURE, times=K)
    assert cell.phase is Phase.INTERVENTION
    return cell


def test_a_turn_that_ends_after_the_time_limit_voids_what_was_answered_about_places() -> None:
    cell = approved_late(waiting_for_view())
    assert answer(cell, OperatorAnswer(Answer.REMOVE, HERE))
    taken(cell, TURN)
    assert not cell.scene(LOGO, times=3 * K).sent(SendGoal)
    assert cell.phase is Phase.INTERVENTION


def test_a_turn_that_ends_after_the_time_limit_voids_the_places_of_the_open_question() -> None:
    cell = approved_late(waiting_for_view())
    taken(cell, TURN)
    assert not answer(cell, OperatorAnswer(Answer.REMOVE, HERE))
    assert codes(cell.reply().reasons) == ["laptop_moved_since"]
    assert answer(cell, scene=SceneAnswer.RESCAN)
    assert not cell.scene(LOGO, times=3 * K).sent(SendGoal)


def test_a_turn_that_ends_after_the_time_limit_stops_the_arm() -> None:
    cell = approved_late(waiting_for_view())
    assert answer(cell, OperatorAnswer(Answer.REMOVE, HERE))
    cell.scene(UNSURE, times=K)
    cell.send(GoalAccepted(cell.goal))
    assert cell.state.open
    taken(cell, TURN)
    assert not cell.state.open
    finish(cell, CANCELLED)
    cell.scene(LOGO, times=3 * K)
    assert len(cell.sent(SendGoal)) == 1


def test_a_change_of_light_that_moved_the_laptop_after_all_is_no_longer_compared_place_by_place() -> None:
    cell = waiting_for_view(OTHER_LIGHT).tick(11)
    assert answer(cell, OperatorAnswer(Answer.REMOVE, HERE))
    taken(cell, TURN)
    assert not cell.scene(LOGO, times=3 * K).sent(SendGoal)


UNLIKELY = {
    "unknown": None,
    "mirrored": Places((-1.0, 0.0, 640.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)),
    "shrunk": Places((0.01, 0.0, 140.0, 0.0, 0.01, 130.0, 0.0, 0.0, 1.0)),
    "huge": Places((1e9, 0.0, -1.4e11, 0.0, 1e9, -1.3e11, 0.0, 0.0, 1.0)),
    "out of the picture": Places((1.0, 0.0, 9000.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)),
    "sheared": Places((1.0, 5.0, -650.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)),
    "horizon in the picture": Places((1.0, 0.0, 0.0, 0.0, 1.0, 0.0, -0.004, 0.0, 1.0)),
}


@pytest.mark.parametrize("name", UNLIKELY)
@pytest.mark.parametrize("offered", [TWO_VIEWS, OTHER_LIGHT])
def test_a_map_of_places_that_no_turned_laptop_has_ends_in_the_question(
    name: str, offered: GateSettings
) -> None:
    cell = waiting_for_view(offered)
    cell.send(ViewTaken(cell.state.views, UNLIKELY[name]))
    assert "places_unusable" in codes(question(cell).reasons)
    assert not answer(cell, OperatorAnswer(Answer.REMOVE, HERE))
    assert answer(cell, scene=SceneAnswer.RESCAN)
    cell.scene(STICKER, times=3 * K)
    assert not cell.sent(SendGoal)
    assert "views_not_comparable" in codes(cell.sent(OpenIntervention)[-1].reasons)


@pytest.mark.parametrize("matrix", [(1e200,) * 9, (1e200, 0.0, 0.0, 0.0, 1e200, 0.0, 0.0, 0.0, -1e200)])
def test_a_map_whose_determinant_overflows_is_refused(matrix: tuple[float, ...]) -> None:
    with pytest.raises(InvalidInput, match="invertible"):
        Places(matrix)


@pytest.mark.parametrize("degrees", [-45.0, -6.0, 6.0, 45.0])
def test_a_turn_about_the_middle_of_the_picture_is_likely(degrees: float) -> None:
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    turn = Places((c, -s, 320 - 320 * c + 240 * s, s, c, 240 - 320 * s - 240 * c, 0.0, 0.0, 1.0))
    cell = taken(waiting_for_view(), turn)
    assert cell.phase is Phase.SECOND_VIEW
    assert cell.state.second_view is not None
    assert cell.state.second_view.places == turn


def test_what_was_turned_out_of_the_picture_can_be_answered() -> None:
    edge = (0.0, 100.0, 60.0, 160.0)
    cell = arrived().scene(observed(edge, shannon_entropy=1.5), times=K)
    taken(cell, TURN).scene(times=2 * K)
    (asked,) = question(cell).objects
    box = as_box(asked.object.box)
    assert box[0] < 0
    assert answer(cell, OperatorAnswer(Answer.NOT_THERE, box))
    assert cell.scene(times=2 * K).sent(DeclareDone)


@pytest.mark.parametrize("how", ["hold", "done"])
def test_after_a_restart_nothing_unlocks_a_laptop_without_a_name(how: str) -> None:
    cell = Cell(TWO_VIEWS)
    for event in (Tick(cell.steady), ViewForgotten("laptop-1"), Activated(), ArmReady(True)):
        cell.send(event)
    if how == "hold":
        cell.send(Hold())
        cell.send(Release())
    else:
        cell.scene(times=3 * K)
        assert answer(cell, scene=SceneAnswer.CLEAN)
        cell.scene(times=K)
        assert cell.state.done
    cell.scene(STICKER, times=4 * K)
    assert not cell.sent(SendGoal)
    cell.wait(0.1).send(WorkpieceChanged("laptop-2", cell.now))
    assert cell.scene(STICKER, times=K).phase is Phase.PERMITTED


def test_of_a_sticker_and_a_logo_at_a_place_the_logo_goes_on_forbidding() -> None:
    logo = observed((102.0, 100.0, 182.0, 160.0), label=ObjectClass.LOGO)
    sticker = observed((108.0, 104.0, 188.0, 164.0))
    left = without_object(assessment(sticker, logo), as_box(logo.box), ObjectClass.STICKER)
    assert [o.label for o in left.objects] == [ObjectClass.LOGO]


def test_a_laptop_whose_message_is_older_than_the_present_one_may_have_had_a_second_view() -> None:
    cell = waiting_for_view()
    stamp = cell.state.workpiece_ns
    cell.wait(0.1).send(WorkpieceChanged("laptop-3", cell.now))
    cell.wait(0.1).send(WorkpieceChanged("laptop-2", stamp))
    assert cell.scene(UNSURE, times=K).phase is Phase.INTERVENTION
    assert len(cell.sent(RequestView)) == 1


# any two views


def _released_alone(scene: SceneAssessment) -> list[tuple[float, ...]]:
    decision = judge(scene, POLICY)
    return [as_box(v.object.box) for v in decision.removable()] if decision.outcome is Outcome.WORK else []


@settings(max_examples=150)
@given(scenes(), st.lists(scenes(), min_size=1, max_size=3), st.sampled_from([SAME_PLACES, TURN, None]))
def test_nothing_is_released_that_either_view_forbids(
    first: SceneAssessment, later: list[SceneAssessment], places: Places | None
) -> None:
    """Checked without the gate's own joining: by the two scenes as they are, and the objects of the first one."""
    cell = arrived()
    cell.core.configure(POLICY, TWO_VIEWS)

    def show(scene: SceneAssessment) -> None:
        cell.wait(0.1)
        stamp = cell.now - 10**7
        cell.assess(replace(scene, stamp_ns=stamp, image_digest=f"{stamp:032x}"))

    for _ in range(2 * K):
        show(first)
    if cell.phase is not Phase.SECOND_VIEW:
        return
    if places is None:
        cell.tick(11)
        assert answer(cell, scene=SceneAnswer.RESCAN)
    else:
        taken(cell, places)
    before = judge(first, POLICY)
    for scene in later:
        here = scene if places is None else _at(scene, places)
        for _ in range(2 * K):
            show(here)
            goals = cell.sent(SendGoal)
            if not goals:
                continue
            assert places is not None, "released although nobody knows how the laptop lies"
            box = goals[-1].target.box
            assert any(box == other for other in _released_alone(here))
            there = places.in_first(box)
            twins = [v for v in before.verdicts if same_place(as_box(v.object.box), there)]
            assert len(twins) == 1
            assert twins[0].object.label is ObjectClass.STICKER
            assert twins[0].verdict is not Verdict.KEEP
            return


def _at(scene: SceneAssessment, places: Places) -> SceneAssessment:
    """``scene`` as a camera sees it after the laptop was moved."""

    def there(thing: ObservedObject) -> ObservedObject:
        return replace(thing, box=np.asarray(places.in_second(as_box(thing.box)), np.float32))

    return replace(
        scene, objects=tuple(map(there, scene.objects)), unstable=tuple(map(there, scene.unstable))
    )


@given(scenes(), scenes(START + 1), st.sampled_from([SAME_PLACES, TURN, None]))
def test_the_first_view_only_forbids(
    first: SceneAssessment, later: SceneAssessment, places: Places | None
) -> None:
    alone = judge(later, POLICY)
    both = guarded(first, later, POLICY, "turn", places)
    assert both.stamp_ns == later.stamp_ns
    assert {as_box(v.object.box) for v in both.removable()} <= {
        as_box(v.object.box) for v in alone.removable()
    }
    assert both.outcome is not Outcome.WORK or alone.outcome is Outcome.WORK
    assert both.outcome is not Outcome.CLEAN or alone.outcome is Outcome.CLEAN
    assert (both.outcome is Outcome.BLOCKED) == (alone.outcome is Outcome.BLOCKED)


def test_what_was_removed_is_missed_no_longer_and_of_two_things_at_a_place_one_was() -> None:
    near = observed((104.0, 100.0, 184.0, 160.0), label=ObjectClass.LOGO)
    scene = assessment(STICKER, near, observed(THERE))
    left = without_object(scene, HERE, ObjectClass.STICKER)
    assert [as_box(o.box) for o in left.objects] == [as_box(near.box), THERE]
    assert without_object(left, (600.0, 10.0, 620.0, 30.0), ObjectClass.STICKER) == left
