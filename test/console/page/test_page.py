# SPDX-License-Identifier: Apache-2.0
"""What the operator's page shows and does, in a real browser, without a cell behind it."""

import re
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from playwright.sync_api import expect
from starlette.datastructures import Headers

from sticker_uq.console.app import Guard, Person
from sticker_uq.console.state import ConsoleState
from test.helpers.browser import FakeCell, served
from test.helpers.operator_page import asked, gate, reason, request

EVIL = "<img src=x onerror=\"document.title='owned'\">"
BOX = {"x1": 200.0, "y1": 200.0, "x2": 320.0, "y2": 300.0}
OTHER = {"x1": 500.0, "y1": 350.0, "x2": 640.0, "y2": 450.0}


SCENE = {
    "stamp": "2000", "picture": True, "width": 960, "height": 720, "passes": 20, "status": 1, "status_text": "", "dil": 0.2,
    "outcome": "ask", "reasons": [], "unexplained": [{"box": {"x1": 30.0, "y1": 30.0, "x2": 90.0, "y2": 90.0}}],
    "objects": [
        {
            "id": 5, "label": 1, "box": {"x1": 700, "y1": 100, "x2": 800, "y2": 160},
            "hulls": [[[700, 100], [706, 100], [703, 108]]],
            "probability": 0.97, "seen_in": 20, "unstable": False, "verdict": "keep", "by_operator": False,
        }
    ],
}  # fmt: skip


REGION = {"x1": 30.0, "y1": 30.0, "x2": 90.0, "y2": 90.0}
ELSEWHERE = {"x1": 820.0, "y1": 600.0, "x2": 900.0, "y2": 680.0}


class Operator:
    """A person before the page."""

    def __init__(self, context, address, state, cell):
        self.context, self.state, self.cell = context, state, cell
        self.trouble = []
        self.page = context.new_page()
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("console", lambda line: self.trouble.append(line.text) if line.type == "error" else None)
        self.page.on("request", self._asked_for)
        self.address = address
        self.page.clock.install(time=0)
        self.page.clock.pause_at(1000)  # nothing comes late on a busy machine
        self.page.goto(address)

    def _asked_for(self, request):
        if not request.url.startswith((self.address, self.address.replace("http", "ws"))):
            self.trouble.append(f"something from outside: {request.url}")

    def see(self, *objects, shown=True, **rest):
        self.state.put("gate", gate("intervention", "waiting_for_operator"))
        self.state.put("scene", SCENE)
        self.state.put("request", request(*objects, **rest))
        expect(self.page.locator("#objects li")).to_have_count(len(objects))
        # keys say nothing of a picture that is not there yet
        expect(self.page.locator("#draw")).to_have_attribute("aria-disabled", "false" if shown else "true")

    def is_called(self, name):
        self.page.fill("#who", name)

    def says(self, index, answer):
        self.page.locator("#objects li").nth(index).get_by_role("button", name=answer).click()

    def sends(self):
        self.page.click("#send")
        expect(self.page.locator("#message")).to_contain_text("Answer taken.")

    def drags(self, x1, y1, x2, y2):
        mouse = self.page.mouse
        mouse.move(*self.place(x1, y1))
        mouse.down()
        mouse.move(*self.place(x2, y2), steps=4)
        mouse.up()

    def expect_marked(self, *boxes):
        """Wait until of all regions these, and no others, have an edge in the colour of what may have been missed."""
        self.page.wait_for_function(
            """([regions, expected]) => {
                const canvas = document.getElementById("overlay"), scale = canvas.width / 960;
                const marked = (box) => {
                    const frame = [box.x1 * scale - 4, (box.y1 + 5) * scale, 8, (box.y2 - box.y1 - 10) * scale];
                    const { data } = canvas.getContext("2d").getImageData(...frame);
                    for (let i = 0; i < data.length; i += 4) {
                        const [red, green, blue] = data.slice(i, i + 3);
                        if (red > 190 && green > 60 && green < 120 && blue < 40) return true;
                    }
                    return false;
                };
                return canvas.width > 0 && JSON.stringify(regions.map(marked)) === JSON.stringify(expected);
            }""",
            arg=[[BOX, ELSEWHERE, REGION], [box in boxes for box in (BOX, ELSEWHERE, REGION)]],
        )

    def place(self, x, y):
        """Where a pixel of the camera's image is on the page."""
        # the picture gives the frame its size
        expect(self.page.locator("#picture")).to_have_js_property("naturalWidth", 960)
        frame = self.page.locator("#overlay").bounding_box()
        return frame["x"] + x * frame["width"] / 960, frame["y"] + y * frame["height"] / 720


