# SPDX-License-Identifier: Apache-2.0
"""What the operator's page shows and does, in a real browser, without a cell behind it."""

import re

from playwright.sync_api import expect

from sticker_uq.console.state import ConsoleState
from test.helpers.browser import FakeCell, served
from test.helpers.operator import BOX, OTHER
from test.helpers.operator_page import asked, gate, reason

EVIL = "<img src=x onerror=\"document.title='owned'\">"


def test_the_gate_says_why_it_is_closed_in_the_pages_own_words(operator):
    unknown = reason("of_tomorrow", text="what the cell calls it")
    details = [reason("image_late", "", None, None, seconds=3.14159), unknown]
    operator.state.put("gate", gate("blocked", "stale_scene", "arm_failed", details=details))
    page = operator.page
    # the details say more about the scene
    expect(page.locator("#closed")).to_have_text("The arm is not ready")
    late = "The picture comes too late, or the camera's clock is behind"
    expect(page.locator("#why")).to_have_text(f"{late}. what the cell calls it")
    expect(page.locator("#gate-details p")).to_be_hidden()
    page.click("#gate-details summary")
    expect(page.locator("#gate-details p")).to_have_text(f"{late}: seconds 3.14")
    operator.see(asked(BOX), asked(OTHER), reasons=[reason("objects_to_decide", count=2)])
    expect(page.locator("#reasons .why")).to_be_empty()  # the numbers of the open ones are beside Send
    expect(page.locator("#message")).to_have_text("Still to decide: 1, 2")
    operator.see(identity="r2", reasons=[reason("spot_check")])
    expect(page.locator("#look")).to_contain_text("Look at the whole picture.")


def test_a_code_that_every_object_has_is_shown_in_the_words_of_the_cell(operator):
    for number, code in enumerate(("constructor", "toString", "__proto__", "hasOwnProperty")):
        unknown = reason(code, text=f"what the cell calls it, {number}")
        operator.state.put("gate", gate("blocked", "stale_scene", details=[unknown]))
        expect(operator.page.locator("#why")).to_have_text(f"what the cell calls it, {number}")


def test_what_cannot_be_shown_covers_the_page(operator):
    page = operator.page
    operator.see(asked(BOX))
    whole = gate("intervention", "waiting_for_operator")
    operator.state.put("gate", {**whole, "details": [None]})
    expect(page.locator("#stale")).to_be_visible()
    expect(page.locator("#state-name")).to_have_text("No contact")
    operator.state.put("gate", whole)
    expect(page.locator("#stale")).to_be_hidden()
    expect(page.locator("#state-name")).to_have_text("Needs you")
    assert operator.trouble, "and the browser's console says why"
    operator.trouble.clear()


def test_everything_from_the_cell_is_text(operator):
    refused = reason("goal_rejected", "", None, None, detail=EVIL)
    operator.see(asked(BOX, refused, reason(EVIL, text=EVIL)), reasons=[reason("above_limit", EVIL)])
    operator.state.put("gate", gate("fault", "fault", details=[refused]))
    operator.state.put("workpiece", EVIL)
    operator.state.add_event(10**9, "arrived", name=EVIL)
    operator.state.report("detector", "lifecycle", 2, f"failed: {EVIL}")
    page = operator.page
    expect(page.locator("#why")).to_have_text("The arm refused the task")
    expect(page.locator("#gate-details p")).to_have_text(f"The arm refused the task: {EVIL}")
    expect(page.locator("#title")).to_contain_text(EVIL)
    expect(page.locator("#history")).to_contain_text(EVIL)
    expect(page.locator("#health")).to_contain_text(EVIL)
    assert page.locator("#objects .why").all_text_contents() == [f"The arm refused the task. {EVIL}"]
    assert page.locator("#reasons .why").all_text_contents() == [f"Not sure enough: {EVIL}"]
    expect(page.locator("#reasons details p")).to_have_text(f"{EVIL}: 1.02, limit 0.9")
    assert page.locator("img").count() == 2
    assert page.title() != "owned"


