# SPDX-License-Identifier: Apache-2.0
"""A permit outlives the noise of the passes, and nothing else: what a newer scene says about it."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.gate import Answer, BlockReason, GateSettings, OperatorAnswer, Phase
from sticker_uq.gate.box_overlap import as_box, iou
from sticker_uq.gate.events import CancelGoal, GoalAccepted, Log
from sticker_uq.gate.judge import judge
from sticker_uq.gate.permit_consistency import check_permit, is_slight
from sticker_uq.scene import ObjectClass, ObjectVerdict, ObservedObject, Outcome, Reason, Status, Verdict
from sticker_uq.testing.scenes import ELSEWHERE, HERE, THERE, assessment, observed, rarely_seen
from test.helpers.gate import (
    LOGO,
    POLICY,
    SETTINGS,
    SLIGHTLY_UNSURE,
    STICKER,
    UNSURE,
    Cell,
    K,
    Make,
    answer,
    asking,
    permitted,
    removing,
    running,
)

HALF_COVERED = (100.0, 100.0, 140.0, 160.0)
TWO_IN_ONE = observed((100.0, 100.0, 240.0, 160.0), duplicated=True)
OVER_IT = (140.0, 120.0, 220.0, 190.0)
BESIDE_THERE = (340.0, 110.0, 440.0, 190.0)


def revoked(cell: Cell, code: str, subject: str | None = None) -> None:
    assert not cell.state.open
    assert cell.state.reasons & BlockReason.CONTRADICTED
    assert cell.sent(CancelGoal) == [CancelGoal(1)]
    why = next(e.reasons[1:] for e in cell.sent(Log) if e.reasons[0].code == "permit_revoked")
    assert any(reason.code == code and subject in (None, reason.subject) for reason in why)


def with_neighbour(accepted: bool) -> Cell:
    """A cell with a permit for HERE beside a logo at THERE."""
    cell = running().scene(STICKER, observed(THERE, ObjectClass.LOGO), times=K)
    if accepted:
        cell.send(GoalAccepted(cell.goal))
    assert cell.state.open
    return cell


# --- noise ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [permitted, removing])
def test_a_value_just_beyond_its_limit_stops_the_arm_only_when_it_stays_there(make: Make) -> None:
    cell = make()
    for _ in range(4):
        cell.scene(SLIGHTLY_UNSURE, times=K - 1)
        assert cell.state.open
        cell.scene(STICKER)
        if cell.phase is Phase.PERMITTED:
            cell.send(GoalAccepted(cell.goal))
    cell.scene(SLIGHTLY_UNSURE, times=K)
    revoked(cell, "above_limit", "shannon_entropy")


@given(
    st.lists(
        st.sampled_from([STICKER, SLIGHTLY_UNSURE, observed(duplicated=True), TWO_IN_ONE, UNSURE]),
        max_size=12,
    )
)
def test_the_arm_goes_on_until_a_clear_contradiction_or_k_slight_doubts_in_a_row(
    seen: list[ObservedObject],
) -> None:
    cell, doubts = removing(), 0
    for one in seen:
        cell.scene(one)
        doubts = 0 if one is STICKER else doubts + 1
        is_open = one is not TWO_IN_ONE and one is not UNSURE and doubts < K
        assert cell.state.open is is_open
        if not is_open:
            return


@given(
    st.tuples(*[st.floats(0.0, 200.0)] * 2, *[st.floats(5.0, 200.0)] * 2),
    st.floats(0.0, 1.0),
)
def test_two_things_in_one_box_are_told_by_its_size(drawn: tuple[float, ...], margin: float) -> None:
    x, y, width, height = drawn
    box = (x, y, x + width, y + height)
    (verdict,) = judge(assessment(observed(box, duplicated=True)), POLICY).verdicts
    assert is_slight(verdict, margin, HERE) is (margin > 0.0 and iou(as_box(verdict.object.box), HERE) >= 0.7)


def test_without_a_margin_every_doubt_contradicts() -> None:
    cell = running(GateSettings(**{**SETTINGS.model_dump(), "doubt_margin": 0.0})).scene(STICKER, times=K)
    cell.scene(observed(shannon_entropy=0.91))
    revoked(cell, "above_limit", "shannon_entropy")


def test_before_the_arm_starts_a_slight_doubt_about_the_scene_is_noise_too() -> None:
    cell = permitted().scene(STICKER, dil=0.65)
    assert cell.state.open
    cell.scene(STICKER, dil=0.65)
    revoked(cell, "above_limit", "dil")
    cell = permitted().scene(STICKER, dil=0.91)
    revoked(cell, "scene_doubtful")
    cell = permitted().scene(SLIGHTLY_UNSURE, dil=0.91)
    revoked(cell, "scene_doubtful")
    cell = permitted().scene(STICKER, dil=None, status=Status.DEGRADED)
    revoked(cell, "scene_doubtful")
    assert permitted().scene(STICKER, dil=None, times=3).state.open, "its turn of DiL had not come"


@pytest.mark.parametrize(
    ("thing", "slight"),
    [
        (observed(shannon_entropy=1.34), True),
        (observed(shannon_entropy=1.36), False),
        (observed(variation_ratio=0.29), True),
        (observed(variation_ratio=0.31), False),
        (observed(mutual_information=0.44), True),
        (observed(relative_total_variance=0.029), True),
        (observed(relative_predictive_surface=0.031), False),
        (observed(detection_rate=0.74), True),
        (observed(detection_rate=0.72), False),
        (observed(probabilities=(0.2, 0.09, 0.71)), True),
        (observed(probabilities=(0.2, 0.11, 0.69)), False),
        (observed(shannon_entropy=1.2, variation_ratio=0.29), True),
        (observed(shannon_entropy=1.2, variation_ratio=0.5), False),
        (observed(duplicated=True), True),
        (observed(shannon_entropy=1.2, duplicated=True), True),
        (observed(shannon_entropy=1.36, duplicated=True), False),
        (TWO_IN_ONE, False),
        (rarely_seen(passes=4), False),
        (observed(label=ObjectClass.LOGO, probabilities=(0.1, 0.5, 0.4)), False),
        (observed(label=ObjectClass.BACKGROUND, probabilities=(0.6, 0.1, 0.3)), False),
        (STICKER, False),
    ],
)
def test_only_a_sticker_near_its_limits_is_doubted_slightly(thing: ObservedObject, slight: bool) -> None:
    unstable = (thing,) if thing.unstable else ()
    scene = assessment(*(() if unstable else (thing,)), unstable=unstable)
    (verdict,) = judge(scene, POLICY).verdicts
    assert is_slight(verdict, SETTINGS.doubt_margin, HERE) is slight


def test_a_value_that_is_nan_or_a_persons_word_is_no_slight_doubt() -> None:
    (verdict,) = judge(assessment(SLIGHTLY_UNSURE), POLICY).verdicts
    (reason,) = verdict.reasons
    assert is_slight(verdict, 0.5, HERE)
    assert not is_slight(replace(verdict, by_operator=True), 0.5, HERE)
    assert not is_slight(replace(verdict, reasons=()), 0.5, HERE)
    for name in ("value", "limit"):
        assert not is_slight(replace(verdict, reasons=(replace(reason, **{name: float("nan")}),)), 0.5, HERE)
    assert not is_slight(replace(verdict, reasons=(replace(reason, limit=float("inf")),)), 0.5, HERE)


# --- what is beyond doubt ---------------------------------------------------------------------------------------------------

AT_ONCE: dict[str, tuple[Callable[[Cell], object], str]] = {
    "far beyond a limit": (lambda cell: cell.scene(UNSURE), "object_not_removable"),
    "two things in one": (lambda cell: cell.scene(TWO_IN_ONE), "detected_twice"),
    "a logo at its place": (lambda cell: cell.scene(LOGO), "logo_at_object"),
    "a logo over it": (
        lambda cell: cell.scene(STICKER, observed(OVER_IT, ObjectClass.LOGO)),
        "object_covered",
    ),
    "a logo over what is left of it": (
        lambda cell: cell.scene(observed(HALF_COVERED, ObjectClass.LOGO)),
        "logo_at_object",
    ),
    "another sticker over it": (
        lambda cell: cell.scene(STICKER, observed(OVER_IT)),
        "object_covered",
    ),
    "seen in few passes": (lambda cell: cell.scene(unstable=[rarely_seen(passes=5)]), "object_not_removable"),
}


@pytest.mark.parametrize("name", AT_ONCE)
@pytest.mark.parametrize("make", [permitted, removing])
def test_a_clear_contradiction_stops_at_once(make: Make, name: str) -> None:
    happen, code = AT_ONCE[name]
    cell = make()
    happen(cell)
    revoked(cell, code)


@pytest.mark.parametrize("accepted", [False, True])
def test_a_neighbour_that_moves_tells_that_the_laptop_has_moved(accepted: bool) -> None:
    cell = with_neighbour(accepted).scene(STICKER, observed(BESIDE_THERE, ObjectClass.LOGO))
    revoked(cell, "neighbour_moved", "logo")


@pytest.mark.parametrize(
    "others",
    [
        (),  # hidden by the arm
        (observed((305.0, 105.0, 405.0, 185.0), ObjectClass.LOGO),),  # jitter
        (observed((300.0, 100.0, 345.0, 180.0), ObjectClass.LOGO),),  # half hidden
        (observed(ELSEWHERE, ObjectClass.LOGO),),  # another one that nobody had seen
        (observed(BESIDE_THERE),),  # something else, not over the object
    ],
)
def test_a_neighbour_that_is_hidden_or_jitters_tells_nothing(others: tuple[ObservedObject, ...]) -> None:
    cell = with_neighbour(accepted=True).scene(STICKER, *others)
    assert cell.state.open


def test_something_else_that_overlaps_a_neighbour_which_is_still_there_is_no_movement() -> None:
    logo = observed(THERE, ObjectClass.LOGO)
    cell = with_neighbour(accepted=True).scene(STICKER, logo, observed(BESIDE_THERE, ObjectClass.LOGO))
    assert cell.state.open


def test_what_was_there_when_the_permit_was_given_does_not_come_in_the_way() -> None:
    overlapping = observed((170.0, 100.0, 250.0, 160.0))
    cell = running().scene(STICKER, overlapping, times=K)
    assert cell.scene(STICKER, overlapping).state.open
    cell.send(GoalAccepted(cell.goal))
    assert cell.scene(STICKER, overlapping, times=3).state.open
    # what the passes saw too rarely then had no place yet
    assert cell.scene(STICKER, unstable=[rarely_seen(OVER_IT)]).state.open


def test_a_lifted_sticker_is_the_object_itself() -> None:
    cell = removing().scene(observed(HALF_COVERED))
    assert cell.state.open
    cell.scene(observed(OVER_IT))
    assert cell.state.open
    cell.scene(observed(ELSEWHERE))
    assert cell.state.open


def test_before_the_arm_starts_a_displaced_or_vanished_object_contradicts() -> None:
    revoked(permitted().scene(observed(OVER_IT)), "object_covered", "sticker")
    revoked(permitted().scene(observed(ELSEWHERE)), "object_not_found")
    revoked(permitted().scene(), "object_not_found")


def test_an_overlap_at_the_limit_is_no_intrusion() -> None:
    touching = observed((164.0, 100.0, 244.0, 160.0))  # shares exactly a fifth of its box
    assert removing().scene(STICKER, touching).state.open
    closer = observed((163.0, 100.0, 243.0, 160.0))
    revoked(removing().scene(STICKER, closer), "object_covered", "sticker")


def test_a_person_who_says_to_leave_it_is_heard_though_the_arm_works() -> None:
    cell = removing()
    said = replace(cell.state, memory=cell.state.memory.remember([OperatorAnswer(Answer.KEEP, HERE)]))
    cell.core._state = said
    cell.scene(STICKER)
    revoked(cell, "operator_keeps")


def test_background_at_the_place_is_nothing() -> None:
    nothing = observed(HERE, ObjectClass.BACKGROUND)
    assert removing().scene(nothing).state.open
    revoked(permitted().scene(nothing), "object_not_found")


def test_an_approved_object_is_no_less_protected() -> None:
    cell = asking()
    assert answer(cell, OperatorAnswer(Answer.REMOVE, HERE))
    cell.scene(UNSURE, times=K)
    cell.send(GoalAccepted(cell.goal))
    cell.scene(UNSURE, times=3)
    assert cell.phase is Phase.REMOVING, "a person has decided about its numbers"
    cell.scene(UNSURE, observed(OVER_IT, ObjectClass.LOGO))
    revoked(cell, "object_covered", "logo")


# --- at the limits of each rule ---------------------------------------------------------------------------------------------


def verdict_with(
    *reasons: Reason, thing: ObservedObject = STICKER, said: Verdict = Verdict.ASK
) -> ObjectVerdict:
    return ObjectVerdict(thing, said, reasons)


NEAR, FAR = Reason("above_limit", "risk", 1.25, 1.0), Reason("above_limit", "risk", 2.0, 1.0)


def test_only_what_is_asked_about_a_stable_sticker_is_doubted() -> None:
    assert is_slight(verdict_with(NEAR), 0.25, HERE), "a value at the margin is still near"
    assert not is_slight(verdict_with(NEAR, FAR), 0.25, HERE)
    assert not is_slight(verdict_with(NEAR, said=Verdict.REMOVE), 0.25, HERE)
    assert not is_slight(verdict_with(NEAR, thing=LOGO), 0.25, HERE)
    assert not is_slight(verdict_with(NEAR, thing=rarely_seen()), 0.25, HERE)
    assert not is_slight(verdict_with(replace(NEAR, subject="logo_overlap")), 0.25, HERE)


def test_one_far_doubt_about_the_scene_is_enough() -> None:
    cell = permitted()
    permit, decision = cell.state.permit, cell.state.decision
    assert permit is not None
    assert decision is not None
    asked = replace(decision, outcome=Outcome.ASK, reasons=(NEAR, FAR))
    assert check_permit(permit, asked, SETTINGS).contradiction == (Reason("scene_doubtful"),)
    assert check_permit(permit, replace(asked, reasons=(NEAR,)), SETTINGS).doubt == (NEAR,)


def test_a_verdict_without_reasons_contradicts_without_details() -> None:
    cell = removing()
    assert cell.state.permit is not None
    assert cell.state.decision is not None
    asked = replace(cell.state.decision, verdicts=(verdict_with(),))
    said = check_permit(cell.state.permit, asked, SETTINGS)
    assert said.contradiction == (Reason("object_not_removable"),)


def test_what_overlaps_by_exactly_the_limit_is_at_the_place() -> None:
    revoked(removing().scene(observed(HALF_COVERED, shannon_entropy=1.5)), "object_not_removable")


def test_a_known_neighbour_over_the_object_may_jitter() -> None:
    neighbour, lower = observed((150.0, 100.0, 240.0, 160.0)), observed((150.0, 120.0, 240.0, 180.0))
    cell = running().scene(STICKER, neighbour, times=K)
    cell.send(GoalAccepted(cell.goal))
    assert cell.scene(STICKER, lower).state.open


def test_what_too_few_passes_saw_before_was_not_there() -> None:
    cell = running().scene(STICKER, unstable=[rarely_seen(OVER_IT)], times=K)
    cell.send(GoalAccepted(cell.goal))
    revoked(cell.scene(STICKER, observed(OVER_IT)), "object_covered", "sticker")


def test_a_neighbour_of_about_the_same_size_has_moved_and_one_far_away_has_not() -> None:
    narrower = observed((370.0, 100.0, 440.0, 180.0), ObjectClass.LOGO)
    revoked(with_neighbour(accepted=True).scene(STICKER, narrower), "neighbour_moved", "logo")
    far = observed((500.0, 100.0, 600.0, 180.0), ObjectClass.LOGO)
    assert with_neighbour(accepted=True).scene(STICKER, far).state.open


@pytest.mark.parametrize("make", [permitted, removing])
def test_background_that_comes_over_the_object_is_nothing(make: Make) -> None:
    cell = make().scene(STICKER, observed(OVER_IT, ObjectClass.BACKGROUND))
    assert cell.state.open


def test_the_object_itself_is_not_its_hidden_neighbour_of_the_same_size() -> None:
    beside = (170.0, 100.0, 250.0, 160.0)
    cell = running().scene(STICKER, observed(beside), times=K)
    cell.send(GoalAccepted(cell.goal))
    assert cell.scene(STICKER).state.open


def test_what_overlaps_the_object_by_exactly_the_limit_is_the_object_and_no_neighbour_that_has_moved() -> (
    None
):
    cell = running().scene(STICKER, observed((130.0, 100.0, 170.0, 160.0)), times=K)
    cell.send(GoalAccepted(cell.goal))
    assert cell.scene(observed(HALF_COVERED)).state.open


def test_a_neighbour_in_its_place_is_not_the_hidden_one_beside_it() -> None:
    hidden, stays = (300.0, 300.0, 380.0, 360.0), (370.0, 300.0, 450.0, 360.0)
    logos = [observed(box, ObjectClass.LOGO) for box in (hidden, stays)]
    cell = running().scene(STICKER, *logos, times=K)
    cell.send(GoalAccepted(cell.goal))
    assert cell.scene(STICKER, logos[1]).state.open