@pytest.fixture
def operator(tablet, monkeypatch):
    monkeypatch.setattr("sticker_uq.console.state.HEALTH_FRESH_S", 600.0)  # whatever else runs on the machine
    state, cell = ConsoleState(("detector", "supervisor")), FakeCell()
    state.put("gate", gate("monitoring", "inconsistent"))
    with served(state, cell) as address:
        someone = Operator(tablet, address, state, cell)
        yield someone
        assert someone.trouble == []
        someone.page.close()  # a server waits for the pages that it has


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


def test_without_a_name_nothing_is_sent_and_a_refusal_is_shown_with_its_reason(operator):
    operator.cell.refusal = reason("box_outside_image", width=960, height=720)
    operator.see(asked(BOX))
    operator.says(0, "Peel it")
    operator.page.click("#send")
    expect(operator.page.locator("#message")).to_have_text("Not sent yet: please enter your name.")
    expect(operator.page.locator("#who")).to_be_focused()
    assert operator.cell.answers == []
    operator.is_called("Ada")
    operator.page.click("#send")
    expect(operator.page.locator("#message")).to_have_text(
        "Answer: NOT done: A box lies outside the picture of 960 x 720 px"
    )
    # somebody else's answer is not taken for the one that was refused
    answer = {"request_id": "r1", "person": "Grace", "scene": "clean", "answers": []}
    operator.state.put("answered", answer)
    operator.state.put("request", None)
    expect(operator.page.locator("#message")).to_contain_text("Answer of Grace taken.")


def test_everything_from_the_cell_is_text(operator):
    refused = reason("goal_rejected", "", None, None, detail=EVIL)
    operator.see(asked(BOX, refused, reason(EVIL, text=EVIL)), reasons=[reason("above_limit", EVIL)])
    operator.state.put("gate", gate("fault", "fault", details=[refused]))
    operator.state.put("workpiece", EVIL)
    operator.state.happened(10**9, "arrived", name=EVIL)
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


def test_keys_alone_are_enough(operator):
    operator.see(asked(BOX), asked(OTHER))
    operator.is_called("Ada")
    keys = operator.page.keyboard
    keys.press("Enter")  # leaves the name
    keys.press("n")
    keys.press("2")
    keys.press("p")
    keys.press("d")
    for key in ("ArrowLeft", "Shift+ArrowRight", "ArrowDown", "Enter"):
        keys.press(key)
    keys.press("Enter")
    expect(operator.page.locator("#message")).to_have_text("Answer taken. The machine goes on by itself.")
    first, second, drawn = operator.cell.answers[0].answers
    assert [first.answer, second.answer, drawn.answer] == ["not_there", "remove", "missed"]
    # begun in the middle fifth of 960x720; a step is a hundredth of the width
    step = 10
    assert (drawn.x1, drawn.x2) == pytest.approx((384 - step, 576), abs=0.5)
    assert (drawn.y1, drawn.y2) == pytest.approx((288 + step, 432 + step), abs=0.5)


def test_a_missed_sticker_is_drawn_listed_and_taken_back(operator):
    operator.see(asked(BOX), asked(OTHER))
    operator.is_called("Ada")
    drawn = operator.page.locator("#drawn li")
    operator.drags(150, 400, 250, 470)
    expect(drawn).to_have_count(0)  # nothing is drawn by chance
    expect(operator.page.locator("#message")).to_contain_text("press Draw a missed sticker first")
    operator.page.click("#draw")
    expect(operator.page.locator("#draw-hint")).to_contain_text("Drag a box around each sticker")
    for left in (150, 700):  # drawing stays on
        operator.drags(left, 400, left + 100, 470)
    expect(drawn).to_have_count(2)
    operator.page.click("#draw")
    expect(operator.page.locator("#draw-hint")).to_be_hidden()
    operator.drags(450, 500, 480, 560)
    expect(drawn).to_have_count(2)
    expect(drawn.last).to_contain_text("B  Missed sticker")
    drawn.first.get_by_role("button", name="Take back").click()
    expect(drawn).to_have_count(1)
    operator.says(0, "Nothing is there")
    operator.says(1, "Leave it")
    operator.sends()
    answers = operator.cell.answers[0].answers
    assert [a.answer for a in answers] == ["not_there", "keep", "missed"]
    box = answers[-1]
    assert (box.x1, box.y1, box.x2, box.y2) == pytest.approx((700, 400, 800, 470), abs=3)


