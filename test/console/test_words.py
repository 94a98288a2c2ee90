"""All words of the page come from one file, also those for what the nodes say."""

import ast
import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

import sticker_uq
from sticker_uq.console.state import ConsoleState
from sticker_uq.gate.state import WORDS, Phase
from test.console.test_page import BOX, OTHER, SCENE, asked, reason, request
from test.helpers.browser import FakeCell, served

ROOT = Path(sticker_uq.__file__).parent
SPEAKERS = (
    "gate/arm_events.py", "gate/permit_consistency.py", "gate/state_machine.py", "gate/judge.py",
    "gate/operator/operator_events.py",
    "gate/plausibility.py", "gate/policy/rules.py", "gate/scene_events.py", "gate/clock_events.py",
    "gate/step_context.py", "gate/assumptions/assumption_monitor.py", "nodes/detector/assessor.py",
    "nodes/console/calls.py", "nodes/supervisor/gate_watch.py",
    "nodes/common/image_input.py",
    "nodes/common/geometry_source.py", "nodes/supervisor/operator_services.py",
)  # fmt: skip
"""Where the sentences are made that reach the page as they are."""
NOT_SHOWN = (
    # for the log only
    r"nobody has answered .* the gate stays closed", r"the arm reported the end of goal 7, which nobody waits for",
    r"permit 7 .*",
    r"object 7 of decision 7 is gone", r"request 7: 7", r"workpiece 7 .*", r"7; attempt 7 of 7", r"7 answered 7: 7", r"7 -> 7: 7",
    r"waiting for first image on 7 \(7, 7\)", r"7: asking for 7 now, as the publishers offer", r"scene 7", r"7 7 x 7",
    # answers to what the page never waits for the words of: it was accepted
    r"the fault is reset", r"the watch over what .* begins anew", r"; goal 7 was lost .*", r"; the gate stays closed until .*",
    # parts of sentences that are listed whole
    r"spot check", r" the limit", r"at least", r" 7 is above the limit 7", r": 7", r"nobody publishes it yet",
    r"the publisher is gone", r"large images need .*", r"7: 7", r"transform of 7",
    r"7 publisher7 of 7 besides this one not heard",
    r"7 has changed since the policy was made, seen on 7 workpiece7", r"7 object7 to be decided", r"7; tried 7 times",
    r"something would have been removed wrongly", r"the clock went 7 by 7 s", r"the object may not be removed any more7",
    r"waiting for 7 image on 7: 7",
    r"a laptop with a sticker would have been called clean", r"7: on 7 of 7 spot checks, promised at most 7 %",
    r"7 \(false alarm probability 7 %\)", r"something at x 7 to 7 px.*", r"7 publishes 7, expected 7: set image_transport",
    r"7 offers 7 but 7 is asked for: set image_reliability", r"perception settings", r"7 7 is 77 7", r"7 could not be measured",
    r"other 7", r"; objected by the supervisor7 7", r"score of the supervisor 7", r"panel of monitors",
    r"another 7 has come over the object", r"the 7 beside the object has moved", r"7: 7",
)  # fmt: skip
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


