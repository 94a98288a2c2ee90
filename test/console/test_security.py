# SPDX-License-Identifier: Apache-2.0
"""What attackers try with the page's server over real connections; docs/security.md names these tests."""

import asyncio
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from unittest.mock import patch
from urllib.parse import urlsplit

import pytest
import websockets.sync.client
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import ConnectionClosed, InvalidStatus

from sticker_uq.console import app as console_app
from sticker_uq.console.app import MOST_BODY, Person
from sticker_uq.console.server import ConsoleSettings, PageServer
from sticker_uq.console.state import ConsoleState
from sticker_uq.scene import InvalidInput
from test.helpers.browser import FakeCell, served

TOKEN = "the token of this cell"
HOLD = json.dumps({"command": "hold"}).encode()
ANSWER = json.dumps({"request_id": "r1", "person": "Eve", "scene": "clean"}).encode()
WAIT_S = 90.0


class Server:
    """A page's server and what a client without a browser does with it."""

    def __init__(self, address, cell):
        self.cell = cell
        self.netloc = urlsplit(address).netloc
        self.origin = f"http://{self.netloc}"

    def connect(self):
        host, _, port = self.netloc.partition(":")
        return socket.create_connection((host, int(port)), WAIT_S)

    def send(self, data, connection=None):
        """Status, head and body of the response to these bytes; status 0 when the connection ends without one."""
        with connection or self.connect() as link:
            link.sendall(data)
            return response(link)

    def request(self, method="GET", path="/", body=None, **headers):
        fields = {"Host": self.netloc, "Connection": "close"}
        if body is not None:
            fields |= {"Origin": self.origin, "Content-Type": "application/json", "Content-Length": len(body)}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{method} {path} HTTP/1.1"] + [f"{k}: {v}" for k, v in fields.items() if v is not None]
        return self.send("\r\n".join([*lines, "", ""]).encode() + (body or b""))

    def post(self, path, body, **headers):
        return self.request("POST", path, body, **headers)

    def sign_in(self, secret, **headers):
        """Status and cookie of the answer to a sign-in with this token."""
        status, head, _ = self.post("/session", json.dumps({"secret": secret}).encode(), **headers)
        return status, head.partition("set-cookie: ")[2].partition("\r\n")[0]

    def live(self, origin=None, cookie=""):
        fields = {"Cookie": cookie} if cookie else {}
        address = f"ws://{self.netloc}/live"
        return websockets.sync.client.connect(
            address, origin=origin or self.origin, additional_headers=fields, open_timeout=WAIT_S
        )


def response(link):
    data = b""
    try:
        while part := link.recv(65536):
            data += part
    except ConnectionResetError:
        pass
    head, _, body = data.decode("latin-1").partition("\r\n\r\n")
    return (int(head.split()[1]) if head else 0), head.lower(), body


def until_closed(link):
    while True:
        link.recv(WAIT_S)


@contextmanager
def serving(**settings):
    cell = FakeCell()
    with served(ConsoleState(), cell, **settings) as address:
        yield Server(address, cell)


@pytest.fixture(scope="module")
def shared():
    with serving() as server:
        yield server


@pytest.fixture
def server(shared):
    """A page that everybody on this machine may open."""
    shared.cell.answers.clear()
    shared.cell.commands.clear()
    return shared


@pytest.fixture
def token_server(tmp_path):
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_text(TOKEN)
    with serving(token_file=str(path)) as server:
        yield server


def test_a_website_that_rebinds_its_name_reads_and_commands_nothing(server):
    port = server.netloc.partition(":")[2]
    host, origin = f"evil.example:{port}", f"http://evil.example:{port}"
    for path in ("/", "/picture/1.jpg", "/heat/1.png", "/session", "/static/console.js"):
        assert server.request(path=path, Host=host)[0] == 421
    for path, body in (("/command", HOLD), ("/answer", ANSWER), ("/session", b"{}")):
        assert server.post(path, body, Host=host, Origin=origin)[0] == 421
        assert server.post(path, body, Origin=origin)[0] == 403
    with pytest.raises(InvalidStatus), server.live(origin):
        pass
    assert (server.cell.commands, server.cell.answers) == ([], [])


