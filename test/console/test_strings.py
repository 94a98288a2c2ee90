# SPDX-License-Identifier: Apache-2.0
"""All words of the page come from one file, which has the same codes as the catalogue of messages."""

import json
import re

import pytest
from playwright.sync_api import expect

from sticker_uq.console.state import ConsoleState
from sticker_uq.gate.policy.policy import LIMITED_METRICS
from sticker_uq.messages import BLOCK_REASONS, MESSAGES, SUBJECTS, placeholders
from sticker_uq.nodes.console.scene import shown_reason
from sticker_uq.scene import METRICS, Reason
from test.console.test_page import BOX, OTHER, SCENE
from test.helpers.browser import FakeCell, served
from test.helpers.operator_page import asked, gate, reason, request

BOX_EDGES = {"x1", "y1", "x2", "y2"}
"""The page marks a place instead of naming it."""
BRACKETED = """
const wrap = (value, name) => name === "lang" ? value : typeof value === "string" ? "\u27e6" + value + "\u27e7"
  : Array.isArray(value) ? value.map(wrap) : Object.fromEntries(Object.entries(value).map(([k, v]) => [k, wrap(v, k)]));
export const STRINGS = wrap(RAW);
"""
DRAWN = """
window.drawn = [];
const fillText = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
  window.drawn.push(text);
  return fillText.call(this, text, ...rest);
};
"""
PLAIN = "async (all) => { const { plain } = await import('/static/strings.js'); return all.map((each) => plain([each])); }"
SAY = "async (reason) => (await import('/static/strings.js')).say(reason)"


def anything(code):
    """A reason of ``code`` with a number for everything that its message names."""
    names = placeholders(MESSAGES[code]) - {"value", "limit", "subject"} - BOX_EDGES
    return shown_reason(Reason(code, "17", 1.5, 1.0, tuple((name, 17.0) for name in sorted(names))))


@pytest.fixture
def page_and_state(tablet):
    state = ConsoleState(("detector", "supervisor"))
    with served(state, FakeCell()) as address:
        page = tablet.new_page()
        yield page, state, address


def test_the_page_has_the_codes_and_the_placeholders_of_the_catalogue(page_and_state):
    page, _, address = page_and_state
    page.goto(address)
    strings = page.evaluate("async () => (await import('/static/strings.js')).STRINGS")
    assert strings["messages"].keys() == MESSAGES.keys()
    # a metric without a limit is never the subject of a reason
    unlimited = METRICS.keys() - LIMITED_METRICS
    assert SUBJECTS.keys() - unlimited <= strings["subjects"].keys() <= SUBJECTS.keys()
    for code, template in MESSAGES.items():
        assert placeholders(strings["messages"][code]) == placeholders(template) - BOX_EDGES, code
    # what comes before the details is about the same things, and has no numbers
    assert strings["plain"].keys() <= MESSAGES.keys()
    assert strings["doubts"].keys() <= SUBJECTS.keys()
    for words in (*strings["plain"].values(), *strings["doubts"].values()):
        assert placeholders(words) <= {"subject"}


def test_every_block_reason_has_an_advice_for_the_person_at_the_machine(page_and_state):
    page, state, address = page_and_state
    page.goto(address)
    advice = page.evaluate("async () => (await import('/static/strings.js')).STRINGS.advice")
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
    strings = page.evaluate("async () => (await import('/static/strings.js')).STRINGS")
    # the numbers in Details are for whoever is called
    others = {name: words for name, words in strings.items() if name not in ("messages", "subjects", "nodes")}
    makers = re.compile(
        r"\b(supervisor|policy|policies|gate|permit|cell|publish\w*|monitor|not hold|closed)\b", re.IGNORECASE
    )
    assert [words for words in said if makers.search(words)] == []
    assert makers.findall(json.dumps(list(all_values(others)))) == []
    assert "upervisor" not in json.dumps(list(all_values(strings)))


def all_values(words):
    if isinstance(words, str):
        yield words
    else:
        for each in words.values() if isinstance(words, dict) else words:
            yield from all_values(each)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (Reason("above_limit", "noise", 2.0, 1.5), "Noise 2, highest allowed 1.5"),
        (Reason("below_limit", "risk", 0.99991, 1.0), "Risk of wrong removal 0.9999, lowest allowed 1"),
        (Reason("monitor_objects", "mdsa", float("nan"), 2.0), "Monitor mdsa objects: ?, highest allowed 2"),
        (Reason.of("arm_reported", "timeout", detail="axis 3"), "The arm reported: the motion took too long: axis 3"),
        (
            Reason.of("unfamiliar_scene", signal="sharpness", measured=1.23456, low=2, high=3),
            "The picture is unlike those the policy was made from: sharpness 1.23, usual 2 to 3",
        ),
        (Reason.of("of_tomorrow", detail="axis 3"), "what the cell calls it"),
    ],
)  # fmt: skip
def test_a_reason_in_the_words_of_the_page(page_and_state, said, words):
    page, _, address = page_and_state
    page.goto(address)
    assert page.evaluate(SAY, shown_reason(said, "what the cell calls it")) == words


def bracket(page):
    """Put every text of strings.js into brackets."""

    def bracketed(route):
        body = route.fetch().text().replace("export const STRINGS = {", "const RAW = {")
        # values stay outside the brackets, so that words among them are found
        body = body.replace(
            "return template.replace(", "return template.replace(/(\\{\\w+\\})/g, '\u27e7$1\u27e6').replace("
        )
        route.fulfill(body=body + BRACKETED, content_type="text/javascript")

    page.route("**/static/strings.js", bracketed)


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
        assert shown.count("\u27e6") >= 5
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
        state.happened(10**9, kind, everything[:3], name="17", answers=["remove", "clean"])
    state.report("detector", "images", 1, "17")
    expect(page.locator("#objects li")).to_have_count(2)
    for title in ("#health-title", "#history-title", "#keys-title"):
        page.click(title)
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
