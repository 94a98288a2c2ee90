# SPDX-License-Identifier: Apache-2.0
"""All words of the page come from the catalogue of messages, which the cell serves."""

import json
import re

import pytest
from playwright.sync_api import expect

from sticker_uq.console.state import ConsoleState
from sticker_uq.gate.box_overlap import SAME_PLACE_IOU
from sticker_uq.messages import BLOCK_REASONS, MESSAGES, PAGE_LANGUAGES, PAGE_WORDS, SUBJECTS, placeholders
from sticker_uq.nodes.console.shown import reason_to_json
from sticker_uq.scene import Reason
from test.helpers.browser import FakeCell, served
from test.helpers.operator import BOX, OTHER, SCENE
from test.helpers.operator_page import asked, gate, reason, request

DRAWN = """
window.drawn = [];
const fillText = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
  window.drawn.push(text);
  return fillText.call(this, text, ...rest);
};
"""
PLAIN = "async (all) => { const { plain } = await import('/static/strings.js'); return all.map((each) => plain([each])); }"


def anything(code):
    """A reason of ``code`` with a number for everything that its message names."""
    names = placeholders(MESSAGES[code]) - {"value", "limit", "subject", "x1", "x2", "y1", "y2"}
    reason = Reason(code, "17", 1.5, 1.0, tuple((name, 17.0) for name in sorted(names)))
    return reason_to_json(reason, "\u27e6the words of the cell\u27e7")


@pytest.fixture
def page_and_state(tablet):
    state = ConsoleState(("detector", "supervisor"))
    with served(state, FakeCell()) as address:
        yield tablet.new_page(), state, address


def test_the_page_has_words_for_the_codes_and_of_the_values_of_the_catalogue():
    assert PAGE_WORDS["messages"].keys() == MESSAGES.keys()
    for code, words in PAGE_WORDS["messages"].items():
        # the numbers that decided are in the details
        assert placeholders(" ".join(all_values(words))) <= placeholders(MESSAGES[code]) - {
            "value",
            "limit",
            "x1",
            "x2",
            "y1",
            "y2",
        }, code
    assert PAGE_WORDS["doubts"].keys() <= SUBJECTS.keys()
    assert PAGE_WORDS["subjects"].keys() == SUBJECTS.keys()
    assert not any(placeholders(words) for words in PAGE_WORDS["doubts"].values())
    said = {name for words in MESSAGES.values() for name in placeholders(words)}
    assert PAGE_WORDS["values"].keys() >= said - {"value", "limit", "subject", "x1", "x2", "y1", "y2"}


@pytest.mark.parametrize("language", PAGE_LANGUAGES)
def test_a_language_has_every_text_with_the_same_values_and_none_in_english(language):
    words, english = flat(PAGE_LANGUAGES[language]), flat(PAGE_WORDS)
    assert words.keys() == english.keys()
    assert {"en", "da", "de"} <= PAGE_LANGUAGES.keys()
    for name, text in words.items():
        assert placeholders(text) == placeholders(english[name]), name
        assert bool(text) == bool(english[name]), name
    same = {text for name, text in words.items() if text and text == english[name]}
    assert language == "en" or same <= {"Log", "Program", "program", "logo", "Enter", "Laptop {name}"}


def flat(words, name=""):
    """Every text of a catalogue by its path."""
    if isinstance(words, str):
        return {name: words}
    entries = words.items() if isinstance(words, dict) else enumerate(words)
    return {path: text for key, each in entries for path, text in flat(each, f"{name}/{key}").items()}


def test_every_block_reason_has_an_advice_for_the_person_at_the_machine(page_and_state):
    page, state, address = page_and_state
    page.goto(address)
    advice = PAGE_WORDS["advice"]
    assert advice.keys() == BLOCK_REASONS.keys()
    for code, words in advice.items():
        assert len(words) > 10, code
        assert not placeholders(words), code
        state.put("gate", gate("blocked", code))
        expect(page.locator("#todo")).to_have_text(words)
        expect(page.locator("#asked")).to_have_text("What to do")


