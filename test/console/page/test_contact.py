# SPDX-License-Identifier: Apache-2.0
"""What the page says when it hears nothing, and what becomes of a command then."""

import json
import os
import signal
import subprocess
import sys

import httpx
import pytest
from playwright.sync_api import expect

from sticker_uq.console.state import ConsoleState
from test.helpers.browser import FakeCell, served, until
from test.helpers.operator_page import gate

RECORD = """
() => {
  window.lines = [];
  for (const id of ["message", "said"]) {
    const line = document.getElementById(id);
    new MutationObserver(() => window.lines.push(line.textContent)).observe(line, { childList: true });
  }
}
"""


@pytest.fixture
def cell_process():
    """A process that serves the page with two objects in question: its address, and the process."""
    command = [sys.executable, "-m", "test.helpers.operator_page", "two-objects"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().split()[1], process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


def test_a_stopped_process_is_noticed_and_nothing_comes_true_that_was_not_done(tablet, cell_process):
    address, process = cell_process
    page = tablet.new_page()
    page.goto(address)
    expect(page.locator("#state-name")).to_have_text("Needs you")
    page.fill("#who", "Ada")
    for item in page.locator("#objects li").all():
        item.get_by_role("button", name="Peel it").click()
    page.evaluate(RECORD)
    os.kill(process.pid, signal.SIGSTOP)
    page.click("#send")
    expect(page.locator("#message")).to_have_text("Answer: NOT done: no reply within 2 s.")
    expect(page.locator("#stale")).to_be_visible()
    expect(page.locator("#state-name")).to_have_text("No contact")
    page.click("#hold")
    unheld = "NOT done: no reply within 2 s. It is sent again until there is one."
    expect(page.locator("#said")).to_have_text(f"HOLD: {unheld}")
    assert page.evaluate("window.lines") == [
        "Answer: sent ...",
        "Answer: NOT done: no reply within 2 s.",
        "HOLD: sent ...",
        f"HOLD: {unheld}",
    ]
    os.kill(process.pid, signal.SIGCONT)
    expect(page.locator("#stale")).to_be_hidden()
    # a hold is right however late it comes, an answer is not
    expect(page.locator("#said")).to_contain_text("HOLD: done.")
    expect(page.locator("#back")).to_have_text("Contact is back.")
    expect(page.locator("#held")).to_be_visible()
    expect(page.locator("#state-name")).to_have_text("Needs you")
    expect(page.locator("#objects li")).to_have_count(2)
    page.click("#send")
    # however the reply and the message that the question is closed follow each other; the gate is held
    taken = "Answer taken. The machine goes on after Release."
    expect(page.locator("#message")).to_have_text(taken)
    expect(page.locator("#send")).to_be_hidden()
    assert set(page.evaluate("window.lines")[-2:]) <= {"Answer: sent ...", taken}
    page.click("#release")
    expect(page.locator("#held")).to_be_hidden()
    expect(page.locator("#message")).to_have_text("")  # it has come


def test_a_sign_in_without_a_reply_says_so_and_can_be_sent_again(tablet, tmp_path):
    token = tmp_path / "token"
    with served(ConsoleState(), FakeCell(), token_file=str(token)) as address:
        page = tablet.new_page()
        page.route("**/session", lambda route: None)  # nobody answers
        page.goto(address)
        expect(page.locator("#secret-label")).to_have_text("Token of this machine")
        page.fill("#secret", token.read_text().strip())
        page.click("#send")
        expect(page.locator("#message")).to_have_text("Sign in: NOT done: no reply within 2 s.")
        page.unroute("**/session")
        page.click("#send")  # the secret is still there
        expect(page.locator("#state-name")).to_have_text("No contact")


class MutedCell:
    """The live data of a page, sent by the test, on a page whose clock the test moves."""

    def __init__(self, page, address, state):
        self.page, self.state = page, state
        self.sockets = []
        page.route_web_socket("**/live", lambda socket: self.sockets.append(socket))
        page.clock.install(time=0)
        page.clock.pause_at(1000)
        page.goto(address)

    def send(self, sent_s):
        """A message that the cell sent at this time of its clock."""
        told = {**self.state.snapshot(), "sent_s": sent_s, "connected": True, "workpiece": f"at {sent_s}"}
        told["operator"] = {"name": "", "checked": False}
        self.until_connected(1)
        self.sockets[-1].send(json.dumps(told))

    def until_connected(self, times):
        """Wait until the page has connected so often."""
        until(self.page, lambda: len(self.sockets) >= times, f"connection {times}")

    def send_and_see(self, sent_s):
        """The same, and wait until the page shows it."""
        self.send(sent_s)
        expect(self.page.locator("#title")).to_have_text(f"Laptop at {sent_s}")


@pytest.fixture
def muted(tablet):
    state = ConsoleState()
    state.put("gate", gate("blocked", held=True))
    with served(state, FakeCell()) as address:
        yield MutedCell(tablet.new_page(), address, state)


def test_three_seconds_without_a_message_cover_everything_and_it_tries_again(muted):
    page, stale = muted.page, muted.page.locator("#stale")
    muted.send_and_see(100.0)
    page.clock.run_for(2900)
    expect(stale).to_be_hidden()
    assert len(muted.sockets) == 1
    page.clock.run_for(400)
    expect(stale).to_be_visible()
    expect(page.locator("#state-name")).to_have_text("No contact")
    expect(page.locator("#meaning")).to_be_empty()
    expect(page.locator("#held")).to_be_hidden()  # it may have been released meanwhile
    assert page.locator("#panel, #foot, #left").evaluate_all("(all) => all.every((part) => part.inert)")
    expect(page.locator("#stale")).to_contain_text("Last message 3 s ago")
    muted.until_connected(2)
    assert len(muted.sockets) == 2
    page.clock.run_for(4000)
    muted.until_connected(3)
    assert len(muted.sockets) == 3
    muted.send_and_see(107.3)
    expect(stale).to_be_hidden()
    expect(page.locator("#held")).to_be_visible()
    expect(page.locator("#state-name")).to_have_text("Held")


def test_old_news_on_a_slow_link_is_no_contact(muted):
    for pause_ms, sent_s in ((0, 100.0), (2000, 100.5), (1000, 101.0)):  # 0, 1.5 and 2 s late
        muted.page.clock.run_for(pause_ms)
        muted.send_and_see(sent_s)
        expect(muted.page.locator("#stale")).to_be_hidden()
    muted.page.clock.run_for(900)
    expect(muted.page.locator("#stale")).to_be_hidden()
    assert len(muted.sockets) == 1
    muted.send(100.8)  # 3.1 s late
    expect(muted.page.locator("#stale")).to_be_visible()
    expect(muted.page.locator("#state-name")).to_have_text("No contact")


@pytest.mark.parametrize(("patience_s", "status"), [(600.0, 200), (-0.001, 408)])
def test_what_comes_too_late_is_refused(patience_s, status):
    state, cell = ConsoleState(), FakeCell()
    with served(state, cell, punctual=True) as address:
        until = state.snapshot()["sent_s"] + patience_s
        reply = httpx.post(
            f"{address}command?until={until}",
            json={"command": "release", "person": "Ada"},
            headers={"origin": address.rstrip("/")},
        )
    assert reply.status_code == status
    assert cell.commands == ([("release", "Ada")] if status == 200 else [])
