# SPDX-License-Identifier: Apache-2.0
"""Who may use the page: its addresses, the sign-in and the file of operators, without a server."""

import asyncio
import json
import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sticker_uq.cli import app
from sticker_uq.console.access import (
    SESSION_S,
    Access,
    Addresses,
    Attempts,
    HashedSecret,
    SignInRefused,
    origins_of,
    read_operators,
    read_token,
    write_operators,
)
from sticker_uq.console.guard import client_of
from sticker_uq.scene import InvalidInput

TOKEN = "the token of this cell"
SECRET = "correct horse"


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def sign_in(access, name="", secret=TOKEN, client="10.0.0.1", cookie=""):
    return asyncio.run(access.sign_in(name, secret, client, cookie))


@pytest.fixture
def operators(tmp_path):
    path = tmp_path / "operators.json"
    write_operators(path, {"Ada": HashedSecret.of(SECRET), "Grace": HashedSecret.of("battery staple")})
    return path


@pytest.mark.parametrize(
    ("origin", "host", "same"),
    [
        ("http://127.0.0.1:8780", "127.0.0.1:8780", True),
        ("http://localhost:8780", "LOCALHOST:8780", True),
        ("http://[::1]:8780", "[::1]:8780", True),
        ("http://192.0.2.7:8780", "192.0.2.7:8780", True),  # the address that the connection came to
        ("https://cell-3.example", "cell-3.example", True),
        ("https://cell-3.example", "cell-3.example:443", True),
        ("http://evil.example:8780", "evil.example:8780", False),  # DNS rebinding
        ("http://192.0.2.8:8780", "192.0.2.8:8780", False),
        ("https://127.0.0.1:8780", "127.0.0.1:8780", False),
        ("http://127.0.0.1:8781", "127.0.0.1:8780", False),
        ("http://127.0.0.1", "127.0.0.1:8780", False),
        ("http://localhost:8780", "127.0.0.1:8780", False),
        ("http://cell-3.example", "cell-3.example", False),
        ("http://127.0.0.1:8780.evil.example", "127.0.0.1:8780", False),
        ("http://127.0.0.1:8780@evil.example", "127.0.0.1:8780", False),
        ("http://127.0.0.1:8780/", "127.0.0.1:8780", False),
        ("null", "127.0.0.1:8780", False),
        (None, "127.0.0.1:8780", False),
        ("http://127.0.0.1:8780", "", False),
        ("", "", False),
    ],
)
def test_an_origin_is_an_address_of_the_page(origin, host, same):
    addresses = Addresses("127.0.0.1", 8780, origins_of("https://cell-3.example, http://cell:9000"))
    assert addresses.has_origin(origin, host, "192.0.2.7") is same
    if same:
        assert addresses.has_host(host, "192.0.2.7")


@pytest.mark.parametrize("listening", ["127.0.0.1", "0.0.0.0", "::"])
@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example:8780",
        "127.0.0.1",
        "127.0.0.1:8781",
        "0.0.0.0:8780",
        "[::]:8780",
        "127.0.0.1:8780, evil",
        "[::1",
        "cell-3.example:80",
    ],
)
def test_a_host_that_is_no_address_of_the_page(listening, host):
    assert not Addresses(listening, 8780, origins_of("https://cell-3.example")).has_host(host, "192.0.2.7")


@pytest.mark.parametrize("text", ["cell.example", "ftp://cell", "https://cell/page", "https://a, nonsense"])
def test_a_wrong_origin_is_named(text):
    with pytest.raises(InvalidInput, match=r"origins: .*expected https://NAME"):
        origins_of(text)


def test_a_session_ends_with_the_sign_out_and_is_not_replayed(clock):
    access = Access(TOKEN, clock=clock)
    assert access.session("") is None
    cookie = sign_in(access)
    session = access.session(cookie)
    assert access.may_answer(session)
    assert access.session(cookie + "x") is None
    access.sign_out(cookie)
    assert access.session(cookie) is None


