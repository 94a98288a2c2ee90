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
    ObjectClass,
    ObservedObject,
    Outcome,
    Reason,
    SceneAssessment,
    SceneDecision,
    Status,
    Verdict,
)
from sticker_uq.testing.scenes import ELSEWHERE, EVERY_LIMIT, HERE, THERE, assessment, object_at, rarely_seen

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
    return OperatorAnswers().remember([OperatorAnswer(answer, box)])


def only(decision: SceneDecision) -> Any:
    (verdict,) = decision.verdicts
    return verdict


def metrics_of(verdict: Any) -> set[str]:
    return {reason.subject or reason.code for reason in verdict.reasons}


REMOVE, KEEP, ASK = Verdict.REMOVE, Verdict.KEEP, Verdict.ASK
WORK, CLEAN, QUESTION = Outcome.WORK, Outcome.CLEAN, Outcome.ASK
INSIDE = (110.0, 110.0, 130.0, 130.0)
CHECKED = OperatorAnswers().with_scene_checked()
LOGO = object_at(label=ObjectClass.LOGO)
MAYBE_LOGO = object_at(INSIDE, ObjectClass.BACKGROUND, (0.7, 0.25, 0.05))
TWICE = object_at(duplicated=True)
SELDOM = object_at(detection_rate=0.65, probabilities=(0.0, 0.0, 1.0))
EVERY_REASON = {"sticker_probability", "detection_rate", "logo_overlap", "object_novelty", *METRICS}


def logo_of(*probabilities: float) -> ObservedObject:
    return object_at(label=ObjectClass.LOGO, probabilities=probabilities)


def lid_of(sticker: float) -> ObservedObject:
    return object_at(label=ObjectClass.BACKGROUND, probabilities=(0.95 - sticker, 0.05, sticker))


def rare(passes: int, **changes: Any) -> dict[str, Any]:
    return {"unstable": [rarely_seen(passes=passes, **changes)]}


