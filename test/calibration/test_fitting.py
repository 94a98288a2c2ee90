# SPDX-License-Identifier: Apache-2.0
"""Fit and proof on images whose truth is drawn from a seed: what is promised is kept on others."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit

from sticker_uq.calibration.calibration_report import calibration_report, guarantee_text
from sticker_uq.calibration.choosing import fit_risk
from sticker_uq.calibration.control import Trial
from sticker_uq.calibration.fitting import FitSettings, Levels, fit_policy, take_over
from sticker_uq.calibration.making import Divided, write_policy
from sticker_uq.calibration.measuring import measure, scores
from sticker_uq.calibration.outcomes import match_sticker, outcomes_of, with_limits
from sticker_uq.calibration.probability import fit_isotonic, fit_temperature, same_odds
from sticker_uq.calibration.proving import Trials, _chance_of_proof, _find_strictest, _held, end_tests
from sticker_uq.calibration.records import Assessed, Record
from sticker_uq.evaluation.metrics.decisions import Count
from sticker_uq.evaluation.metrics.statistics import upper_bound
from sticker_uq.gate import Policy, judge
from sticker_uq.gate.judge import once_peeled
from sticker_uq.gate.policy.signals import SIGNALS
from sticker_uq.scene import InvalidInput, ObjectClass, Outcome, Verdict
from sticker_uq.testing.scenes import assessment, object_at
from test.calibration.conftest import draw

Drawn = Callable[[int, int], list[Record]]
LEVELS = Levels(alpha=0.05, beta=0.2, delta=0.1)


@pytest.fixture(scope="module")
def made(drawn: Drawn) -> tuple[Policy, Policy, list[Record], list[Record]]:
    fit, proof = drawn(0, 300), drawn(1000, 300)
    draft = fit_policy(fit, Policy(), FitSettings(level=LEVELS.alpha))
    return draft, Trials(draft, fit, proof).policy(LEVELS), fit, proof


def test_what_is_promised_is_kept_on_other_images(made, drawn):
    _, policy, _, proof = made
    assert policy.guarantee.wrongful_removal is not None
    assert policy.risk is not None
    promise = policy.guarantee.wrongful_removal
    # the proof counts what the judge itself decides
    again = measure(proof, policy)
    assert (again.wrongful.events, again.wrongful.of) == (promise.events, promise.images)
    left = policy.guarantee.sticker_left
    assert (again.left.events, again.left.of) == (left.events, left.images)
    assert promise.bound <= LEVELS.alpha
    assert left.bound <= LEVELS.beta
    unseen = measure(drawn(5000, 1000), policy)
    assert unseen.wrongful.rate <= LEVELS.alpha
    assert 0.3 < unseen.removed.rate < 1.0
    assert sum(count.events for count in unseen.verdicts.values()) == unseen.verdicts["ask"].of


def test_two_signals_remove_more_than_the_score_at_equal_risk(made, drawn):
    combined, plain = scores(outcomes_of(drawn(5000, 600), made[0]))
    assert combined.curve.removal_share_at(0.05) > plain.curve.removal_share_at(0.05) + 0.02


def test_the_risk_score_is_monotone_and_leaves_useless_signals_out(drawn):
    seen = outcomes_of(drawn(0, 200), Policy()).detected
    measured = {name: values for name, values in seen.signals.items() if np.isfinite(values).all()}
    risk = fit_risk(measured, seen.badness)
    names = {term.signal for term in risk.terms}
    assert {"improbability", "shannon_entropy"} <= names
    assert "variation_ratio" not in names
    reversed_ = {"dil": -seen.signals["improbability"]}
    # it falls with doubt, so that no non-decreasing function of it says anything
    assert all(term.log_odds[-1] < 0.5 for term in fit_risk(reversed_, seen.badness).terms)
    none_wrong = fit_risk(measured, np.zeros(len(seen)))
    assert 0 < none_wrong(dict.fromkeys(SIGNALS, 0.0)) < 0.01
    with pytest.raises(InvalidInput, match="at least one detected sticker"):
        fit_risk({}, np.zeros(0))


def test_a_policy_survives_its_file(made, tmp_path):
    _, policy, _, proof = made
    path = tmp_path / "policy.yaml"
    write_policy(policy, path)
    assert Policy.load(path) == policy
    assert Policy.load(path).hash == policy.hash
    assert len(policy.reference.signals["score"]) == len(proof)


def test_each_promise_is_told_by_itself_and_what_cannot_be_proved_is_refused_with_what_it_takes(made):
    draft, policy, fit, proof = made
    trials = Trials(draft, fit, proof)
    removal, left = trials.attempts(LEVELS)
    found = measure(proof, policy)
    assert (removal.done, removal.bad) == (found.removed, found.wrongful)
    assert left.bad == found.left
    assert left.done == Count(found.left.of, sum(len(record.stickers) > 0 for record in proof))
    assert removal.bound <= removal.level
    assert left.bound <= left.level
    same, refused = trials.attempts(Levels(0.05, 0.001, 0.1))
    assert same == removal
    assert refused.bound > refused.level
    alpha, beta = trials.lowest_levels(LEVELS)
    assert alpha <= removal.bound
    assert left.bound <= beta <= LEVELS.beta
    for levels, said in (
        (Levels(0.001, 0.2, 0.1), r"alpha 0\.001 .*300 laptops prove 0\.00765 at best, expected 2302"),
        (Levels(0.05, 0.001, 0.1), r"beta 0\.001 .*\d+ laptops finished alone that had a sticker prove .*label more laptops"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=said):
            trials.policy(levels)
    with pytest.raises(InvalidInput, match="shows a laptop without stickers"):
        fit_policy([record for record in fit if len(record.stickers)], Policy())


def test_where_nothing_could_be_released_nothing_is_proved(made):
    draft, _, fit, proof = made
    empty = [record for record in fit if not len(record.stickers)]
    strict = draft.model_copy(update={"min_probability": 1.0, "max_logo_probability": 0.0})
    trials = Trials(strict, empty, proof[:40])
    removal, _ = trials.attempts(LEVELS)
    assert (removal.bound, removal.done.events) == (1.0, 0)
    with pytest.raises(InvalidInput, match="no sticker could be released on the images to fit limits on"):
        trials.policy(LEVELS)


def test_the_report_says_it_in_words_and_numbers(made):
    draft, policy, fit, proof = made
    fit, proof = fit[:40], proof[:60]  # what it says, whatever the policy was made of
    assessed = [Assessed("plain", (*fit, *proof[:40]), ""), Assessed("weak", tuple(proof[40:]), "")]
    divided = Divided(tuple(assessed), frozenset(range(len(fit))), tuple(fit), tuple(proof))
    text = calibration_report(policy, draft, divided, LEVELS, html=False)
    assert "on at most 5 % something is released for removal that is no sticker" in text
    assert "Both promises together hold with 80 %" in text
    assert "| promise | combined risk | plain score threshold |" in text
    assert ["| plain | 40 |" in text, "| weak | 20 |" in text] == [True, True], "each part of the mixture"
    page = calibration_report(policy, draft, divided, LEVELS, html=True)
    assert page.startswith("<!doctype html>")
    assert "<svg" in page


def test_alpha_alone_may_be_promised_and_then_a_person_checks_what_looks_clean(drawn):
    fit, proof = ([r for r in drawn(first, 300) if len(r.stickers)] for first in (0, 1000))
    levels = Levels(0.05, 0.0, 0.1)
    policy = Trials(fit_policy(fit, Policy(), FitSettings(level=0.05, clean=False)), fit, proof).policy(
        levels
    )
    assert policy.guarantee.sticker_left is None
    assert "checks every laptop before it is called clean" in guarantee_text(policy.guarantee)
    assert judge(assessment(), policy.model_copy(update={"familiarity": None})).outcome is Outcome.ASK
    assert measure(proof, policy).wrongful.rate <= 0.05


def test_ends_over_the_limits_are_those_of_the_policy_with_each_limit(made, drawn):
    draft, _, _, _ = made
    records = drawn(7000, 60)
    seen = outcomes_of(records, draft)
    limits = np.unique(seen.risk[np.isfinite(seen.risk)])[::9].tolist()
    for left in (1.0, 0.05):
        for trial in end_tests(seen.ends, limits, left):
            found = measure(records, with_limits(draft, trial.limit, left))
            assert (trial.events, trial.images) == (found.left.events, found.left.of)


def test_a_promise_for_parts_holds_for_the_worst_of_them(made, drawn):
    draft, _, fit, proof = made
    worse = [draw(seed, 0.3) for seed in range(9000, 9150)]
    records = [*proof, *worse]
    numbers = {"good": range(300), "worse": range(300, 450)}
    parted = Trials(draft, fit, records, parts=numbers).policy(LEVELS)
    assert parted.risk.max_removal < Trials(draft, fit, records).policy(LEVELS).risk.max_removal
    own = parted.guarantee.wrongful_removal
    for name, part in (("good", proof), ("worse", worse)):
        found = measure(part, parted)
        assert own.parts[name] == (found.wrongful.events, found.wrongful.of)
        assert upper_bound(found.wrongful.events, found.wrongful.of, 0.1) <= min(own.bound, LEVELS.alpha)
    with pytest.raises(InvalidInput, match="for the part few: 20 laptops prove"):
        Trials(draft, fit, records, parts={"few": range(20), "others": range(20, 450)}).policy(LEVELS)


def test_what_is_chosen_on_the_fitted_laptops_does_for_each_part_of_them(made, drawn):
    draft, _, fit, proof = made
    worse = [draw(seed, 0.3) for seed in range(9000, 9150)]
    numbers = {"good": range(300), "worse": range(300, 450)}
    known, records = [*fit, *(draw(seed, 0.3) for seed in range(7000, 7150))], [*proof, *worse]
    whole = Trials(draft, known, records, parts=numbers)
    parted = Trials(draft, known, records, parts=numbers, fit_parts=numbers)
    assert parted._loosest(LEVELS) < whole._loosest(LEVELS)
    assert parted._find_left_limit(LEVELS) <= whole._find_left_limit(LEVELS)
    for trials in (whole, parted):
        limit = trials._limits[trials._loosest(LEVELS)]
        assert trials.policy(LEVELS).risk.max_removal <= limit


def test_the_chance_of_a_proof_is_its_share_of_drawn_proofs():
    rng, levels = np.random.default_rng(0), Levels(0.05, 0.15, 0.1)
    for events, images, size in ((20, 200, 1.0), (5, 60, 2.0), (0, 30, 0.5), (30, 150, 1.0)):
        rates = rng.beta(events + 1, images - events + 1, 20_000)
        laptops = round(size * images)
        left = rng.binomial(laptops, rates)
        proved = (
            np.array([upper_bound(k, laptops, levels.delta) for k in range(laptops + 1)])[left] <= levels.beta
        )
        assert _chance_of_proof(Trial(1.0, images, events), size, levels) == pytest.approx(
            proved.mean(), abs=0.02
        )


def test_other_laptops_to_fit_on_are_other_laptops(drawn):
    fit, proof = drawn(0, 3), drawn(1000, 2)
    found = Divided.apart([Assessed("a", tuple(fit), "")], [Assessed("b", tuple(proof), "")])
    assert (found.fit, found.proof) == (tuple(fit), tuple(proof))
    assert (found.numbers_of({"a"}, fit=True), found.numbers_of({"a"}, fit=False)) == ([0, 1, 2], [])
    assert found.numbers_of({"b"}, fit=False) == [0, 1]
    same = [[replace(records[0], workpiece="laptop 7")] for records in (fit, proof)]
    with pytest.raises(InvalidInput, match="laptop 7 is in the images to fit on and in those of the proof"):
        Divided.apart(*([Assessed("a", tuple(one), "")] for one in same))


def test_each_promise_is_broken_in_at_most_delta_of_repetitions():
    # laptops by the risk from which they are finished alone and from which something wrong is released; two parts
    rng = np.random.default_rng(0)
    levels, limits = Levels(0.03, 0.05, 0.1), np.linspace(0.02, 1, 50)
    rates = ((0.08, 0.07), (0.05, 0.02))  # wrong at the loosest limit, and left on those finished early

    def trials(wrong, kept, laptops=400):
        risk, alone = rng.random(laptops) / wrong, rng.random(laptops)
        dirty = rng.random(laptops) < np.where(alone < 0.3, kept, 0.01)
        ends = [Trial(x, int((alone <= x).sum()), int((dirty & (alone <= x)).sum())) for x in limits]
        return [Trial(x, laptops, int((risk <= x).sum())) for x in limits], ends

    broken = np.zeros(2)
    for _ in range(300):
        parts = [trials(*rate) for rate in rates]
        held = _held([one for one, _ in parts], levels.alpha, levels.delta)
        if held and _find_strictest([one for _, one in parts], levels) <= held - 1:
            x = limits[held - 1]
            left = [(min(x, 0.3) * kept + max(x - 0.3, 0) * 0.01) / x for _, kept in rates]
            broken += max(x * wrong for wrong, _ in rates) > levels.alpha, max(left) > levels.beta
    assert (broken <= levels.delta * 300).all()
    assert broken[0] > 0


def test_a_score_fitted_elsewhere_is_proved_by_every_laptop(drawn):
    fitted = Trials(
        fit_policy(drawn(0, 300), Policy(), FitSettings(level=0.05)), drawn(0, 300), drawn(1000, 300)
    ).policy(LEVELS)
    draft = take_over(fitted)
    assert (draft.guarantee, draft.risk.max_removal) == (None, 1.0)
    proof = drawn(3000, 200)
    trials = Trials(draft, (), proof)
    policy = trials.policy(LEVELS)
    assert policy.guarantee.wrongful_removal.images == 200
    assert policy.max_left_probability == fitted.max_left_probability
    assert [term.signal for term in policy.risk.terms] == [term.signal for term in fitted.risk.terms]
    found, unseen = measure(proof, policy), measure(drawn(5000, 1000), policy)
    assert found.wrongful.events == policy.guarantee.wrongful_removal.events
    assert unseen.wrongful.rate <= LEVELS.alpha
    assert unseen.removed.rate > 0.3
    assert trials.attempts(Levels(0.05, 0.0, 0.1))[1] is None
    with pytest.raises(InvalidInput, match="has no risk score"):
        take_over(Policy())
    with pytest.raises(InvalidInput, match="no cut-off for clean laptops"):
        take_over(fitted.model_copy(update={"saliency": None}))
    assert not take_over(fitted.model_copy(update={"saliency": None}), clean=False).clean_without_operator


@given(st.integers(1, 40), st.integers(0, 2**31), st.integers(1, 40))
def test_limits_on_a_score_fitted_elsewhere_depend_on_no_image(laptops, seed, others):
    rng = np.random.default_rng(seed)
    signals = {"improbability": rng.random(laptops), "shannon_entropy": rng.random(laptops)}
    draft = Policy().model_copy(update={"risk": fit_risk(signals, rng.random(laptops))})
    proofs = [[draw(int(n)) for n in rng.integers(1 << 30, size=count)] for count in (laptops, others)]
    first, second = (Trials(draft, (), proof)._limits for proof in proofs)
    assert first == second
    assert (np.diff(first) >= 0).all()
    assert draft.risk(dict.fromkeys(signals, 1.0)) <= first[-1] + 1e-12


def test_few_labels_leave_the_mean_score_alone_and_it_is_said(drawn):
    told: list[str] = []
    policy = fit_policy(drawn(0, 60), Policy(), FitSettings(level=0.05), told.append)
    assert {term.signal for term in policy.risk.terms} == {"improbability"}
    assert policy.left is None
    of_risk, of_left = told
    assert of_risk.startswith("the risk score is the mean score alone: ")
    assert of_left.startswith("how probably a sticker is left is that of the likeliest object that stays: ")


def test_two_stickers_in_a_hundred_lie_below_what_is_notable(drawn):
    fit = drawn(0, 300)
    draft = fit_policy(fit, Policy(), FitSettings(kind="none"))
    scores = [
        draft.probabilities(one)[ObjectClass.STICKER]
        for record in fit
        for one in record.assessment.objects
        if match_sticker(one, record) >= 0
    ]
    assert draft.notable_probability == pytest.approx(min(np.quantile(scores, 0.02), 0.5), abs=0.01)
    assert (
        fit_policy(fit[:30], Policy(), FitSettings(kind="none")).notable_probability
        == Policy().notable_probability
    )


def test_a_removal_is_right_when_the_blade_meets_a_sticker():
    boxes = np.array([[0, 0, 40, 40], [100, 0, 140, 40], [110, 0, 150, 40]], np.float32)
    record = Record("", boxes, np.array([1, 2, 2]), assessment())
    assert match_sticker(object_at((0, 0, 40, 41)), record) == -1  # a logo
    assert match_sticker(object_at((100, 0, 141, 40)), record) == 0
    assert match_sticker(object_at((111, 0, 150, 40)), record) == 1
    assert match_sticker(object_at((300, 0, 340, 40)), record) == -1
    assert match_sticker(object_at((120, 0, 180, 40)), record, 0.6) == -1


def test_badness_falls_as_a_removal_fits_its_sticker_better():
    record = Record(
        "", np.array([[0, 0, 40, 40], [100, 0, 140, 40]], np.float32), np.array([2, 1]), assessment()
    )
    boxes = [
        (0, 0, 40, 40),
        (0, 0, 40, 20),
        (0, 0, 40, 16),
        (0, 0, 40, 12.1),
        (0, 0, 40, 11),
        (100, 0, 140, 40),
    ]
    seen = assessment(*(object_at(box) for box in boxes))
    found = outcomes_of([replace(record, assessment=seen)], Policy(), 0.3).detected
    assert found.right.tolist() == [True, True, True, True, False, False]
    assert found.badness == pytest.approx([0, 0, 0.5, 0.9875, 1, 1], abs=1e-6)


def test_badly_fitting_objects_teach_the_score_what_wrong_ones_look_like():
    # ten wrong objects are few among four hundred; eighty that fit badly share their entropy
    rng = np.random.default_rng(0)
    wrong, loose = np.arange(400) < 10, np.arange(400) < 90
    entropy = {"shannon_entropy": rng.normal(loose * 0.6, 0.3) + 1, "mutual_information": rng.random(400)}
    badness = np.where(wrong, 1.0, np.where(loose, 0.5, 0.0))
    new = [(rng.normal(mean, 0.3, 200), rng.random(200)) for mean in (1.6, 1.0)]

    def separated(target: np.ndarray) -> float:
        risk = fit_risk(entropy, target)
        high, low = (
            np.array(
                [risk({"shannon_entropy": e, "mutual_information": m}) for e, m in zip(*seen, strict=True)]
            )
            for seen in new
        )
        return float((high[:, None] > low).mean())

    assert separated(badness) > separated(wrong.astype(float))


def test_one_signal_of_the_whole_scene_is_limited_and_none_by_hand(drawn):
    base = Policy(max_dil=0.9, max_dil_clean=0.9, max_background_saliency=0.2, max_unexplained_objectness=0.1)
    fitted = fit_policy(drawn(0, 120), base)
    assert fitted.saliency is not None
    assert fitted.saliency.signal == "background_saliency"
    limits = (
        fitted.max_dil,
        fitted.max_dil_clean,
        fitted.max_background_saliency,
        fitted.max_unexplained_objectness,
    )
    assert limits == (1.0, 1.0, 0.0, 1.0)


def test_outcomes_are_those_of_the_judge(drawn):
    records = drawn(0, 40)
    records[0] = replace(records[0], assessment=assessment(object_at(), dil=0.99))
    policy = Policy(min_probability=0.9, max_dil=0.9, max_dil_clean=0.9)
    seen = outcomes_of(records, policy)
    decisions = [judge(record.assessment, policy) for record in records]
    expected = [len(d.removable()) if d.outcome is Outcome.WORK else 0 for d in decisions]
    assert np.bincount(seen.detected.image[seen.removable], minlength=40).tolist() == expected
    assert seen.verdicts[Verdict.REMOVE] == sum(len(d.removable()) for d in decisions)
    ends = [once_peeled(d, r.assessment, policy) for d, r in zip(decisions, records, strict=True)]
    alone = [e.outcome is Outcome.CLEAN and len(r.stickers) > 0 for e, r in zip(ends, records, strict=True)]
    assert end_tests(seen.ends, [1.0], 1.0)[0].images == sum(alone)


def test_isotonic_calibration_brings_probabilities_to_shares():
    rng = np.random.default_rng(0)
    p = rng.random(4000)
    right = rng.random(4000) < p**2  # too sure
    learned = fit_isotonic(p, right)
    for value in (0.2, 0.5, 0.9):
        assert learned(value) == pytest.approx(value**2, abs=0.06)
    assert fit_isotonic(np.full(12, 0.7), np.ones(12, bool))(0.7) == pytest.approx(13 / 14)


def test_temperature_scaling_finds_the_temperature_that_was_used():
    rng = np.random.default_rng(0)
    odds = rng.normal(0, 3, 6000)
    right = rng.random(6000) < 1 / (1 + np.exp(-odds / 2.5))
    assert fit_temperature(1 / (1 + np.exp(-odds)), right).temperature == pytest.approx(2.5, rel=0.1)


def _seen(slope: float, start: float, of: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """What a detector says of objects whose log odds are a line of what it says, and whether they are of the class."""
    rng = np.random.default_rng(5)
    said = rng.normal(0.0, 2.0, of)
    return expit(said), rng.random(of) < expit(slope * said + start)


def test_a_limit_moves_to_where_other_weights_mean_the_same():
    before, now = _seen(1.0, 0.0), _seen(2.0, 1.0)
    for limit in (0.3, 0.8, 0.93):
        assert same_odds(limit, before, now) == pytest.approx(expit((logit(limit) - 1.0) / 2.0), abs=0.03)
        assert same_odds(limit, now, now) == pytest.approx(limit, abs=2e-3)
    assert same_odds(0.93, before, tuple(part[:12] for part in now)) == 0.93
    assert same_odds(0.93, before, (now[0], ~now[1])) == 0.93  # the surer, the less often right
