# SPDX-License-Identifier: Apache-2.0
"""Two views of one laptop: the first one only forbids, doubt of either never turns into permission, and a guarantee for both
views holds for what they decide together.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.calibration.measuring import measure
from sticker_uq.calibration.outcomes import MATCH_IOU, met
from sticker_uq.calibration.records import Record
from sticker_uq.gate import Answer, OperatorAnswer, OperatorAnswers, Policy, judge
from sticker_uq.gate.box_overlap import as_box, same_place
from sticker_uq.gate.second_view import (
    SAME_PLACES,
    Places,
    join,
    may_answer,
    open_questions,
    view_for,
    what_is_missing,
)
from sticker_uq.messages import BLOCK_REASONS, LACKS, MISSING, VIEWS, missing_of, text_of
from sticker_uq.scene import (
    InvalidInput,
    ObjectClass,
    Outcome,
    Reason,
    SceneAssessment,
    SceneDecision,
    Status,
    UnexplainedRegion,
    Verdict,
)
from sticker_uq.testing.scenes import ELSEWHERE, HERE, START, THERE, assessment, observed, rarely_seen

POLICY = Policy(max_unexplained_objectness=0.1)
DIM = {"shannon_entropy": 1.2}
"""What makes a sticker uncertain in one view."""
NAN = float("nan")


def first(*objects: Any, **changes: Any) -> SceneAssessment:
    return assessment(*objects, **changes)


def second(*objects: Any, **changes: Any) -> SceneAssessment:
    return assessment(*objects, stamp_ns=START + 1, **changes)


def joined(one: SceneAssessment, other: SceneAssessment, view: str = "light", **given: Any) -> SceneDecision:
    return join(one, other, POLICY, view, **given)


def codes(decision: SceneDecision) -> set[str]:
    return {reason.code for reason in open_questions(decision)}


def released(decision: SceneDecision) -> list[tuple[float, ...]]:
    return [as_box(v.object.box) for v in decision.removable()] if decision.outcome is Outcome.WORK else []


def overlooked(scene: SceneAssessment, objectness: float = 0.4) -> SceneAssessment:
    assert scene.localization is not None
    place = UnexplainedRegion(np.array(ELSEWHERE, np.float32), objectness, 0.5)
    found = replace(scene.localization, unexplained_objectness=objectness, unexplained=(place,))
    return replace(scene, localization=found)


# the table


def test_every_block_reason_says_whether_another_picture_helps() -> None:
    assert BLOCK_REASONS.keys() <= MISSING.keys()
    for lack, views in MISSING.values():
        assert (lack in LACKS) == bool(views)
        assert set(views) <= set(VIEWS)


@pytest.mark.parametrize(
    "code",
    ["fault", "held", "frozen_image", "assumption", "drift", "arm_failed", "contradicted", "audit", "pose"],
)
def test_no_picture_answers_what_is_no_matter_of_the_picture(code: str) -> None:
    assert missing_of(Reason(code)) == ("", ())


@pytest.mark.parametrize("subject", ["scene_distance", "object_novelty", "novelty", "logo_overlap"])
def test_no_picture_makes_something_unknown_known(subject: str) -> None:
    assert not any(may_answer(view, Reason("above_limit", subject, 0.9, 0.7)) for view in VIEWS)


def test_no_picture_answers_a_reason_that_nobody_foresaw() -> None:
    assert missing_of(Reason("above_limit", "a_new_metric", 2.0, 1.0)) == ("", ())
    assert missing_of(Reason("a_new_code")) == ("", ())


def test_every_limit_of_an_object_and_of_a_scene_is_in_the_table() -> None:
    poor = observed(
        probabilities=(0.1, 0.2, 0.7),
        detection_rate=0.2,
        variation_ratio=0.9,
        shannon_entropy=1.5,
        mutual_information=1.0,
        relative_total_variance=1.0,
        relative_predictive_surface=1.0,
        novelty=0.99,
        duplicated=True,
    )
    logo = observed(THERE, ObjectClass.LOGO, (0.1, 0.5, 0.4))
    scenes = [
        first(poor, logo, observed(HERE, ObjectClass.BACKGROUND, (0.6, 0.0, 0.4))),
        first(unstable=[rarely_seen(passes=5)]),
        first(poor, dil=1.0),
        first(dil=None),
        overlooked(first()),
    ]
    found = [reason for scene in scenes for reason in open_questions(judge(scene, POLICY))]
    assert len(found) > 12
    for reason in found:
        key = reason.subject if reason.code in ("above_limit", "below_limit") else reason.code
        assert key in MISSING, key


# what is asked for


def test_the_question_says_what_the_picture_lacks_and_what_may_show_it() -> None:
    said = what_is_missing(judge(first(observed(**DIM)), POLICY))
    assert [text_of(reason) for reason in said] == [
        "the picture does not show what an object is",
        "another exposure may show it",
        "light from another side may show it",
        "a small turn of the laptop may show it",
    ]


def test_nothing_is_missing_where_nothing_is_asked_or_no_picture_helps() -> None:
    assert what_is_missing(judge(first(observed()), POLICY)) == ()
    assert what_is_missing(judge(first(observed(novelty=0.9)), POLICY)) == ()
    both = judge(first(observed(**DIM), observed(THERE, novelty=0.9)), POLICY)
    assert what_is_missing(both) == (Reason("picture_lacks", "appearance"),)


def test_the_first_offered_view_that_answers_everything_is_chosen() -> None:
    decision = judge(first(observed(**DIM)), POLICY)
    assert view_for(decision, ("turn", "light")) == "turn"
    assert view_for(decision, ()) is None
    assert view_for(judge(first(observed()), POLICY), VIEWS) is None


def test_no_view_is_taken_where_a_person_is_asked_anyway() -> None:
    scene = first(observed(**DIM), observed(THERE, novelty=0.9))
    assert view_for(judge(scene, POLICY), VIEWS) is None


# what two views decide


def test_a_sticker_that_the_second_view_shows_well_is_released() -> None:
    decision = joined(first(observed(**DIM)), second(observed()))
    assert decision.outcome is Outcome.WORK
    assert released(decision) == [HERE]
    assert decision.stamp_ns == START + 1


def test_a_laptop_that_the_first_view_settles_needs_no_second_one() -> None:
    for scene in (first(observed()), first(dil=0.0), replace(first(), status=Status.FAILED)):
        assert joined(scene, second()) == judge(scene, POLICY)


@pytest.mark.parametrize(
    "unusable",
    [
        {"status": Status.FAILED},
        {"model_hash": "other"},
        {"settings_hash": "other"},
        {"panel_hash": "other"},
        {"frame_id": "other"},
        {"image_size": (320, 240)},
        {"image_digest": f"{START:032x}"},
    ],
)
def test_a_second_view_that_cannot_be_compared_leaves_the_question(unusable: dict[str, Any]) -> None:
    scene = first(observed(**DIM))
    assert joined(scene, second(observed(), **unusable)) == judge(scene, POLICY)


@pytest.mark.parametrize(
    ("before", "now", "code"),
    [
        ([], [observed()], "not_seen_before"),
        ([observed(HERE, ObjectClass.LOGO, (0.1, 0.5, 0.4))], [observed()], "views_disagree"),
        ([observed(HERE, ObjectClass.LOGO)], [observed()], "views_disagree"),
        ([observed(HERE, ObjectClass.BACKGROUND, (0.6, 0.0, 0.4))], [observed()], "views_disagree"),
        ([observed(**DIM), observed((102.0, 101.0, 181.0, 161.0), **DIM)], [observed()], "several_there"),
        ([observed(**DIM)], [observed(), observed((102.0, 101.0, 181.0, 161.0))], "several_there"),
        ([observed(novelty=0.9)], [observed()], "above_limit"),
        ([observed(**DIM)], [observed(THERE)], "not_seen_again"),
        ([observed(**DIM)], [], "not_seen_again"),
        ([observed(**DIM)], [observed(HERE, ObjectClass.LOGO)], "views_disagree"),
        ([observed(**DIM)], [observed(HERE, ObjectClass.BACKGROUND)], "views_disagree"),
        (
            [observed(HERE, ObjectClass.LOGO, (0.1, 0.6, 0.3))],
            [observed(HERE, ObjectClass.BACKGROUND)],
            "views_disagree",
        ),
    ],
)
def test_what_the_views_show_differently_is_asked(before: list[Any], now: list[Any], code: str) -> None:
    # a second uncertain sticker keeps the question open whatever the first view says of this place
    kept = observed(ELSEWHERE, **DIM)
    decision = joined(first(*before, kept), second(*now, observed(ELSEWHERE)))
    assert HERE not in released(decision)
    assert code in codes(decision)


def test_a_possible_logo_of_the_first_view_protects_its_neighbourhood() -> None:
    logo = observed((100.0, 100.0, 140.0, 130.0), ObjectClass.LOGO)
    decision = joined(first(observed(**DIM), logo), second(observed()))
    assert released(decision) == []
    assert "above_limit" in codes(decision)


def test_a_box_that_grew_onto_a_logo_of_the_first_view_is_asked_about() -> None:
    logo = observed((178.0, 100.0, 230.0, 160.0), ObjectClass.LOGO)
    grown = observed((110.0, 100.0, 195.0, 160.0))
    alone = joined(first(observed(**DIM)), second(grown))
    assert len(released(alone)) == 1
    decision = joined(first(observed(**DIM), logo), second(grown))
    assert released(decision) == []
    assert [r.subject for r in open_questions(decision)] == ["logo_overlap"]


def test_an_uncertain_logo_is_kept_once_a_view_is_sure_of_it() -> None:
    doubtful = observed(HERE, ObjectClass.LOGO, (0.1, 0.6, 0.3))
    decision = joined(first(doubtful), second(observed(HERE, ObjectClass.LOGO)))
    assert decision.outcome is Outcome.CLEAN


def test_a_possible_sticker_is_not_left_because_it_views_less_like_one_now() -> None:
    maybe = observed(HERE, ObjectClass.BACKGROUND, (0.6, 0.0, 0.4))
    decision = joined(first(maybe), second(observed(HERE, ObjectClass.BACKGROUND)))
    assert decision.outcome is Outcome.ASK


def test_clean_needs_two_views_without_anything_unexplained() -> None:
    doubtful = observed(HERE, ObjectClass.LOGO, (0.1, 0.6, 0.3))
    sure = observed(HERE, ObjectClass.LOGO)
    assert joined(overlooked(first()), second()).outcome is Outcome.ASK
    assert joined(overlooked(first(doubtful)), second(sure)).outcome is Outcome.ASK
    assert joined(first(doubtful), overlooked(second(sure))).outcome is Outcome.ASK


def test_a_doubt_about_the_scene_that_this_view_cannot_answer_stays() -> None:
    scene = first(observed())
    assert scene.localization is not None
    foreign = replace(scene, localization=replace(scene.localization, scene_distance=0.9))
    assert joined(foreign, second(observed())).outcome is Outcome.ASK
    dazzled = first(observed(), dil=1.0)
    assert released(joined(dazzled, second(observed()))) == [HERE]
    assert joined(dazzled, second(observed(), dil=1.0)).outcome is Outcome.ASK


def test_what_an_operator_said_holds_for_both_views() -> None:
    keep = OperatorAnswers().remember([OperatorAnswer(Answer.KEEP, HERE)])
    scenes = (first(observed(**DIM), observed(THERE, **DIM)), second(observed(), observed(THERE)))
    assert released(joined(*scenes, memory=keep)) == [THERE]


def test_what_an_operator_said_to_remove_is_not_asked_again() -> None:
    remove = OperatorAnswers().remember([OperatorAnswer(Answer.REMOVE, THERE)])
    decision = joined(first(observed(THERE), dil=1.0), second(observed(THERE)), memory=remove)
    assert released(decision) == [THERE]
    assert codes(decision) == set()


def test_an_answer_about_a_place_does_not_settle_what_lies_beside_it() -> None:
    gone = OperatorAnswers().remember([OperatorAnswer(Answer.NOT_THERE, HERE)])
    beside = (130.0, 100.0, 210.0, 160.0)  # IoU 0.45 with HERE
    between = (115.0, 100.0, 195.0, 160.0)  # the same place as both
    decision = joined(first(observed(beside, **DIM)), second(observed(between)), memory=gone)
    assert "not_seen_again" in codes(decision)


# a laptop that was turned

TURN = Places.of(np.array([[0.0, -1.0, 500.0], [1.0, 0.0, 10.0], [0.0, 0.0, 1.0]]))


@given(st.tuples(*[st.floats(0, 600)] * 2, *[st.floats(1, 200)] * 2))
def test_places_are_found_again_and_keep_their_size(values: tuple[float, ...]) -> None:
    x, y, width, height = values
    box = (x, y, x + width, y + height)
    assert TURN.in_second(TURN.in_first(box)) == pytest.approx(box, abs=1e-3)
    moved = TURN.in_first(box)
    assert (moved[2] - moved[0], moved[3] - moved[1]) == pytest.approx((width, height), abs=1e-3)


def test_a_turned_laptop_is_joined_by_the_places_on_the_lid() -> None:
    there = TURN.in_second(HERE)
    scenes = (first(observed(**DIM)), second(observed(there)))
    assert joined(*scenes).outcome is Outcome.ASK
    decision = joined(*scenes, view="turn", places=TURN)
    assert [TURN.in_first(box) for box in released(decision)] == [pytest.approx(HERE, abs=1e-3)]
    lost = joined(scenes[0], second(), view="turn", places=TURN)
    assert [as_box(v.object.box) for v in lost.verdicts] == [pytest.approx(there, abs=1e-3)]


def test_a_place_that_is_infinitely_far_away_is_no_place() -> None:
    far = Places.of(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-1.0 / 140.0, 0.0, 1.0]]))
    assert all(map(math.isnan, far.in_first(HERE)))
    assert far.in_first(THERE)[0] < 0


@pytest.mark.parametrize(
    "matrix", [np.zeros((3, 3)), np.full((3, 3), NAN), np.eye(2), np.diag([1.0, 1.0, 0.0])]
)
def test_a_map_that_leads_nowhere_is_refused(matrix: Any) -> None:
    with pytest.raises(InvalidInput, match="invertible"):
        Places.of(matrix)


# any two views

PLACES = (HERE, THERE, ELSEWHERE, (110.0, 104.0, 188.0, 163.0), (150.0, 120.0, 260.0, 200.0))
share = st.sampled_from((0.0, 0.1, 0.25, 0.6, 0.9, 1.0, NAN))


@st.composite
def objects(draw: st.DrawFn) -> Any:
    label = draw(st.sampled_from(list(ObjectClass)))
    probability = draw(st.sampled_from((0.35, 0.6, 0.75, 0.98, NAN)))
    vector = [(1 - probability) / 2] * 3
    vector[label] = probability
    return observed(
        draw(st.sampled_from(PLACES)),
        label,
        vector,
        shannon_entropy=draw(share),
        relative_total_variance=draw(st.sampled_from((0.001, 0.03, NAN))),
        novelty=draw(share),
        detection_rate=draw(st.sampled_from((0.5, 1.0))),
        duplicated=draw(st.booleans()),
    )


@st.composite
def scenes(draw: st.DrawFn, stamp_ns: int = START) -> SceneAssessment:
    rare = draw(st.lists(st.sampled_from(PLACES), max_size=1))
    scene = assessment(
        *draw(st.lists(objects(), max_size=4)),
        unstable=[rarely_seen(place, passes=5) for place in rare],
        stamp_ns=stamp_ns,
        dil=draw(st.sampled_from((0.1, 1.0, NAN, None))),
    )
    if scene.localization is None:
        return scene
    distance = draw(st.sampled_from((0.5, 0.5, 0.9, NAN)))
    scene = replace(scene, localization=replace(scene.localization, scene_distance=distance))
    return overlooked(scene) if draw(st.booleans()) else scene


views = st.sampled_from(list(VIEWS))
pairs = st.tuples(scenes(), scenes(START + 1))


@given(pairs, views)
def test_only_what_the_second_view_releases_is_released(
    pair: tuple[SceneAssessment, SceneAssessment], view: str
) -> None:
    """The loss of both views together is at most the larger loss of the two: what a guarantee per laptop rests on."""
    decision = joined(*pair, view=view)
    before, after = (judge(scene, POLICY) for scene in pair)
    if before.outcome is not Outcome.ASK:
        assert decision.decision_id == before.decision_id
        assert released(decision) == released(before)
        return
    assert set(released(decision)) <= {as_box(v.object.box) for v in after.removable()}
    held = {as_box(v.object.box) for v in before.verdicts if v.verdict is not Verdict.KEEP}
    assert all(any(same_place(box, other) for other in held) for box in released(decision))
    forbidden = [as_box(o.box) for o in pair[0].objects if o.label is ObjectClass.LOGO]
    assert not any(same_place(box, logo) for box in released(decision) for logo in forbidden)


@given(
    pairs, views, st.lists(st.sampled_from((ObjectClass.LOGO, ObjectClass.STICKER)), min_size=5, max_size=5)
)
def test_a_guarantee_for_both_views_of_a_laptop_holds_for_what_they_decide_together(
    pair: tuple[SceneAssessment, SceneAssessment], view: str, truth: list[ObjectClass]
) -> None:
    """`calibrate` counts a laptop as bad when any of its images is: where both views are good, so is the protocol."""
    boxes, labels = np.array(PLACES, np.float32), np.array(truth, np.int64)
    one, other = (Record(str(scene.stamp_ns), boxes, labels, scene, "laptop") for scene in pair)
    either = measure([one, other], POLICY)
    before, together = judge(pair[0], POLICY), joined(*pair, view=view)
    for decision in (before, together):
        places = [met(v.object, other, MATCH_IOU)[0] for v in decision.removable() if released(decision)]
        wrong = any(place < 0 or truth[place] is ObjectClass.LOGO for place in places)
        assert not wrong or either.wrongful.events


@given(pairs, views)
def test_clean_is_only_what_the_second_view_calls_clean_and_the_first_has_no_doubt_of(
    pair: tuple[SceneAssessment, SceneAssessment], view: str
) -> None:
    decision = joined(*pair, view=view)
    before, after = (judge(scene, POLICY) for scene in pair)
    if decision.outcome is Outcome.CLEAN and before.outcome is Outcome.ASK:
        assert after.outcome is Outcome.CLEAN
        assert before.reasons == ()
        asked = [v for v in before.verdicts if v.verdict is not Verdict.KEEP]
        assert all(v.object.label is ObjectClass.LOGO for v in asked)


@given(pairs, views)
def test_the_outcome_follows_from_verdicts_and_doubts(
    pair: tuple[SceneAssessment, SceneAssessment], view: str
) -> None:
    decision = joined(*pair, view=view)
    verdicts = [v.verdict for v in decision.verdicts]
    if decision.outcome is Outcome.WORK:
        assert Verdict.REMOVE in verdicts
        assert decision.reasons == ()
    if decision.outcome is Outcome.CLEAN:
        assert set(verdicts) <= {Verdict.KEEP}
    if decision.outcome is Outcome.ASK:
        assert open_questions(decision)
    numbers = [v.object.id for v in decision.verdicts]
    assert len(numbers) == len(set(numbers))
    assert joined(*pair, view=view).decision_id == decision.decision_id


@given(pairs, views, st.randoms())
def test_the_order_of_the_objects_does_not_matter(
    pair: tuple[SceneAssessment, SceneAssessment], view: str, random: Any
) -> None:
    def shuffled(scene: SceneAssessment) -> SceneAssessment:
        order = list(scene.objects)
        random.shuffle(order)
        return replace(scene, objects=tuple(order))

    one, other = joined(*pair, view=view), joined(*map(shuffled, pair), view=view)
    assert one.outcome is other.outcome
    assert sorted(released(one)) == sorted(released(other))


@given(pairs, views, objects(), st.sampled_from((0, 1)))
def test_a_logo_more_in_either_view_never_releases_more(
    pair: tuple[SceneAssessment, SceneAssessment], view: str, thing: Any, which: int
) -> None:
    logo = replace(
        thing, id=99, label=ObjectClass.LOGO, probabilities=np.array((0.02, 0.96, 0.02), np.float32)
    )
    more = list(pair)
    more[which] = replace(pair[which], objects=(*pair[which].objects, logo))
    before = judge(pair[0], POLICY)
    if before.outcome is Outcome.ASK and judge(more[0], POLICY).outcome is Outcome.ASK:
        assert set(released(joined(more[0], more[1], view=view))) <= set(released(joined(*pair, view=view)))


@given(pairs, views)
def test_a_view_that_answers_nothing_releases_nothing_that_was_held(
    pair: tuple[SceneAssessment, SceneAssessment], view: str
) -> None:
    decision = joined(*pair, view=view, answers=lambda view, reason: False)
    before = judge(pair[0], POLICY)
    if before.outcome is Outcome.ASK:
        sure = [as_box(v.object.box) for v in before.verdicts if v.verdict is Verdict.REMOVE]
        assert all(any(same_place(box, other) for other in sure) for box in released(decision))


def test_a_box_that_is_not_a_number_is_asked_about() -> None:
    broken = observed((NAN, 0.0, 10.0, 10.0))
    decision = joined(first(observed(**DIM)), second(broken))
    assert released(decision) == []
    assert "measurement_invalid" in codes(decision)
    assert SAME_PLACES.in_first(as_box(broken.box))[1:] == (0.0, 10.0, 10.0)
    assert math.isnan(TURN.in_first(as_box(broken.box))[0])