# objects, what else the scene has; verdicts, outcome, why the first object is judged so; with which answers or policy
OBJECTS: dict[str, tuple[list[ObservedObject], dict[str, Any], list[Verdict], Outcome, Any, Any]] = {
    "sure": ([object_at()], {}, [REMOVE], WORK, EVERY_REASON, None),
    "improbable": ([object_at(probabilities=(0.19, 0.02, 0.79))], {}, [ASK], QUESTION, {"sticker_probability"}, None),
    "0.77 over all passes": ([object_at(detection_rate=0.8)], {}, [ASK], QUESTION, {"sticker_probability"}, None),
    "seen twice": ([TWICE], {}, [ASK], QUESTION, {"detected_twice"}, None),
    "seen twice, allowed": ([TWICE], {}, [REMOVE], WORK, None, Policy()),
    "seldom": ([SELDOM], {}, [ASK], QUESTION, {"detection_rate"}, Policy(min_probability=0.6, min_detection_rate=0.7)),
    "one of two is sure": ([object_at(), object_at(THERE, duplicated=True)], {}, [REMOVE, ASK], WORK, None, None),
    "novel": ([replace(object_at(), novelty=0.8)], {}, [ASK], QUESTION, {"object_novelty"}, None),
    "novel, allowed": ([replace(object_at(), novelty=0.8)], {}, [REMOVE], WORK, None, Policy(max_object_novelty=0.8)),
    "novel, unlimited": ([replace(object_at(), novelty=0.8)], {}, [REMOVE], WORK, None, Policy(max_object_novelty=1.0)),
    # logos, and what lies on them
    "logo": ([logo_of(0.02, 0.96, 0.02)], {}, [KEEP], CLEAN, None, None),
    "sure enough, although it might be a sticker": ([logo_of(0.0, 0.70001, 0.29999)], {}, [KEEP], CLEAN, None, None),
    "unsure, and it might be a sticker": ([logo_of(0.15, 0.6, 0.25)], {}, [ASK], QUESTION, None, None),
    "unsure, but certainly no sticker": ([logo_of(0.45, 0.5, 0.05)], {}, [KEEP], CLEAN, None, None),
    "lid": ([lid_of(0.1)], {}, [KEEP], CLEAN, None, None),
    "lid or sticker": ([lid_of(0.3)], {}, [ASK], QUESTION, None, None),
    "on a logo": ([object_at(), object_at(INSIDE, ObjectClass.LOGO)], {}, [ASK, KEEP], QUESTION, {"logo_overlap"}, None),
    "beside a logo": ([object_at(), object_at(THERE, ObjectClass.LOGO)], {}, [REMOVE, KEEP], WORK, None, None),
    "on what is rather something else": ([object_at(), MAYBE_LOGO], {}, [ASK, KEEP], QUESTION, None, None),
    "on what a person says is not there": (
        [object_at(), MAYBE_LOGO], {}, [REMOVE, KEEP], WORK, None, said(Answer.NOT_THERE, INSIDE)
    ),
    # what few passes saw
    "5 passes": ([], rare(5), [ASK], QUESTION, {"few_passes"}, None),
    "0.19 over all passes": ([], rare(4), [KEEP], CLEAN, {"few_passes"}, None),
    "5 passes, rather lid": ([], rare(5, probabilities=(0.6, 0.0, 0.4)), [KEEP], CLEAN, {"few_passes"}, None),
    "2 passes, logo": (
        [], rare(2, label=ObjectClass.LOGO, probabilities=(0.1, 0.8, 0.1)), [KEEP], CLEAN, {"few_passes"}, None
    ),
    # what a person says
    "remove": ([object_at(shannon_entropy=1.5)], {}, [REMOVE], WORK, None, said(Answer.REMOVE)),
    "keep": ([object_at(shannon_entropy=1.5)], {}, [KEEP], CLEAN, None, said(Answer.KEEP)),
    "not there": ([object_at(shannon_entropy=1.5)], {}, [KEEP], CLEAN, None, said(Answer.NOT_THERE)),
    "drawn": ([object_at(shannon_entropy=1.5)], {}, [REMOVE], WORK, None, said(Answer.MISSED)),
    "remove the logo": ([LOGO], {}, [REMOVE], WORK, None, said(Answer.REMOVE)),
    "drawn on a logo": ([LOGO], {}, [ASK], QUESTION, None, said(Answer.MISSED)),
    "remove something else": ([LOGO], {}, [KEEP], CLEAN, None, said(Answer.REMOVE, THERE)),
    "one approval, two objects": (
        [object_at((110.0, 105.0, 190.0, 165.0), ObjectClass.LOGO), TWICE], {}, [KEEP, REMOVE], WORK, None,
        said(Answer.REMOVE),
    ),
    # both answers fit the object in between, but not one another
    "between two answers": (
        [object_at((99.0, 100.0, 177.0, 160.0))], {}, [ASK], QUESTION, None,
        said(Answer.KEEP, (85.0, 100.0, 150.0, 160.0)).remember(
            [OperatorAnswer(Answer.REMOVE, (120.0, 100.0, 190.0, 160.0))]
        ),
    ),
    "no sticker is left": (
        [object_at(), object_at(THERE, duplicated=True)], {"dil": 0.9}, [KEEP, KEEP], CLEAN, None, OperatorAnswers().clean()
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OBJECTS)
def test_every_object_has_its_verdict(name):
    things, changes, verdicts, outcome, why, given_ = OBJECTS[name]
    answers = given_ if isinstance(given_, OperatorAnswers) else OperatorAnswers()
    policy = given_ if isinstance(given_, Policy) else POLICY
    decision = judge(assessment(*things, **changes), policy, answers)
    assert [v.verdict for v in decision.verdicts] == verdicts
    assert decision.outcome is outcome
    named = metrics_of(decision.verdicts[0])
    assert why is None or named == why or (why == {"few_passes"} and why <= named)
    assert decision.removable() == tuple(v for v in decision.verdicts if v.verdict is REMOVE)
    by_operator = [v.by_operator for v in decision.verdicts]
    assert any(by_operator) <= isinstance(given_, OperatorAnswers)
    assert all(by_operator) or name not in ("remove", "keep", "not there", "drawn", "no sticker is left")


@pytest.mark.parametrize("metric", METRICS)
def test_each_metric_above_its_limit_asks_and_names_it(metric):
    limit = getattr(POLICY, f"max_{metric}")
    assert judge(assessment(object_at(**{metric: limit})), POLICY).outcome is WORK
    above = judge(assessment(object_at(**{metric: math.nextafter(limit, math.inf)})), POLICY)
    assert above.outcome is QUESTION
    (reason,) = only(above).reasons
    assert (reason.code, reason.subject, reason.limit) == ("above_limit", metric, limit)
    assert reason.value > limit


CARELESS = Policy(max_dil=1.0, max_dil_clean=1.0, unmeasured_novelty="release")
FAR, NOWHERE = {"scene_distance": 1.3}, {"scene_distance": NAN}


@pytest.mark.parametrize(
    ("changes", "policy", "subjects"),
    [
        ({"dil": 0.61}, POLICY, ["dil"]),
        ({"dil": 1.0}, POLICY, ["dil"]),
        ({"dil": NAN}, POLICY, ["dil"]),
        ({"dil": None}, POLICY, ["dil"]),
        ({"dil": None, **NOWHERE}, POLICY, ["dil", "scene_distance"]),
        ({"dil": None, **FAR}, Policy(max_dil=1.0, max_dil_clean=1.0), ["scene_distance"]),
        ({"dil": 1.0}, CARELESS, []),
        ({"dil": None}, CARELESS, []),
        (FAR, Policy(max_scene_distance=1.2), ["scene_distance"]),
        ({"scene_distance": 1.1}, Policy(max_scene_distance=1.2), []),
        (NOWHERE, Policy(), ["scene_distance"]),
        (NOWHERE, Policy(unmeasured_novelty="release"), []),
    ],
)
def test_a_doubt_about_the_scene_stops_everything_until_a_person_looked(changes, policy, subjects):
    for things, released in (((object_at(),), WORK), ((), CLEAN)):
        scene = assessment(*things, **changes)
        decision = judge(scene, policy)
        assert [reason.subject for reason in decision.reasons] == subjects
        assert decision.outcome is (QUESTION if subjects else released)
        assert judge(scene, policy, CHECKED).outcome is released


def test_without_novelty_it_is_said_how_to_measure_it():
    for dil in (0.1, None):
        *_, reason = judge(assessment(dil=dil, **NOWHERE), Policy()).reasons
        assert (reason.code, reason.subject) == ("no_novelty_network", "scene_distance")
        assert "sticker-uq dil learn" in text_of(reason)


def test_what_is_not_clean_until_an_operator_looked():
    assert judge(assessment(dil=0.5), POLICY).outcome is CLEAN
    assert judge(assessment(dil=0.55), POLICY).outcome is QUESTION
    decision = judge(assessment(), Policy(clean_without_operator=False))
    assert (decision.outcome, decision.reasons[0].code) == (QUESTION, "clean_not_promised")
    assert judge(assessment(), Policy(clean_without_operator=False), CHECKED).outcome is CLEAN


def test_faint_saliency_is_clean_whatever_its_ratio():
    policy = Policy(max_dil=1.0, max_dil_clean=0.5, max_background_saliency=1e-3)
    faint = assessment(dil=1.0)
    assert faint.localization is not None
    assert judge(faint, policy).outcome is CLEAN
    for changes in (
        {"background_localization": 1e-2 * 640 * 480},
        {"dil": NAN, "background_localization": 0.0},
    ):
        changed = replace(faint, localization=replace(faint.localization, **changes))
        assert judge(changed, policy).outcome is QUESTION
    assert judge(faint, Policy(max_dil=1.0)).outcome is QUESTION


@pytest.mark.parametrize("status", [Status.UNKNOWN, Status.FAILED])
def test_a_failed_scene_is_blocked_whatever_it_holds_and_a_restricted_one_judged(status):
    scene = assessment(object_at(), status=status, status_text="no image")
    decision = judge(scene, POLICY, said(Answer.REMOVE))
    assert (decision.outcome, decision.removable()) == (Outcome.BLOCKED, ())
    assert decision.reasons == (Reason.of("perception_failed", detail="no image"),)
    restricted = judge(replace(scene, status=Status.DEGRADED, status_text="dim"), POLICY)
    assert (restricted.outcome, restricted.reasons) == (
        WORK,
        (Reason.of("perception_restricted", detail="dim"),),
    )


def test_the_blade_stays_inside_by_the_margin_of_the_policy_even_where_a_person_drew_the_box():
    decision = judge(assessment(object_at()), Policy(blade_margin=0.2), said(Answer.MISSED, ELSEWHERE))
    for verdict in decision.removable():
        x1, y1, x2, y2 = verdict.object.box
        width, height = x2 - x1, y2 - y1
        inside = [x1 + 0.2 * width, y1 + 0.2 * height, x2 - 0.2 * width, y2 - 0.2 * height]
        assert verdict.region.tolist() == pytest.approx(inside)


def test_a_drawn_sticker_is_removed_until_the_detector_sees_it_itself():
    decision = judge(assessment(LOGO), POLICY, said(Answer.MISSED, ELSEWHERE))
    assert decision.outcome is WORK
    (drawn,) = decision.removable()
    assert drawn.by_operator
    assert (drawn.object.id, drawn.object.box.tolist(), drawn.object.detections) == (1, list(ELSEWHERE), 0)
    seen_now = judge(assessment(object_at(ELSEWHERE)), POLICY, said(Answer.MISSED, ELSEWHERE))
    assert only(seen_now).object.detections == 20


def test_the_decision_names_what_it_rests_on():
    scene = assessment(object_at())
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
    return object_at(
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
def test_more_doubt_never_allows_more(scene, data):
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
def test_without_a_person_only_sure_stable_stickers_are_removed(scene):
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
def test_a_number_that_is_none_is_never_removed(field, value):
    assume(
        not (field in METRICS and value == -math.inf)
        and not (field == "detection_rate" and value == math.inf)
    )
    thing = object_at()
    if field in ("box", "probabilities"):
        array = getattr(thing, field).copy()
        array[-1] = value
        broken = replace(thing, **{field: array})
    else:
        broken = replace(thing, **{field: value})
    decision = judge(assessment(broken), POLICY)
    assert decision.outcome is Outcome.ASK
    assert only(decision).verdict is Verdict.ASK