def test_a_new_sign_in_ends_the_session_before(clock):
    access = Access(TOKEN, clock=clock)
    first = sign_in(access)
    second = sign_in(access, cookie=first)
    assert access.session(first) is None
    assert access.session(second) is not None


def test_an_old_session_may_watch_and_hold_only(clock):
    access = Access(TOKEN, clock=clock)
    cookie = sign_in(access)
    clock.now += SESSION_S + 1
    session = access.session(cookie)
    assert session is not None
    assert not access.may_answer(session)


def test_a_removed_operator_or_a_new_secret_ends_the_right_to_answer(operators, clock):
    access = Access(operators_file=operators, clock=clock)
    ada, grace = (
        access.session(sign_in(access, name, secret))
        for name, secret in (("Ada", SECRET), ("Grace", "battery staple"))
    )
    assert (ada.name, access.may_answer(ada), access.may_answer(grace)) == ("Ada", True, True)
    everybody = read_operators(operators)
    write_operators(operators, {"Ada": HashedSecret.of(SECRET)})
    assert not access.may_answer(ada)
    assert not access.may_answer(grace)
    write_operators(operators, everybody)
    assert access.may_answer(grace)
    operators.write_text("{}")
    assert not access.may_answer(grace)


@pytest.mark.parametrize(("name", "secret"), [("Ada", "battery staple"), ("Eve", SECRET), ("", SECRET)])
def test_a_wrong_name_or_secret_is_refused(operators, name, secret):
    with pytest.raises(SignInRefused) as refused:
        sign_in(Access(operators_file=operators), name, secret)
    assert refused.value.wait_s == 0.0


def test_wrong_attempts_wait_and_do_not_keep_others_out(clock):
    access = Access(TOKEN, clock=clock)
    known = sign_in(access)

    def refused(secret="wrong", **who):
        with pytest.raises(SignInRefused) as refusal:
            sign_in(access, secret=secret, **who)
        return refusal.value.wait_s

    assert [refused() for _ in range(4)] == [0.0, 0.0, 0.0, 1.0]
    assert refused(TOKEN) == 1.0, "also the right one has to wait, or guessing would cost nothing"
    clock.now += 1.0
    assert [refused(), refused()] == [0.0, 2.0]
    assert sign_in(access, client="10.0.0.2"), "another address"
    assert access.session(known) is not None, "whoever has signed in watches and holds"
    assert sign_in(access, cookie=known), "and signs in again from the address of the attacker"


def test_waiting_has_an_end_and_clients_are_not_kept_for_ever(clock):
    attempts = Attempts(clock)
    for _ in range(40):
        attempts.count("a")
    assert attempts.wait("a") == 60.0
    clock.now += 1000.0
    attempts.count("a")
    assert attempts.wait("a") == 0.0
    for number in range(2000):
        attempts.count(str(number))
    assert len(attempts._counted) <= 1024


def test_wrong_attempts_of_an_ipv6_network_count_together():
    first, second = ({"client": (f"2001:db8:1:2::{n}", 5)} for n in (1, 2))
    assert client_of(first) == client_of(second) == "2001:db8:1:2::/64"
    assert client_of({"client": ("192.0.2.7", 5)}) == "192.0.2.7"


def test_wrong_attempts_from_all_loopback_addresses_count_together():
    hosts = ("127.0.0.1", "127.3.2.1", "::1")
    assert {client_of({"client": (host, 5)}) for host in hosts} == {"loopback"}


def test_an_own_sign_in_buys_no_attempts_at_the_secret_of_another(operators, clock):
    access = Access(operators_file=operators, clock=clock)
    cookie, waits = "", []
    for _ in range(4):
        for _ in range(2):
            with pytest.raises(SignInRefused) as refused:
                sign_in(access, "Ada", "wrong", cookie=cookie)
            waits.append(refused.value.wait_s)
        with suppress(SignInRefused):
            cookie = sign_in(access, "Grace", "battery staple", cookie=cookie)
    assert waits.count(0.0) == 3
    assert sign_in(access, "Grace", "battery staple", cookie=cookie), (
        "Grace is not kept out of her own session"
    )