def test_an_answer_cannot_contradict_itself(operator):
    inside = {"x1": BOX["x1"] + 8, "y1": BOX["y1"], "x2": BOX["x2"], "y2": BOX["y2"]}
    operator.see(asked(BOX), asked(OTHER), asked(inside))
    operator.is_called("Ada")
    page, message = operator.page, operator.page.locator("#message")
    clean = page.locator("#scene").get_by_role("button", name="No sticker is left")
    operator.says(0, "Peel it")
    clean.click(force=True)
    expect(message).to_have_text("You said that something is to be peeled. Take that back first.")
    expect(clean).to_have_attribute("aria-pressed", "false")
    operator.says(0, "Leave it")
    clean.click()
    expect(clean).to_have_attribute("aria-pressed", "true")
    operator.says(1, "Peel it")  # what is said last stands
    expect(clean).to_have_attribute("aria-pressed", "false")
    page.click("#draw")
    operator.drags(inside["x1"], inside["y1"], inside["x2"], inside["y2"])
    expect(message).to_have_text("That is 1. Press Peel it there.")
    expect(page.locator("#drawn li")).to_have_count(0)
    operator.says(2, "Nothing is there")
    page.click("#send", force=True)
    expect(message).to_have_text("1 and 3 are the same place: give both the same answer")
    assert operator.cell.answers == []
    operator.says(2, "Leave it")
    page.get_by_role("button", name="Look again").click()
    operator.sends()
    assert [(said.scene, said.answers) for said in operator.cell.answers] == [("rescan", [])]


def test_no_sticker_is_left_is_asked_once_more_with_all_that_looks_like_one(operator):
    page, sure = operator.page, operator.page.locator("#sure")
    peel = {**SCENE["objects"][0], "label": 2, "box": OTHER, "verdict": "remove", "must_mention": True}
    later = {**peel, "box": ELSEWHERE}
    operator.see(asked(BOX), asked(REGION, label=1), scene={**SCENE, "objects": [*SCENE["objects"], peel]})
    operator.state.put("scene", {**SCENE, "stamp": "3000", "objects": [peel, later]})
    operator.state.put("workpiece", "laptop-9")
    expect(page.locator("#title")).to_have_text("Laptop 9")  # and so the newest scene is there, too
    operator.is_called("Ada")
    page.locator("#who").blur()
    expect(sure).to_be_hidden()
    page.keyboard.press("c")
    for _ in range(3):
        page.keyboard.press("Enter")  # a second one takes nothing for granted
        expect(sure).to_be_visible()
        expect(page.locator("#sure-places strong")).to_have_text(
            ["1", "without a question", "without a question"]
        )
        expect(page.locator("#send")).to_be_hidden()
        page.keyboard.press("Enter")
        expect(sure).to_be_hidden()
    assert operator.cell.answers == []
    page.click("#send")
    operator.says(0, "Leave it")  # something else is said
    expect(sure).to_be_hidden()
    page.keyboard.press("c")
    page.click("#send")
    page.click("#sure-yes")
    expect(page.locator("#message")).to_contain_text("Answer taken.")
    (said,) = operator.cell.answers
    assert (said.scene, said.answers) == ("clean", [])
    assert [place.model_dump() for place in said.not_stickers] == [BOX, OTHER, ELSEWHERE]


def test_a_reload_loses_nothing(operator):
    operator.see(asked(BOX), asked(OTHER))
    operator.is_called("Ada")
    operator.says(1, "Peel it")
    operator.page.keyboard.press("d")
    operator.page.keyboard.press("Enter")
    expect(operator.page.locator("#drawn li")).to_have_count(1)
    operator.page.reload()
    expect(operator.page.locator("#objects li")).to_have_count(2)
    expect(operator.page.locator("#who")).to_have_value("Ada")
    operator.says(0, "Leave it")
    operator.sends()
    assert [a.answer for a in operator.cell.answers[0].answers] == ["keep", "remove", "missed"]


