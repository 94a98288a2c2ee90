# SPDX-License-Identifier: Apache-2.0
"""When a laptop ends with a question, and what is wrongfully released where a person is asked about as many."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sticker_uq.evaluation.metrics.decisions import ends_with_question, wrongful_share
from sticker_uq.io.coco import LabelledImage
from sticker_uq.scene import Detections, ObjectClass, ObjectVerdict, Outcome, SceneDecision, Verdict
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
    assert ends_with_question(SceneDecision("d", 0, "camera", outcome, verdicts, (), "m", "p")) is expected


def test_detectors_are_compared_where_they_ask_about_as_many():
    def seen(score, box=PEELED):
        return Detections(np.float32([box]), np.float32([[1 - score, 0, score]]))

    truth = LabelledImage(Path("x.png"), 1, 200, 100, np.float32([PEELED]), np.array([ObjectClass.STICKER]))
    right = [seen(0.9)] * 7
    doubtful = [seen(score, ELSEWHERE) for score in (0.7, 0.6, 0.5)]  # all three a question from 0.7 on: 30 %
    truths = [truth] * 10
    assert wrongful_share(right + doubtful, truths) == pytest.approx((0.1 + 0 + 0) / 3)
    sure = [seen(0.95, ELSEWHERE), *doubtful[1:]]  # only who asks about all ten gets by without a mistake
    assert wrongful_share(right + sure, truths) == pytest.approx(0.1)
    region = replace(truth, crowd=np.float32([ELSEWHERE]), crowd_labels=np.array([ObjectClass.STICKER]))
    assert wrongful_share(right + sure, [truth] * 7 + [region] + [truth] * 2) == 0
    twice = Detections(np.float32([PEELED, SAME]), np.float32([[0.1, 0, 0.9], [0.5, 0, 0.5]]))
    assert wrongful_share([twice] * 10, truths) == 0  # the second is peeled with the first
    assert (
        wrongful_share([Detections(np.zeros((0, 4), np.float32), np.zeros((0, 3), np.float32))], [truth]) == 0
    )