def test_what_is_said_first_has_no_word_of_the_makers(page_and_state):
    page, _, address = page_and_state
    page.goto(address)
    said = page.evaluate(PLAIN, [anything(code) for code in MESSAGES])
    others = {
        name: words for name, words in PAGE_WORDS.items() if name not in ("messages", "subjects", "nodes")
    }
    makers = re.compile(
        r"\b(supervisor|policy|policies|gate|permit|cell|publish\w*|monitor|not hold|closed)\b", re.IGNORECASE
    )
    assert [words for words in said if makers.search(words)] == []
    assert makers.findall(json.dumps(list(all_values(others)))) == []
    assert "upervisor" not in json.dumps(list(all_values(PAGE_WORDS)))


def all_values(words):
    if isinstance(words, str):
        yield words
    else:
        for each in words.values() if isinstance(words, dict) else words:
            yield from all_values(each)


def bracketed(words):
    """``words`` with every text in brackets; values stay outside, so that words among them are found."""
    if isinstance(words, str):
        return "\u27e6" + re.sub(r"(\{\w+\})", "\u27e7\\1\u27e6", words) + "\u27e7"
    if isinstance(words, dict):
        return {name: each if name == "lang" else bracketed(each) for name, each in words.items()}
    return [bracketed(each) for each in words]


def bracket(page):
    words = PAGE_WORDS | {"languages": {"en": PAGE_WORDS["language"]}}
    body = f"export const STRINGS = {json.dumps(bracketed(words))}, SAME_PLACE_IOU = {SAME_PLACE_IOU};"
    page.route("**/static/words.js", lambda route: route.fulfill(body=body, content_type="text/javascript"))


def words_outside_brackets(text):
    while "\u27e6" in text:
        less = re.sub("\u27e6[^\u27e6\u27e7]*\u27e7", " ", text)
        assert less != text, text
        text = less
    return re.findall(r"[^\W\d_]{2,}", text)


def test_no_word_of_the_sign_in_comes_from_anywhere_else(tablet, tmp_path):
    with served(ConsoleState(), FakeCell(), token_file=str(tmp_path / "token")) as address:
        page = tablet.new_page()
        bracket(page)
        page.goto(address)
        expect(page.locator("#secret-label")).not_to_be_empty()
        page.fill("#secret", "17")
        page.click("#send")
        expect(page.locator("#message")).not_to_be_empty()
        shown = page.locator("body").inner_text() + "\n" + page.title()
        assert shown.count("\u27e6") >= 4
        assert words_outside_brackets(shown) == []


def test_no_word_of_the_page_comes_from_anywhere_else(page_and_state):
    page, state, address = page_and_state
    bracket(page)
    page.add_init_script(DRAWN)
    page.goto(address)
    everything = [anything(code) for code in MESSAGES]
    closed = [anything(code) for code in BLOCK_REASONS]
    state.put("gate", {"state": "fault", "closed": closed, "details": everything, "held": True})
    state.put("workpiece", "17")
    state.put("scene", SCENE)
    state.put("request", request(asked(BOX, *everything), asked(OTHER), reasons=[reason(box=BOX)]))
    for kind in ("arrived", "asked", "answered", "done_left", "hold", "gate_blocked"):
        state.add_event(10**9, kind, everything[:3], name="17", answers=["remove", "clean"])
    state.report("detector", "images", 1, "17")
    expect(page.locator("#objects li")).to_have_count(2)
    for title in ("#health-title", "#history-title", "#keys-title"):
        page.click(title)
    expect(page.locator("#draw")).to_have_attribute("aria-disabled", "false")  # the picture is there
    page.keyboard.press("d")
    page.click("#send", force=True)
    expect(page.locator("#message")).not_to_be_empty()
    shown = page.locator("body").inner_text() + "\n" + page.title() + "\n".join(page.evaluate("window.drawn"))
    attributes = page.evaluate(
        "[...document.querySelectorAll('*')].flatMap("
        "(e) => ['alt', 'title', 'placeholder', 'aria-label'].map((a) => e.getAttribute(a) || ''))"
    )
    text = shown + "\n" + "\n".join(attributes)
    assert words_outside_brackets(text) == [], text
    assert json.dumps(shown).count("\\u27e6") > 200, "the page was full of words"
