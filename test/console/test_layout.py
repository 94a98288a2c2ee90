# SPDX-License-Identifier: Apache-2.0
"""Where things are on a tablet and on a phone: nothing is clipped, and what a person must see is on the screen."""

import time

import pytest
from playwright.sync_api import expect

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


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("held", [False, True], ids=["", "held"])
@pytest.mark.parametrize(
    "scene", ["two-objects", "missed", "fault", "drift", "blocked", "removing", "lost-supervisor"]
)
def test_nothing_is_clipped_and_state_picture_and_answers_are_on_the_screen(browser, screen, held, scene):
    width, height = SCREENS[screen]
    context = browser.new_context(viewport={"width": width, "height": height}, has_touch=True)
    context.set_default_timeout(60_000)
    with prepared(scene) as (address, cell):
        if held:
            closed = [each["code"] for each in cell.gate["closed"]]
            cell.gate = gate(cell.gate["state"], *closed, details=cell.gate["details"], held=True)
            cell.state.happened(time.time_ns(), "hold", name="Grace Brewster Murray Hopper")
        page = opened(context, address)
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
    context.close()