@pytest.mark.parametrize("origin", [None, "http://{}.evil.example"])
def test_a_command_comes_from_the_page_itself(server, origin):
    origin = origin and origin.format(server.netloc)
    assert server.post("/command", HOLD, Origin=origin)[0] == 403
    assert server.cell.commands == []
    assert server.post("/command", HOLD)[0] == 200
    assert server.cell.commands == [("hold", "")]


def test_a_websocket_without_an_origin_is_refused(server):
    with pytest.raises(InvalidStatus), websockets.sync.client.connect(f"ws://{server.netloc}/live"):
        pass


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])  # fmt: skip
def test_a_form_of_another_website_is_no_command(server, kind):
    assert server.post("/command", HOLD, Content_Type=kind)[0] == 415
    assert server.cell.commands == []


def test_another_website_may_not_embed_a_picture(server):
    _, head, _ = server.request(path="/picture/1.jpg")
    assert "cross-origin-resource-policy: same-origin" in head
    assert "access-control-allow-origin" not in head
    assert "frame-ancestors 'none'" in head
    assert "server:" not in head


def test_without_a_sign_in_nothing_is_shown_or_taken(token_server):
    server = token_server
    status, _, body = server.request()
    assert (status, "sign_in.js" in body) == (401, True)
    for path in (
        "/picture/1.jpg",
        "/heat/1.png",
        "/session",
        f"/picture/1.jpg?token={TOKEN.replace(' ', '+')}",
    ):
        assert server.request(path=path, Cookie="sticker_uq=x; sticker_uq_8780=y")[0] == 401
    for path, body in (("/command", HOLD), ("/answer", ANSWER)):
        assert server.post(path, body)[0] == 401
    with pytest.raises(InvalidStatus), server.live():
        pass
    assert (server.cell.commands, server.cell.answers) == ([], [])


def test_a_token_becomes_a_cookie(token_server):
    server = token_server
    assert server.sign_in("wrong") == (401, "")
    status, cookie = server.sign_in(TOKEN)
    assert status == 204
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in cookie
    cookie = cookie.partition(";")[0]
    assert "console.js" in server.request(Cookie=cookie)[2]
    assert server.request(path="/picture/1.jpg", Cookie=f'other={{"a": 1}}; {cookie}')[0] == 200
    assert server.post("/answer", ANSWER, Cookie=cookie)[0] == 200
    with server.live(cookie=cookie) as link:
        assert json.loads(link.recv(WAIT_S))["operator"] == {"name": "", "checked": False}


def test_wrong_tokens_are_told_and_wait_and_keep_nobody_else_out(token_server, monkeypatch):
    server, over, delays = token_server, threading.Event(), []

    async def slow_down(seconds):
        delays.append(seconds)
        while not over.is_set():
            await asyncio.sleep(0.01)

    monkeypatch.setattr(console_app, "slow_down", slow_down)
    cookie = server.sign_in(TOKEN)[1].partition(";")[0]
    guess = json.dumps({"secret": "wrong"}).encode()
    with ExitStack() as stack:
        guessing = [
            stack.enter_context(ThreadPoolExecutor(20)).submit(server.post, "/session", guess)
            for _ in range(20)
        ]
        while len(delays) < 20:
            assert not any(one.done() for one in guessing), "a guess was answered at once"
        assert server.post("/command", HOLD, Cookie=cookie)[0] == 200
        assert server.sign_in(TOKEN)[0] == 204, (
            "an address is not locked out by what another one there guesses"
        )
        over.set()
        assert {one.result()[0] for one in guessing} == {401}
    assert server.cell.commands == [("hold", "")]
    assert [(told[1], told[2]) for told in server.cell.wrong_tokens] == [(n, n) for n in range(1, 21)]
    assert delays == sorted(delays)
    assert delays[0] < delays[1]


