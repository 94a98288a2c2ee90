# SPDX-License-Identifier: Apache-2.0
"""The sections that `sticker-uq calibrate` writes: calibration, one risk score, its limit, and what the policy was made for."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.gate import GateController, Policy, judge
from sticker_uq.gate import events as ev
from sticker_uq.gate.policy.policy_schema import Calibration, Isotonic, RiskScore, Temperature
from sticker_uq.gate.policy.rules import judge_object
from sticker_uq.gate.policy.signals import SIGNALS, object_signals, scene_saliency
from sticker_uq.gate.state import BlockReason
from sticker_uq.scene import InvalidInput, MonitorScore, ObjectClass, Outcome, Verdict
from sticker_uq.testing.scenes import START, assessment, object_at, rarely_seen

RISK = {
    "intercept": -6.0,
    "terms": [
        {"signal": "improbability", "knots": [0.0, 0.1, 0.5], "log_odds": [0.0, 2.0, 6.0]},
        {"signal": "shannon_entropy", "knots": [0.1, 1.0], "log_odds": [0.0, 3.0]},
        {"signal": "dil", "knots": [0.2, 0.9], "log_odds": [0.0, 2.0]},
    ],
    "max_removal": 0.02,
}
HALVED = {"kind": "isotonic", "x": [0.0, 1.0], "y": [0.0, 0.5]}
SAME = {"kind": "isotonic", "x": [0.0, 1.0], "y": [0.0, 1.0]}
POLICY = Policy.model_validate({"max_dil": 1.0, "max_dil_clean": 1.0})


def with_sections(**sections: Any) -> Policy:
    return Policy.model_validate(POLICY.model_dump() | sections)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("risk: {intercept: 0, max_removal: 2, terms: []}", r"risk\.max_removal = 2"),
        (
            "risk: {intercept: 0, max_removal: 1, terms: [{signal: speed, knots: [0], log_odds: [0]}]}",
            r"risk\.terms\.0\.signal",
        ),
        (
            "risk: {intercept: 0, max_removal: 1, terms: [{signal: dil, knots: [0, 1], log_odds: [1, 0]}]}",
            "log_odds must not decrease",
        ),
        (
            "risk: {intercept: 0, max_removal: 1, terms: [{signal: dil, knots: [1, 0], log_odds: [0, 1]}]}",
            "knots must ascend",
        ),
        (
            "risk: {intercept: 0, max_removal: 1, terms: [{signal: dil, knots: [0, 1], log_odds: [0]}]}",
            "expected as many",
        ),
        (
            "left: {intercept: 0, terms: [{signal: dil, knots: [0], log_odds: [0]}]}",
            r"left\.terms\.0\.signal",
        ),
        ("saliency: {signal: loudness}", r"saliency\.signal = 'loudness'"),
        ("validity: {until: soon}", r"validity\.until = 'soon'"),
    ],
)
def test_a_bad_section_is_refused_with_its_place(tmp_path, section, message):
    path = tmp_path / "policy.yaml"
    path.write_text(section)
    with pytest.raises(InvalidInput, match=message):
        Policy.load(path)


def test_a_sticker_is_removed_up_to_the_limit_of_its_risk():
    policy = with_sections(risk=RISK)
    assert policy.risk is not None
    thing = object_at(shannon_entropy=0.4)
    scene = assessment(thing, dil=0.1)
    risk = policy.risk(object_signals(scene.objects[0], scene))
    # by hand: 0.04 improbable adds 0.8, entropy 0.4 of 0.1..1.0 adds 1.0, DiL nothing
    assert risk == pytest.approx(1 / (1 + math.exp(6.0 - 0.8 - 1.0)), rel=1e-6)
    decision = judge(assessment(thing), policy)
    assert decision.outcome is Outcome.WORK
    assert any(r.subject == "risk" and r.value == risk for r in decision.verdicts[0].reasons)
    strict = with_sections(risk=RISK | {"max_removal": risk - 1e-9})
    refused = judge(assessment(thing), strict).verdicts[0]
    assert refused.verdict is Verdict.ASK
    assert [r.subject for r in refused.reasons] == ["risk"]


@pytest.mark.parametrize("dil", [None, math.nan])
def test_a_risk_that_needs_a_signal_that_is_missing_removes_nothing(dil):
    verdict = judge(assessment(object_at(), dil=dil), with_sections(risk=RISK)).verdicts[0]
    assert verdict.verdict is Verdict.ASK
    assert math.isnan(next(r.value for r in verdict.reasons if r.subject == "risk"))


amounts = st.floats(0, 2)


@given(st.dictionaries(st.sampled_from(SIGNALS), amounts), st.sampled_from(SIGNALS), amounts)
def test_the_risk_grows_with_every_signal(values, name, more):
    terms = [{"signal": each, "knots": [0.0, 0.3, 1.0], "log_odds": [0.0, 0.5, 1.0]} for each in SIGNALS]
    risk = RiskScore.model_validate({"intercept": -4.0, "terms": terms, "max_removal": 0.1})
    signals = dict.fromkeys(SIGNALS, 0.2) | values
    assert risk(signals | {name: signals[name] + more}) >= risk(signals)
    assert math.isnan(risk(signals | {name: math.inf}))
    del signals[name]
    assert math.isnan(risk(signals))


def test_the_signals_of_an_object_in_its_scene():
    beside = object_at((170.0, 100.0, 200.0, 160.0))  # shares a third of itself with the first
    scene = assessment(
        object_at(detection_rate=0.75, single_pass=0.9, close_up=0.8),
        unstable=[rarely_seen((90, 90, 95, 95))],
        dil=0.3,
    )
    crowded = assessment(object_at(), beside)
    signals = object_signals(scene.objects[0], scene)
    assert set(signals) == set(SIGNALS)
    assert signals["missed_passes"] == pytest.approx(0.25)
    assert signals["improbability"] == pytest.approx(0.28)
    assert signals["single_pass_improbability"] == pytest.approx(0.1)
    assert signals["close_up_improbability"] == pytest.approx(0.2)
    assert (signals["crowding"], signals["dil"]) == (0.0, 0.3)
    assert object_signals(crowded.objects[0], crowded)["crowding"] == pytest.approx(1 / 3)
    assert object_signals(crowded.objects[0], crowded)["logo_overlap"] == pytest.approx(0.02 / 3)
    between = object_at((150.0, 100.0, 190.0, 160.0), probabilities=(0.3, 0.1, 0.6))
    gap = assessment(*crowded.objects, between)
    # 100..180 and 170..200 are surer, so that all of 150..190 is theirs, and nothing of theirs is its
    assert object_signals(between, gap)["surer_overlap"] == pytest.approx(1.0)
    assert object_signals(gap.objects[0], gap)["surer_overlap"] == 0.0


def test_a_sticker_seen_twice_may_be_left_to_the_risk_score():
    twice = assessment(object_at(duplicated=True))
    assert judge(twice, with_sections(risk=RISK, ask_duplicated=True)).outcome is Outcome.ASK
    term = {"signal": "duplicated", "knots": [0, 1], "log_odds": [0, 3]}
    risk = RISK | {"terms": [term], "max_removal": 0.04}
    assert judge(twice, with_sections(risk=risk)).outcome is Outcome.ASK
    risk |= {"max_removal": 0.05}  # exp(-6 + 3) is 0.0498
    assert judge(twice, with_sections(risk=risk)).outcome is Outcome.WORK


def test_limits_on_probabilities_mean_calibrated_ones():
    policy = with_sections(calibration={"logo": SAME, "sticker": HALVED})
    assert judge(assessment(object_at()), POLICY).outcome is Outcome.WORK
    verdict = judge(assessment(object_at()), policy).verdicts[0]
    assert verdict.verdict is Verdict.ASK
    assert verdict.reasons[0].value == pytest.approx(0.48)
    assert verdict.object.score == pytest.approx(0.96)
    # an object seen in few passes has no calibrated probability
    rare = judge(assessment(unstable=[rarely_seen()]), policy).verdicts[0]
    assert any(r.value == pytest.approx(0.096) for r in rare.reasons)


@given(st.floats(0, 1), st.floats(0, 1), st.sampled_from(["isotonic", "temperature"]))
def test_calibrated_probabilities_stay_probabilities(share, sticker, kind):
    isotonic = Isotonic(x=(0.1, 0.5, 0.9), y=(0.2, 0.6, 0.97))
    made = Temperature(temperature=2.5) if kind == "temperature" else isotonic
    given_ = np.array([0.0, (1 - sticker) * share, sticker])
    given_[0] = max(0.0, 1 - given_.sum())
    result = Calibration(logo=made, sticker=made)(given_)
    assert result.sum() == pytest.approx(1.0)
    assert (result >= 0).all()
    assert np.isnan(Calibration(logo=made, sticker=made)(np.array([0.2, np.nan, 0.5]))).all()


def test_temperature_scaling_divides_the_log_odds():
    assert Temperature(temperature=2.0)(0.9) == pytest.approx(0.75)
    assert Temperature(temperature=2.0)(1.0) == 1.0


def test_the_policy_names_the_signal_of_the_scene_that_it_limits():
    scene = assessment(dil=0.9)  # BL is 90 on 640 x 480 pixels
    amount = 90.0 / (640 * 480)
    assert scene_saliency(scene, "background_saliency") == pytest.approx(amount)
    loud = with_sections(saliency={"signal": "background_saliency", "max_clean": amount * 0.9})
    quiet = with_sections(saliency={"signal": "background_saliency", "max_clean": amount * 1.1})
    assert judge(scene, quiet).outcome is Outcome.CLEAN
    decision = judge(scene, loud)
    assert decision.outcome is Outcome.ASK
    assert [r.subject for r in decision.reasons] == ["background_saliency"]
    # it stands in place of max_dil and max_dil_clean
    assert judge(scene, Policy()).outcome is Outcome.ASK
    both = {"signal": "dil", "max_removal": 0.8}
    assert judge(assessment(object_at(), dil=0.9), with_sections(saliency=both)).outcome is Outcome.ASK
    assert judge(assessment(dil=None), quiet).outcome is Outcome.ASK


@pytest.mark.parametrize(
    ("probability", "close_up", "verdict"),
    [
        (0.9, math.nan, Verdict.REMOVE),
        (0.9, 1.0, Verdict.REMOVE),
        (0.5, 0.0, Verdict.ASK),
        (0.38, 0.0, Verdict.KEEP),
        (0.38, math.nan, Verdict.ASK),
        (0.1, math.nan, Verdict.KEEP),
        (0.1, 0.9, Verdict.ASK),
    ],
)
def test_a_close_up_may_count_in_whether_something_may_be_a_sticker(probability, close_up, verdict):
    one = object_at(probabilities=(0.95 - probability, 0.05, probability), close_up=close_up)
    one = replace(one, label=ObjectClass(int(np.argmax(one.probabilities))))
    policy = Policy(min_probability=0.6, notable_probability=0.2, close_up_weight=0.5)
    assert judge_object(one, [], policy)[0] is verdict


@pytest.mark.parametrize(
    ("weight", "monitors", "verdict"),
    [
        (0.5, (), Verdict.REMOVE),
        (0.0, (), Verdict.ASK),
        (0.5, (MonitorScore("calm", 0.0, 1.0),), Verdict.ASK),  # calm about background
    ],
)
def test_a_sticker_by_its_close_up_alone_is_one_where_close_ups_count_and_no_panel_judged_it(
    weight, monitors, verdict
):
    one = object_at(probabilities=(0.55, 0.05, 0.4), close_up=0.9, monitors=monitors)
    policy = Policy(min_probability=0.35, notable_probability=0.2, close_up_weight=weight)
    found, reasons = judge_object(one, [], policy)
    assert found is verdict
    assert verdict is Verdict.REMOVE or [r.code for r in reasons] == ["possible_sticker"]


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_a_sticker_that_was_not_seen_closely_is_never_left_alone(weight):
    one = object_at(probabilities=(0.9, 0.05, 0.05))
    policy = Policy(min_probability=0.35, notable_probability=0.1, close_up_weight=weight)
    assert judge_object(one, [], policy)[0] is Verdict.ASK
    assert judge_object(replace(one, close_up=0.05), [], policy)[0] is Verdict.KEEP


def test_a_scene_with_a_possible_sticker_left_is_not_clean():
    logo = object_at(label=ObjectClass.LOGO, probabilities=(0.02, 0.83, 0.15))
    assert judge(assessment(logo), POLICY).outcome is Outcome.CLEAN
    assert judge(assessment(logo), with_sections(max_left_probability=0.151)).outcome is Outcome.CLEAN
    decision = judge(assessment(logo), with_sections(max_left_probability=0.14))
    assert decision.outcome is Outcome.ASK
    assert [r.subject for r in decision.reasons] == ["left_probability"]


LEFT = {
    "intercept": -4.0,
    "terms": [
        {"signal": "any_sticker", "knots": [0.0, 0.5], "log_odds": [0.0, 3.0]},
        {"signal": "missed_sticker_probability", "knots": [0.1, 0.9], "log_odds": [0.0, 5.0]},
    ],
}


def left_on(*objects, missed=math.nan):
    scene = assessment(*objects)
    assert scene.localization is not None
    return replace(scene, localization=replace(scene.localization, missed_sticker_probability=missed))


def test_what_tells_that_a_sticker_is_left_is_combined_where_the_policy_says_how():
    logos = [object_at(label=ObjectClass.LOGO, probabilities=(0.02, 0.83, 0.15)) for _ in range(3)]
    policy = with_sections(left=LEFT, max_left_probability=0.2)
    assert policy.left_probability([], left_on(missed=0.1)) == pytest.approx(1 / (1 + math.exp(4)))
    three = policy.left_probability(logos, left_on(*logos, missed=0.5))
    assert three == pytest.approx(1 / (1 + math.exp(4 - 6 * (1 - 0.85**3) - 2.5)))
    assert judge(left_on(*logos, missed=0.1), policy).outcome is Outcome.CLEAN
    decision = judge(left_on(*logos, missed=0.9), policy)
    assert decision.outcome is Outcome.ASK
    assert [(r.code, r.subject) for r in decision.reasons] == [("above_limit", "left_probability")]


def test_what_was_not_measured_leaves_no_laptop_clean():
    policy = with_sections(left=LEFT, max_left_probability=0.99)
    (reason,) = judge(left_on(), policy).reasons
    assert (reason.code, reason.subject) == ("not_measured", "left_probability")


@pytest.mark.parametrize("order", [1, -1])
def test_one_unmeasured_value_among_others_is_not_nothing(order):
    logo = object_at(label=ObjectClass.LOGO, probabilities=(0.02, 0.83, 0.15))
    seen, unseen = replace(logo, single_pass=0.1), replace(logo, single_pass=math.nan)
    term = {"signal": "single_pass", "knots": [0.0, 1.0], "log_odds": [0.0, 5.0]}
    policy = with_sections(left={"intercept": -4.0, "terms": [term]}, max_left_probability=0.5)
    assert math.isnan(policy.left_probability([seen, unseen][::order], left_on()))
    rare = replace(unseen, unstable=True)  # which the pass without dropout need not be asked about
    assert policy.left_probability([seen, rare][::order], left_on()) < 0.5
    assert math.isnan(
        POLICY.left_signals([seen, replace(logo, probabilities=np.full(3, np.nan))][::order], left_on())[
            "in_passes"
        ]
    )


def test_a_policy_without_that_section_keeps_its_hash():
    assert with_sections(left=None).hash == POLICY.hash != with_sections(left=LEFT).hash


@given(
    st.lists(st.floats(0.0, 1.0), max_size=4),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
)
def test_more_doubt_never_makes_a_laptop_cleaner(shares, further, missed, more):
    policy = with_sections(left=LEFT)
    stay = [object_at(label=ObjectClass.LOGO, probabilities=(0.0, 1.0 - p, p)) for p in shares]
    doubtful = [*stay, object_at(label=ObjectClass.LOGO, probabilities=(0.0, 1.0 - further, further))]
    lower, higher = sorted((missed, more))
    least = policy.left_probability(stay, left_on(missed=lower))
    assert least <= policy.left_probability(doubtful, left_on(missed=lower)) + 1e-9
    assert least <= policy.left_probability(stay, left_on(missed=higher)) + 1e-9


OTHERS = [
    ({"model_hash": "n" * 64}, ("policy_other_weights", "nnnnnnnnnnnn", "mmmmmmmmmmmm")),
    ({"settings_hash": "t" * 64}, ("policy_other_settings", "tttttttttttt", "ssssssssssss")),
    ({"camera": "left"}, ("policy_other_camera", "'left'", "'camera'")),
    ({"image_size": [1280, 960]}, ("policy_other_image_size", "1280 x 960", "640 x 480")),
    ({"until": "1969-12-31"}, ("policy_expired", "1969-12-31")),
]


@pytest.mark.parametrize(("validity", "expected"), OTHERS)
def test_a_policy_made_for_something_else_blocks_with_its_own_reason(validity, expected):
    scene = assessment(object_at())
    decision = judge(scene, with_sections(validity=validity))
    assert decision.outcome is Outcome.BLOCKED
    assert not decision.verdicts
    (refusal,) = decision.reasons
    assert (refusal.code, *(value for _, value in refusal.values)) == expected
    supervisor = GateController(with_sections(validity=validity))
    supervisor.handle(ev.Activated(), START)
    supervisor.on_scene(scene, START)
    assert supervisor.state.problem is BlockReason.ASSUMPTION
    assert refusal in supervisor.state.details


def test_a_policy_made_for_this_model_judges():
    validity = {
        "model_hash": "m" * 64,
        "settings_hash": "s" * 64,
        "camera": "camera",
        "image_size": [640, 480],
        "until": "1970-01-01",  # the scene's stamp is a quarter of an hour after the start of that day
    }
    assert judge(assessment(object_at()), with_sections(validity=validity)).outcome is Outcome.WORK