def test_plain_words_come_first_and_numbers_when_they_are_wanted(operator):
    close = reason("below_limit", "sticker_probability", 0.99991, 0.99999)
    stopped = reason("arm_reported", "stale_permit", None, None, detail="the permit expired 50 ms ago")
    operator.see(asked(BOX, reason(), close, reason("above_limit", "logo_overlap", 0.156, 0.1), stopped))
    why, details = operator.page.locator("#objects .why"), operator.page.locator("#objects details p")
    expect(why).to_have_text(
        "It may be something else. It may not be a sticker. It may lie on a logo. "
        "The arm stopped: its go-ahead did not come in time"
    )
    expect(details).to_be_hidden()
    operator.page.click("#objects summary")
    expect(details).to_contain_text("Uncertainty about the class (entropy, bit): 1.02, limit 0.9")
    expect(details).to_contain_text("Probability of sticker: 0.9999, limit 1")
    expect(details).to_contain_text("the permit expired 50 ms ago")


def test_an_alarm_of_the_monitor_is_reset_where_a_fault_is(operator):
    page = operator.page
    operator.is_called("Ada")
    changed = reason("drift", "sharpness", count=212, rate=0.001)
    for closed in (("blocked", "assumption"), ("intervention", "waiting_for_operator", "assumption")):
        operator.state.put("gate", gate(*closed, details=[changed]))
        expect(page.locator("#alarm span")).to_have_text(
            "These laptops look different from those the machine was set up with (sharpness). Call the person in charge."
        )
        expect(
            page.locator("#reset")
        ).to_be_hidden()  # nothing stands where Release and the reset of a fault do
        expect(page.locator("#restart-hint")).to_contain_text("For the person in charge alone")
        expect(page.locator("#restart-yes")).to_be_hidden()
        for pressed in ("begin", "no", "begin", "yes"):
            page.click(f"#restart-{pressed}")
        expect(page.locator("#said")).to_contain_text("Start again: done.")
        expect(page.locator("#restart-yes")).to_be_hidden()
        # what other weights or another camera cause ends when they are restored: there is nothing to reset
        operator.state.put("gate", gate("blocked", "assumption", details=[reason("policy_other_camera")]))
        expect(page.locator("#restart")).to_be_hidden()
        expect(page.locator("#alarm")).to_be_hidden()
    operator.state.put("gate", gate("fault", "fault", "assumption", details=[changed]))
    expect(page.locator("#reset")).to_have_text("Reset the fault")
    assert operator.cell.commands == [("reset", "Ada")] * 2


def test_a_browser_calls_the_page_loaded_when_it_has_its_words(tablet):
    # words that came later left HOLD without effect, and the form of the sign-in to the browser
    with served(ConsoleState(), FakeCell()) as address:
        page = tablet.new_page()
        page.goto(address)
        late = page.evaluate(
            """() => performance.getEntriesByType("resource").find(({ name }) => name.includes("/static/words.")).responseEnd
                - performance.getEntriesByType("navigation")[0].loadEventStart"""
        )
    assert late <= 0


def test_the_chosen_language_comes_before_those_of_the_browser(browser):
    context = browser.new_context(locale="da-DK")
    with served(ConsoleState(), FakeCell()) as address:
        page = context.new_page()
        page.goto(address)
        assert page.evaluate("document.documentElement.lang") == "da"
        with page.expect_navigation():
            page.select_option("#language", "de")
        page.reload()
        assert page.evaluate("document.documentElement.lang") == "de"
    context.close()


def test_hold_release_and_reset(operator):
    page, said = operator.page, operator.page.locator("#said")
    before = page.locator("#hold").bounding_box()
    page.dblclick("#hold")  # needs no name, and never releases
    expect(said).to_contain_text("HOLD: done.")
    assert page.locator("#hold").get_attribute("aria-pressed") is None
    operator.state.put("gate", gate("fault", "fault", held=True))
    expect(page.locator("#state-name")).to_have_text("Fault")
    expect(page.locator("#held")).to_contain_text("HELD")
    operator.state.put("gate", gate("blocked", held=True))
    expect(page.locator("#state-name")).to_have_text("Held")
    below = page.locator("#release").bounding_box()["y"] >= before["y"] + before["height"]
    assert below, "a second press must not release"
    expect(page.locator("#reset")).to_be_hidden()
    page.keyboard.press("h")
    expect(page.locator("#hold b")).to_have_text("HOLD")
    page.click("#release")
    expect(said).to_have_text("Not sent yet: please enter your name.")
    operator.see(asked(BOX))
    operator.is_called("Ada")
    operator.state.put("gate", gate("fault", "fault", held=True))
    page.click("#release")
    expect(said).to_have_text("Release: done.")  # in a fault nothing follows from it
    page.click("#reset")
    expect(said).to_have_text("Reset the fault: done. The machine looks again before the arm moves.")
    operator.state.put("gate", gate("monitoring", "inconsistent"))
    expect(page.locator("#held")).to_be_hidden()
    holds = [("hold", "")] * 3
    assert operator.cell.commands == [*holds, ("release", "Ada"), ("reset", "Ada")]


