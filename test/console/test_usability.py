# SPDX-License-Identifier: Apache-2.0
"""The prepared scenes as a person finds them: what is visible, what can be read, and what is said apart."""

import pytest
from playwright.sync_api import expect

from test.helpers.operator_page import SIZES, asked, prepared, request

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
        cell.state.happened(10**9, "arrived", name="A17")
        expect(page.locator("#history")).to_contain_text("A17")
        assert page.evaluate("window.changes") == 0
