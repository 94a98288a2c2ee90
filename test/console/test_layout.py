# SPDX-License-Identifier: Apache-2.0
"""Where things are on a tablet and on a phone: nothing is clipped, and what a person must see is on the screen."""

import time

import pytest
from playwright.sync_api import expect

from sticker_uq.messages import PAGE_LANGUAGES
from test.console.test_first_time import in_view
from test.console.test_usability import opened
from test.helpers.operator_page import gate, prepared

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
                cell.state.happened(time.time_ns(), "hold", name="Grace Brewster Murray Hopper")
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
