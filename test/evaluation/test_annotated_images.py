# SPDX-License-Identifier: Apache-2.0
"""What the pictures show: every object, its verdict, and why."""

from dataclasses import replace

import numpy as np
import pytest

from sticker_uq.evaluation import annotated_images as pictures
from sticker_uq.evaluation.annotated_images import annotate, saliency_overlay
from sticker_uq.scene import InvalidInput, ObjectClass, ObjectVerdict, Reason, Status, Verdict


@pytest.fixture
def written(monkeypatch):
    """Every text that is written into a picture."""
    texts = []
    draw = pictures.ImageDraw.Draw

    def spy(*arguments):
        pen = draw(*arguments)
        write = pen.text

        def text(place, words, **options):
            texts.append(words)
            write(place, words, **options)

        pen.text = text
        return pen

    monkeypatch.setattr(pictures.ImageDraw, "Draw", spy)
    return texts


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
    said = " / ".join(written)
    for verdict in decision.verdicts:
        kind = verdict.object.label.name.lower()
        assert f"#{verdict.object.id} {verdict.verdict.name}  {kind}" in said
        assert f"{verdict.object.passes}/20" in said
    assert "within all limits" in said
    assert "P(sticker) 0.3 < 0.8" in said
    assert "too few passes detected it: 2" in said
    assert "DiL 0.21" in said


def test_a_sticker_by_its_close_up_says_how_sure_that_is(image, assessment, written):
    seen = replace(assessment.objects[0], label=ObjectClass.STICKER, close_up=0.95)
    nearby = replace(seen, id=8, probabilities=np.array([0.6, 0.1, 0.3], np.float32))
    annotate(image, replace(assessment, objects=(seen, nearby)))
    assert any("#8 sticker 0.3, close-up 0.95  " in words for words in written)
    assert sum("close-up" in words for words in written) == 1


def test_a_sticker_that_only_a_person_saw_is_drawn(image, assessment, decision, written):
    drawn = replace(assessment.unstable[0], id=9, box=np.array([20, 250, 90, 320], np.float32))
    by_operator = ObjectVerdict(drawn, Verdict.REMOVE, (Reason("operator_drew"),), by_operator=True)
    annotate(image, assessment, replace(decision, verdicts=(*decision.verdicts, by_operator)))
    said = " / ".join(written)
    assert "#9 REMOVE" in said
    assert "an operator said so" in said


def test_a_failed_assessment_says_so(image, assessment, written):
    failed = replace(
        assessment, status=Status.FAILED, status_text="no weights", image_size=(0, 0), objects=(), unstable=()
    )
    picture = annotate(image, failed)
    assert written == ["FAILED", "no weights"]
    assert np.array_equal(picture[60:], image[60:])


def test_an_assessment_of_another_image_is_refused(image, assessment):
    with pytest.raises(InvalidInput, match=r"image of 470 x 360 px for an assessment of \(480, 360\) px"):
        annotate(image[:, :470], assessment)


def test_the_saliency_lies_over_the_image_where_it_is(image, assessment):
    hill = np.zeros(image.shape[:2], np.float32)
    hill[40:60, 50:70] = 1.0
    located = replace(assessment.localization, saliency=hill, unexplained=())
    drawn = saliency_overlay(image, replace(assessment, objects=(), unstable=(), localization=located))
    assert (drawn[50, 60] != image[50, 60]).any()
    np.testing.assert_array_equal(drawn[-5:], image[-5:])
    with pytest.raises(InvalidInput, match="saliency of shape None"):
        saliency_overlay(image, assessment)
