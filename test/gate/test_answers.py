# SPDX-License-Identifier: Apache-2.0
"""What people said is found again by its place, replaced by newer answers, and used up by a removal."""

from sticker_uq.gate import Answer, OperatorAnswer, OperatorAnswers
from sticker_uq.testing.scenes import ELSEWHERE, HERE, THERE

NEAR_HERE = (104.0, 102.0, 184.0, 162.0)


def test_the_newest_answer_about_a_place_holds():
    memory = OperatorAnswers().remember(
        [OperatorAnswer(Answer.KEEP, HERE), OperatorAnswer(Answer.KEEP, THERE)]
    )
    memory = memory.remember([OperatorAnswer(Answer.REMOVE, NEAR_HERE)])
    assert memory.against(HERE) is None
    assert memory.approvals == (OperatorAnswer(Answer.REMOVE, NEAR_HERE),)
    assert memory.against(THERE) == OperatorAnswer(Answer.KEEP, THERE)
    assert memory.against(ELSEWHERE) is None


def test_a_verified_removal_uses_up_the_approval_of_its_place_only():
    answers = [
        OperatorAnswer(Answer.REMOVE, HERE),
        OperatorAnswer(Answer.MISSED, THERE),
        OperatorAnswer(Answer.KEEP, ELSEWHERE),
    ]
    memory = OperatorAnswers().remember(answers)
    assert memory.consume(NEAR_HERE).answers == tuple(answers[1:])
    assert memory.consume(THERE).answers == (answers[0], answers[2])
    assert memory.consume(ELSEWHERE) == memory


def test_a_clean_scene_leaves_nothing_to_remove():
    memory = (
        OperatorAnswers()
        .remember([OperatorAnswer(Answer.REMOVE, HERE), OperatorAnswer(Answer.NOT_THERE, THERE)])
        .clean()
    )
    assert memory.approvals == ()
    assert memory.scene_clean
    assert memory.scene_checked
    assert memory.against(THERE) is not None
