# SPDX-License-Identifier: Apache-2.0
"""The prepared scenes as a person finds them who has read nothing: where things are on a tablet and on a phone, what can be read,
what has happened and what to do.
"""

import re
import time
from types import SimpleNamespace

import pytest
from playwright.sync_api import expect

from sticker_uq.console.state import ConsoleState
from sticker_uq.messages import PAGE_LANGUAGES
from test.helpers.browser import TABLET
from test.helpers.operator_page import SIZES, asked, gate, prepared, reason, request

#: Every text as it is drawn on the picture: words, and the rectangle behind them in pixels of the page.
DRAWN = """
window.drawn = [];
const pen = CanvasRenderingContext2D.prototype, { strokeRect, fillRect, fillText } = pen;
const width = Object.getOwnPropertyDescriptor(HTMLCanvasElement.prototype, "width");
Object.defineProperty(HTMLCanvasElement.prototype, "width", {
  get() { return width.get.call(this); },
  set(value) { if (this.id === "overlay") window.drawn = []; width.set.call(this, value); },
});
const note = (kind, each) => function (...args) {
  if (this.canvas.id === "overlay") window.drawn.push({ kind, colour: this.strokeStyle, args });
  return each.apply(this, args);
};
Object.assign(pen, { strokeRect: note("box", strokeRect), fillRect: note("label", fillRect), fillText: note("words", fillText) });
"""
#: Texts whose contrast to what is behind them is below that of WCAG 2.2 AA.
PALE = """() => {
  const parse = (colour) => (colour.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const light = (colour) => parse(colour).slice(0, 3).map((c) => linear(c / 255))
    .reduce((sum, c, index) => sum + c * [0.2126, 0.7152, 0.0722][index], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      // the panel has gradients over the colour of the foot
      const colour = getComputedStyle(at.id === "panel" ? document.getElementById("foot") : at).backgroundColor;
      if ((parse(colour)[3] ?? 1) > 0.8) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const bad = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
    if (!own || !element.checkVisibility() || element.closest(".off, .old")) continue;
    const style = getComputedStyle(element), size = parseFloat(style.fontSize), bold = Number(style.fontWeight) >= 700;
    const [a, b] = [light(style.color), light(behind(element))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05), needed = size >= 24 || (bold && size >= 18.66) ? 3 : 4.5;
    if (contrast < needed) bad.push(`${element.tagName}#${element.id} ${element.textContent}: ${contrast.toFixed(2)}`);
  }
  return bad;
}"""
COUNT_READ = """() => {
  window.changes = 0;
  const counted = new MutationObserver(() => window.changes++), all = "[aria-live], [role=alert], [role=status]";
  const what = { childList: true, subtree: true, characterData: true };
  for (const live of document.querySelectorAll(all)) counted.observe(live, what);
}"""
#: Whether a click in the middle of an element reaches it.
REACHED = """(element) => {
  const { left, top, width, height } = element.getBoundingClientRect();
  const hit = document.elementFromPoint(left + width / 2, top + height / 2);
  return element === hit || element.contains(hit);
}"""


#: Scrolls to each target in turn: those that a click does not reach then, and what must stay visible and does not.
HIDDEN = f"""() => [...document.querySelectorAll("#objects button, #draw, #scene button")].flatMap((target) => {{
  target.scrollIntoView({{ block: "nearest" }});
  const always = ["state", "hold", "send", "who", "overlay"].map((id) => document.getElementById(id));
  return [target, ...always].filter((element) => !({REACHED})(element)).map((element) => [target.textContent, element.id]);
}})"""


def opened(context, address, script=""):
    page = context.new_page()
    if script:
        page.add_init_script(script)
    page.clock.install(time=0)
    page.clock.pause_at(1000)  # no contact is lost on a busy machine
    page.goto(address)
    expect(page.locator("#picture")).to_have_js_property("naturalWidth", 960)
    return page


def test_state_hold_and_send_stay_visible_and_hide_nothing(tablet):
    with prepared("two-objects") as (address, cell):
        page = opened(tablet, address)
        boxes = [{"x1": 90.0 * n, "y1": 100.0, "x2": 90.0 * n + 60, "y2": 160.0} for n in range(4)]
        cell.state.put("request", request(*map(asked, boxes), identity="r8"))
        expect(page.locator("#objects > li")).to_have_count(4)
        for width, height in SIZES.values():
            page.set_viewport_size({"width": width, "height": height})
            assert page.evaluate(HIDDEN) == []
            page.mouse.move(width / 2, height - 150)
            page.mouse.wheel(0, 5000)
            assert page.evaluate("document.scrollingElement.scrollTop") == 0
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        colour = page.locator("#hold").evaluate("(hold) => getComputedStyle(hold).backgroundColor")
        assert colour == "rgb(91, 42, 134)", "that of the state, and not the red of an emergency stop"
        assert page.locator("#hold").bounding_box()["height"] >= 70


