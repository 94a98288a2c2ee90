# SPDX-License-Identifier: Apache-2.0
"""The gate and scenes at the limits of each rule: what is the same object, what is asked, what a bad scene may say."""

from dataclasses import replace

import pytest

from sticker_uq.gate import Answer, BlockReason, OperatorAnswer, Phase, SceneAnswer
from sticker_uq.gate import events as ev
from sticker_uq.gate.box_overlap import as_box
from sticker_uq.gate.policy.signals import UNEXPLAINED
from sticker_uq.gate.scene_events import has_unexplained
from sticker_uq.scene import ObjectClass, ObjectVerdict, Outcome, Reason, Status, Verdict
from sticker_uq.testing.scenes import ELSEWHERE, HERE, THERE, object_at
from test.helpers.gate import STICKER, UNSURE, Cell, K, answer, asking, codes, running, verifying

HALF = (100.0, 100.0, 140.0, 160.0)  # the left half of HERE: they overlap by exactly match_iou


def asked(cell: Cell) -> ev.OpenIntervention:
    """What the only request asks."""
    (request,) = cell.sent(ev.OpenIntervention)
    assert isinstance(request, ev.OpenIntervention)
    return request


def test_objects_that_overlap_by_exactly_the_limit_are_the_same():
    cell = running().scene(STICKER).scene(object_at(HALF))
    assert [goal.target.box for goal in cell.sent(ev.SendGoal)] == [HALF]
    cell = verifying().scene(object_at(HALF))
    assert (cell.state.verification.seen, cell.state.verification.gone) == (1, 0)


def test_a_sticker_at_another_place_says_nothing_about_a_removal():
    cell = verifying().scene(object_at(ELSEWHERE), times=K)
    assert [e.target.box for e in cell.sent(ev.RemovalVerified)] == [HERE]


# --- what is asked ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objects", "count"), [((UNSURE,), 1), ((UNSURE, object_at(THERE, shannon_entropy=1.5)), 2)]
)
def test_a_request_counts_its_objects(objects, count):
    assert asked(running().scene(*objects, times=K)).reasons == (
        Reason("picture_lacks", "appearance"),
        Reason.of("objects_to_decide", count=count),
    )


def test_what_a_person_has_decided_is_not_in_question_again():
    cell = asking()
    assert answer(cell, OperatorAnswer(Answer.KEEP, HERE))
    cell.scene(UNSURE, object_at(THERE), dil=0.9, times=K)
    assert [as_box(v.object.box) for v in cell.sent(ev.OpenIntervention)[-1].objects] == [THERE]


def test_that_perception_is_restricted_is_no_doubt_about_the_scene():
    restricted = {"status": Status.DEGRADED, "status_text": "half of the passes"}
    request = asked(running().scene(UNSURE, times=K, **restricted))
    assert codes(request.reasons) == ["picture_lacks", "objects_to_decide"]


def test_why_a_workpiece_is_done_is_told():
    assert codes(e.reason for e in running().scene(times=K).sent(ev.DeclareDone)) == ["no_sticker_left"]
    cell = asking()
    assert answer(cell, scene=SceneAnswer.CLEAN, not_stickers=(HERE,))
    cell.scene(UNSURE, times=K)
    assert codes(e.reason for e in cell.sent(ev.DeclareDone)) == ["operator_says_clean"]


@pytest.mark.parametrize(("workpiece", "kept"), [("laptop-1", 1), ("", 0)])
def test_approvals_outlive_a_clean_scene_only_on_a_workpiece_with_a_name(workpiece, kept):
    cell = running(workpiece=workpiece).scene(UNSURE, times=K)
    assert answer(cell, OperatorAnswer(Answer.REMOVE, HERE))
    cell.scene(times=K)
    assert len(cell.sent(ev.DeclareDone)) == 1
    assert len(cell.state.memory.approvals) == kept


