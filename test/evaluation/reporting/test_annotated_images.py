# SPDX-License-Identifier: Apache-2.0
"""What the pictures show: every object, its verdict, and nothing outside the picture."""

from dataclasses import replace

import numpy as np
import pytest

from sticker_uq.evaluation.reporting import annotated_images as pictures
from sticker_uq.evaluation.reporting.annotated_images import (
    CLASS_COLOURS,
    VERDICT_COLOURS,
    annotate,
    saliency_overlay,
)
from sticker_uq.gate.judge import judge
from sticker_uq.gate.policy.policy import Policy
from sticker_uq.scene import InvalidInput, ObjectVerdict, Reason, Status, UnexplainedRegion, Verdict


@pytest.fixture
def written(monkeypatch):
    """Every text that is written into a picture, with its place."""
    texts = []
    draw = pictures.ImageDraw.Draw

    def spy(*arguments):
        pen = draw(*arguments)
        write = pen.text

        def text(place, words, **options):
            texts.append((words, pen.textbbox(place, words, font=options["font"], anchor=options["anchor"])))
            write(place, words, **options)

        pen.text = text
        return pen

    monkeypatch.setattr(pictures.ImageDraw, "Draw", spy)
    return texts


def edge(picture, box):
    """The pixels on the left edge of a box, as a list of colours."""
    x, y1, y2 = round(float(box[0])), round(float(box[1])), round(float(box[3]))
    return [tuple(int(v) for v in pixel) for pixel in picture[y1 + 8 : y2 - 8, x]]


def test_boxes_have_the_colour_of_their_verdict(image, assessment, decision):
    picture = annotate(image, assessment, decision)
    assert {v.verdict for v in decision.verdicts} == {Verdict.REMOVE, Verdict.KEEP, Verdict.ASK}
    for verdict in decision.verdicts:
        colour = VERDICT_COLOURS[verdict.verdict][::-1]
        share = np.mean([pixel == colour for pixel in edge(picture, verdict.object.box)])
        assert 0.2 < share < 0.9 if verdict.object.unstable else share > 0.5
    undecided = annotate(image, assessment)
    for observed in assessment.objects:
        assert CLASS_COLOURS[observed.label][::-1] in edge(undecided, observed.box)


def test_the_image_itself_is_left_alone_and_the_size_stays(image, assessment, decision):
    before = image.copy()
    decision = replace(decision, reasons=(Reason.of("perception_restricted", detail="Ü ≤ ✓ 検査"),))
    picture = annotate(image, assessment, decision)
    assert np.array_equal(image, before)
    assert picture.shape == image.shape
    assert picture.dtype == np.uint8
    assert picture.flags.c_contiguous
    assert np.array_equal(picture, annotate(image, assessment, decision))


def test_every_object_is_named_with_what_decided(image, assessment, decision, written):
    annotate(image, assessment, decision)
    said = " / ".join(words for words, _ in written)
    for verdict in decision.verdicts:
        kind = verdict.object.label.name.lower()
        assert f"#{verdict.object.id} {verdict.verdict.name}  {kind}" in said
        assert f"{verdict.object.passes}/20" in said
    assert "within all limits" in said
    assert "P(sticker) 0.3 < 0.8" in said
    assert "too few passes detected it: 2" in said
    assert "DiL 0.21" in said


def test_all_words_lie_inside_the_picture_whatever_the_boxes(image, assessment, decision, written):
    width, height = assessment.image_size
    corners = [
        (0, 0, 30, 20),
        (width - 30, 0, width, 20),
        (0, height - 20, 30, height),
        (width - 9, height - 9, width, height),
    ]
    observed = tuple(
        replace(o, box=np.array(box, np.float32), corner_hulls=())
        for o, box in zip((*assessment.objects, *assessment.unstable), corners, strict=True)
    )
    moved = replace(assessment, objects=observed[:3], unstable=observed[3:])
    annotate(image, moved, judge(moved, Policy()))
    assert len(written) == 2 + 2 * 4
    for words, (x1, y1, x2, y2) in written:
        assert 0 <= x1 <= x2 <= width, words
        assert 0 <= y1 <= y2 <= height, words


def test_tags_of_neighbours_do_not_cover_each_other(image, assessment, decision, written):
    annotate(image, assessment, decision)
    places = [place for _, place in written]
    for index, (ax1, ay1, ax2, ay2) in enumerate(places):
        for bx1, by1, bx2, by2 in places[index + 1 :]:
            assert min(ax2, bx2) <= max(ax1, bx1) or min(ay2, by2) <= max(ay1, by1) + 2


def test_a_sticker_that_only_a_person_saw_is_drawn(image, assessment, decision, written):
    drawn = replace(assessment.unstable[0], id=9, box=np.array([20, 250, 90, 320], np.float32))
    by_operator = ObjectVerdict(drawn, Verdict.REMOVE, (Reason("operator_drew"),), by_operator=True)
    annotate(image, assessment, replace(decision, verdicts=(*decision.verdicts, by_operator)))
    said = " / ".join(words for words, _ in written)
    assert "#9 REMOVE" in said
    assert "an operator said so" in said


def test_a_failed_assessment_says_so(image, assessment, written):
    failed = replace(
        assessment, status=Status.FAILED, status_text="no weights", image_size=(0, 0), objects=(), unstable=()
    )
    picture = annotate(image, failed)
    assert tuple(words for words, _ in written) == ("FAILED", "no weights")
    assert np.array_equal(picture[60:], image[60:])


def test_an_assessment_of_another_image_is_refused(image, assessment):
    with pytest.raises(InvalidInput, match=r"image of 470 x 360 px for an assessment of \(480, 360\) px"):
        annotate(image[:, :470], assessment)


def test_what_no_box_explains_is_marked_and_named(image, assessment, written):
    region = UnexplainedRegion(np.float32([20, 200, 70, 240]), objectness=0.31, share=0.4)
    located = replace(assessment.localization, unexplained=(region,))
    plain = annotate(image, assessment)
    written.clear()
    marked = annotate(image, replace(assessment, localization=located))
    assert any("missed? 0.31" in words for words, _ in written)
    assert (marked[200:206, 20] == np.array(pictures.RED[::-1])).all()
    assert (plain[200:206, 20] != np.array(pictures.RED[::-1])).any()


def test_the_saliency_lies_over_the_image_with_contours(image, assessment):
    height, width = image.shape[:2]
    y, x = np.mgrid[:height, :width]
    hill = np.exp(-((x - 60.0) ** 2 + (y - 50.0) ** 2) / 400).astype(np.float32)
    located = replace(assessment.localization, saliency=hill)
    drawn = saliency_overlay(image, replace(assessment, objects=(), unstable=(), localization=located))
    assert drawn.shape == image.shape
    assert (drawn[50, 60] != image[50, 60]).any()
    far = drawn[-5:, -5:].astype(int) - image[-5:, -5:]
    assert np.abs(far).max() <= 1
    half = round(60 + (400 * np.log(2)) ** 0.5)
    assert (drawn[50, half - 4 : half + 4].min(axis=1) > 200).any(), (
        "no contour at half of the largest saliency"
    )
    flat = replace(assessment.localization, saliency=np.zeros((height, width), np.float32))
    np.testing.assert_array_equal(
        saliency_overlay(image, replace(assessment, objects=(), localization=replace(flat, unexplained=()))),
        image,
    )
    with pytest.raises(InvalidInput, match="saliency of shape None"):
        saliency_overlay(image, assessment)