@pytest.mark.parametrize("scene", ["two-objects", "fault"])
def test_everything_can_be_read(tablet, scene):
    with prepared(scene) as (address, _):
        page = opened(tablet, address)
        for fold in page.locator("summary:visible").all():
            fold.click()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate(PALE) == []


def test_the_tabulator_goes_from_hold_to_the_question_to_send(tablet):
    with prepared("two-objects") as (address, _):
        page = opened(tablet, address)
        order = []
        for _ in range(20):
            page.keyboard.press("Tab")
            order.append(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
    row = ["Details", "Peel it", "Leave it", "Nothing is there"]
    assert order[:11] == ["hold", *row, *row, "draw", "all"]
    assert order[15:18] == ["who", "send", "view"]


def test_what_a_screen_reader_says(tablet):
    with prepared("two-objects") as (address, cell):
        page = opened(tablet, address)
        group = page.get_by_role("group", name="2 Looks like: sticker")
        expect(group.get_by_role("button")).to_have_text(["Peel it", "Leave it", "Nothing is there"])
        expect(page.get_by_role("status").filter(has_text="Needs you")).to_have_attribute(
            "aria-live", "assertive"
        )
        expect(page.locator("#alarm")).to_have_attribute("role", "alert")
        # nothing is read again because another message came
        page.evaluate(COUNT_READ)
        cell.state.add_event(10**9, "arrived", name="A17")
        expect(page.locator("#history")).to_contain_text("A17")
        assert page.evaluate("window.changes") == 0


def in_view(page, selector):
    """Whether the element is on the screen, and nothing covers it."""
    frame, size = page.locator(selector).bounding_box(), page.viewport_size
    inside = frame["y"] >= 0 and frame["y"] + min(frame["height"], 48) <= size["height"]
    return inside and page.locator(selector).evaluate(REACHED)


def words_on_the_picture(page):
    return [mark["args"][0] for mark in page.evaluate("window.drawn") if mark["kind"] == "words"]


def test_the_particular_reason_stands_alone_and_a_picture_that_stopped_is_old(tablet):
    with prepared("blocked") as (address, cell):
        page = opened(tablet, address, DRAWN)
        expect(page.locator("#state-name")).to_have_text("Arm stopped")
        expect(page.locator("#closed")).to_be_empty()
        expect(page.locator("#why")).to_have_text("The picture is too dark")
        expect(page.locator("#todo")).to_contain_text("Check the lamp")
        expect(page.locator("#which")).to_have_text(re.compile(r"Last picture, \d+ (s|min) old"))
        assert words_on_the_picture(page) == []
        assert not [mark for mark in page.evaluate("window.drawn") if mark["colour"] == "#009e73"]
        cell.gate = gate("blocked", "exposure", "arm_failed", details=[reason("arm_silent")])
        expect(page.locator("#closed")).to_have_text(
            "The picture is too dark or too bright. The arm is not ready"
        )


def test_what_is_peeled_is_written_where_the_arm_may_act(tablet):
    with prepared("removing") as (address, cell):
        page = opened(tablet, address, DRAWN)
        expect(page.locator("#which")).to_have_text("Live")
        page.wait_for_function("() => window.drawn.some(({ args }) => args[0] === 'sticker: peel')")
        for stopped in (gate("blocked", "stale_scene"), gate("fault", "fault"), gate("blocked", held=True)):
            cell.gate = stopped
            page.wait_for_function("() => !window.drawn.some(({ kind }) => kind === 'words')")
            cell.gate = gate("removing")
            page.wait_for_function("() => window.drawn.some(({ args }) => args[0] === 'sticker: peel')")


def test_the_most_urgent_of_many_reasons_is_what_to_do_also_during_a_question(tablet):
    with prepared("two-objects") as (address, cell):
        page = opened(tablet, address)
        expect(page.locator("#asked")).to_have_text("The machine asks you")
        expect(page.locator("#todo")).to_be_hidden()
        cell.gate = gate("intervention", "exposure", "waiting_for_operator", "arm_failed")
        expect(page.locator("#todo")).to_contain_text("Look at the arm")
        expect(page.locator("#asked")).to_have_text("The machine asks you")
        # a laptop that was left to people closes the gate without a question
        cell.state.put("request", None)
        cell.gate = gate("blocked", "waiting_for_operator", details=[reason("workpiece_left")])
        expect(page.locator("#todo")).to_contain_text("put in the next one")


def test_held_says_by_whom_since_when_and_what_comes_after_it(tablet):
    with prepared("held") as (address, cell):
        page = opened(tablet, address)
        banner, hold = page.locator("#held"), page.locator("#hold")
        expect(banner).to_contain_text(re.compile(r"HELD by Grace since \d\d:\d\d:\d\d"))
        expect(banner).to_contain_text("Look first: nothing is caught on the arm, nobody is near it.")
        wanted = "(hold) => { const style = getComputedStyle(hold); return [style.backgroundColor, style.borderStyle]; }"
        pressed = hold.evaluate(wanted)
        page.fill("#who", "Ada")
        page.click("#release")
        expect(page.locator("#said")).to_contain_text("Release: done. The machine looks again")
        expect(banner).to_be_hidden()
        before = hold.evaluate(wanted)
        assert before[0] != pressed[0]
        assert before[1] != pressed[1]
        expect(page.locator("#state-name")).to_have_text("Arm waits")
        expect(page.locator("#meaning")).not_to_be_empty()
        expect(page.locator("#todo")).to_contain_text("call the person in charge")
        page.fill("#who", "")
        page.click("#hold")
        expect(banner).to_contain_text("Nobody gave a name")
        assert [command for command, _ in cell.commands] == ["release", "hold"]


def test_who_holds_is_known_from_the_command_or_not_at_all():
    state = ConsoleState()
    state.put("gate", gate("blocked", held=True))  # held before anybody looked
    assert state.snapshot()["hold"] == {"name": "", "since_ms": None}
    state.add_event(1, "hold", name="Ada")  # presses again what is held already
    assert state.snapshot()["hold"] == {"name": "", "since_ms": None}
    state.put("gate", gate("monitoring"))
    assert state.snapshot()["hold"] is None
    for command_first in (True, False):  # the reply and the state of the gate come in any order
        if command_first:
            state.add_event(1, "hold", name="Ada")
        state.put("gate", gate("blocked", held=True))
        state.add_event(1, "hold", name="Ada" if not command_first else "Grace")
        hold = state.snapshot()["hold"]
        assert hold["name"] == "Ada"
        assert abs(hold["since_ms"] - time.time() * 1000) < 10_000
        state.add_event(1, "release", name="Grace")
        state.put("gate", gate("monitoring"))
        assert state.snapshot()["hold"] is None


def test_a_picture_is_as_old_as_the_last_new_one(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("sticker_uq.console.state.time", SimpleNamespace(monotonic=lambda: now[0]))
    state = ConsoleState()
    assert state.snapshot()["scene_age_s"] is None
    state.put("scene", {"stamp": "1"})
    now[0] += 5.0
    state.put("scene", {"stamp": "1", "outcome": "work"})  # the same picture, judged
    assert state.snapshot()["scene_age_s"] == 5.0
    state.put("scene", {"stamp": "2"})
    assert state.snapshot()["scene_age_s"] == 0.0


SCREENS = {"tablet": (1024, 768), "phone": (390, 844)}
#: Controls that lie partly beyond an edge at their side, or whose words do not fit into them.
CLIPPED = """() => [...document.querySelectorAll("button, input, #state, #alarm span, #held span, #held small")]
  .filter((element) => element.checkVisibility())
  .filter((element) => {
    const { left, right, width } = element.getBoundingClientRect();
    return left < 0 || right > innerWidth || width < 40 || element.scrollWidth > element.clientWidth + 1;
  })
  .map((element) => element.id || element.textContent)"""


@pytest.mark.parametrize("scene", ["two-objects", "fault", "lost-supervisor"])
def test_nothing_is_clipped_and_state_picture_and_answers_are_on_the_screen(tablet, scene):
    with prepared(scene) as (address, cell):
        page = opened(tablet, address)
        for held in (False, True):
            if held:
                closed = [each["code"] for each in cell.gate["closed"]]
                cell.gate = gate(cell.gate["state"], *closed, details=cell.gate["details"], held=True)
                cell.state.add_event(time.time_ns(), "hold", name="Grace Brewster Murray Hopper")
                if scene != "lost-supervisor":
                    expect(page.locator("#held")).to_contain_text("Grace")
            for width, height in SCREENS.values():
                page.set_viewport_size({"width": width, "height": height})
                page.reload()  # as whoever comes finds it
                expect(page.locator("#picture")).to_have_js_property("naturalWidth", 960)
                if held and scene != "lost-supervisor":
                    expect(page.locator("#held")).to_contain_text("Grace")
                    assert in_view(page, "#release")
                for always in ("#state", "#hold"):
                    assert in_view(page, always), always
                if scene == "two-objects":
                    expect(page.locator("#objects > li")).to_have_count(2)
                    for button in page.locator("#objects > li:first-child .row button").all():
                        expect(button).to_be_in_viewport(ratio=1)
                if scene == "fault":
                    assert in_view(page, "#reset")
                expect(page.locator("#view")).to_be_in_viewport(ratio=0.3)
                assert page.locator("#view").bounding_box()["height"] >= 200
                assert page.evaluate(CLIPPED) == []
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
                page.locator("#who").scroll_into_view_if_needed()
                assert in_view(page, "#who")


#: Of each group of opposite answers: the least distance of two buttons, and how much their widths and heights differ, px.
APART = """() => [...document.querySelectorAll("#objects > li:first-child .row, #scene, #sure .row")].map((row) => {
  const boxes = [...row.querySelectorAll("button")].map((button) => button.getBoundingClientRect());
  const differ = (side) => Math.max(...boxes.map((box) => box[side])) - Math.min(...boxes.map((box) => box[side]));
  const between = (a, b) => Math.max(b.left - a.right, b.top - a.bottom);
  const gaps = boxes.flatMap((a, index) => boxes.slice(index + 1).map((b) => between(a, b)));
  return [Math.min(...gaps), differ("width"), differ("height")];
})"""


def test_every_language_fits_and_opposite_answers_are_of_one_size_and_apart(browser):
    with prepared("two-objects") as (address, cell):
        cell.gate = gate("intervention", "waiting_for_operator", held=True)
        for lang, words in PAGE_LANGUAGES.items():
            context = browser.new_context(has_touch=True, locale=f"{lang}-CH")
            context.set_default_timeout(60_000)
            page = opened(context, address)
            expect(page.locator("html")).to_have_attribute("lang", lang)
            expect(page.locator("#release")).to_have_text(words["release"])
            page.click("#all")
            expect(page.locator("#sure-asked")).to_have_text(words["allAsk"]["other"].format(count=2))
            for screen, (width, height) in SCREENS.items():
                page.set_viewport_size({"width": width, "height": height})
                for gap, *differences in page.evaluate(APART):
                    assert gap >= (60 if screen == "tablet" else 5) - 0.1, (lang, screen)
                    assert max(differences) < 1, (lang, screen)
                assert page.evaluate(CLIPPED) == [], (lang, screen)
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (lang, screen)
            context.close()


LOW = {"tablet at 200 %": (640, 400), "phone on its side": (844, 390)}


def test_a_question_can_be_answered_on_a_low_screen(browser):
    """Zoomed or turned, the page is one column: what does not fit is scrolled to, and is not squeezed into a strip."""
    with prepared("two-objects") as (address, _):
        for lang in PAGE_LANGUAGES:
            context = browser.new_context(has_touch=True, locale=f"{lang}-CH", viewport=TABLET)
            context.set_default_timeout(60_000)
            page = opened(context, address)
            for screen, (width, height) in LOW.items():
                page.set_viewport_size({"width": width, "height": height})
                assert page.locator("#panel").evaluate(
                    "(panel) => panel.scrollHeight <= panel.clientHeight + 1"
                ), screen
                assert page.locator("#view").bounding_box()["height"] >= 0.35 * height, (lang, screen)
                for button in page.locator("#objects .row button, #scene button, #send, #draw").all():
                    button.scroll_into_view_if_needed()
                    expect(button).to_be_in_viewport(ratio=1)
                    for always in ("#state", "#hold"):
                        assert in_view(page, always), (lang, screen, always)
                assert page.evaluate(CLIPPED) == [], (lang, screen)
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (lang, screen)
            context.close()