def decided(cell: Cell, *verdicts: ObjectVerdict, outcome: Outcome) -> Cell:
    """Let another scene come about which a policy with other rules has decided this."""
    scene, decision = cell.state.scene, cell.state.decision
    assert scene is not None
    assert decision is not None
    stamp_ns = cell.wait(0.1).now
    facts = replace(scene, stamp_ns=stamp_ns, image_digest=f"{stamp_ns:032x}")
    cell.send(
        ev.SceneReceived(replace(decision, stamp_ns=stamp_ns, verdicts=verdicts, outcome=outcome), facts)
    )
    return cell


def test_a_sticker_that_is_kept_is_in_question_only_with_the_whole_scene():
    kept = ObjectVerdict(replace(object_at(THERE), id=1), Verdict.KEEP, ())
    cell = running().scene(UNSURE)
    (unsure,) = cell.state.decision.verdicts
    assert asked(decided(cell, unsure, kept, outcome=Outcome.ASK)).objects == (unsure,)


def test_what_a_person_approved_is_not_what_the_rules_chose_before():
    cell = running().scene(STICKER)
    (chosen,) = cell.state.decision.verdicts
    decided(cell, replace(chosen, by_operator=True), outcome=Outcome.WORK)
    assert not cell.sent(ev.SendGoal)
    assert cell.state.streak.count == 1


@pytest.mark.parametrize(
    ("label", "verdict", "seen"),
    [
        (ObjectClass.STICKER, Verdict.KEEP, 1),
        (ObjectClass.BACKGROUND, Verdict.ASK, 1),
        (ObjectClass.BACKGROUND, Verdict.KEEP, 0),
    ],
)
def test_what_may_still_be_a_sticker_is_not_gone(label, verdict, seen):
    cell = decided(verifying(), ObjectVerdict(object_at(label=label), verdict, ()), outcome=Outcome.ASK)
    assert (cell.state.verification.seen, cell.state.verification.gone) == (seen, 1 - seen)


def test_only_a_decision_that_asks_leaves_something_unexplained():
    decision = running().scene().state.decision
    assert decision is not None
    asks = replace(decision, outcome=Outcome.ASK, reasons=(Reason("above_limit", UNEXPLAINED),))
    assert has_unexplained(asks)
    assert not has_unexplained(replace(asks, outcome=Outcome.CLEAN))


# --- what a bad scene may say -----------------------------------------------------------------------------------------------


def test_a_failed_scene_is_no_measure_for_the_next_one():
    cell = running().scene(STICKER)
    cell.scene(status=Status.FAILED, frame_id="", image_size=(0, 0)).scene(STICKER)
    assert not cell.state.problems


def test_a_scene_between_two_others_that_was_frozen_is_not_counted_as_another_sticker():
    cell = running().scene(STICKER, image_digest="f" * 32).scene(image_digest="f" * 32)
    assert cell.state.streak.outcome is Outcome.WORK
    assert cell.state.streak.count == 1


def test_a_decision_to_remove_a_logo_beside_a_sticker_is_not_believed():
    cell = running().scene(STICKER, object_at(THERE))
    scene, decision = cell.state.scene, cell.state.decision
    assert scene is not None
    sticker, other = decision.verdicts
    forged = replace(other, object=replace(other.object, label=ObjectClass.LOGO))
    newer = replace(scene, stamp_ns=scene.stamp_ns + 1, image_digest="a" * 32)
    cell.send(ev.SceneReceived(replace(decision, verdicts=(sticker, forged)), newer))
    assert cell.state.reasons & BlockReason.IMPLAUSIBLE_SCENE
    assert cell.details == ["decision_inconsistent"]
    assert cell.phase is Phase.BLOCKED


# --- what is logged ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workpiece", "name"), [("laptop-1", "laptop-1"), ("", "(unnamed)")])
def test_the_log_names_the_workpiece_that_is_done(workpiece, name):
    lines = [e.reasons for e in running(workpiece=workpiece).scene(times=K).sent(ev.Log)]
    assert (Reason.of("workpiece_done", workpiece=name), Reason("no_sticker_left")) in lines
