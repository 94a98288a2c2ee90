# SPDX-License-Identifier: Apache-2.0
"""How a question is shown and answered on the operator's page, in a real browser, without a cell behind it."""

import pytest
from playwright.sync_api import expect

from test.helpers.operator import BOX, ELSEWHERE, OTHER, REGION, SCENE
from test.helpers.operator_page import asked, reason


def test_without_a_name_nothing_is_sent_and_a_refusal_is_shown_with_its_reason(operator):
    operator.cell.refusal = reason("box_outside_image", width=960, height=720)
    operator.see(asked(BOX))
    operator.says(0, "Peel it")
    operator.page.click("#send")
    expect(operator.page.locator("#message")).to_have_text("Not sent yet: please enter your name.")
    expect(operator.page.locator("#who")).to_be_focused()
    assert operator.cell.answers == []
    operator.is_called("Ada")
    operator.page.click("#send")
    expect(operator.page.locator("#message")).to_have_text(
        "Answer: NOT done: A box lies outside the picture of 960 x 720 px"
    )
    # somebody else's answer is not taken for the one that was refused
    answer = {"request_id": "r1", "person": "Grace", "scene": "clean", "answers": []}
    operator.state.put("answered", answer)
    operator.state.put("request", None)
    expect(operator.page.locator("#message")).to_contain_text("Answer of Grace taken.")


def test_keys_alone_are_enough(operator):
    operator.see(asked(BOX), asked(OTHER))
    operator.is_called("Ada")
    keys = operator.page.keyboard
    keys.press("Enter")  # leaves the name
    keys.press("n")
    keys.press("2")
    keys.press("p")
    keys.press("d")
    for key in ("ArrowLeft", "Shift+ArrowRight", "ArrowDown", "Enter"):
        keys.press(key)
    keys.press("Enter")
    expect(operator.page.locator("#message")).to_have_text("Answer taken. The machine goes on by itself.")
    first, second, drawn = operator.cell.answers[0].answers
    assert [first.answer, second.answer, drawn.answer] == ["not_there", "remove", "missed"]
    # begun in the middle fifth of 960x720; a step is a hundredth of the width
    step = 10
    assert (drawn.x1, drawn.x2) == pytest.approx((384 - step, 576), abs=0.5)
    assert (drawn.y1, drawn.y2) == pytest.approx((288 + step, 432 + step), abs=0.5)


def test_a_missed_sticker_is_drawn_listed_and_taken_back(operator):
    operator.see(asked(BOX), asked(OTHER))
    operator.is_called("Ada")
    drawn = operator.page.locator("#drawn li")
    operator.drags(150, 400, 250, 470)
    expect(drawn).to_have_count(0)  # nothing is drawn by chance
    expect(operator.page.locator("#message")).to_contain_text("press Draw a missed sticker first")
    operator.page.click("#draw")
    expect(operator.page.locator("#draw-hint")).to_contain_text("Drag a box around each sticker")
    for left in (150, 700):  # drawing stays on
        operator.drags(left, 400, left + 100, 470)
    expect(drawn).to_have_count(2)
    operator.page.click("#draw")
    expect(operator.page.locator("#draw-hint")).to_be_hidden()
    operator.drags(450, 500, 480, 560)
    expect(drawn).to_have_count(2)
    expect(drawn.last).to_contain_text("B  Missed sticker")
    drawn.first.get_by_role("button", name="Take back").click()
    expect(drawn).to_have_count(1)
    operator.says(0, "Nothing is there")
    operator.says(1, "Leave it")
    operator.sends()
    answers = operator.cell.answers[0].answers
    assert [a.answer for a in answers] == ["not_there", "keep", "missed"]
    box = answers[-1]
    assert (box.x1, box.y1, box.x2, box.y2) == pytest.approx((700, 400, 800, 470), abs=3)


