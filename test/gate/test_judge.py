# SPDX-License-Identifier: Apache-2.0
"""What is sure enough is removed, what is a logo stays, everything else is asked; doubt never turns into permission."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sticker_uq.gate import Answer, OperatorAnswer, OperatorAnswers, Policy, judge
from sticker_uq.messages import text_of
from sticker_uq.scene import (
    Localization,
    ObjectClass,
    ObservedObject,
    Outcome,
    Reason,
    SceneAssessment,
    SceneDecision,
    Status,
    Verdict,
)
from sticker_uq.testing.scenes import ELSEWHERE, EVERY_LIMIT, HERE, THERE, assessment, observed, rarely_seen

POLICY = Policy(**EVERY_LIMIT)
NAN = float("nan")
METRICS = (
    "variation_ratio",
    "shannon_entropy",
    "mutual_information",
    "relative_total_variance",
    "relative_predictive_surface",
)


def said(answer: Answer, box: tuple[float, ...] = HERE) -> OperatorAnswers:
    return OperatorAnswers().remember([OperatorAnswer(answer, box)])  # type: ignore[arg-type]


def only(decision: SceneDecision) -> Any:
    (verdict,) = decision.verdicts
    return verdict


def metrics_of(verdict: Any) -> set[str]:
    return {reason.subject or reason.code for reason in verdict.reasons}


def test_a_sure_sticker_is_removed_and_every_limit_is_named() -> None:
    decision = judge(assessment(observed()), POLICY)
    assert decision.outcome is Outcome.WORK
    verdict = only(decision)
    assert verdict.verdict is Verdict.REMOVE
    assert not verdict.by_operator
    assert metrics_of(verdict) == {
        "sticker_probability",
        "detection_rate",
        "logo_overlap",
        "object_novelty",
        *METRICS,
    }
    assert decision.removable() == (verdict,)


@pytest.mark.parametrize("metric", METRICS)
def test_each_metric_above_its_limit_asks_and_names_it(metric: str) -> None:
    limit = getattr(POLICY, f"max_{metric}")
    at_limit = judge(assessment(observed(**{metric: limit})), POLICY)
    assert at_limit.outcome is Outcome.WORK
    above = judge(assessment(observed(**{metric: math.nextafter(limit, math.inf)})), POLICY)
    assert above.outcome is Outcome.ASK
    (reason,) = only(above).reasons
    assert (reason.code, reason.subject, reason.limit) == ("above_limit", metric, limit)
    assert reason.value > limit


@pytest.mark.parametrize(
    ("changes", "metric"),
    [
        ({"probabilities": (0.19, 0.02, 0.79)}, "sticker_probability"),
        ({"detection_rate": 0.8}, "sticker_probability"),  # 0.77 over all passes
        ({"duplicated": True}, "detected_twice"),
    ],
)
def test_a_doubtful_sticker_is_asked_about(changes: dict[str, Any], metric: str) -> None:
    decision = judge(assessment(observed(**changes)), POLICY)
    assert decision.outcome is Outcome.ASK
    assert only(decision).verdict is Verdict.ASK
    assert metrics_of(only(decision)) == {metric}


def test_a_limit_on_the_detection_rate_alone_asks_too() -> None:
    seldom = observed(detection_rate=0.65, probabilities=(0.0, 0.0, 1.0))
    decision = judge(assessment(seldom), Policy(min_probability=0.6, min_detection_rate=0.7))
    assert metrics_of(only(decision)) == {"detection_rate"}


def test_what_is_released_as_a_whole_is_released_however_often_a_pass_saw_it() -> None:
    assert judge(assessment(observed(duplicated=True)), Policy()).outcome is Outcome.WORK


def test_without_a_promise_nothing_is_clean_until_an_operator_looked() -> None:
    policy = Policy(clean_without_operator=False)
    decision = judge(assessment(), policy)
    assert (decision.outcome, decision.reasons[0].code) == (Outcome.ASK, "clean_not_promised")
    assert judge(assessment(), policy, OperatorAnswers().checked()).outcome is Outcome.CLEAN


@pytest.mark.parametrize(
    ("probabilities", "verdict"),
    [
        ((0.02, 0.96, 0.02), Verdict.KEEP),
        ((0.0, 0.70001, 0.29999), Verdict.KEEP),  # sure enough, although it might be a sticker
        ((0.15, 0.6, 0.25), Verdict.ASK),  # unsure, and it might be a sticker
        ((0.45, 0.5, 0.05), Verdict.KEEP),  # unsure, but certainly no sticker
    ],
)
def test_a_logo_is_never_removed(probabilities: tuple[float, ...], verdict: Verdict) -> None:
    assert (
        only(judge(assessment(observed(label=ObjectClass.LOGO, probabilities=probabilities)), POLICY)).verdict
        is verdict
    )


@pytest.mark.parametrize(("sticker", "verdict"), [(0.1, Verdict.KEEP), (0.3, Verdict.ASK)])
def test_background_is_asked_about_only_if_it_may_be_a_sticker(sticker: float, verdict: Verdict) -> None:
    thing = observed(label=ObjectClass.BACKGROUND, probabilities=(0.95 - sticker, 0.05, sticker))
    decision = judge(assessment(thing), POLICY)
    assert only(decision).verdict is verdict
    assert decision.outcome is (Outcome.CLEAN if verdict is Verdict.KEEP else Outcome.ASK)


def test_a_sticker_on_a_possible_logo_is_asked_about() -> None:
    inside = (110.0, 110.0, 130.0, 130.0)
    logo = observed(inside, ObjectClass.LOGO)
    decision = judge(assessment(observed(), logo), POLICY)
    assert [v.verdict for v in decision.verdicts] == [Verdict.ASK, Verdict.KEEP]
    assert metrics_of(decision.verdicts[0]) == {"logo_overlap"}
    # an object that is rather something else, but notably a logo, protects its place too
    maybe = observed(inside, ObjectClass.BACKGROUND, (0.7, 0.25, 0.05))
    assert judge(assessment(observed(), maybe), POLICY).verdicts[0].verdict is Verdict.ASK
    # unless a person said that nothing is there
    should_stop = judge(assessment(observed(), maybe), POLICY, said(Answer.NOT_THERE, inside))
    assert should_stop.verdicts[0].verdict is Verdict.REMOVE
    assert judge(assessment(observed(), observed(THERE, ObjectClass.LOGO)), POLICY).outcome is Outcome.WORK


@pytest.mark.parametrize(
    ("thing", "verdict", "outcome"),
    [
        (rarely_seen(passes=5), Verdict.ASK, Outcome.ASK),
        (rarely_seen(passes=4), Verdict.KEEP, Outcome.CLEAN),  # 0.19 over all passes
        (rarely_seen(passes=5, probabilities=(0.6, 0.0, 0.4)), Verdict.KEEP, Outcome.CLEAN),
        (
            rarely_seen(passes=2, label=ObjectClass.LOGO, probabilities=(0.1, 0.8, 0.1)),
            Verdict.KEEP,
            Outcome.CLEAN,
        ),
    ],
)
def test_what_few_passes_saw_is_never_removed(
    thing: ObservedObject, verdict: Verdict, outcome: Outcome
) -> None:
    decision = judge(assessment(unstable=[thing]), POLICY)
    assert only(decision).verdict is verdict
    assert "few_passes" in metrics_of(only(decision))
    assert decision.outcome is outcome


def test_a_sure_sticker_is_removed_before_anybody_is_asked_about_another() -> None:
    decision = judge(assessment(observed(HERE), observed(THERE, duplicated=True)), POLICY)
    assert decision.outcome is Outcome.WORK
    assert [v.object.id for v in decision.removable()] == [0]


@pytest.mark.parametrize("dil", [0.61, 1.0, NAN, None])
def test_unexplained_saliency_stops_everything(dil: float | None) -> None:
    decision = judge(assessment(observed(), dil=dil), POLICY)
    assert decision.outcome is Outcome.ASK
    assert [reason.subject for reason in decision.reasons] == ["dil"] + ["scene_distance"] * (dil is None)
    assert judge(assessment(observed(), dil=dil), POLICY, OperatorAnswers().checked()).outcome is Outcome.WORK
    careless = Policy(max_dil=1.0, max_dil_clean=1.0, unmeasured_novelty="release")
    assert judge(assessment(observed(), dil=dil), careless).outcome is Outcome.WORK


def localized(scene_distance: float) -> Localization:
    return Localization(100.0, 20.0, 0.2, 0.46, None, 0.0, scene_distance=scene_distance)


@pytest.mark.parametrize("objects", [(observed(),), ()])
def test_nothing_is_released_in_a_scene_that_is_unlike_the_training_pictures(
    objects: tuple[Any, ...],
) -> None:
    decision = judge(assessment(*objects, localization=localized(1.3)), Policy(max_scene_distance=1.2))
    assert decision.outcome is Outcome.ASK
    assert [(r.code, r.subject, r.value) for r in decision.reasons] == [
        ("above_limit", "scene_distance", 1.3)
    ]
    near = judge(assessment(*objects, localization=localized(1.1)), Policy(max_scene_distance=1.2))
    assert near.outcome is (Outcome.WORK if objects else Outcome.CLEAN)


def test_a_sticker_that_is_novel_itself_is_asked_about() -> None:
    known, novel = observed(HERE), replace(observed(THERE), novelty=0.8)
    decision = judge(assessment(known, novel), POLICY)
    assert decision.outcome is Outcome.WORK
    assert [v.object.id for v in decision.removable()] == [known.id]
    asked = next(v for v in decision.verdicts if v.verdict is Verdict.ASK)
    assert [r.subject for r in asked.reasons] == ["object_novelty"]
    assert judge(assessment(novel), Policy(max_object_novelty=0.8)).outcome is Outcome.WORK


@pytest.mark.parametrize("objects", [(replace(observed(), novelty=NAN),), ()])
def test_without_novelty_everything_is_asked_unless_the_policy_says_so(objects: tuple[Any, ...]) -> None:
    scene = assessment(*objects, localization=localized(NAN))
    decision = judge(scene, Policy())
    assert decision.outcome is Outcome.ASK
    assert [r.code for r in decision.reasons] == ["no_novelty_network"]
    assert "sticker-uq dil learn" in text_of(decision.reasons[0])
    assert not decision.removable()
    released = judge(scene, Policy(unmeasured_novelty="release")).outcome
    assert released is (Outcome.WORK if objects else Outcome.CLEAN)


def test_an_empty_lid_with_saliency_is_not_clean() -> None:
    assert judge(assessment(dil=0.5), POLICY).outcome is Outcome.CLEAN
    assert judge(assessment(dil=0.55), POLICY).outcome is Outcome.ASK
    assert judge(assessment(dil=0.55), POLICY, OperatorAnswers().checked()).outcome is Outcome.CLEAN


def test_faint_saliency_is_clean_whatever_its_ratio() -> None:
    policy = Policy(max_dil=1.0, max_dil_clean=0.5, max_background_saliency=1e-3)
    pixels = 640 * 480
    faint = assessment(dil=1.0)
    assert faint.localization is not None
    assert 100.0 / pixels < policy.max_background_saliency
    assert judge(faint, policy).outcome is Outcome.CLEAN
    strong = replace(faint, localization=replace(faint.localization, background_localization=1e-2 * pixels))
    assert judge(strong, policy).outcome is Outcome.ASK
    unmeasured = replace(
        faint, localization=replace(faint.localization, dil=NAN, background_localization=0.0)
    )
    assert judge(unmeasured, policy).outcome is Outcome.ASK
    assert judge(faint, Policy(max_dil=1.0)).outcome is Outcome.ASK


@pytest.mark.parametrize("status", [Status.UNKNOWN, Status.FAILED])
def test_a_failed_scene_is_blocked_whatever_it_holds(status: Status) -> None:
    decision = judge(
        assessment(observed(), status=status, status_text="no image"), POLICY, said(Answer.REMOVE)
    )
    assert decision.outcome is Outcome.BLOCKED
    assert decision.removable() == ()
    assert decision.reasons == (Reason.of("perception_failed", detail="no image"),)


def test_a_restricted_scene_is_judged_and_says_so() -> None:
    decision = judge(assessment(observed(), status=Status.DEGRADED, status_text="dim"), POLICY)
    assert decision.outcome is Outcome.WORK
    assert decision.reasons == (Reason.of("perception_restricted", detail="dim"),)


def test_a_person_decides_about_uncertain_objects() -> None:
    scene = assessment(observed(shannon_entropy=1.5))
    assert only(judge(scene, POLICY)).verdict is Verdict.ASK
    for answer, verdict, outcome in [
        (Answer.REMOVE, Verdict.REMOVE, Outcome.WORK),
        (Answer.KEEP, Verdict.KEEP, Outcome.CLEAN),
        (Answer.NOT_THERE, Verdict.KEEP, Outcome.CLEAN),
        (Answer.MISSED, Verdict.REMOVE, Outcome.WORK),
    ]:
        decision = judge(scene, POLICY, said(answer))
        assert (only(decision).verdict, decision.outcome) == (verdict, outcome)
        assert only(decision).by_operator


def test_a_logo_is_removed_only_after_an_answer_about_itself() -> None:
    scene = assessment(observed(label=ObjectClass.LOGO))
    assert only(judge(scene, POLICY, said(Answer.REMOVE))).verdict is Verdict.REMOVE
    assert only(judge(scene, POLICY, said(Answer.MISSED))).verdict is Verdict.ASK
    assert only(judge(scene, POLICY, said(Answer.REMOVE, THERE))).verdict is Verdict.KEEP


def test_one_approval_covers_one_object() -> None:
    shifted = (110.0, 105.0, 190.0, 165.0)
    logo = observed(shifted, ObjectClass.LOGO)
    decision = judge(assessment(logo, observed(duplicated=True)), POLICY, said(Answer.REMOVE))
    assert [v.verdict for v in decision.verdicts] == [Verdict.KEEP, Verdict.REMOVE]


def test_an_object_between_two_opposite_answers_is_asked_about() -> None:
    between = (99.0, 100.0, 177.0, 160.0)
    # both answers fit the object in between, but not one another
    memory = OperatorAnswers().remember([OperatorAnswer(Answer.KEEP, (85.0, 100.0, 150.0, 160.0))])
    memory = memory.remember([OperatorAnswer(Answer.REMOVE, (120.0, 100.0, 190.0, 160.0))])
    assert len(memory.answers) == 2
    assert only(judge(assessment(observed(between)), POLICY, memory)).verdict is Verdict.ASK


def test_a_drawn_sticker_is_removed_until_the_detector_sees_it_itself() -> None:
    decision = judge(assessment(observed(HERE, ObjectClass.LOGO)), POLICY, said(Answer.MISSED, ELSEWHERE))
    assert decision.outcome is Outcome.WORK
    (drawn,) = decision.removable()
    assert drawn.by_operator
    assert drawn.object.id == 1
    assert drawn.object.box.tolist() == list(ELSEWHERE)
    assert drawn.object.detections == 0
    seen_now = judge(assessment(observed(ELSEWHERE)), POLICY, said(Answer.MISSED, ELSEWHERE))
    assert only(seen_now).object.detections == 20


def test_a_person_may_say_that_no_sticker_is_left() -> None:
    decision = judge(
        assessment(observed(), observed(THERE, duplicated=True), dil=0.9), POLICY, OperatorAnswers().clean()
    )
    assert decision.outcome is Outcome.CLEAN
    assert all(v.verdict is Verdict.KEEP and v.by_operator for v in decision.verdicts)


def test_the_decision_names_what_it_rests_on() -> None:
    scene = assessment(observed())
    decision = judge(scene, POLICY, workpiece_id="laptop-1")
    assert (decision.stamp_ns, decision.frame_id) == (scene.stamp_ns, scene.frame_id)
    assert (decision.model_hash, decision.policy_hash) == (scene.model_hash, POLICY.hash)
    assert decision.workpiece_id == "laptop-1"
    assert decision.decision_id == judge(scene, POLICY, workpiece_id="laptop-1").decision_id
    others = {
        judge(scene, POLICY, workpiece_id="laptop-2").decision_id,
        judge(scene, Policy(max_dil=0.7), workpiece_id="laptop-1").decision_id,
        judge(scene, POLICY, said(Answer.KEEP), "laptop-1").decision_id,
        judge(replace(scene, stamp_ns=scene.stamp_ns + 1), POLICY, workpiece_id="laptop-1").decision_id,
    }
    assert len(others | {decision.decision_id}) == 5


# --- properties -------------------------------------------------------------------------------------------------------------

levels = st.floats(0, 1.6)
units = st.floats(0, 1)
sometimes_nan = st.floats(0, 2) | st.just(NAN)
places = st.sampled_from([HERE, (120.0, 110.0, 200.0, 170.0), (110.0, 110.0, 130.0, 130.0), THERE])


@st.composite
def objects(draw: st.DrawFn, metrics: st.SearchStrategy[float] = levels) -> ObservedObject:
    weights = np.array([draw(units), draw(units), draw(units)]) + 1e-3
    probabilities = (weights / weights.sum()).astype(np.float32)
    label = ObjectClass(int(probabilities.argmax()))
    values = {name: draw(metrics) / (10 if name.startswith("relative") else 1) for name in METRICS}
    rate = draw(units)
    return observed(
        draw(places),
        label,
        probabilities.tolist(),
        detection_rate=rate,
        duplicated=draw(st.booleans()),
        **values,
    )


@st.composite
def scenes(draw: st.DrawFn, metrics: st.SearchStrategy[float] = levels) -> SceneAssessment:
    return assessment(
        *draw(st.lists(objects(metrics), max_size=4)),
        unstable=[
            replace(o, unstable=True, **dict.fromkeys(METRICS, NAN))
            for o in draw(st.lists(objects(), max_size=2))
        ],
        dil=draw(units | st.just(NAN) | st.none()),
    )


def allowed(decision: SceneDecision) -> set[int]:
    """The objects that may be removed now."""
    return {v.object.id for v in decision.removable()} if decision.outcome is Outcome.WORK else set()


@given(scenes(), st.data())
def test_more_doubt_never_allows_more(scene: SceneAssessment, data: st.DataObject) -> None:
    assume(scene.objects)
    index = data.draw(st.integers(0, len(scene.objects) - 1))
    changed = scene.objects[index]
    for metric in data.draw(st.sets(st.sampled_from(METRICS))):
        more = data.draw(st.floats(0, 1.6) | st.just(NAN))
        changed = replace(changed, **{metric: getattr(changed, metric) + more})
    changed = replace(changed, detection_rate=changed.detection_rate * data.draw(units))
    changed = replace(changed, duplicated=changed.duplicated or data.draw(st.booleans()))
    worse = replace(scene, objects=(*scene.objects[:index], changed, *scene.objects[index + 1 :]))
    if scene.localization is not None:
        dil = min(1.0, scene.localization.dil + data.draw(units))
        worse = replace(worse, localization=replace(scene.localization, dil=dil))
    before, after = judge(scene, POLICY), judge(worse, POLICY)
    assert allowed(after) <= allowed(before)
    for v_before, v_after in zip(before.verdicts, after.verdicts, strict=True):
        assert not (v_before.verdict is not Verdict.REMOVE and v_after.verdict is Verdict.REMOVE)


@given(scenes(sometimes_nan))
def test_without_a_person_only_sure_stable_stickers_are_removed(scene: SceneAssessment) -> None:
    decision = judge(scene, POLICY)
    for verdict in decision.removable():
        thing = verdict.object
        assert thing.label is ObjectClass.STICKER
        assert not thing.unstable
        assert not thing.duplicated
        assert thing.score >= POLICY.min_probability
        assert all(getattr(thing, name) <= getattr(POLICY, f"max_{name}") for name in METRICS)
    assert len(decision.verdicts) == len(scene.objects) + len(scene.unstable)
    assert all(verdict.reasons for verdict in decision.verdicts)
    if decision.outcome is Outcome.CLEAN:
        assert all(verdict.verdict is Verdict.KEEP for verdict in decision.verdicts)


@given(
    st.sampled_from((*METRICS, "detection_rate", "box", "probabilities")),
    st.sampled_from([NAN, math.inf, -math.inf]),
)
def test_a_number_that_is_none_is_never_removed(field: str, value: float) -> None:
    assume(
        not (field in METRICS and value == -math.inf)
        and not (field == "detection_rate" and value == math.inf)
    )
    thing = observed()
    if field in ("box", "probabilities"):
        array = getattr(thing, field).copy()
        array[-1] = value
        broken = replace(thing, **{field: array})
    else:
        broken = replace(thing, **{field: value})
    decision = judge(assessment(broken), POLICY)
    assert decision.outcome is Outcome.ASK
    assert only(decision).verdict is Verdict.ASK


@given(scenes(), st.lists(st.tuples(st.sampled_from([Answer.KEEP, Answer.NOT_THERE]), places), max_size=3))
def test_answers_to_leave_things_alone_never_touch_what_they_name(
    scene: SceneAssessment, answers: list[tuple[Answer, Any]]
) -> None:
    memory = OperatorAnswers().remember(OperatorAnswer(answer, box) for answer, box in answers)
    for verdict in judge(scene, POLICY, memory).removable():
        assert memory.against(tuple(map(float, verdict.object.box))) is None  # type: ignore[arg-type]
