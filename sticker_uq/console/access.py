# SPDX-License-Identifier: Apache-2.0
"""Who may use the operator's page: the addresses it is opened under, the sign-in, its named operators (a file with a scrypt hash,
RFC 7914, of each secret), and sessions. No web server in here.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sticker_uq.io.files import atomic_write
from sticker_uq.io.reading import MIB, read_bytes, read_text
from sticker_uq.scene import InvalidInput

SHORTEST_SECRET = 8
LONGEST_TEXT = 100
_COST = 2**14
_BLOCK = 8
"""scrypt's N and r: 16 MiB and about 50 ms for each guess."""


class HashedSecret(BaseModel):
    """What is kept of an operator's secret: the salt and scrypt(secret, salt), both hexadecimal."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    salt: str = Field(pattern=r"^[0-9a-f]{32}$")
    hash: str = Field(pattern=r"^[0-9a-f]{64}$")

    @classmethod
    def of(cls, secret: str) -> HashedSecret:
        salt = secrets.token_bytes(16)
        return cls(salt=salt.hex(), hash=_scrypt(secret, salt).hex())

    def fits(self, secret: str) -> bool:
        return hmac.compare_digest(_scrypt(secret, bytes.fromhex(self.salt)), bytes.fromhex(self.hash))


_NOBODY = HashedSecret(salt="0" * 32, hash="0" * 64)


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    operators: dict[str, HashedSecret]


def read_operators(path: Path) -> dict[str, HashedSecret]:
    """The operators and their hashed secrets by name. Raises :class:`InvalidInput` unless the file is one of
    :func:`write_operators`.
    """
    try:
        return dict(_File.model_validate_json(read_bytes(path, MIB)).operators)
    except ValidationError:
        raise InvalidInput(
            f"{path}: expected a file of operators, as 'sticker-uq operator add' writes it"
        ) from None


def write_operators(path: Path, operators: Mapping[str, HashedSecret]) -> None:
    plain = {"operators": {name: one.model_dump() for name, one in sorted(operators.items())}}
    with atomic_write(path, "w", private=True) as file:
        json.dump(plain, file, indent=1, ensure_ascii=False)


def checked_name(name: str) -> str:
    """An operator's sign-in ``name`` without spaces around it; raises :class:`InvalidInput` when it cannot be a name in a log."""
    name = name.strip()
    if not 1 <= len(name) <= LONGEST_TEXT or not name.isprintable():
        raise InvalidInput(f"name {name!r}: expected 1 to {LONGEST_TEXT} printable characters")
    return name


def checked_secret(secret: str) -> str:
    """An operator's ``secret``; raises :class:`InvalidInput`, which does not repeat it, when it is too short or too long."""
    if not SHORTEST_SECRET <= len(secret) <= LONGEST_TEXT:
        raise InvalidInput(
            f"the secret has {len(secret)} characters: expected {SHORTEST_SECRET} to {LONGEST_TEXT}"
        )
    return secret


def find_operator(operators: Mapping[str, HashedSecret], name: str, secret: str) -> HashedSecret | None:
    """The operator's entry of ``name`` if ``secret`` is theirs. An unknown name takes as long as a wrong secret."""
    entry = operators.get(name)
    fits = (entry or _NOBODY).fits(secret)
    return entry if fits else None


def _scrypt(secret: str, salt: bytes) -> bytes:
    return hashlib.scrypt(
        secret.encode("utf-8", "surrogatepass"), salt=salt, n=_COST, r=_BLOCK, p=1, dklen=32
    )


SESSION_S = 12 * 3600.0
"""So long after the sign-in a session may answer, release and reset. It may watch and hold until it is signed out."""
EVERY_ADDRESS = ("0.0.0.0", "::")
"""Hosts that are listened on but are no address of a page."""
_MOST_SESSIONS = 256
_MOST_CLIENTS = 1024
_FREE_ATTEMPTS = 3
_LONGEST_WAIT_S = 60.0
_FORGIVEN_S = 900.0
_WAITING_CHECKS = 8
_SHORTEST_TOKEN = 16
_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?")

