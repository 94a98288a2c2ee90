# SPDX-License-Identifier: Apache-2.0
"""What each laptop's pictures are used for, and which of them have labels."""

from dataclasses import replace

import pytest

from sticker_uq.gate.answers import Answer, OperatorAnswer, OperatorAnswers, SceneAnswer
from sticker_uq.scene import InvalidInput, ObjectClass, ObjectVerdict, Outcome, Reason, SceneDecision, Verdict
from sticker_uq.testing.scenes import ELSEWHERE, HERE, object_at
from sticker_uq_lab.datasets.from_audit import AnsweredQuestion
from sticker_uq_lab.improving.labels import Part, _labels, divide
from sticker_uq_lab.improving.visits import Group, Visit

DAY_NS = 86_400 * 10**9


def visit(number: int, group: Group = Group.ASKED, policy: str = "p", complaint: str = "") -> Visit:
    return Visit(
        f"v{number}", f"laptop-{number}", group, f"d{number}", number * DAY_NS, policy, (), complaint
    )


def decided(verdict: Verdict = Verdict.REMOVE) -> SceneDecision:
    one = ObjectVerdict(object_at(HERE, ObjectClass.STICKER), verdict, (Reason("held"),))
    return SceneDecision("d", 5, "camera", Outcome.WORK, (one,), (), "m", "p", "laptop")


def answered(box: tuple[float, ...]) -> AnsweredQuestion:
    said = (OperatorAnswer(Answer.KEEP, box),)
    return AnsweredQuestion("r", "d", "laptop", 5, "Ada", SceneAnswer.NONE, said, OperatorAnswers())


def test_the_newest_judge_spot_checked_ones_prove_and_those_of_another_bundle_train():
    old = [visit(n, policy="before") for n in range(5)]
    checked = [visit(n, Group.CHECKED) for n in range(5, 30)]
    others = [visit(n) for n in range(30, 230)]
    newest = [visit(n, Group.CHECKED) for n in range(230, 237)]
    parts = divide([*old, *checked, *others, *newest], "p", 7)
    assert {parts[v.name] for v in old} == {Part.LEARN}
    assert {parts[v.name] for v in checked} == {Part.PROVE}
    assert {parts[v.name] for v in newest} == {Part.JUDGE}
    shares = [
        sum(parts[v.name] is part for v in others) / len(others)
        for part in (Part.LEARN, Part.FIT, Part.PROVE)
    ]
    assert shares == pytest.approx([0.6, 0.2, 0.2], abs=0.1)
    assert parts == divide([*old, *checked, *others, *newest], "p", 7)


@pytest.mark.parametrize("days", [0.0, 500.0])
def test_a_newest_part_of_nothing_or_of_everything_is_refused(days):
    with pytest.raises(InvalidInput, match=rf"--newest {days:g}"):
        divide([visit(n) for n in range(20)], "p", days)


def test_only_what_nobody_complained_of_is_labelled_as_it_was_released():
    boxes, problem = _labels(visit(1, Group.RELEASED), None, decided())
    assert ([box.label for box in boxes], problem) == ([ObjectClass.STICKER], "")
    assert _labels(visit(1, Group.RELEASED, complaint="a fault"), None, decided()) == (
        (),
        "released, but a fault",
    )
    assert _labels(visit(1), None, decided())[1] == "the question was not answered"


def test_what_was_asked_about_after_something_was_peeled_labels_the_picture_of_before():
    begun = visit(1, Group.RELEASED)
    assert "nobody was asked" in _labels(begun, None, decided(Verdict.ASK))[1]
    boxes, problem = _labels(replace(begun, questions=(answered(HERE),)), None, decided(Verdict.ASK))
    assert ([box.label for box in boxes], problem) == ([ObjectClass.LOGO], "")
    boxes, _ = _labels(replace(begun, questions=(answered(HERE),)), None, decided(Verdict.REMOVE))
    assert [box.label for box in boxes] == [ObjectClass.STICKER], "the answer is about what lay below it"
    tired = replace(answered(HERE), problem="answered faster than one can look")
    assert _labels(replace(begun, questions=(tired,)), None, decided())[1] == tired.problem


def test_an_answer_about_a_place_where_nothing_is_labels_nothing():
    boxes, problem = _labels(visit(1), answered(HERE), decided(Verdict.ASK))
    assert ([box.label for box in boxes], problem) == ([ObjectClass.LOGO], "")
    assert "it has moved" in _labels(visit(1), answered(ELSEWHERE), decided())[1]
