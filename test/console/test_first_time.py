# SPDX-License-Identifier: Apache-2.0
"""What somebody who has read nothing needs of the page: what has happened, what to do, and that everything can be reached."""

import re
import time
from types import SimpleNamespace

import pytest
from playwright.sync_api import expect

from sticker_uq.console.state import ConsoleState
from test.console.test_usability import DRAWN, REACHED, opened
from test.helpers.operator_page import SIZES, STICKER, asked, gate, prepared, reason, request

FOLDS = ("health", "history", "keys")
TROUBLE = ("held", "fault", "drift", "blocked", "lost-supervisor")


def in_view(page, selector):
    """Whether the element is on the screen, and nothing covers it."""
    frame, size = page.locator(selector).bounding_box(), page.viewport_size
    inside = frame["y"] >= 0 and frame["y"] + min(frame["height"], 48) <= size["height"]
    return inside and page.locator(selector).evaluate(REACHED)


def words_on_the_picture(page):
    return [mark["args"][0] for mark in page.evaluate("window.drawn") if mark["kind"] == "words"]


def shows(page, scene):
    """Wait until the page shows the prepared scene, not only its picture."""
    if scene in TROUBLE:
        expect(page.locator("#state")).to_have_class(re.compile("held|fault|blocked|lost"))


@pytest.mark.parametrize("scene", ["two-objects", "fault"])
def test_health_history_and_keys_are_on_the_screen_and_open_into_it(tablet, scene):
    with prepared(scene) as (address, cell):
        for number in range(12):
            cell.state.happened(time.time_ns(), "arrived", name=f"laptop-{number}")
        page = opened(tablet, address)
        shows(page, scene)
        for width, height in SIZES.values():
            page.set_viewport_size({"width": width, "height": height})
            for fold in FOLDS:
                assert in_view(page, f"#{fold}-title"), fold
            for fold in FOLDS:
                title = page.locator(f"#{fold}-title")
                title.scroll_into_view_if_needed()
                title.click()
                first = page.locator(f"#{fold} > :first-child")
                expect(first).to_be_in_viewport(ratio=0.9)
                # written anew with each message, so that one found a moment ago may be gone
                page.wait_for_function(
                    f"(selector) => ({REACHED})(document.querySelector(selector))",
                    arg=f"#{fold} > :first-child",
                )
                title.click()
            page.locator("#left").evaluate("(left) => { left.scrollTop = 0; }")


def drag(session, x, y, distance, steps=8):
    """Draw a finger over the screen."""
    for step in range(steps + 1):
        points = [{"x": x, "y": y + distance * step / steps}]
        session.send(
            "Input.dispatchTouchEvent", {"type": "touchMove" if step else "touchStart", "touchPoints": points}
        )
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


@pytest.mark.parametrize("size", ["1024x768"])
@pytest.mark.parametrize("by", ["wheel", "touch"])
def test_the_left_column_scrolls_to_its_end_by_wheel_and_by_finger(tablet, size, by):
    with prepared("fault") as (address, _):
        page = opened(tablet, address)
        shows(page, "fault")
        page.set_viewport_size(dict(zip(("width", "height"), SIZES[size], strict=True)))
        for fold in FOLDS:
            page.locator(f"#{fold}-box").evaluate("(fold) => { fold.open = true; }")
        page.locator("#left").evaluate("(left) => { left.scrollTop = 0; }")
        frame = page.locator("#view").bounding_box()  # also begun on the picture
        x, y = frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] / 2
        expect(page.locator("#keys > :last-child")).not_to_be_in_viewport()
        if by == "wheel":
            page.mouse.move(x, y)
            page.mouse.wheel(0, 5000)
        else:
            for _ in range(12):
                drag(tablet.new_cdp_session(page), x, y, -y + 150)
        expect(page.locator("#keys > :last-child")).to_be_in_viewport()


@pytest.mark.parametrize("scene", ["on-a-logo", "missed", "fault", "blocked"])
def test_no_details_without_anything_in_them_and_opened_ones_can_be_read(tablet, scene):
    with prepared(scene) as (address, _):
        page = opened(tablet, address)
        shows(page, scene)
        for fold in page.locator("#about details:visible, #panel details:visible").all():
            summary, words = fold.locator("summary"), fold.locator("p")
            summary.click()
            assert words.inner_text().strip(), scene
            words.scroll_into_view_if_needed()
            expect(words).to_be_in_viewport(ratio=0.9)
            assert words.evaluate(REACHED), scene
            summary.click()


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


@pytest.mark.parametrize("scene", TROUBLE)
def test_beside_a_stop_stands_what_to_do(tablet, scene):
    with prepared(scene) as (address, _):
        page = opened(tablet, address)
        shows(page, scene)
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


def test_without_contact_the_page_says_where_to_stop_and_when_contact_is_back(tablet):
    with prepared("lost-supervisor") as (address, cell):
        page = opened(tablet, address)
        expect(page.locator("#alarm")).to_contain_text("If anything is wrong, press the emergency stop")
        expect(page.locator("#which")).to_contain_text("Last picture, ")
        expect(page.locator("#health-title")).to_have_text("Health: – no report")
        page.click("#health-title")
        expect(page.locator("#health")).to_contain_text("If none comes, call the person in charge.")
        page.click("#hold")
        expect(page.locator("#said")).to_contain_text(
            "HOLD: NOT done: The control of the arm did not answer in time. See that"
        )
        assert "upervisor" not in page.locator("body").inner_text()
        cell.silent = False
        cell.state.put("gate", gate("monitoring", "inconsistent"))
        expect(page.locator("#back")).to_have_text("Contact is back.")
        expect(page.locator("#alarm")).to_be_hidden()