def test_files_of_secrets_are_read_in_bounded_time(tmp_path, operators):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    for read in (read_token, read_operators):
        with pytest.raises(InvalidInput, match="is a named pipe"):
            read(fifo)
    with pytest.raises(InvalidInput, match="is a device"):
        read_operators(Path("/dev/zero"))
    access = Access(operators_file=operators)
    session = access.session(sign_in(access, "Ada", SECRET))
    operators.unlink()
    os.mkfifo(operators, 0o600)
    assert not access.may_answer(session), "and the page does not stand still"


@pytest.mark.parametrize(
    "content", [b"x" * 101, b"one line of it\nand another\n", b"\xff" * 20, b"a" * (1 << 21)]
)
def test_a_token_that_nobody_could_sign_in_with_is_refused(tmp_path, content):
    (path := tmp_path / "token").touch(0o600)
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"expected (16 to 100 in one line|UTF-8|at most)"):
        read_token(path)


def test_only_so_many_secrets_are_checked_at_a_time(clock, monkeypatch):
    access = Access(TOKEN, clock=clock)

    async def many():
        attempts = [access.sign_in("", "wrong", f"10.0.0.{n}") for n in range(30)]
        return await asyncio.gather(*attempts, return_exceptions=True)

    waits = [refused.wait_s for refused in asyncio.run(many())]
    assert waits.count(0.0) == 8
    assert sign_in(access), "then the next one is checked"


def test_a_token_file_is_made_and_kept_private(tmp_path):
    path = tmp_path / "token"
    token = read_token(path)
    assert len(token) >= 24
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_token(path) == token
    path.chmod(0o644)
    with pytest.raises(InvalidInput, match="chmod 600"):
        read_token(path)
    path.chmod(0o600)
    path.write_text("short\n")
    with pytest.raises(InvalidInput, match="5 characters, expected 16 to 100"):
        read_token(path)


def operate(*arguments, secret=SECRET):
    return CliRunner().invoke(app, ["operator", *arguments], input=f"{secret}\n{secret}\n")


def test_the_command_keeps_only_hashes_in_a_private_file(tmp_path):
    path = tmp_path / "operators.json"
    for name in ("Ada", "Grace"):
        assert operate("add", name, "--file", str(path)).exit_code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SECRET not in path.read_text()
    entries = json.loads(path.read_text())["operators"]
    assert entries["Ada"]["hash"] != entries["Grace"]["hash"], "each has a salt of its own"
    assert "another secret" in operate("add", "Ada", "--file", str(path), secret="a new secret").output
    assert not read_operators(path)["Ada"].fits(SECRET)
    assert operate("list", "--file", str(path)).output == "Ada\nGrace\n"
    assert operate("remove", "Ada", "--file", str(path)).exit_code == 0
    assert list(read_operators(path)) == ["Grace"]


@pytest.mark.parametrize(
    ("arguments", "secret", "said"),
    [
        (("add", "Ada"), "short", "the secret has 5 characters: expected 8 to 100"),
        (("add", "A\nda"), SECRET, "expected 1 to 100 printable characters"),
        (("add", " "), SECRET, "expected 1 to 100 printable characters"),
        (("remove", "Eve"), SECRET, "no operator 'Eve', it has Ada"),
    ],
)
def test_what_the_command_refuses_changes_nothing(tmp_path, arguments, secret, said):
    path = tmp_path / "operators.json"
    assert operate("add", "Ada", "--file", str(path)).exit_code == 0
    before = path.read_bytes()
    result = operate(*arguments, "--file", str(path), secret=secret)
    assert (result.exit_code, path.read_bytes()) == (2, before)
    assert said in result.output
    assert list(tmp_path.iterdir()) == [path]


def test_another_file_is_no_file_of_operators(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    result = operate("add", "Ada", "--file", str(path))
    assert result.exit_code == 2
    assert "expected a file of operators" in result.output
    assert path.read_text() == "hello"