def test_behind_a_tls_proxy_the_cookie_is_for_tls_only(tmp_path):
    (path := tmp_path / "token").touch(0o600)
    path.write_text(TOKEN)
    with serving(token_file=str(path), origins="https://cell-3.example") as server:
        assert "secure" not in server.sign_in(TOKEN)[1]
        proxied = {"Host": "cell-3.example", "Origin": "https://cell-3.example"}
        status, cookie = server.sign_in(TOKEN, **proxied)
        assert (status, "; secure" in cookie) == (204, True)
        assert server.sign_in(TOKEN, **{**proxied, "Origin": server.origin})[0] == 403
        forwarded = {"X-Forwarded-Host": server.netloc, "X-Forwarded-For": "127.0.0.1"}
        assert server.sign_in(TOKEN, Host="evil.example", **forwarded)[0] == 421


def test_a_proxy_names_the_operator_and_nobody_else_does():
    with serving(name_header="X-Remote-User") as server:
        ada = {"X_Remote_User": "Ada"}
        assert server.post("/answer", ANSWER, **ada)[0] == 200  # Eve's name in it does not count
        assert server.post("/command", HOLD, **ada)[0] == 200
        assert server.cell.people == [Person("Ada", True)] * 2
        for path, body in (("/answer", ANSWER), ("/command", HOLD)):
            assert server.post(path, body)[0] == 403
            assert server.post(path, body, X_Remote_User="Ada\r\nX-Remote-User: Eve")[0] == 403
        assert server.request()[0] == 403
        with pytest.raises(InvalidStatus), server.live():
            pass
        assert len(server.cell.people) == 2


def test_without_a_proxy_a_name_is_not_checked(server):
    server.cell.people.clear()
    assert server.post("/answer", ANSWER)[0] == 200
    assert server.cell.people == [Person("Eve", False)]


def test_a_body_is_refused_before_it_is_read(token_server):
    server = token_server
    fields = f"Host: {server.netloc}\r\nOrigin: {server.origin}\r\nContent-Type: application/json\r\n"
    # the body never comes: whoever waited for it would wait until the connection ends
    for path, length, status in (("/answer", 10**8, 401), ("/answer", 10, 401), ("/session", 10**8, 413)):
        head = f"POST {path} HTTP/1.1\r\n{fields}Content-Length: {length}\r\n\r\n"
        found, said, _ = server.send(head.encode())
        assert (found, "connection: close" in said) == (status, True)


def test_a_large_body_is_refused(server):
    assert server.post("/command", HOLD + b" " * (MOST_BODY - len(HOLD)))[0] == 200
    assert server.post("/command", HOLD + b" " * (MOST_BODY - len(HOLD) + 1))[0] == 413


@pytest.mark.parametrize(
    "body",
    [
        b'{"command": "SPY"}',
        b'{"command": "hold", "SPY": 1}',
        b'{"command": "hold", "person": "SPY\\n"}',
        b'{"command": "hold", "person": "\\ud800SPY"}',
        b'["SPY"]',
        b'{"SPY',
        b"[" * 60_000,
        b"9" * 60_000,
        b"\xff\xfeSPY",
        b"NaN",
    ],
)
def test_an_error_does_not_repeat_what_was_sent(server, body):
    status, _, said = server.post("/command", body)
    assert status in (400, 422)
    assert "SPY" not in said
    assert len(said) < 300
    assert server.cell.commands == []


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static//etc/passwd",
        "/static/..%5capp.py",
        "/../app.py",
        "/static/index.html%00.js",
    ],
)
def test_only_the_files_of_the_page_are_served(server, path):
    assert server.request(path=path)[0] == 404


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "GET", "HEAD"])
def test_a_command_is_a_post(server, method):
    assert server.request(method, "/command", Origin=server.origin)[0] in (400, 405)
    assert server.cell.commands == []