def test_a_touch_takes_a_missed_place_and_list_and_send_stay_in_view(tablet):
    with prepared("missed") as (address, cell):
        page = opened(tablet, address)
        drawn, place = page.locator("#drawn li"), cell.box(STICKER)
        for width, height in SIZES.values():
            page.set_viewport_size({"width": width, "height": height})
            for _ in range(drawn.count()):
                drawn.first.get_by_role("button", name="Take back").click()
            expect(drawn).to_have_count(0)
            frame = page.locator("#overlay").bounding_box()
            scale = frame["width"] / 960
            middle = [frame[at] + (place[f"{at}1"] + place[f"{at}2"]) / 2 * scale for at in ("x", "y")]
            page.touchscreen.tap(*middle)
            expect(drawn).to_have_count(1)
            page.touchscreen.tap(*middle)
            expect(page.locator("#message")).to_have_text("That is A already. Take back removes it.")
            page.click("#draw")
            page.mouse.move(frame["x"] + 600 * scale, frame["y"] + 500 * scale)
            page.mouse.down()
            page.mouse.move(frame["x"] + 700 * scale, frame["y"] + 580 * scale)
            page.mouse.up()
            expect(drawn).to_have_count(2)
            expect(page.locator("#draw")).to_have_text("Stop drawing")
            for each in drawn.all():
                expect(each).to_be_in_viewport(ratio=0.95)
                assert each.evaluate(REACHED)
            assert in_view(page, "#send")
            page.click("#draw")
        page.fill("#who", "Ada")
        page.click("#send")
        expect(page.locator("#message")).to_have_text("Answer taken. The machine goes on by itself.")
        first = cell.answers[0].answers[0]
        assert (first.answer, first.x1, first.y2) == ("missed", place["x1"], place["y2"])


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


@pytest.mark.parametrize(
    ("answer", "held", "words"),
    [
        ("Look again", True, "Answer taken. The machine goes on after Release."),
        ("Something is wrong", False, "Answer taken. The machine stands still until the fault is reset."),
    ],
)
def test_after_an_answer_the_page_says_what_comes_next_and_knows_the_name(tablet, answer, held, words):
    with prepared("two-objects") as (address, cell):
        cell.gate = gate("intervention", "waiting_for_operator", held=held)
        page = opened(tablet, address)
        if held:
            expect(page.locator("#held")).to_be_visible()
        expect(page.locator("#who-label")).to_have_text("Your name, for the log")
        expect(page.locator("#who-hint")).to_have_text("Required, not checked, remembered on this tablet.")
        page.fill("#who", "Ada")
        page.locator("#scene").get_by_role("button", name=answer).click()
        page.click("#send")
        expect(page.locator("#message")).to_have_text(words)
        expect(page.locator("#send")).to_be_hidden()
        expect(page.locator("#message")).to_have_text(words)
        page.reload()
        expect(page.locator("#who")).to_have_value("Ada")


@pytest.mark.parametrize("size", ["768x1024"])
def test_a_chosen_button_is_as_large_as_before(tablet, size):
    with prepared("two-objects") as (address, cell):
        page = opened(tablet, address)
        cell.state.put(
            "request", request(asked(cell.box(STICKER)), asked(cell.box(STICKER, 1)), identity="r9")
        )
        page.set_viewport_size(dict(zip(("width", "height"), SIZES[size], strict=True)))
        expect(page.locator("#objects")).not_to_contain_text("edges")  # the question that was there before
        buttons = "#objects .row button, #draw, #scene button"
        frames = (
            f"() => JSON.stringify([...document.querySelectorAll('{buttons}')]"
            + """.map((each) => {
            const { x, y, width, height } = each.getBoundingClientRect();
            return [x, y, width, height];
        }))"""
        )
        # a busy machine may lose contact for a moment, when the page shows no question
        page.wait_for_function(f"() => !({frames})().includes('[0,0,0,0]')")
        before = page.evaluate(frames)
        assert before.count("[") > 9

        def unchanged() -> None:
            page.wait_for_function(f"(before) => ({frames})() === before", arg=before)

        for index in range(2):
            for answer in ("Peel it", "Leave it", "Nothing is there"):
                page.locator("#objects li").nth(index).get_by_role("button", name=answer).evaluate(
                    "(b) => b.click()"
                )
                unchanged()
        for key in ("rescan", "skip_laptop", "fault"):
            page.locator(f'#scene [data-key="{key}"]').evaluate("(b) => b.click()")
            unchanged()


def test_each_answer_says_what_it_means_and_the_small_picture_shows_the_box(tablet):
    with prepared("one-object") as (address, _):
        page = opened(tablet, address)
        item = page.locator("#objects li").first
        for answer, means in (
            ("Peel it", "it is a sticker"),
            ("Leave it", "logo"),
            ("Nothing is there", "no object of its own"),
        ):
            button = item.get_by_role("button", name=answer)
            expect(page.locator("#" + button.get_attribute("aria-describedby"))).to_contain_text(means)
            assert in_view(page, "#" + button.get_attribute("aria-describedby"))
        expect(item.locator(".crop")).not_to_have_class(re.compile("none"))
        orange = """(canvas) => {
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            let count = 0;
            for (let i = 0; i < data.length; i += 4) {
                const [red, green, blue] = data.slice(i, i + 3);
                count += red > 220 && Math.abs(green - 159) < 12 && blue < 20;
            }
            return count;
        }"""
        assert item.locator(".crop").evaluate(orange) > 200


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