def test_an_answer_cannot_contradict_itself(operator):
    inside = {"x1": BOX["x1"] + 8, "y1": BOX["y1"], "x2": BOX["x2"], "y2": BOX["y2"]}
    operator.see(asked(BOX), asked(OTHER), asked(inside))
    operator.is_called("Ada")
    page, message = operator.page, operator.page.locator("#message")
    clean = page.locator("#scene").get_by_role("button", name="No sticker is left")
    operator.says(0, "Peel it")
    clean.click(force=True)
    expect(message).to_have_text("You said that something is to be peeled. Take that back first.")
    expect(clean).to_have_attribute("aria-pressed", "false")
    operator.says(0, "Leave it")
    clean.click()
    expect(clean).to_have_attribute("aria-pressed", "true")
    operator.says(1, "Peel it")  # what is said last stands
    expect(clean).to_have_attribute("aria-pressed", "false")
    page.click("#draw")
    operator.drags(inside["x1"], inside["y1"], inside["x2"], inside["y2"])
    expect(message).to_have_text("That is 1. Press Peel it there.")
    expect(page.locator("#drawn li")).to_have_count(0)
    operator.says(2, "Nothing is there")
    page.click("#send", force=True)
    expect(message).to_have_text("1 and 3 are the same place: give both the same answer")
    assert operator.cell.answers == []
    operator.says(2, "Leave it")
    page.get_by_role("button", name="Look again").click()
    operator.sends()
    assert [(said.scene, said.answers) for said in operator.cell.answers] == [("rescan", [])]


def test_no_sticker_is_left_is_asked_once_more_with_all_that_looks_like_one(operator):
    page, sure = operator.page, operator.page.locator("#sure")
    peel = {**SCENE["objects"][0], "label": 2, "box": OTHER, "verdict": "remove", "must_mention": True}
    later = {**peel, "box": ELSEWHERE}
    operator.see(asked(BOX), asked(REGION, label=1), scene={**SCENE, "objects": [*SCENE["objects"], peel]})
    operator.state.put("scene", {**SCENE, "stamp": "3000", "objects": [peel, later]})
    operator.state.put("workpiece", "laptop-9")
    expect(page.locator("#title")).to_have_text("Laptop 9")  # and so the newest scene is there, too
    operator.is_called("Ada")
    page.locator("#who").blur()
    expect(sure).to_be_hidden()
    page.keyboard.press("c")
    for _ in range(3):
        page.keyboard.press("Enter")  # a second one takes nothing for granted
        expect(sure).to_be_visible()
        expect(page.locator("#sure-places strong")).to_have_text(
            ["1", "without a question", "without a question"]
        )
        expect(page.locator("#send")).to_be_hidden()
        page.keyboard.press("Enter")
        expect(sure).to_be_hidden()
    assert operator.cell.answers == []
    page.click("#send")
    operator.says(0, "Leave it")  # something else is said
    expect(sure).to_be_hidden()
    page.keyboard.press("c")
    page.click("#send")
    page.click("#sure-yes")
    expect(page.locator("#message")).to_contain_text("Answer taken.")
    (said,) = operator.cell.answers
    assert (said.scene, said.answers) == ("clean", [])
    assert [place.model_dump() for place in said.not_stickers] == [BOX, OTHER, ELSEWHERE]


def test_a_reload_loses_nothing(operator):
    operator.see(asked(BOX), asked(OTHER))
    operator.is_called("Ada")
    operator.says(1, "Peel it")
    operator.page.keyboard.press("d")
    operator.page.keyboard.press("Enter")
    expect(operator.page.locator("#drawn li")).to_have_count(1)
    operator.page.reload()
    expect(operator.page.locator("#objects li")).to_have_count(2)
    expect(operator.page.locator("#who")).to_have_value("Ada")
    operator.says(0, "Leave it")
    operator.sends()
    assert [a.answer for a in operator.cell.answers[0].answers] == ["keep", "remove", "missed"]


def test_a_question_marks_what_was_missed_on_its_own_picture(operator):
    question_scene = {**SCENE, "stamp": "1000", "unexplained": [{"box": ELSEWHERE}]}
    missed = reason("missed_place", "unexplained_objectness", 0.4, 0.1, box=BOX)
    operator.see(reasons=[missed], scene=question_scene)
    picture = operator.page.locator("#picture")
    expect(picture).to_have_attribute("src", "picture/1000.jpg")
    operator.expect_marked(BOX, ELSEWHERE)
    operator.page.keyboard.press("v")  # the live scene has its own, and the question is not about it
    expect(picture).to_have_attribute("src", "picture/2000.jpg")
    operator.expect_marked(REGION)
    operator.page.keyboard.press("v")
    operator.page.keyboard.press("b")
    operator.expect_marked()
    operator.page.keyboard.press("b")
    operator.see(reasons=[missed], identity="r2")  # its scene is not known any more: the cause is
    operator.expect_marked(BOX)