def test_a_lost_supervisor_is_loud_and_nobody_believes_that_nothing_is_asked(tablet, monkeypatch):
    state, cell = ConsoleState(), FakeCell()
    with served(state, cell) as address:
        page = tablet.new_page()
        page.goto(address)
        lost = re.compile(
            r"^Contact with the machine is lost, and HOLD may not get through. Go to the machine"
        )
        expect(page.locator("#alarm span")).to_have_text(lost)
        expect(page.locator("#asked")).to_have_text(
            "The machine may be asking something: this page cannot tell"
        )
        page.click("#hold")
        expect(page.locator("#said")).to_have_text(
            "HOLD: done. See that the arm stands still, or use the emergency stop at the machine."
        )
        state.put("gate", gate("permitted"))
        expect(page.locator("#state")).to_have_class("state permitted")
        expect(page.locator("#alarm")).to_be_hidden()
        expect(page.locator("#asked")).to_have_text("Nothing to decide")
        with monkeypatch.context() as silence:
            silence.setattr("sticker_uq.console.state.FRESH_S", 0.0)
            expect(page.locator("#alarm span")).to_have_text(lost)
            expect(page.locator("#state")).to_have_class("state lost")
        state.put("gate", gate("permitted", details=[reason("held")]))
        expect(page.locator("#state")).to_have_class("state permitted")
    expect(page.locator("#stale h2")).to_have_text("No contact with the machine")
    expect(page.locator("#state")).to_have_class("state lost")


def test_a_finger_finds_everything_on_a_tablet(operator):
    operator.see(asked(BOX), asked(OTHER))
    small = []
    for target in operator.page.locator("button:visible, input:visible, summary:visible").all():
        frame = target.bounding_box()
        if frame["height"] < 44 or frame["width"] < 44:
            small.append((target.text_content(), frame))
    assert small == []
    assert operator.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    # 10 mm for two metres: at 1024 px on 200 mm that is 51 px
    size = operator.page.evaluate("parseFloat(getComputedStyle(document.getElementById('state')).fontSize)")
    assert size >= 51


def test_letters_and_digits_can_be_switched_off_and_stay_so(operator):
    """WCAG 2.1.4: who speaks to the machine presses them unmeant. Enter and arrows write nothing and stay."""
    page = operator.page
    operator.see(asked(BOX), asked(OTHER))
    page.click("#keys-title")
    page.click("#keys-on")
    expect(page.locator("#keys-on")).to_have_attribute("aria-pressed", "false")
    page.locator("#view").focus()
    for key in "2phcbf":
        page.keyboard.press(key)
    assert operator.cell.commands == []
    assert page.evaluate("JSON.parse(sessionStorage.answer || '{}').choices || []") in ([], [None, None])
    expect(page.locator("#layer-boxes")).to_have_attribute("aria-pressed", "true")
    page.reload()
    expect(page.locator("#keys-on")).to_have_attribute("aria-pressed", "false")
    page.click("#keys-title")
    page.click("#keys-on")
    page.locator("#view").focus()
    page.keyboard.press("b")
    expect(page.locator("#layer-boxes")).to_have_attribute("aria-pressed", "false")


def test_everything_lies_in_a_landmark(operator):
    outside = operator.page.evaluate(
        """[...document.body.querySelectorAll("h1, h2, h3, button, p, input")]
            .filter((part) => !part.closest("body > header, main")).map((part) => part.id)"""
    )
    assert outside == []
