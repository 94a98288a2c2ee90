# SPDX-License-Identifier: Apache-2.0
"""The page that asks about pictures, in a real browser: by keys alone, by taps alone, and in the words of the catalogue."""

import pytest
from playwright.sync_api import expect

from sticker_uq.calibration.answers import read_answers
from test.console.page.test_strings import bracket, words_outside_brackets
from test.console.test_asking import asking


@pytest.fixture
def page(tablet, tmp_path):
    with asking(tmp_path) as server:
        page, trouble = tablet.new_page(), []
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.goto(server.origin)
        expect(page.locator("#asked")).not_to_be_empty()
        yield page
        assert trouble == []


def asked(page, words):
    """Wait until this is asked, and can be answered."""
    expect(page.locator("#asked")).to_contain_text(words)
    expect(page.locator("#choices button").first).to_be_visible()


def answers(tmp_path):
    found = read_answers(tmp_path / "answers.jsonl")[1]
    return {name: ([box.answer for box in one.boxes], one.other) for name, one in found.items()}


def test_keys_alone_answer_and_take_back(page, tmp_path):
    press = page.keyboard.press
    asked(page, "Is any sticker on the laptop?")
    press("x")  # no answer to this
    press("n")
    asked(page, "Box 1 of 3")
    expect(page.locator("#marks rect")).to_have_count(3)
    expect(page.locator("#marks rect").first).to_have_class("asked")
    press("s")
    press("l")
    press("x")
    asked(page, "Boxes 1 and 2: are they on one sticker, or on two?")
    press("Backspace")
    asked(page, "Box 3 of 3")
    press("2")
    asked(page, "Box 2 of 3")
    press("x")
    asked(page, "Box 3 of 3")
    press("a")  # one is left, for which there is no such choice
    press("s")
    asked(page, "Is any other sticker on the laptop?")
    expect(page.locator("#boxes button")).to_have_text(["1: Sticker", "2: No sticker", "3: Sticker"])
    press("y")
    asked(page, "Box 1 of 1")
    press("Backspace")  # the laptop before
    asked(page, "Box 1 of 3")
    assert answers(tmp_path) == {"a": ([], False)}
    press("a")
    asked(page, "Boxes 1 and 2")
    press("o")
    press("n")
    asked(page, "Box 1 of 1")
    press("s")
    press("n")
    expect(page.locator("#asked")).to_have_text("All laptops are answered")
    expect(page.locator("#count")).to_have_text("3 of 3 laptops answered")
    assert answers(tmp_path) == {
        "a": ([], False),
        "b": (["sticker"] * 3, False),
        "c": (["sticker"], False),
    }


def test_taps_alone_answer_and_a_refusal_is_told(page, tmp_path):
    def tap(name):
        page.get_by_role("button", name=name).tap()

    asked(page, "Is any sticker")
    page.route("**/answer", lambda route: route.fulfill(status=507, json={"detail": "x"}))
    tap("Yes")
    expect(page.locator("#message")).to_have_text("NOT done: it could not be written: the disk may be full.")
    page.unroute("**/answer")
    tap("Yes")
    asked(page, "Box 1 of 3")
    expect(page.locator("#message")).to_be_empty()
    tap("All 3 are stickers")
    tap("Two stickers")
    tap("2: Sticker")
    tap("Sticker and part of a logo")
    tap("One sticker")
    tap("No")
    asked(page, "Box 1 of 1")
    assert answers(tmp_path) == {"a": ([], True), "b": (["sticker", "takes_logo", "sticker"], False)}


def test_no_answer_is_taken_about_a_picture_that_is_not_there(tablet, tmp_path):
    with asking(tmp_path) as server:
        page = tablet.new_page()
        page.route("**/picture/*", lambda route: route.fulfill(status=204))
        page.goto(server.origin)
        expect(page.locator("#asked")).to_contain_text("Is any sticker")
        expect(page.locator("#no-picture")).to_be_visible()
        page.keyboard.press("y")
        expect(page.locator("#choices button")).to_have_count(0)
        assert answers(tmp_path) == {}


def test_no_word_of_it_comes_from_anywhere_else(tablet, tmp_path):
    with asking(tmp_path) as server:
        page = tablet.new_page()
        bracket(page)
        page.goto(server.origin)
        shown = []
        for count, keys in ((0, "n"), (1, "slx"), (1, "o"), (1, "n"), (2, "xn")):
            expect(page.locator("#count")).to_contain_text(f"{count}\u27e6")
            expect(page.locator("#choices button").first).to_be_visible()
            shown.append(page.locator("body").inner_text())
            for key in keys:
                page.keyboard.press(key)
        expect(page.locator("#choices button")).to_have_count(0)
        page.click("#keys-title")
        text = "\n".join([*shown, page.locator("body").inner_text(), page.title()])
        text = text.replace("Backspace", "")  # as the key is named
        assert words_outside_brackets(text) == []
        assert text.count("\u27e6") > 40