def test_the_attention_of_a_question_is_that_of_its_picture_or_none(operator):
    operator.state.put("heat", "1990")
    operator.see(asked(BOX), heat=True)
    heat = operator.page.locator("#heat")
    expect(heat).to_be_hidden()
    operator.page.keyboard.press("a")
    expect(heat).to_have_attribute("src", "heat/1000.png")
    operator.page.click("#layer-live")
    expect(heat).to_have_attribute("src", "heat/1990.png")
    operator.page.click("#layer-live")
    operator.see(asked(BOX), identity="r2", heat=False)
    expect(heat).to_be_hidden()
    expect(operator.page.locator("#which")).to_contain_text("was not recorded")
    operator.page.reload()  # the wish is remembered
    expect(operator.page.locator("#layer-heat")).to_have_attribute("aria-pressed", "true")


def test_a_spot_check_asks_for_what_the_page_takes(operator):
    operator.see(asked(BOX), reasons=[reason("spot_check")])
    expect(operator.page.locator("#reasons .why")).to_contain_text("A check of the machine")
    instruction = operator.page.locator("#look")
    expect(instruction).to_have_text(
        "Decide every object with a number. Draw a box around each sticker that has no number."
    )
    operator.page.click("#draw")
    operator.drags(200, 200, 320, 300)  # where the object with the number is
    expect(operator.page.locator("#message")).to_have_text("That is 1. Press Peel it there.")
    operator.is_called("Ada")
    operator.says(0, "Peel it")
    operator.drags(500, 350, 640, 450)
    operator.sends()
    assert [answer.answer for answer in operator.cell.answers[0].answers] == ["remove", "missed"]


def test_boxes_are_never_drawn_over_another_picture(operator):
    operator.see(asked(BOX), scene=SCENE)
    picture = operator.page.locator("#picture")
    expect(operator.page.locator("#no-picture")).to_be_hidden()
    operator.cell.picture = lambda _: b""  # not kept
    operator.see(asked(OTHER), shown=False, identity="r2", stamp="1001", scene=SCENE)
    expect(operator.page.locator("#no-picture")).to_be_visible()
    expect(picture).to_be_hidden()
    blank = "(canvas) => !canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean)"
    assert operator.page.locator("#overlay").evaluate(blank)


def test_without_its_picture_a_question_takes_no_answer_about_objects(operator):
    operator.see(asked(BOX), asked(OTHER), shown=False, picture=False)
    operator.is_called("Grace")
    page = operator.page
    blind = [*page.locator("#objects .row button").all(), *page.locator("#draw, #all").all()]
    assert len(blind) == 8
    for button in [*blind, page.get_by_role("button", name="No sticker is left")]:
        expect(button).to_have_attribute("aria-disabled", "true")
        button.click(force=True)
        expect(page.locator("#message")).to_contain_text("The picture of this question is not there.")
    page.keyboard.press("Enter")
    page.click("#send", force=True)
    assert operator.cell.answers == []
    page.get_by_role("button", name="Look again").click()
    operator.sends()
    [said] = operator.cell.answers
    assert (said.scene, said.answers, said.image_ns) == ("rescan", [], 0)


def test_an_answer_names_the_picture_that_was_seen(operator):
    operator.see(asked(BOX))
    operator.is_called("Grace")
    operator.says(0, "Leave it")
    operator.sends()
    assert operator.cell.answers[0].image_ns == 1000


def test_a_picture_that_was_shown_before_its_question_counts_as_seen(operator):
    operator.state.put("scene", SCENE)  # live, of stamp 2000
    expect(operator.page.locator("#picture")).to_have_js_property("naturalWidth", 960)
    operator.see(asked(BOX), stamp=SCENE["stamp"])
    operator.is_called("Grace")
    operator.says(0, "Leave it")
    operator.sends()
    assert operator.cell.answers[0].image_ns == 2000
