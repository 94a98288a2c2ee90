# SPDX-License-Identifier: Apache-2.0
"""What the report of a cell says of a question, and which limits it shows."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.evaluation.replay.recording import AskedPerson, GateChange, RecordedLaptop
from sticker_uq.evaluation.reporting.cell_report import (
    _describe_question,
    _in_question,
    key_scenes,
    policy_limits,
)
from sticker_uq.gate import Policy, judge
from sticker_uq.gate.policy.policy import LIMITED_METRICS
from sticker_uq.io.share import share_folder
from sticker_uq.scene import METRICS, Outcome, Reason, Verdict
from sticker_uq.testing.scenes import SECOND, assessment, object_at
from test.helpers.witness import POLICY

SCENE = assessment(object_at(), stamp_ns=SECOND)
DECISION = judge(SCENE, POLICY)
STILL_THERE = (Reason("sticker_still_there"), Reason.of("objects_to_decide", count=1))


def laptop(*removed_ns, **question):
    asked = AskedPerson(2 * SECOND, "", DECISION.decision_id, reasons=STILL_THERE, objects=(0,), **question)
    by_person = replace(
        DECISION, decision_id="p", verdicts=tuple(replace(v, by_operator=True) for v in DECISION.verdicts)
    )
    gate = [GateChange(ns, "removing", "", "p", number) for number, ns in enumerate(removed_ns)]
    decisions = {DECISION.decision_id: DECISION, "p": by_person}
    return RecordedLaptop(
        "laptop-1", 0, 9 * SECOND, "no sticker is left", True, [SCENE], decisions, gate, [asked]
    )


def test_what_the_policy_had_let_through_is_shown_as_the_question_that_it_became():
    assert [v.verdict for v in DECISION.verdicts] == [Verdict.REMOVE]
    [question] = laptop().questions
    [(title, scene, asked)] = key_scenes(laptop())
    assert (title, scene, asked) == ("Question 1 to a person", SCENE, question)
    shown = _in_question(DECISION, question)
    assert (shown.outcome, shown.reasons) == (Outcome.ASK, STILL_THERE[:1])
    assert [(v.verdict, v.reasons) for v in shown.verdicts] == [(Verdict.ASK, STILL_THERE[:1])]


@pytest.mark.parametrize(
    ("removed_ns", "answered_ns", "came"),
    [
        ((), 3 * SECOND, "nothing was peeled on the person's word; then it left: no sticker is left"),
        ((4 * SECOND,), 3 * SECOND, "the arm was let to 1 place on the person's word; then it left: no sticker is left"),
        ((2 * SECOND,), 3 * SECOND, "nothing was peeled on the person's word; then it left: no sticker is left"),
    ],
    ids=["left alone", "peeled", "peeled before"],
)  # fmt: skip
def test_a_question_shows_its_reason_the_answer_and_what_came_of_it(removed_ns, answered_ns, came):
    one = laptop(*removed_ns, answered_ns=answered_ns, person="Ada", answer="leave it")
    told = dict(_describe_question(one, one.questions[0]))
    assert told == {
        "asked": "#0",
        "because": "the arm reported a removal here, and a sticker is still seen: perhaps it is printed",
        "answer": "Ada: leave it",
        "what came of it": came,
    }
    unanswered = laptop()
    assert dict(_describe_question(unanswered, unanswered.questions[0]))["answer"] == "nobody has answered"


@given(st.fixed_dictionaries({f"max_{name}": st.floats(0.0, 1.0) for name in LIMITED_METRICS}))
def test_a_limit_is_shown_if_and_only_if_a_value_can_exceed_it(shares):
    limits = {
        name: share * {"max_shannon_entropy": 1.6, "max_mutual_information": 1.6}.get(name, 1.0)
        for name, share in shares.items()
    }
    shown = policy_limits(Policy(**limits))
    for name in LIMITED_METRICS:
        assert (name in shown) == (METRICS[name].highest > limits[f"max_{name}"])


def test_limits_of_the_packaged_policies_that_can_never_decide_are_off():
    packaged = policy_limits(Policy.load(share_folder() / "config" / "policy.yaml"))
    assert packaged == {}, "a calibrated policy decides by its risk"
    by_hand = policy_limits(Policy.load(share_folder() / "config" / "limits.yaml"))
    assert by_hand.keys() == {"score", "dil"}
