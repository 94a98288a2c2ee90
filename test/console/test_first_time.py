# SPDX-License-Identifier: Apache-2.0
"""What somebody who has read nothing needs of the page: what has happened, what to do, and that everything can be reached."""

import re
import time
from types import SimpleNamespace

import pytest
from playwright.sync_api import expect

from sticker_uq.console.state import ConsoleState
from test.console.test_usability import DRAWN, REACHED, opened
from test.helpers.operator_page import STICKER, gate, prepared, reason, request


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
        expect(page.locator("#which")).to_have_text(re.compile(r"Last picture, 4\d s old"))
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


@pytest.mark.parametrize("scene", ["drift", "lost-supervisor"])
def test_beside_a_stop_stands_what_to_do(tablet, scene):
    with prepared(scene) as (address, _):
        page = opened(tablet, address)
        expect(page.locator("#state")).to_have_class(re.compile("blocked|lost"))
        expect(page.locator("#asked")).not_to_have_text("Nothing to decide")
        if scene != "lost-supervisor":
            expect(page.locator("#asked")).to_have_text("What to do")
            expect(page.locator("#todo")).not_to_be_empty()
            expect(page.locator("#look")).to_be_empty()
        expect(page.locator("#health-title")).not_to_contain_text("well")
        assert "Closed" not in page.locator("body").inner_text()


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


def test_a_fault_says_what_to_look_at_and_health_agrees(tablet):
    with prepared("fault") as (address, _):
        page = opened(tablet, address)
        wanted = "the arm stands still, nothing is caught, nobody is near it"
        expect(page.locator("#alarm")).to_contain_text(wanted)
        expect(page.locator("#why")).to_have_text("The arm stopped: its go-ahead did not come in time")
        expect(page.locator("#health-title")).to_have_text("Health: ✕ error")
        page.fill("#who", "Ada")
        page.click("#reset")
        expect(page.locator("#health-title")).to_have_text("Health: ✓ well")
        expect(page.locator("#asked")).to_have_text("Nothing to decide")


def test_a_touch_on_something_unfamiliar_does_not_peel_it(tablet):
    with prepared("missed") as (address, cell):
        page = opened(tablet, address, DRAWN)
        place = cell.box(STICKER)
        cell.state.put("request", request(identity="r2", reasons=[reason("novel_place", box=place)]))
        page.wait_for_function("() => window.drawn.some(({ args }) => args[0] === 'unfamiliar')")
        frame = page.locator("#overlay").bounding_box()
        scale = frame["width"] / 960
        page.touchscreen.tap(frame["x"] + (place["x1"] + 20) * scale, frame["y"] + (place["y1"] + 20) * scale)
        expect(page.locator("#message")).to_contain_text("press Draw a missed sticker first")
        expect(page.locator("#drawn li")).to_have_count(0)


def test_after_an_answer_the_page_says_what_comes_next_and_knows_the_name(tablet):
    with prepared("two-objects") as (address, _):
        page = opened(tablet, address)
        expect(page.locator("#who-label")).to_have_text("Your name, for the log")
        expect(page.locator("#who-hint")).to_have_text("Required, not checked, remembered on this tablet.")
        page.fill("#who", "Ada")
        page.locator("#scene").get_by_role("button", name="Something is wrong").click()
        page.click("#send")
        words = "Answer taken. The machine stands still until the fault is reset."
        expect(page.locator("#message")).to_have_text(words)
        expect(page.locator("#send")).to_be_hidden()
        expect(page.locator("#message")).to_have_text(words)
        page.reload()
        expect(page.locator("#who")).to_have_value("Ada")


def test_who_holds_is_known_from_the_command_or_not_at_all():
    state = ConsoleState()
    state.put("gate", gate("blocked", held=True))  # held before anybody looked
    assert state.snapshot()["hold"] == {"name": "", "since_ms": None}
    state.happened(1, "hold", name="Ada")  # presses again what is held already
    assert state.snapshot()["hold"] == {"name": "", "since_ms": None}
    state.put("gate", gate("monitoring"))
    assert state.snapshot()["hold"] is None
    for command_first in (True, False):  # the reply and the state of the gate come in any order
        if command_first:
            state.happened(1, "hold", name="Ada")
        state.put("gate", gate("blocked", held=True))
        state.happened(1, "hold", name="Ada" if not command_first else "Grace")
        hold = state.snapshot()["hold"]
        assert hold["name"] == "Ada"
        assert abs(hold["since_ms"] - time.time() * 1000) < 10_000
        state.happened(1, "release", name="Grace")
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
