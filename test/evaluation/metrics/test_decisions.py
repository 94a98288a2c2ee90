# SPDX-License-Identifier: Apache-2.0
"""When a laptop ends with a question, and what is wrongfully released where a person is asked about as many."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sticker_uq.evaluation.metrics.decisions import (
    BLADE_IOU,
    FREE_LOGO,
    Count,
    DecisionCounts,
    harmful,
    released_regions,
    wrongful_share,
)
from sticker_uq.gate import Policy
from sticker_uq.gate.judge import once_peeled
from sticker_uq.io.coco import LabelledImage
from sticker_uq.scene import Detections, ObjectClass, ObjectVerdict, Outcome, SceneDecision, Verdict
from sticker_uq.testing.scenes import assessment, object_at

PEELED, SAME, ELSEWHERE = (10.0, 10.0, 50.0, 40.0), (11.0, 10.0, 51.0, 40.0), (80.0, 60.0, 120.0, 90.0)
REMOVE, KEEP, ASK, UNKNOWN = Verdict.REMOVE, Verdict.KEEP, Verdict.ASK, Verdict.UNKNOWN
OPEN = Policy(max_dil=1.0, max_dil_clean=1.0)


def decided(outcome, *objects):
    verdicts = tuple(
        ObjectVerdict(object_at(box, ObjectClass.STICKER), verdict, ()) for verdict, box in objects
    )
    return SceneDecision("d", 0, "camera", outcome, verdicts, (), "m", "p")


@pytest.mark.parametrize(
    ("outcome", "objects", "expected"),
    [
        (Outcome.WORK, [(REMOVE, PEELED), (KEEP, ELSEWHERE)], Outcome.CLEAN),
        (Outcome.WORK, [(REMOVE, PEELED), (ASK, SAME)], Outcome.CLEAN),  # it is peeled with the other
        (Outcome.WORK, [(REMOVE, PEELED), (ASK, ELSEWHERE)], Outcome.ASK),
        (Outcome.WORK, [(REMOVE, PEELED), (UNKNOWN, ELSEWHERE)], Outcome.ASK),
        (Outcome.CLEAN, [(KEEP, ELSEWHERE)], Outcome.CLEAN),
        (Outcome.ASK, [(REMOVE, PEELED)], Outcome.ASK),
        (Outcome.BLOCKED, [], Outcome.BLOCKED),
    ],
)
def test_what_is_in_doubt_once_the_released_is_gone_is_a_question(outcome, objects, expected):
    decision = decided(outcome, *objects)
    assert once_peeled(decision, assessment(), OPEN).outcome is expected


def test_what_stays_alone_must_be_clean_enough_too():
    decision = decided(Outcome.WORK, (REMOVE, PEELED), (KEEP, ELSEWHERE))
    for policy in (
        OPEN.model_copy(update={"max_left_probability": 0.02}),
        OPEN.model_copy(update={"clean_without_operator": False}),
    ):
        end = once_peeled(decision, assessment(), policy)
        assert end.outcome is Outcome.ASK
        assert end.reasons
        assert [one.verdict for one in end.verdicts] == [KEEP]


LOGO, STICKER = int(ObjectClass.LOGO), int(ObjectClass.STICKER)
cells = st.integers(0, 12)
rectangles = st.tuples(cells, cells, cells, cells).map(
    lambda c: (min(c[0], c[2]), min(c[1], c[3]), max(c[0], c[2]) + 1, max(c[1], c[3]) + 1)
)


@given(rectangles, rectangles, st.lists(rectangles, min_size=1, max_size=3))
def test_a_free_logo_is_what_no_sticker_covers_as_drawn_in_pixels(released, logo, stickers):
    def drawn(*boxes):
        picture = np.zeros((14, 14), bool)
        for x1, y1, x2, y2 in boxes:
            picture[y1:y2, x1:x2] = True
        return picture

    boxes, labels = np.array([logo, *stickers], float), np.array([LOGO, *[STICKER] * len(stickers)])
    taken = (drawn(released) & drawn(logo) & ~drawn(*stickers)).sum() / drawn(logo).sum()
    overlaps = [
        (drawn(released) & drawn(one)).sum() / (drawn(released) | drawn(one)).sum()
        for one in boxes.astype(int)
    ]
    best = int(np.argmax(overlaps))
    meets = overlaps[best] >= BLADE_IOU and labels[best] == STICKER
    assume(abs(taken - FREE_LOGO) > 1e-9)
    assert harmful(np.array([released], float), boxes, labels).tolist() == [not meets or taken > FREE_LOGO]


def test_a_sticker_on_a_logo_may_go_and_a_box_that_takes_the_logo_with_it_may_not():
    boxes, labels = np.array([[0, 0, 100, 40], [0, 0, 60, 40]], float), np.array([LOGO, STICKER])
    released = np.array([[0, 0, 62, 40], [0, 0, 75, 40], [0, 0, 100, 40], [200, 0, 240, 40]], float)
    assert harmful(released, boxes, labels).tolist() == [False, True, True, True]
    assert harmful(np.zeros((0, 4)), boxes, labels).tolist() == []


def test_the_region_that_is_released_is_what_does_harm_not_the_box():
    boxes, labels = np.array([[0, 0, 100, 40], [0, 0, 60, 40]], float), np.array([LOGO, STICKER])
    observed_box = (0, 0, 75, 40)
    for margin, harm in ((0.0, True), (0.1, False)):
        verdict = ObjectVerdict(
            object_at(observed_box, ObjectClass.STICKER), Verdict.REMOVE, (), margin=margin
        )
        released = released_regions(replace(decided(Outcome.WORK), verdicts=(verdict,)))
        assert harmful(released, boxes, labels).tolist() == [harm]


@given(rectangles, st.floats(0, 0.3))
def test_a_region_lies_inside_its_box_by_the_margin(box, margin):
    verdict = ObjectVerdict(object_at(box, ObjectClass.STICKER), Verdict.REMOVE, (), margin=margin)
    x1, y1, x2, y2 = verdict.region
    width, height = box[2] - box[0], box[3] - box[1]
    assert np.allclose([x1 - box[0], box[2] - x2], margin * width)
    assert np.allclose([y1 - box[1], box[3] - y2], margin * height)
    assert x1 < x2
    assert y1 < y2


def test_the_last_picture_of_a_laptop_is_its_end_and_bare_ones_count_apart():
    counts = DecisionCounts()
    work, clean = decided(Outcome.WORK, (REMOVE, PEELED)), decided(Outcome.CLEAN)
    here, nothing = np.array([PEELED]), np.zeros((0, 4))
    sticker, none = np.array([STICKER]), np.zeros(0, np.int64)

    def add(laptop, boxes, labels, decision):
        counts.add(laptop, boxes, labels, decision, once_peeled(decision, assessment(), OPEN))

    add("peeled", here, sticker, work)
    add("two looks", np.array([PEELED, ELSEWHERE]), np.array([STICKER] * 2), work)
    add("two looks", np.array([ELSEWHERE]), sticker, clean)
    add("overlooked at first, then asked about", here, sticker, clean)
    add("overlooked at first, then asked about", here, sticker, decided(Outcome.ASK, (ASK, PEELED)))
    add("bare", nothing, none, clean)
    add("bare and harmed", nothing, none, work)
    found = counts.measure()
    assert (found.left, found.clean) == (Count(1, 2), Count(2, 2))
    assert (found.asked, found.wrongful, found.removed) == (Count(1, 5), Count(1, 5), Count(2, 6))


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
