# SPDX-License-Identifier: Apache-2.0
"""When a laptop ends with a question."""

import pytest

from sticker_uq.evaluation.metrics.decisions import ends_with_question
from sticker_uq.scene import ObjectClass, ObjectVerdict, Outcome, SceneDecision, Verdict
from sticker_uq.testing.scenes import observed

PEELED, SAME, ELSEWHERE = (10.0, 10.0, 50.0, 40.0), (11.0, 10.0, 51.0, 40.0), (80.0, 60.0, 120.0, 90.0)
REMOVE, KEEP, ASK, UNKNOWN = Verdict.REMOVE, Verdict.KEEP, Verdict.ASK, Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("outcome", "objects", "expected"),
    [
        (Outcome.WORK, [(REMOVE, PEELED), (KEEP, ELSEWHERE)], False),
        (Outcome.WORK, [(REMOVE, PEELED), (ASK, SAME)], False),  # it is peeled with the other
        (Outcome.WORK, [(REMOVE, PEELED), (ASK, ELSEWHERE)], True),
        (Outcome.WORK, [(REMOVE, PEELED), (UNKNOWN, ELSEWHERE)], True),
        (Outcome.CLEAN, [(KEEP, ELSEWHERE)], False),
        (Outcome.ASK, [(REMOVE, PEELED)], True),
        (Outcome.BLOCKED, [], True),
    ],
)
def test_what_is_in_doubt_once_the_released_is_gone_is_a_question(outcome, objects, expected):
    verdicts = tuple(
        ObjectVerdict(observed(box, ObjectClass.STICKER), verdict, ()) for verdict, box in objects
    )
    decision = SceneDecision("d", 0, "camera", outcome, verdicts, (), "m", "p")
    assert ends_with_question(decision) is expected