def test_a_question_marks_what_was_missed_on_its_own_picture(operator):
    question_scene = {**SCENE, "stamp": "1000", "unexplained": [{"box": ELSEWHERE}]}
    missed = reason("missed_place", "unexplained_objectness", 0.4, 0.1, box=BOX)
    operator.see(reasons=[missed], scene=question_scene)
    picture = operator.page.locator("#picture")
    expect(picture).to_have_attribute("src", "picture/1000.jpg")
    operator.expect_marked(BOX, ELSEWHERE)
    operator.page.keyboard.press("v")  # the live scene has its own, and the question is not about it
    expect(picture).to_have_attribute("src", "picture/2000.jpg")
    operator.expect_marked(REGION)
    operator.page.keyboard.press("v")
    operator.page.keyboard.press("b")
    operator.expect_marked()
    operator.page.keyboard.press("b")
    operator.see(reasons=[missed], identity="r2")  # its scene is not known any more: the cause is
    operator.expect_marked(BOX)


def test_the_attention_of_a_question_is_that_of_its_picture_or_none(operator):
    operator.state.put("heat", "1990")
    operator.see(asked(BOX), heat=True)
    heat = operator.page.locator("#heat")
    expect(heat).to_be_hidden()
    operator.page.keyboard.press("a")
    expect(heat).to_have_attribute("src", "heat/1000.png")
    operator.page.click("#layer-live")
    expect(heat).to_have_attribute("src", "heat/1990.png")
    operator.page.click("#layer-live")
    operator.see(asked(BOX), identity="r2", heat=False)
    expect(heat).to_be_hidden()
    expect(operator.page.locator("#which")).to_contain_text("was not recorded")
    operator.page.reload()  # the wish is remembered
    expect(operator.page.locator("#layer-heat")).to_have_attribute("aria-pressed", "true")


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


def test_a_spot_check_asks_for_what_the_page_takes(operator):
    operator.see(asked(BOX), reasons=[reason("spot_check")])
    expect(operator.page.locator("#reasons .why")).to_contain_text("A check of the machine")
    instruction = operator.page.locator("#look")
    expect(instruction).to_have_text(
        "Decide every object with a number. Draw a box around each sticker that has no number."
    )
    operator.page.click("#draw")
    operator.drags(200, 200, 320, 300)  # where the object with the number is
    expect(operator.page.locator("#message")).to_have_text("That is 1. Press Peel it there.")
    operator.is_called("Ada")
    operator.says(0, "Peel it")
    operator.drags(500, 350, 640, 450)
    operator.sends()
    assert [answer.answer for answer in operator.cell.answers[0].answers] == ["remove", "missed"]


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


def test_who_signs_in_at_the_proxy_enters_no_name(tablet, tmp_path):
    token, state, cell = tmp_path / "token", ConsoleState(), FakeCell()
    state.put("gate", gate("monitoring", "inconsistent", held=True))
    with served(state, cell, proxied="Ada", token_file=str(token), name_header="X-Remote-User") as address:
        page = tablet.new_page()
        page.goto(address)
        page.fill("#secret", "wrong")
        page.click("#send")
        expect(page.locator("#message")).to_have_text("Not accepted: the token is wrong.")
        expect(page.locator("#secret")).to_have_value("")
        page.fill("#secret", token.read_text().strip())
        page.keyboard.press("Enter")
        expect(page.locator("#who-label")).to_have_text("Signed in as Ada")
        expect(page.locator("#who")).to_be_hidden()
        page.click("#release")  # asks for no name: it was proved
        expect(page.locator("#said")).to_contain_text("Release: done.")
        assert cell.people == [Person("Ada", True)]
        assert page.url == address
        assert page.evaluate("document.cookie") == ""
        (cookie,) = tablet.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["secure"]) == (True, "Strict", False)


TRIED = """
async (cell) => {
    const send = (mode, type) => fetch(cell + "command", {
        method: "POST", mode, credentials: "include", headers: { "Content-Type": type },
        body: '{"command": "release", "person": "Eve"}',
    }).then((response) => response.type, () => "failed");
    const happens = (target, good) => new Promise((done) => {
        target["on" + good] = () => done(good);
        target.onerror = () => done("failed");
    });
    const image = new Image();
    const shown = happens(image, "load");
    image.src = cell + "picture/1.jpg";
    return {
        simple: await send("no-cors", "text/plain"), preflight: await send("cors", "application/json"),
        read: await fetch(cell + "session", { credentials: "include" }).then(() => "read", () => "failed"),
        image: await shown, socket: await happens(new WebSocket(cell.replace("http", "ws") + "live"), "open"),
    };
}
"""