Address = tuple[str, str, int]
"""Scheme, host in lower case (an IPv6 address in brackets), port."""


def address_of(origin: str) -> Address | None:
    """The parts of an ``Origin`` of the operator's page; None when it is none that a page of http or https has."""
    scheme, separator, host = origin.lower().partition("://")
    match = _HOST.fullmatch(host)
    if not separator or scheme not in _PORTS or match is None:
        return None
    return scheme, match[1], int(match[2] or _PORTS[scheme])


def origins_of(text: str) -> tuple[Address, ...]:
    """The addresses of the operator's page in a comma-separated list; raises :class:`InvalidInput` naming the one that is
    none.
    """
    found = []
    for origin in filter(None, (part.strip() for part in text.split(","))):
        address = address_of(origin)
        if address is None:
            raise InvalidInput(f"origins: {origin!r}: expected https://NAME or http://NAME:PORT")
        found.append(address)
    return tuple(found)


def is_loopback(host: str) -> bool:
    """Whether the operator's page on ``host`` can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def in_url(host: str) -> str:
    """``host`` as it stands in the operator's page's address: an IPv6 address has brackets."""
    return f"[{host}]" if ":" in host else host.lower()


class Addresses:
    """The addresses under which the operator's page may be opened: loopback, the host that is listened on, and ``origins``.

    The IP address that a connection came to counts too, so that a page on all interfaces can be opened by address. No website can
    take the place of one of them: DNS rebinding brings the website's own name.
    """

    def __init__(self, host: str, port: int, origins: Iterable[Address] = ()) -> None:
        self._port = port
        names = {"127.0.0.1", "localhost", "[::1]", in_url(host)} - {in_url(every) for every in EVERY_ADDRESS}
        self._known = frozenset({("http", name, port) for name in names} | set(origins))

    def has_host(self, host: str, local: str) -> bool:
        """Whether a request with this ``Host`` that came to the IP address ``local`` is meant for the operator's page."""
        return any(_is_host(host, address) for address in self._all(local))

    def has_origin(self, origin: str | None, host: str, local: str) -> bool:
        """Whether a request comes from the operator's page itself: its ``Origin`` is an address of the page, the one in ``Host``.

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


@dataclass(frozen=True)
class Session:
    """A browser signed in to the operator's page. ``name``: whose, empty where names are not checked; ``entry``: the operator's
    hash then.
    """

    name: str = ""
    entry: HashedSecret | None = None
    since_s: float = 0.0


OPEN = Session()
"""The session of everybody where no sign-in is asked for."""


class SignInRefused(Exception):
    """The operator's page refused a sign-in: wrong name or secret, or ``wait_s`` seconds to wait before the next attempt
    counts.
    """

    def __init__(self, wait_s: float = 0.0) -> None:
        super().__init__()
        self.wait_s = wait_s


class Access:
    """Sign-in to the operator's page. With neither ``token`` nor ``operators_file`` it is open to whoever reaches it.

    ``token``: the secret that all share. ``operators_file``: named operators instead, see :mod:`sticker_uq.console.access`;
    read again whenever it counts, so that a removed operator or a new secret ends the right to answer at once.
    """

    def __init__(
        self, token: str = "", operators_file: Path | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._token = token
        self._operators_file = operators_file
        self._clock = clock
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._attempts = Attempts(clock)
        self._checks = 0
        # one at a time: a check takes 16 MiB and a core
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="sign-in")

    @property
    def named(self) -> bool:
        """Whether operators sign in to the page with names, which then are checked."""
        return self._operators_file is not None

    def session(self, cookie: str) -> Session | None:
        if not self._token and not self.named:
            return OPEN
        return self._sessions.get(_digest(cookie))

    def may_answer(self, session: Session) -> bool:
        """Whether the operator's ``session`` may do more than watch and hold: it is not too old, the secret still the same."""
        if session is OPEN:
            return True
        if self._clock() - session.since_s > SESSION_S:
            return False
        if self._operators_file is None:
            return True
        try:
            return read_operators(self._operators_file).get(session.name) == session.entry
        except InvalidInput:
            return False

    async def sign_in(self, name: str, secret: str, client: str, cookie: str = "") -> str:
        """The cookie of an operator's new session; raises :class:`SignInRefused`.

        Wrong attempts make the next one wait, counted by ``client`` (its address), or by ``cookie`` for a browser in which the
        same operator has signed in before, so that others at the same address do not keep it out. An operator's own sign-in
        does not pay for attempts at another one's secret.
        """
        known = _digest(cookie)
        before = self._sessions.get(known)
        again = before is not None and (not self.named or before.name == name.strip())
        counted = known if again else client
        wait_s = self._attempts.wait(counted)
        if wait_s > 0.0 or self._checks >= _WAITING_CHECKS:
            raise SignInRefused(max(wait_s, 1.0))
        self._attempts.count(counted)  # before the check, so that attempts at the same time count too
        self._checks += 1
        try:
            session = await asyncio.get_running_loop().run_in_executor(
                self._worker, self._check, name, secret
            )
        finally:
            self._checks -= 1
        if session is None:
            raise SignInRefused
        self._attempts.take_back(counted)
        self.sign_out(cookie)
        cookie = secrets.token_urlsafe(32)
        self._sessions[_digest(cookie)] = session
        while len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return cookie

    def sign_out(self, cookie: str) -> None:
        self._sessions.pop(_digest(cookie), None)

    def _check(self, name: str, secret: str) -> Session | None:
        if self._operators_file is None:
            fits = bool(self._token) and hmac.compare_digest(_digest(secret), _digest(self._token))
            return Session(since_s=self._clock()) if fits else None
        try:
            entry = find_operator(read_operators(self._operators_file), name.strip(), secret)
        except InvalidInput:
            return None
        return None if entry is None else Session(name.strip(), entry, self._clock())