@pytest.mark.parametrize(
    "framing",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Content-Length: 5\r\nContent-Length: 6",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Content-Length: +19",
        "Content-Length : 19",
    ],
)
def test_a_body_that_two_readers_may_delimit_differently_is_refused(server, framing):
    fields = f"Host: {server.netloc}\r\nOrigin: {server.origin}\r\nContent-Type: application/json"
    smuggled = f"0\r\n\r\nPOST /command HTTP/1.1\r\n{fields}\r\nContent-Length: {len(HOLD)}\r\n\r\n".encode()
    status, _, _ = server.send(
        f"POST /answer HTTP/1.1\r\n{fields}\r\n{framing}\r\n\r\n".encode() + smuggled + HOLD
    )
    assert status in (400, 411, 501)
    assert server.cell.commands == []


def test_two_hosts_in_one_request_are_refused(server):
    head = f"GET / HTTP/1.1\r\nHost: {server.netloc}\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    assert server.send(head.encode())[0] == 400
    assert server.send(b"GET / HTTP/1.0\r\n\r\n")[0] == 421


def test_a_head_without_end_is_refused(server):
    head = f"GET / HTTP/1.1\r\nHost: {server.netloc}\r\n" + "X-More: " + "a" * 100_000
    assert server.send(head.encode())[0] in (0, 400, 431)


def test_many_pages_do_not_keep_commands_out(monkeypatch):
    monkeypatch.setattr(console_app, "MOST_PAGES", 2)
    with serving() as server, ExitStack() as pages:
        first, second = (pages.enter_context(server.live()) for _ in range(2))
        for link in (first, second):
            assert json.loads(link.recv(WAIT_S))["connected"] is False
        with pytest.raises(InvalidStatus), server.live():
            pass
        assert server.post("/command", HOLD)[0] == 200
        first.send("x" * 100_000)  # more than a page ever says
        with pytest.raises(ConnectionClosed):
            until_closed(first)
        assert second.recv(WAIT_S)


def test_a_page_for_all_addresses_is_opened_by_address_and_not_by_a_name(tmp_path):
    with serving(host="0.0.0.0", token_file=str(tmp_path / "token")) as server:
        port = server.netloc.partition(":")[2]
        assert server.request()[0] == 401
        for host in (f"0.0.0.0:{port}", f"evil.example:{port}", f"192.0.2.7:{port}"):
            assert server.request(Host=host)[0] == 421


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "cell.example"])
def test_a_page_for_other_machines_needs_a_token(host, tmp_path):
    named = {"name_header": "X-Remote-User", "token_file": str(tmp_path / "token")}
    for settings, said in (({}, "expected token_file"), (named, "could write the header themselves")):
        with pytest.raises(InvalidInput, match=said):
            PageServer(ConsoleState(), FakeCell(), ConsoleSettings(host=host, port=0, **settings))


def test_a_wrong_setting_is_named_before_anything_is_served(tmp_path):
    for settings, said in (
        ({"token_file": str(tmp_path / "no" / "token")}, "No such file"),
        ({"origins": "nonsense"}, "origins: 'nonsense'"),
    ):
        with pytest.raises(InvalidInput, match=said):
            PageServer(ConsoleState(), FakeCell(), ConsoleSettings(port=0, **settings))
    with serving() as server, pytest.raises(InvalidInput, match="another console"):
        PageServer(ConsoleState(), FakeCell(), ConsoleSettings(port=int(server.netloc.partition(":")[2])))


def test_a_page_that_connects_while_the_server_closes_is_let_go():
    # uvicorn tells the connections that it knows, not one whose handshake ends a moment later
    with patch.object(WebSocketsSansIOProtocol, "shutdown"), ExitStack() as serving:
        address = serving.enter_context(served(ConsoleState(), FakeCell()))
        with Server(address, None).live() as link:
            link.recv(WAIT_S)
            serving.close()
            heard = []
            with suppress(ConnectionClosed):
                while len(heard) < 10:
                    heard.append(link.recv(WAIT_S))
            assert len(heard) < 10, "it is served on"
