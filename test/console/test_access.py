# SPDX-License-Identifier: Apache-2.0
"""Who may use the page: its addresses, the token and the name of a proxy, without a server."""

import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.console.access import (
    FORGOTTEN_S,
    LONGEST_DELAY_S,
    Access,
    Addresses,
    WrongTokens,
    origins_of,
    read_token,
)
from sticker_uq.scene import InvalidInput

TOKEN = "the token of this cell"


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


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.0, 2 * FORGOTTEN_S)), max_size=60))
def test_wrong_tokens_wait_longer_and_longer_by_address_and_never_too_long(guesses):
    clock = [0.0]
    wrong = WrongTokens(lambda: clock[0])
    before = {}
    for number, (address, pause_s) in enumerate(guesses, 1):
        clock[0] += pause_s
        lately, delay_s = wrong.another(address)
        assert wrong.count == number
        at, count, delayed_s = before.get(address, (clock[0], 0, 0.0))
        soon = clock[0] - at < FORGOTTEN_S
        assert lately == (count + 1 if soon else 1)
        assert 0.0 < delay_s <= LONGEST_DELAY_S
        assert delay_s > delayed_s or delay_s == LONGEST_DELAY_S or not soon
        before[address] = clock[0], lately, delay_s


def test_many_addresses_take_no_memory():
    wrong = WrongTokens()
    for number in range(3000):
        wrong.another(str(number))
    assert (wrong.count, len(wrong._lately)) == (3000, 1000)


def test_a_cookie_is_of_one_token():
    access = Access(TOKEN)
    assert access.knows(access.cookie)
    assert TOKEN not in access.cookie
    others = ("", TOKEN, access.cookie[:-1], Access(TOKEN + "x").cookie, "\ud800")
    assert not any(access.knows(cookie) for cookie in others)
    assert access.accepts(TOKEN)
    assert not any(access.accepts(secret) for secret in ("", TOKEN[:-1], "\ud800"))
    assert not Access().accepts("")


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (["Ada"], "Ada"),
        ([" J\xc3\xb8rgen "], "J\u00f8rgen"),  # UTF-8, as servers hand on what they do not know
        ([], None),
        ([""], None),
        (["Ada", "Eve"], None),
        (["A\tda"], None),
        (["\xff"], None),
        (["a" * 101], None),
    ],
)
def test_the_name_of_a_proxy(values, name):
    assert Access(name_header="X-Remote-User").name_in(values) == name


def test_a_token_file_is_read_in_bounded_time(tmp_path):
    os.mkfifo(fifo := tmp_path / "fifo", 0o600)
    with pytest.raises(InvalidInput, match="is a named pipe"):
        read_token(fifo)


@pytest.mark.parametrize(
    "content", [b"x" * 101, b"one line of it\nand another\n", b"\xff" * 20, b"a" * (1 << 21)]
)
def test_a_token_that_nobody_could_sign_in_with_is_refused(tmp_path, content):
    (path := tmp_path / "token").touch(0o600)
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"expected (16 to 100 in one line|UTF-8|at most)"):
        read_token(path)


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