class Attempts:
    """Counts wrong sign-ins to the operator's page by client.

    After some that are free, each makes the next one wait twice as long, up to a minute.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counted: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def wait(self, client: str) -> float:
        """Seconds until the next sign-in of ``client`` counts; 0 when it does now."""
        count, since = self._counted.get(client, (0, 0.0))
        if count < _FREE_ATTEMPTS:
            return 0.0
        wait_s = min(2.0 ** (count - _FREE_ATTEMPTS), _LONGEST_WAIT_S)
        return max(0.0, since + wait_s - self._clock())

    def count(self, client: str) -> None:
        count, since = self._counted.pop(client, (0, 0.0))
        now = self._clock()
        self._counted[client] = (1 if now - since > _FORGIVEN_S else count + 1, now)
        while len(self._counted) > _MOST_CLIENTS:
            self._counted.popitem(last=False)

    def take_back(self, client: str) -> None:
        """The last attempt of ``client`` was right. Wrong ones before it count on: they may have been at another secret."""
        count, since = self._counted.get(client, (0, 0.0))
        if count > 0:
            self._counted[client] = (count - 1, since)


def read_token(path: Path) -> str:
    """The operator's page's token in a file that only its owner can read; made when there is none.

    Raises :class:`InvalidInput` when it cannot be read, others can read it, or it is too short to withstand guessing or longer
    than a sign-in takes, OSError when it cannot be made.
    """
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(secrets.token_urlsafe(18) + "\n")
    check_private(path, "token_file")
    token = read_text(path, MIB, f"token_file {path}").strip()
    if not _SHORTEST_TOKEN <= len(token) <= LONGEST_TEXT or not token.isprintable():
        raise InvalidInput(
            f"token_file {path}: the token has {len(token)} characters, expected {_SHORTEST_TOKEN} to {LONGEST_TEXT} in one "
            "line; delete the file to have one made"
        )
    return token


def check_private(path: Path, parameter: str) -> None:
    """For sign-in: InvalidInput when others than its owner can read or write the file of ``parameter``, OSError without one."""
    if path.stat().st_mode & 0o077:
        raise InvalidInput(f"{parameter} {path}: others can read it: chmod 600 {path}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