def sentences(source: Path) -> list[str]:
    """Every text with a space in it that the module makes, with 7 in the place of every value."""
    tree = ast.parse(source.read_text())
    inner, docs = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inner |= {id(part) for part in ast.walk(node) if part is not node}
        if isinstance(node, ast.Expr):
            docs.add(id(node.value))
        if isinstance(node, ast.keyword) and node.arg == "description":
            docs |= {id(part) for part in ast.walk(node.value)}
    found = []
    for node in ast.walk(tree):
        if id(node) in inner or id(node) in docs:
            continue
        if isinstance(node, ast.JoinedStr):
            found.append(
                "".join(part.value if isinstance(part, ast.Constant) else "7" for part in node.values)
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return [text for text in found if " " in text.strip()]


def unworded(page, texts):
    """Those of ``texts`` that strings.js has no words for."""
    script = "async (texts) => { const { isKnown } = await import('/static/words.js'); return texts.filter((t) => !isKnown(t)); }"
    return page.evaluate(script, texts)


@pytest.fixture
def page_and_state(tablet):
    state = ConsoleState(("detector", "supervisor"))
    with served(state, FakeCell()) as address:
        page = tablet.new_page()
        yield page, state, address


def test_the_page_has_words_for_every_sentence_that_the_nodes_make(page_and_state):
    page, _, address = page_and_state
    page.goto(address)
    measures = page.evaluate("async () => Object.keys((await import('/static/strings.js')).STRINGS.measures)")
    signals = page.evaluate("async () => Object.keys((await import('/static/strings.js')).STRINGS.signals)")
    said = {text for speaker in SPEAKERS for text in sentences(ROOT / speaker)} - {*measures, *signals}
    said = {text for text in said if not any(re.fullmatch(pattern, text, re.DOTALL) for pattern in NOT_SHOWN)}
    assert len(said) > 70
    examples = [
        "score of the supervisor mdsa 3.5 is above the limit 2", "objected by the monitors dil, mdsa",
        "the supervisor task_cascade says that it is no sticker",
        "risk of a wrongful removal 0.2 is above the limit 0.1", "Shannon entropy could not be measured", "a person decides",
        "probability of sticker 0.5 is below the limit 0.8", "the policy does not hold here: not active",
        "other weights and policy",
        "another logo has come over the object", "the logo beside the object has moved", "other perception settings",
        "something at x 1 to 2 px, y 3 to 4 px may have been missed: unexplained objectness 0.5 is above the limit 0.1",
        "something at x 1 to 2 px, y 3 to 4 px may be new to the detector: novelty 0.5 is above the limit 0.1",
        "noise has changed since the policy was made, seen on 3 workpieces (false alarm probability 1 %)",
        "something would have been removed wrongly: on 3 of 9 spot checks, promised at most 1 % (false alarm probability 1 %)",
        "the picture is unlike those that the policy was made from: noise 14, usual are 0.7 to 6",
        "incompatible publishers of /camera: /cam offers best effort but reliable is asked for: set image_reliability",
        "2 publishers of gate besides this one not heard", "1 publisher of gate besides this one not heard",
        "the last run ended while a fault stood: the arm is silent", "the last run ended while a person was asked: request 1",
        "the policy was made for the weights abc, not for def", "the clock went back by 3.2 s",
        "waiting for an image on /camera: the publisher is gone",
        "/camera: images are lost on the way, 3 so far; large images need large socket buffers",
        "/camera: 1 publisher(s) matched but no image for 5 s (offered: best effort; asked: best effort); large images need one",
        "how novel the picture is to the detector 0.7 is above the limit 0.6",
        "probability of a sticker that no box shows 0.7 is above the limit 0.6",
        "something at x 1 to 2 px, y 3 to 4 px may have been missed: missed_sticker_probability 0.5 is above the limit 0.1",
        "the object may not be removed any more: one pass saw it twice: it may be two things",
        "the disk is behind: an entry has waited for 3 s",
    ]  # fmt: skip
    assert "\n".join(unworded(page, sorted(said) + examples)) == ""
    say = "async (text) => (await import('/static/words.js')).say(text)"
    late = "perception failed: the image is 3 s old, max_image_age_s is 2"
    assert page.evaluate(say, late) == "The picture was 3 s old when its turn came"
    assert unworded(page, [*WORDS.values(), *(f"{phase.name}: open" for phase in Phase)]) == []
    assert unworded(page, ["a sentence that nobody has put into words"]) != []


def test_no_word_of_the_page_comes_from_anywhere_else(page_and_state):
    page, state, address = page_and_state

    def bracketed(route):
        body = route.fetch().text().replace("export const STRINGS = {", "const RAW = {")
        route.fulfill(body=body + BRACKETED, content_type="text/javascript")

    page.route("**/static/strings.js", bracketed)
    page.add_init_script(DRAWN)
    page.goto(address)
    metrics = page.evaluate("async () => Object.keys((await import('/static/strings.js')).STRINGS.reasons)")
    why = "; ".join(WORDS.values()) + "; fault: the arm reported OPERATOR_ABORT 17; nobody has words for this"
    state.put("gate", {"state": "fault", "text": why, "held": True, "reasons": ["held", "fault", "made_up"]})
    state.put("workpiece", "17")
    state.put("scene", SCENE)
    reasons = [reason(metric) for metric in metrics]
    reasons += [
        reason("dil", None, 0.5, "Shannon entropy could not be measured"),
        reason("made_up", text="no words"),
    ]
    state.put(
        "request",
        request(asked(reasons=reasons), asked(1, OTHER), reasons=[reason("unexplained_objectness", box=BOX)]),
    )
    for kind in ("arrived", "asked", "answered", "done_left", "hold", "made_up", "gate_blocked"):
        state.happened(10**9, kind, "no sticker is left", name="17", answers=["remove", "clean", "made_up"])
    state.report("detector", "images", 1, "waiting for first image on 17: nobody publishes it yet")
    state.report("supervisor", "gate", 2, "a person decides: the removal took more than 3 s")
    expect(page.locator("#objects li")).to_have_count(2)
    for title in ("#health-title", "#history-title", "#keys-title"):
        page.click(title)
    page.keyboard.press("d")
    page.click("#send")
    expect(page.locator("#message")).not_to_be_empty()
    shown = page.locator("body").inner_text() + "\n" + page.title() + "\n".join(page.evaluate("window.drawn"))
    attributes = page.evaluate(
        "[...document.querySelectorAll('*')].flatMap("
        "(e) => ['alt', 'title', 'placeholder', 'aria-label'].map((a) => e.getAttribute(a) || ''))"
    )
    text = shown + "\n" + "\n".join(attributes)
    while "\u27e6" in text:
        less = re.sub("\u27e6[^\u27e6\u27e7]*\u27e7", " ", text)
        assert less != text, text
        text = less
    assert re.findall(r"[^\W\d_]{2,}", text) == [], text
    assert json.dumps(shown).count("\\u27e6") > 60, "the page was full of words"
