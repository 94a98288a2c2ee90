# SPDX-License-Identifier: Apache-2.0
"""Answers that cannot all be meant are refused, whatever their order, and what is accepted later replaces what was said."""

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sticker_uq.gate import Answer, OperatorAnswer, OperatorAnswers, SceneAnswer
from sticker_uq.gate.answers import contradiction, find_unmentioned
from sticker_uq.gate.box_overlap import same_place
from sticker_uq.gate.events import AnswerGiven, DeclareDone
from sticker_uq.testing.scenes import ELSEWHERE, HERE, THERE
from test.helpers.gate import UNSURE, K, running

NEAR_HERE = (104.0, 102.0, 184.0, 162.0)
REMOVE, KEEP, NOT_THERE, MISSED = Answer.REMOVE, Answer.KEEP, Answer.NOT_THERE, Answer.MISSED
ANSWERS = st.builds(
    OperatorAnswer,
    st.sampled_from([REMOVE, KEEP, NOT_THERE, MISSED]),
    st.sampled_from([HERE, NEAR_HERE, THERE, ELSEWHERE]),
)
MESSAGES = st.tuples(st.lists(ANSWERS, max_size=4), st.sampled_from(SceneAnswer))


def said(*answers):
    return tuple(OperatorAnswer(given, box) for given, box in answers)


@pytest.mark.parametrize(
    ("answers", "scene", "code"),
    [
        (said((REMOVE, HERE), (MISSED, ELSEWHERE)), SceneAnswer.CLEAN, "scene_answer_with_removal"),
        (said((REMOVE, HERE)), SceneAnswer.CLEAN, "scene_answer_with_removal"),
        (said((KEEP, HERE), (MISSED, ELSEWHERE)), SceneAnswer.CLEAN, "scene_answer_with_removal"),
        (said((REMOVE, HERE)), SceneAnswer.SKIP_LAPTOP, "scene_answer_with_removal"),
        (said((REMOVE, HERE)), SceneAnswer.FAULT, "scene_answer_with_removal"),
        (said((MISSED, HERE)), SceneAnswer.RESCAN, "scene_answer_with_removal"),
        (said((REMOVE, HERE), (KEEP, NEAR_HERE)), SceneAnswer.NONE, "answers_differ"),
        (said((NOT_THERE, HERE), (MISSED, NEAR_HERE)), SceneAnswer.NONE, "answers_differ"),
        (said((KEEP, HERE), (NOT_THERE, HERE)), SceneAnswer.CLEAN, "answers_differ"),
        (said((KEEP, HERE), (NOT_THERE, THERE)), SceneAnswer.CLEAN, None),
        (said((KEEP, HERE)), SceneAnswer.FAULT, None),
        (said((REMOVE, HERE), (MISSED, NEAR_HERE)), SceneAnswer.NONE, None),
        (said((REMOVE, HERE), (KEEP, THERE), (MISSED, ELSEWHERE)), SceneAnswer.NONE, None),
        ((), SceneAnswer.CLEAN, None),
    ],
)
def test_what_excludes_what(answers, scene, code):
    found = contradiction(answers, scene)
    assert (found and found.code) == code
    assert found is None or found.box in [given.box for given in answers]


@settings(max_examples=150, deadline=None)
@given(MESSAGES)
def test_the_order_of_answers_decides_nothing(message):
    answers, scene = message
    verdicts = {contradiction(order, scene) is None for order in permutations(answers)}
    assert len(verdicts) == 1
    if verdicts == {True}:
        removals = {
            frozenset(box for box in (HERE, THERE, ELSEWHERE) if _approved(order, box))
            for order in permutations(answers)
        }
        assert len(removals) == 1


PLACES = st.lists(st.sampled_from([HERE, NEAR_HERE, THERE, ELSEWHERE]), max_size=4)


@settings(max_examples=150, deadline=None)
@given(PLACES, st.lists(ANSWERS, max_size=3), PLACES)
def test_all_that_looks_like_a_sticker_is_mentioned_or_the_answer_is_refused(stickers, answers, meant):
    said = [*(answer.box for answer in answers), *meant]
    left = [box for box in stickers if not any(same_place(box, other) for other in said)]
    found = find_unmentioned(stickers, answers, meant)
    assert (found.box if found else None) == (left[0] if left else None)
    assert find_unmentioned(stickers, answers, [*meant, *stickers]) is None
    assert found is None or find_unmentioned(stickers, (), ()) is not None, "silence never means more"


def _approved(answers, box):
    return any(same_place(a.box, box) for a in OperatorAnswers().remember(answers).approvals)


@settings(max_examples=60, deadline=None)
@given(st.lists(MESSAGES, min_size=1, max_size=5))
def test_a_laptop_that_an_operator_calls_clean_has_nothing_left_that_they_wanted_peeled(messages):
    cell, wanted = running(), []
    for answers, scene in messages:
        cell.scene(UNSURE, times=K)
        request = cell.state.request
        if request is None:
            break
        cell.send(AnswerGiven(request.request_id, "Ada", scene, tuple(answers), image_ns=request.stamp_ns))
        if not cell.reply().accepted:
            continue
        removals = [given for given in answers if given.removes]
        assert not (removals and scene is not SceneAnswer.NONE)
        for given_ in answers:
            wanted = [box for box in wanted if not same_place(box, given_.box)]
        wanted += [given_.box for given_ in removals]
        if scene is SceneAnswer.CLEAN:
            wanted = []  # they looked again and found none
        approved = [given_.box for given_ in cell.state.memory.approvals]
        assert all(any(same_place(box, place) for place in approved) for box in wanted)
        assert not (cell.state.memory.scene_clean and approved)
    cell.scene(UNSURE, times=K)
    if any(done.clean for done in cell.sent(DeclareDone)):
        assert not wanted
