# SPDX-License-Identifier: Apache-2.0
"""Who may use the operator's page: token, proxy and cookie, in a real browser."""

from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from playwright.sync_api import expect
from starlette.datastructures import Headers

from sticker_uq.console.app import Guard, Person
from sticker_uq.console.state import ConsoleState
from test.helpers.browser import FakeCell, served
from test.helpers.operator_page import gate


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
        page.wait_for_load_state("networkidle")  # its scripts are there, which see the server go
    settings["port"] = int(address.split(":")[2].strip("/"))
    expect(page.locator("#state")).to_have_class("state lost")
    with served(state, cell, **settings):
        expect(page.locator("#stale")).to_be_hidden()
    token.unlink()
    expect(page.locator("#state")).to_have_class("state lost")
    with served(state, cell, **settings):
        expect(page.locator("#secret")).to_be_visible()
