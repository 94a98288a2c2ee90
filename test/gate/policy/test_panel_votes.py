# SPDX-License-Identifier: Apache-2.0
"""What the policy and the gate make of a panel of monitors."""

import math

import pytest

from sticker_uq.gate import Answer, BlockReason, OperatorAnswer, Phase, Policy
from sticker_uq.gate.box_overlap import as_box
from sticker_uq.gate.events import CancelGoal, OpenIntervention
from sticker_uq.gate.judge import judge
from sticker_uq.gate.policy.policy_schema import PanelRule, RiskScore, RiskTerm, Validity
from sticker_uq.scene import MonitorScore, ObjectClass, ObservedObject, Outcome, Reason, Verdict
from sticker_uq.testing.scenes import THERE, assessment, object_at
from test.helpers.gate import K, answer, running

SCORES = (MonitorScore("pcs", 0.2, 0.5), MonitorScore("mdsa", 9000.0, 8000.0))


def scored(*scores: MonitorScore, **changes: object) -> ObservedObject:
    return object_at(monitors=scores, **changes)


def test_one_objection_is_enough_to_ask():
    decision = judge(assessment(scored(*SCORES), scored(SCORES[0], box=THERE)), Policy())
    asked, removed = decision.verdicts
    assert (asked.verdict, asked.objectors) == (Verdict.ASK, ("mdsa",))
    (reason,) = asked.reasons
    assert reason == Reason("monitor_objects", "mdsa", 9000.0, 8000.0)
    assert (removed.verdict, removed.objectors) == (Verdict.REMOVE, ())
    assert ("monitor_agrees", "pcs") in [(r.code, r.subject) for r in removed.reasons]
    assert decision.outcome is Outcome.WORK


@pytest.mark.parametrize(
    ("score", "limit", "objects"),
    [
        (1.0, 1.0, False),
        (math.nextafter(1.0, 2.0), 1.0, True),
        (math.nan, 1.0, True),
        (math.inf, 1.0, True),
        (0.0, math.nan, True),
    ],
)
def test_what_is_nan_is_an_objection(score, limit, objects):
    vote = MonitorScore("lsa", score, limit)
    (verdict,) = judge(assessment(scored(vote)), Policy()).verdicts
    assert vote.objection is objects
    assert (verdict.verdict is Verdict.ASK) is objects


def test_the_panel_never_makes_anything_removable():
    vote = MonitorScore("pcs", 0.0, 0.5)
    assert judge(assessment(scored(vote, shannon_entropy=1.5)), Policy()).verdicts[0].verdict is Verdict.ASK
    logo = judge(assessment(scored(*SCORES, label=ObjectClass.LOGO)), Policy()).verdicts[0]
    assert (logo.verdict, logo.objectors) == (Verdict.KEEP, ())


def test_scores_as_signals_of_the_risk():
    terms = (RiskTerm(signal="monitor.mdsa", knots=(0.0, 10_000.0), log_odds=(0.0, 10.0)),)
    risk = RiskScore(intercept=-5.0, terms=terms, max_removal=0.5)
    policy = Policy(panel=PanelRule(combination="risk"), risk=risk)
    low = judge(assessment(scored(MonitorScore("mdsa", 100.0, 50.0))), policy).verdicts[0]
    assert (low.verdict, low.objectors) == (Verdict.REMOVE, ())  # above its own limit, but not risky
    high = judge(assessment(scored(SCORES[1])), policy).verdicts[0]
    assert high.verdict is Verdict.ASK
    assert [r.subject for r in high.reasons] == ["risk"]
    # a detector without that supervisor: the risk is unknown
    assert judge(assessment(object_at()), policy).verdicts[0].verdict is Verdict.ASK


def test_a_signal_that_nobody_has_is_refused():
    with pytest.raises(ValueError, match=r"expected one of improbability, .* or monitor\.NAME"):
        RiskTerm(signal="mdsa", knots=(0.0,), log_odds=(0.0,))


def test_a_policy_may_insist_on_its_panel():
    policy = Policy(validity=Validity(panel_hash="p" * 64))
    assert judge(assessment(object_at(), panel_hash="p" * 64), policy).outcome is Outcome.WORK
    decision = judge(assessment(object_at()), policy)
    assert decision.outcome is Outcome.BLOCKED
    assert decision.reasons == (Reason.of("policy_other_panel", expected="pppppppppppp", found="none"),)
    assert (
        judge(assessment(object_at(), panel_hash="q" * 64), Policy(validity=Validity())).outcome
        is Outcome.WORK
    )


def test_the_gate_says_that_the_panel_objects_and_asks_who_can_decide():
    cell = running().scene(scored(*SCORES), times=K - 1)
    assert cell.state.reasons & BlockReason.PANEL
    assert cell.scene(scored(*SCORES)).phase is Phase.INTERVENTION
    assert cell.state.reasons == BlockReason.WAITING_FOR_OPERATOR | BlockReason.PANEL
    (request,) = cell.sent(OpenIntervention)
    count, names = Reason.of("objects_to_decide", count=1), Reason.of("monitors_object", names="mdsa")
    assert request.reasons == (count, names)
    assert [v.objectors for v in request.objects] == [("mdsa",)]
    assert answer(cell, OperatorAnswer(Answer.REMOVE, as_box(request.objects[0].object.box)))
    assert cell.scene(scored(*SCORES), times=K).phase is Phase.PERMITTED  # a person has looked
    assert not cell.state.reasons


def test_one_objection_among_objects_without_any_is_told():
    logo = object_at(THERE, label=ObjectClass.LOGO)
    assert running().scene(scored(*SCORES), logo, times=K - 1).state.reasons & BlockReason.PANEL


def test_an_objection_ends_a_permit():
    cell = running().scene(scored(SCORES[0]), times=K)
    assert cell.phase is Phase.PERMITTED
    cell.scene(scored(*SCORES))
    assert cell.sent(CancelGoal)
    assert cell.phase not in (Phase.PERMITTED, Phase.REMOVING)
