# SPDX-License-Identifier: Apache-2.0
"""Who may use the operator's page: the addresses it is opened under, its token, and the name that a proxy gives."""

import hashlib
import hmac
import ipaddress
import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path

from sticker_uq.io.reading import MIB, read_text
from sticker_uq.scene import InvalidInput

LONGEST_TEXT = 100
EVERY_ADDRESS = ("0.0.0.0", "::")
"""Hosts that are listened on but are no address of a page."""
_SHORTEST_TOKEN = 16
_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?")

Address = tuple[str, str, int]
"""Scheme, host in lower case (an IPv6 address in brackets), port."""


def address_of(origin: str) -> Address | None:
    """The parts of an ``Origin``; None unless it is one of http or https."""
    scheme, separator, host = origin.lower().partition("://")
    match = _HOST.fullmatch(host)
    if not separator or scheme not in _PORTS or match is None:
        return None
    return scheme, match[1], int(match[2] or _PORTS[scheme])


def origins_of(text: str) -> tuple[Address, ...]:
    """The addresses in a comma-separated list; raises :class:`InvalidInput` naming the first that is none."""
    found = []
    for origin in filter(None, (part.strip() for part in text.split(","))):
        address = address_of(origin)
        if address is None:
            raise InvalidInput(f"origins: {origin!r}: expected https://NAME or http://NAME:PORT")
        found.append(address)
    return tuple(found)


def is_loopback(host: str) -> bool:
    """Whether ``host`` can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def in_url(host: str) -> str:
    """``host`` as it stands in a URL: an IPv6 address has brackets."""
    return f"[{host}]" if ":" in host else host.lower()


class Addresses:
    """The addresses under which the page may be opened: loopback, the host that is listened on, and ``origins``.

    The IP address that a connection came to counts too, so that a page on all interfaces can be opened by address. No website can
    take the place of one of them: DNS rebinding brings the website's own name.
    """

    def __init__(self, host: str, port: int, origins: Iterable[Address] = ()) -> None:
        self._port = port
        names = {"127.0.0.1", "localhost", "[::1]", in_url(host)} - {in_url(every) for every in EVERY_ADDRESS}
        self._known = frozenset({("http", name, port) for name in names} | set(origins))

    def has_host(self, host: str, local: str) -> bool:
        """Whether a request with this ``Host`` that came to the IP address ``local`` is meant for the page."""
        return any(_is_host(host, address) for address in self._all(local))

    def has_origin(self, origin: str | None, host: str, local: str) -> bool:
        """Whether a request comes from the page itself: its ``Origin`` is an address of the page, the one in ``Host``.

        Scheme, host and port are compared. A browser always sends both.
        """
        address = address_of(origin or "")
        return address is not None and address in self._all(local) and _is_host(host, address)

    def _all(self, local: str) -> frozenset[Address]:
        return self._known | {("http", in_url(local), self._port)}


def _is_host(host: str, address: Address) -> bool:
    match = _HOST.fullmatch(host.lower())
    scheme, name, port = address
    return match is not None and (match[1], int(match[2] or _PORTS[scheme])) == (name, port)


class Access:
    """Whom the page lets in. Without a ``token`` it is open to whoever reaches it.

    ``name_header``: the header in which a reverse proxy names the operator, who then cannot type another name.
    """

    def __init__(self, token: str = "", name_header: str = "") -> None:
        self._token = token
        self.name_header = name_header
        self.cookie = hmac.digest(token.encode(), b"operator page", hashlib.sha256).hex()
        """What a browser keeps in place of the token; another token ends it."""

    def knows(self, cookie: str) -> bool:
        return not self._token or _same(cookie, self.cookie)

    def accepts(self, secret: str) -> bool:
        return bool(self._token) and _same(secret, self._token)

    def name_in(self, values: list[str]) -> str | None:
        """The operator's name in the values of the proxy's header, None unless there is exactly one that can stand in a log."""
        try:
            (name,) = (value.encode("latin-1").decode().strip() for value in values)
        except ValueError:
            return None
        return name if 1 <= len(name) <= LONGEST_TEXT and name.isprintable() else None


FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 2.0
FORGOTTEN_S = 60.0
_MOST_GUESSERS = 1000


class WrongTokens:
    """Counts wrong tokens by the address that they came from, and says how long each is to wait for its refusal.

    A right one never waits: nobody can lock out an address, or the page.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lately: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self.count = 0

    def another(self, address: str) -> tuple[int, float]:
        """One more came from ``address``: how many have without a pause of :data:`FORGOTTEN_S`, and the delay, s."""
        now = self._now_s()
        before, at = self._lately.pop(address, (0, now))
        lately = 1 + (before if now - at < FORGOTTEN_S else 0)
        self._lately[address] = lately, now
        if len(self._lately) > _MOST_GUESSERS:
            self._lately.popitem(last=False)
        self.count += 1
        return lately, min(FIRST_DELAY_S * 2.0 ** min(lately - 1, 30), LONGEST_DELAY_S)


def read_token(path: Path) -> str:
    """The token in a file that only its owner can read; made when there is none.

    Raises :class:`InvalidInput` when it cannot be read, others can read it, or it is too short to withstand guessing or longer
    than a sign-in takes, OSError when it cannot be made.
    """
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(secrets.token_urlsafe(18) + "\n")
    if path.stat().st_mode & 0o077:
        raise InvalidInput(f"token_file {path}: others can read it: chmod 600 {path}")
    token = read_text(path, MIB, f"token_file {path}").strip()
    if not _SHORTEST_TOKEN <= len(token) <= LONGEST_TEXT or not token.isprintable():
        raise InvalidInput(
            f"token_file {path}: the token has {len(token)} characters, expected {_SHORTEST_TOKEN} to {LONGEST_TEXT} in one "
            "line; delete the file to have one made"
        )
    return token


def _same(said: str, expected: str) -> bool:
    return hmac.compare_digest(said.encode("utf-8", "surrogatepass"), expected.encode())
