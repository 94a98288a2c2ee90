# SPDX-License-Identifier: Apache-2.0
"""A permit outlives the noise of the passes, and nothing else: what a newer scene says about it."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.gate import Answer, BlockReason, OperatorAnswer, Phase
from sticker_uq.gate.box_overlap import as_box, iou
from sticker_uq.gate.events import CancelGoal, GoalAccepted, Log
from sticker_uq.gate.judge import judge
from sticker_uq.gate.permit_consistency import PermitCheck, check_permit, is_slight
from sticker_uq.gate.policy.signals import OBJECT_NOVELTY
from sticker_uq.scene import ObjectClass, ObjectVerdict, ObservedObject, Outcome, Reason, Status, Verdict
from sticker_uq.testing.scenes import ELSEWHERE, HERE, THERE, assessment, object_at, rarely_seen
from test.helpers.gate import (
    LOGO,
    POLICY,
    SETTINGS,
    SLIGHTLY_UNSURE,
    STICKER,
    UNSURE,
    Cell,
    K,
    answer,
    asking,
    permitted,
    removing,
    running,
    set_to,
)

HALF_COVERED = (100.0, 100.0, 140.0, 160.0)
TWO_IN_ONE = object_at((100.0, 100.0, 240.0, 160.0), duplicated=True)
OVER_IT = (140.0, 120.0, 220.0, 190.0)
BESIDE_THERE = (340.0, 110.0, 440.0, 190.0)
NEAR, FAR = Reason("above_limit", "risk", 1.25, 1.0), Reason("above_limit", "risk", 2.0, 1.0)
NEARLY = ObjectVerdict(STICKER, Verdict.ASK, (NEAR,))


def revoked(cell: Cell, code: str, subject: str | None = None) -> None:
    assert not cell.state.open
    assert cell.state.reasons & BlockReason.CONTRADICTED
    assert cell.sent(CancelGoal) == [CancelGoal(1)]
    why = next(e.reasons[1:] for e in cell.sent(Log) if e.reasons[0].code == "permit_revoked")
    assert any(reason.code == code and subject in (None, reason.subject) for reason in why)


# --- noise ------------------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.sampled_from([STICKER, SLIGHTLY_UNSURE, object_at(duplicated=True), TWO_IN_ONE, UNSURE]),
        max_size=12,
    )
)
def test_the_arm_goes_on_until_a_clear_contradiction_or_k_slight_doubts_in_a_row(seen):
    cell, doubts = removing(), 0
    for one in seen:
        cell.scene(one)
        doubts = 0 if one is STICKER else doubts + 1
        is_open = one is not TWO_IN_ONE and one is not UNSURE and doubts < K
        assert cell.state.open is is_open
        if not is_open:
            return


@given(st.tuples(*[st.floats(0.0, 200.0)] * 2, *[st.floats(5.0, 200.0)] * 2), st.floats(0.0, 1.0))
def test_two_things_in_one_box_are_told_by_its_size(drawn, margin):
    x, y, width, height = drawn
    (verdict,) = judge(assessment(object_at((x, y, x + width, y + height), duplicated=True)), POLICY).verdicts
    assert is_slight(verdict, margin, HERE) is (margin > 0.0 and iou(as_box(verdict.object.box), HERE) >= 0.7)


@pytest.mark.parametrize(
    ("thing", "slight"),
    [
        (object_at(shannon_entropy=1.34), True),
        (object_at(shannon_entropy=1.36), False),
        (object_at(variation_ratio=0.29), True),
        (object_at(variation_ratio=0.31), False),
        (object_at(mutual_information=0.44), True),
        (object_at(relative_total_variance=0.029), True),
        (object_at(relative_predictive_surface=0.031), False),
        (object_at(detection_rate=0.74), True),
        (object_at(detection_rate=0.72), False),
        (object_at(probabilities=(0.2, 0.09, 0.71)), True),
        (object_at(probabilities=(0.2, 0.11, 0.69)), False),
        (object_at(shannon_entropy=1.2, variation_ratio=0.29), True),
        (object_at(shannon_entropy=1.2, variation_ratio=0.5), False),
        (object_at(duplicated=True), True),
        (object_at(shannon_entropy=1.2, duplicated=True), True),
        (object_at(shannon_entropy=1.36, duplicated=True), False),
        (TWO_IN_ONE, False),
        (rarely_seen(passes=4), False),
        (object_at(label=ObjectClass.LOGO, probabilities=(0.1, 0.5, 0.4)), False),
        (object_at(label=ObjectClass.BACKGROUND, probabilities=(0.6, 0.1, 0.3)), False),
        (STICKER, False),
    ],
)
def test_only_a_sticker_near_its_limits_is_doubted_slightly(thing, slight):
    unstable = (thing,) if thing.unstable else ()
    scene = assessment(*(() if unstable else (thing,)), unstable=unstable)
    (verdict,) = judge(scene, POLICY).verdicts
    assert is_slight(verdict, SETTINGS.doubt_margin, HERE) is slight


@pytest.mark.parametrize(
    "changes",
    [
        {"reasons": (NEAR, FAR)},
        {"reasons": ()},
        {"reasons": (replace(NEAR, value=float("nan")),)},
        {"reasons": (replace(NEAR, limit=float("nan")),)},
        {"reasons": (replace(NEAR, limit=float("inf")),)},
        {"reasons": (replace(NEAR, subject="logo_overlap"),)},
        {"verdict": Verdict.REMOVE},
        {"object": LOGO},
        {"object": rarely_seen()},
        {"by_operator": True},
    ],
)
def test_only_what_is_asked_about_a_stable_sticker_is_doubted(changes):
    assert is_slight(NEARLY, 0.25, HERE), "a value at the margin is still near"
    assert not is_slight(replace(NEARLY, **changes), 0.25, HERE)


# --- what is beyond doubt ---------------------------------------------------------------------------------------------------

LOGO_THERE = object_at(THERE, ObjectClass.LOGO)
OVER = object_at(OVER_IT)
OVERLAPPING = object_at((170.0, 100.0, 250.0, 160.0))
HIDDEN, STAYS = (
    object_at(box, ObjectClass.LOGO) for box in ((300.0, 300.0, 380.0, 360.0), (370.0, 300.0, 450.0, 360.0))
)


def logo(box: tuple[float, ...]) -> ObservedObject:
    return object_at(box, ObjectClass.LOGO)


def scene(
    *objects: ObservedObject, **changes: object
) -> tuple[tuple[ObservedObject, ...], dict[str, object]]:
    return objects, changes


ALONE = scene(STICKER)
# what the scenes of the permit showed; a newer one; why it is revoked before the arm starts and while it works, "" if it is not
NEWER: dict[str, tuple[Any, Any, str, str]] = {
    "far beyond a limit": (ALONE, scene(UNSURE), "object_not_removable", "object_not_removable"),
    "half of it, far beyond": (
        ALONE, scene(object_at(HALF_COVERED, shannon_entropy=1.5)), "object_not_removable", "object_not_removable"
    ),
    "two things in one": (ALONE, scene(TWO_IN_ONE), "detected_twice", "detected_twice"),
    "in few passes": (ALONE, scene(unstable=[rarely_seen(passes=5)]), "object_not_removable", "object_not_removable"),
    "a logo": (ALONE, scene(LOGO), "logo_at_object", "logo_at_object"),
    "a logo over half": (ALONE, scene(logo(HALF_COVERED)), "logo_at_object", "logo_at_object"),
    "a logo over it": (ALONE, scene(STICKER, logo(OVER_IT)), "object_covered", "object_covered"),
    "a sticker over it": (ALONE, scene(STICKER, OVER), "object_covered", "object_covered"),
    "lid over it": (ALONE, scene(STICKER, object_at(OVER_IT, ObjectClass.BACKGROUND)), "", ""),
    "a fifth of its box": (ALONE, scene(STICKER, object_at((164.0, 100.0, 244.0, 160.0))), "", ""),
    "more": (ALONE, scene(STICKER, object_at((163.0, 100.0, 243.0, 160.0))), "object_covered", "object_covered"),
    # it is lifted, displaced, hidden
    "half of it": (ALONE, scene(object_at(HALF_COVERED)), "", ""),
    "displaced": (ALONE, scene(OVER), "object_covered", ""),
    "elsewhere": (ALONE, scene(object_at(ELSEWHERE)), "object_not_found", ""),
    "gone": (ALONE, scene(), "object_not_found", ""),
    "lid": (ALONE, scene(object_at(HERE, ObjectClass.BACKGROUND)), "object_not_found", ""),
    "scene in doubt": (ALONE, scene(STICKER, dil=0.91), "scene_doubtful", ""),
    "both in doubt": (ALONE, scene(SLIGHTLY_UNSURE, dil=0.91), "scene_doubtful", ""),
    "scene slightly in doubt": (ALONE, scene(STICKER, dil=0.65), "", ""),
    "no localization": (ALONE, scene(STICKER, dil=None, status=Status.DEGRADED), "scene_doubtful", ""),
    # neighbours
    "moved": (scene(STICKER, LOGO_THERE), scene(STICKER, logo(BESIDE_THERE)), "neighbour_moved", "neighbour_moved"),
    "moved, narrower": (
        scene(STICKER, LOGO_THERE), scene(STICKER, logo((370.0, 100.0, 440.0, 180.0))), "neighbour_moved", "neighbour_moved"
    ),
    "hidden": (scene(STICKER, LOGO_THERE), ALONE, "", ""),
    "jitters": (scene(STICKER, LOGO_THERE), scene(STICKER, logo((305.0, 105.0, 405.0, 185.0))), "", ""),
    "half hidden": (scene(STICKER, LOGO_THERE), scene(STICKER, logo((300.0, 100.0, 345.0, 180.0))), "", ""),
    "another one": (scene(STICKER, LOGO_THERE), scene(STICKER, logo(ELSEWHERE)), "", ""),
    "another one, far away": (scene(STICKER, LOGO_THERE), scene(STICKER, logo((500.0, 100.0, 600.0, 180.0))), "", ""),
    "something else": (scene(STICKER, LOGO_THERE), scene(STICKER, object_at(BESIDE_THERE)), "", ""),
    "still there": (scene(STICKER, LOGO_THERE), scene(STICKER, LOGO_THERE, logo(BESIDE_THERE)), "", ""),
    "one of two": (scene(STICKER, HIDDEN, STAYS), scene(STICKER, STAYS), "", ""),
    "the object is not its neighbour": (scene(STICKER, OVERLAPPING), ALONE, "", ""),
    "half of it beside a neighbour": (
        scene(STICKER, object_at((130.0, 100.0, 170.0, 160.0))), scene(object_at(HALF_COVERED)), "", ""
    ),
    "over it from the start": (scene(STICKER, OVERLAPPING), scene(STICKER, OVERLAPPING), "", ""),
    "over it and jitters": (
        scene(STICKER, object_at((150.0, 100.0, 240.0, 160.0))), scene(STICKER, object_at((150.0, 120.0, 240.0, 180.0))), "", ""
    ),
    "over it in few passes": (scene(STICKER, OVERLAPPING), scene(STICKER, unstable=[rarely_seen(OVER_IT)]), "", ""),
    "in few passes before": (
        scene(STICKER, unstable=[rarely_seen(OVER_IT)]), scene(STICKER, OVER), "object_covered", "object_covered"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEWER)
@pytest.mark.parametrize("accepted", [False, True])
def test_one_newer_scene_revokes_a_permit_or_does_not(accepted, name):
    before, newer, *codes = NEWER[name]
    cell = running().scene(*before[0], times=K, **before[1])
    if accepted:
        cell.send(GoalAccepted(cell.goal))
    assert cell.state.open
    cell.scene(*newer[0], **newer[1])
    if codes[accepted]:
        revoked(cell, codes[accepted])
    else:
        assert cell.state.open


def test_a_doubt_about_the_scene_is_noise_until_it_stays():
    revoked(permitted().scene(STICKER, dil=0.65, times=K), "above_limit", "dil")
    decision, permit = permitted().state.decision, permitted().state.permit
    assert decision is not None
    assert permit is not None
    asked = replace(decision, outcome=Outcome.ASK, reasons=(NEAR, FAR))
    assert check_permit(permit, asked, SETTINGS).contradiction == (Reason("scene_doubtful"),)
    assert check_permit(permit, replace(asked, reasons=(NEAR,)), SETTINGS).doubt == (NEAR,)


def test_without_a_margin_or_a_reason_every_doubt_contradicts():
    cell = running(set_to(doubt_margin=0.0)).scene(STICKER, times=K)
    revoked(cell.scene(object_at(shannon_entropy=0.91)), "above_limit", "shannon_entropy")
    state = removing().state
    assert state.permit is not None
    assert state.decision is not None
    asked = replace(state.decision, verdicts=(ObjectVerdict(STICKER, Verdict.ASK, ()),))
    assert check_permit(state.permit, asked, SETTINGS).contradiction == (Reason("object_not_removable"),)


def test_under_the_arm_an_object_may_be_as_novel_as_the_arm():
    novel = ObjectVerdict(STICKER, Verdict.ASK, (Reason("above_limit", OBJECT_NOVELTY, 0.9, 0.7),))
    unsure = replace(novel, reasons=(*novel.reasons, FAR))
    removed, waiting = removing().state, permitted().state
    for state, verdict, undisturbed in (
        (removed, novel, True),
        (waiting, novel, False),
        (removed, unsure, False),
    ):
        asked = replace(state.decision, verdicts=(verdict,))
        assert (check_permit(state.permit, asked, SETTINGS) == PermitCheck()) is undisturbed


def test_a_person_who_says_to_leave_it_is_heard_though_the_arm_works():
    cell = removing()
    said = replace(cell.state, memory=cell.state.memory.remember([OperatorAnswer(Answer.KEEP, HERE)]))
    cell.core.state = said
    cell.scene(STICKER)
    revoked(cell, "operator_keeps")


def test_an_approved_object_is_no_less_protected():
    cell = asking()
    assert answer(cell, OperatorAnswer(Answer.REMOVE, HERE))
    cell.scene(UNSURE, times=K)
    cell.send(GoalAccepted(cell.goal))
    assert cell.scene(UNSURE, times=3).phase is Phase.REMOVING, "a person has decided about its numbers"
    cell.scene(UNSURE, object_at(OVER_IT, ObjectClass.LOGO))
    revoked(cell, "object_covered", "logo")
