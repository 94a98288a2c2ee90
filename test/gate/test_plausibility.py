# SPDX-License-Identifier: Apache-2.0
"""What a scene cannot truthfully be closes the gate, each for a reason of its own; and the clock is not believed blindly."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from sticker_uq.gate import Answer, BlockReason, OperatorAnswer, Phase, SceneAnswer, facts_of, judge
from sticker_uq.gate import events as ev
from sticker_uq.gate.plausibility import may_be_removed
from sticker_uq.gate.state import NOT_CALIBRATED
from sticker_uq.geometry import Camera, CellGeometry, Plane, ScenePoses, Transform, locate
from sticker_uq.scene import Exposure, ObjectVerdict, Reason, Status, Verdict
from sticker_uq.testing.scenes import ELSEWHERE, HERE, SECOND, assessment, object_at
from test.helpers.gate import (
    SETTINGS,
    STICKER,
    UNSURE,
    Cell,
    K,
    answer,
    asking,
    codes,
    finish,
    removing,
    running,
    set_to,
    verifying,
)

SAME = {"image_digest": "f" * 32}


def stays_closed(cell: Cell, reason: BlockReason) -> None:
    assert not cell.state.open
    assert cell.state.reasons & reason, cell.details


# --- frozen pictures --------------------------------------------------------------------------------------------------------


def test_a_failed_scene_between_them_does_not_hide_a_frozen_camera():
    cell = running().scene(STICKER, times=2, **SAME)
    cell.scene(status=Status.FAILED, image_digest="").scene(STICKER, **SAME)
    stays_closed(cell, BlockReason.FROZEN_IMAGE)


def test_a_simulated_camera_without_noise_can_be_told():
    cell = running(set_to(frozen_images=0)).scene(STICKER, times=K, **SAME)
    assert cell.phase is Phase.PERMITTED
    cell.scene(STICKER, times=10, image_digest="")
    assert cell.state.reasons & BlockReason.ARM_FAILED, "only the arm, which does not answer, closes it"
    with pytest.raises(ValidationError, match="one image repeats nothing"):
        set_to(frozen_images=1)


# --- exposure ---------------------------------------------------------------------------------------------------------------

NAN = float("nan")


@pytest.mark.parametrize("exposure", [Exposure(10.0, 0.9, 0.5), Exposure(245.0, 0.0, 0.0)])
def test_a_picture_at_the_limits_still_shows_something(exposure):
    assert running().scene(STICKER, times=K, exposure=exposure).phase is Phase.PERMITTED


def test_brightness_may_be_left_unchecked_only_as_a_whole():
    off = {"min_image_level": 0.0, "max_image_level": 255.0, "max_dark_share": 1.0}
    cell = running(set_to(**off, max_saturated_share=1.0)).scene(STICKER, times=K, exposure=None)
    assert cell.phase is Phase.PERMITTED
    stays_closed(running(set_to(**off)).scene(STICKER, times=K, exposure=None), BlockReason.EXPOSURE)
    with pytest.raises(ValidationError, match="must be below max_image_level"):
        set_to(min_image_level=100.0, max_image_level=100.0)


# --- order, source, model ---------------------------------------------------------------------------------------------------


def test_every_thing_that_is_wrong_is_told_at_once():
    cell = removing().scene(STICKER, stamp_ns=0, frame_id="x", model_hash="y", exposure=None)
    expected = (
        BlockReason.STAMP_ORDER
        | BlockReason.SOURCE_CHANGED
        | BlockReason.MODEL_CHANGED
        | BlockReason.EXPOSURE
    )
    assert cell.state.reasons & expected == expected
    source = Reason.of("image_source_changed", before="'camera' 640 x 480 px", after="'x' 640 x 480 px")
    assert {Reason("stamp_invalid"), source, Reason("weights_changed")} <= {*cell.state.details}


def test_answers_about_places_do_not_outlive_the_camera_they_were_seen_with():
    cell = asking()
    assert answer(cell, OperatorAnswer(Answer.REMOVE, HERE), OperatorAnswer(Answer.KEEP, ELSEWHERE))
    cell.scene(UNSURE, times=K, image_size=(1280, 960))
    assert cell.state.memory.answers == ()
    assert cell.scene(UNSURE, image_size=(1280, 960), times=K).phase is Phase.BLOCKED
    assert codes(cell.state.details) == ["places_lost"]
    cell.send(ev.Release("Ada"))
    assert cell.scene(UNSURE, image_size=(1280, 960), times=K).phase is Phase.INTERVENTION
    cell = asking()
    assert answer(cell, OperatorAnswer(Answer.REMOVE, HERE))
    assert not cell.scene(UNSURE, times=K, image_size=(1280, 960)).state.held
    cell = finish(removing(), ev.RemovalCode.MOTION_FAILED).scene(STICKER, frame_id="other")
    assert cell.state.attempts == ()
    cell = verifying().scene(STICKER, frame_id="other")
    assert cell.state.verification is None


def test_that_no_sticker_is_left_holds_for_any_camera():
    cell = asking()
    assert answer(cell, scene=SceneAnswer.CLEAN, not_stickers=(HERE,))
    cell.scene(UNSURE, frame_id="other")
    assert cell.state.memory.scene_clean


def test_an_answer_about_the_picture_of_another_camera_is_refused():
    cell = asking().scene(UNSURE, image_size=(1280, 960))
    assert not answer(cell, OperatorAnswer(Answer.REMOVE, HERE))
    assert codes(cell.reply().reasons) == ["camera_changed_since"]
    request = cell.state.request
    keep = (OperatorAnswer(Answer.KEEP, HERE),)
    both = ev.AnswerGiven(request.request_id, "Ada", SceneAnswer.RESCAN, keep, image_ns=request.stamp_ns)
    cell.send(both)
    assert not cell.reply().accepted
    assert answer(cell, scene=SceneAnswer.RESCAN)


# --- the clock --------------------------------------------------------------------------------------------------------------


def test_after_a_leap_all_waiting_goes_on_from_the_new_time():
    cell = removing().tick()
    cell.send(ev.Hold())
    cell.leap(100.0).tick()
    assert not cell.sent(ev.Escalate), "the arm has had no time to stop"
    cell.tick(6)
    assert len(cell.sent(ev.Escalate)) == 1
    cell = asking().tick().leap(100.0).tick()
    assert not cell.state.request.overdue
    assert cell.state.request.opened_ns == cell.now - SECOND // 10 - SECOND // 10
    cell = verifying().tick().leap(100.0).tick()
    assert cell.state.verification is not None


# --- poses ------------------------------------------------------------------------------------------------------------------


def located(cell: Cell, geometry: Any, *objects: Any, times: int = 1) -> Cell:
    """Let scenes come that are located with ``geometry``."""
    for _ in range(times):
        cell.wait(0.1)
        before = cell.state
        scene = assessment(*objects, stamp_ns=cell.now - SECOND // 50)
        effects = cell.core.on_scene(scene, cell.now, geometry)
        cell.effects += effects
        decision = effects[0]
        assert isinstance(decision, ev.PublishDecision)
        received = ev.SceneReceived(decision.decision, facts_of(scene, decision.decision), decision.poses)
        cell.witness.see(before, received, cell.now, cell.state, effects[1:], cell.core.settings)
    return cell


CAMERA = Camera((640, 480), np.array([[500.0, 0, 320], [0, 500, 240], [0, 0, 1]]))
ABOVE = Transform.of([0.4, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0], "camera_pose")
CALIBRATED = CellGeometry("base_link", CAMERA, ABOVE, Plane.of([0, 0, 1, -0.2], "lid"))


def test_a_box_without_a_width_is_refused_and_faults_nothing():
    cell = located(running(), CALIBRATED, STICKER, object_at((10.0, 10.0, 10.0, 50.0), id=1))
    stays_closed(cell, BlockReason.IMPLAUSIBLE_SCENE)
    assert located(cell, CALIBRATED, STICKER, times=K).phase is Phase.PERMITTED


def test_a_goal_carries_the_pose_of_its_object():
    (goal,) = located(running(set_to(require_pose=True)), CALIBRATED, STICKER, times=K).sent(ev.SendGoal)
    assert goal.target.pose == locate(goal.target.verdict.object, CALIBRATED)


@pytest.mark.parametrize(
    ("geometry", "reason"),
    [
        (Reason("camera_info_missing"), Reason("camera_info_missing")),
        (
            replace(CALIBRATED, lid=Plane.of([0, 0, 1, -2.0], "lid")),
            Reason.of("object_not_located", object=0, detail="the lid lies behind the camera"),
        ),
        (
            replace(CALIBRATED, camera=Camera((64, 48), CAMERA.matrix)),
            Reason.of("calibration_other_size", expected="64 x 48", found="640 x 480"),
        ),
    ],
)
def test_what_cannot_be_located_is_not_removed_where_poses_are_required(geometry, reason):
    cell = located(running(set_to(require_pose=True)), geometry, STICKER, times=K)
    stays_closed(cell, BlockReason.POSE)
    assert reason in cell.state.details
    cell = located(running(), geometry, STICKER, times=K)
    assert cell.phase is Phase.PERMITTED
    assert cell.sent(ev.SendGoal)[0].target.pose is None


def test_a_decision_whose_poses_lack_a_removable_object_is_not_believed():
    cell = running(set_to(require_pose=True))
    cell.wait(0.1)
    scene = assessment(STICKER, stamp_ns=cell.now - SECOND // 50)
    decision = judge(scene, cell.core.policy)
    cell.send(
        ev.SceneReceived(decision, facts_of(scene, decision), ScenePoses({5: locate(STICKER, CALIBRATED)}))
    )
    stays_closed(cell, BlockReason.POSE)
    assert cell.state.details == (Reason.of("object_not_located", object=0),)


def test_a_calibration_that_changes_is_another_camera():
    cell = located(running(), CALIBRATED, STICKER)
    moved = replace(CALIBRATED, camera_pose=Transform.of([0.5, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0], "p"))
    assert not located(cell, moved, STICKER).state.problems, "the camera may ride on the arm"
    located(cell, replace(CALIBRATED, lid=Plane.of([0, 0, 1, -0.3], "lid")), STICKER)
    assert cell.state.reasons & BlockReason.SOURCE_CHANGED
    assert "calibration_changed" in cell.details
    assert not located(running(), NOT_CALIBRATED, STICKER).state.problems


def test_what_is_to_be_left_stands_at_its_pixels_when_the_lid_is_measured_anew():
    """Also where the lid of the next laptop is measured before that one is announced: nobody has to release then."""
    cell = located(running(), CALIBRATED, UNSURE, times=K)
    assert answer(cell, OperatorAnswer(Answer.KEEP, HERE))
    anew = replace(CALIBRATED, lid=Plane.of([0, 0, 1, -0.201], "lid"))
    assert located(cell, anew, STICKER).state.reasons & BlockReason.SOURCE_CHANGED
    assert not located(cell, anew, STICKER, times=K + 1).state.held
    assert cell.sent(ev.SendGoal) == []
    cell.send(ev.WorkpieceChanged("laptop-2", cell.now))
    assert located(cell, anew, STICKER, times=K + 1).phase is Phase.PERMITTED


# --- at the limits of each rule ---------------------------------------------------------------------------------------------


def test_an_image_may_be_stamped_ahead_by_exactly_the_skew():
    assert not running().scene(STICKER, age=-SETTINGS.max_clock_skew_s).state.problems


@pytest.mark.parametrize("box", [(9.0, 9.0, 9.0, 20.0), (9.0, 9.0, 20.0, NAN)])
def test_what_has_no_place_may_not_be_removed_by_anybodys_word(box):
    approved = ObjectVerdict(object_at(box), Verdict.REMOVE, (), by_operator=True)
    assert not may_be_removed(approved)
    assert may_be_removed(replace(approved, object=STICKER))


def test_a_calibration_that_comes_or_goes_is_not_another_one():
    cell = located(running(), CALIBRATED, STICKER)
    assert not located(cell, NOT_CALIBRATED, STICKER).state.problems
    assert not located(cell, CALIBRATED, STICKER).state.problems