@contextmanager
def website(folder):
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=folder)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_a_page_at_another_port_cannot_use_the_operators_cookie(tablet, tmp_path, monkeypatch):
    (token := tmp_path / "token").touch(0o600)
    token.write_text("the token of this cell")
    cell = FakeCell()
    with served(ConsoleState(), cell, token_file=str(token)) as address:
        page = tablet.new_page()
        page.goto(address)
        page.fill("#secret", token.read_text())
        page.click("#send")
        expect(page.locator("#alarm")).to_be_visible()  # so that the page has all that it asks for
        received, take = [], Guard.__call__

        async def record(self, scope, receive, send):
            received.append(Headers(scope=scope))
            await take(self, scope, receive, send)

        monkeypatch.setattr(Guard, "__call__", record)
        with website(tmp_path / "elsewhere") as elsewhere:
            page.goto(elsewhere)
            received.clear()
            found = page.evaluate(TRIED, address)
        assert found == {
            "simple": "failed", "preflight": "failed", "read": "failed", "image": "failed", "socket": "failed",
        }  # fmt: skip
        assert cell.commands == []
        # the same site for a browser, which therefore sends the cookie with everything but the question whether it may ask
        cookies = [
            headers.get("cookie") for headers in received if "access-control-request-method" not in headers
        ]
        assert len(cookies) == 4
        assert all(cookies)


def test_another_token_after_a_restart_is_asked_for(tablet, tmp_path):
    state, cell, token = ConsoleState(), FakeCell(), tmp_path / "token"
    settings = {"token_file": str(token)}
    with served(state, cell, **settings) as address:
        page = tablet.new_page()
        page.goto(address)
        page.fill("#secret", token.read_text().strip())
        page.click("#send")
        expect(page.locator("#hold-name")).to_be_visible()
        assert page.locator("#who").bounding_box()["width"] >= 100, "too narrow for a name"
    settings["port"] = int(address.split(":")[2].strip("/"))
    expect(page.locator("#state")).to_have_class("state lost")
    with served(state, cell, **settings):
        expect(page.locator("#stale")).to_be_hidden()
    token.unlink()
    expect(page.locator("#state")).to_have_class("state lost")
    with served(state, cell, **settings):
        expect(page.locator("#secret")).to_be_visible()


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


def test_boxes_are_never_drawn_over_another_picture(operator):
    operator.see(asked(BOX), scene=SCENE)
    picture = operator.page.locator("#picture")
    expect(operator.page.locator("#no-picture")).to_be_hidden()
    operator.cell.picture = lambda _: b""  # not kept
    operator.see(asked(OTHER), shown=False, identity="r2", stamp="1001", scene=SCENE)
    expect(operator.page.locator("#no-picture")).to_be_visible()
    expect(picture).to_be_hidden()
    blank = "(canvas) => !canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean)"
    assert operator.page.locator("#overlay").evaluate(blank)


def test_without_its_picture_a_question_takes_no_answer_about_objects(operator):
    operator.see(asked(BOX), asked(OTHER), shown=False, picture=False)
    operator.is_called("Grace")
    page = operator.page
    blind = [*page.locator("#objects .row button").all(), *page.locator("#draw, #all").all()]
    assert len(blind) == 8
    for button in [*blind, page.get_by_role("button", name="No sticker is left")]:
        expect(button).to_have_attribute("aria-disabled", "true")
        button.click(force=True)
        expect(page.locator("#message")).to_contain_text("The picture of this question is not there.")
    page.keyboard.press("Enter")
    page.click("#send", force=True)
    assert operator.cell.answers == []
    page.get_by_role("button", name="Look again").click()
    operator.sends()
    [said] = operator.cell.answers
    assert (said.scene, said.answers, said.image_ns) == ("rescan", [], 0)


def test_an_answer_names_the_picture_that_was_seen(operator):
    operator.see(asked(BOX))
    operator.is_called("Grace")
    operator.says(0, "Leave it")
    operator.sends()
    assert operator.cell.answers[0].image_ns == 1000


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


def test_a_picture_that_was_shown_before_its_question_counts_as_seen(operator):
    operator.state.put("scene", SCENE)  # live, of stamp 2000
    expect(operator.page.locator("#picture")).to_have_js_property("naturalWidth", 960)
    operator.see(asked(BOX), stamp=SCENE["stamp"])
    operator.is_called("Grace")
    operator.says(0, "Leave it")
    operator.sends()
    assert operator.cell.answers[0].image_ns == 2000
