# SPDX-License-Identifier: Apache-2.0
"""Entries of the audit log and the chain of hashes that joins them: how they are written as lines, read and checked."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sticker_uq.io.reading import check_regular
from sticker_uq.scene import InvalidInput

GENESIS = "0" * 64
"""What the first entry of a log gives as the hash of the one before it."""
FORMAT = 2
"""Version of the data of the entries, in every ``start``: since 2 reasons are codes and values."""
SEAL = "sealed"
"""Kind of the entry that vouches for a torn line before it."""
PATTERN = "audit-*.jsonl"
MOST_LINE = 1 << 24
"""Bytes of an entry. One with the largest scene, a thousand objects with their reasons, has a tenth of them."""
_NO_ENTRY = "not an entry as it was written"
_FIELDS = {"number", "time", "kind", "data", "previous", "hash"}


@dataclass(frozen=True)
class Entry:
    """One line of the log: its number, when it was made (UTC), what it is about, and its place in the hash chain.

    ``hash`` is the SHA-256 of the line without it, ``previous`` that of the entry before; both are hex.
    """

    number: int
    time: str
    kind: str
    data: Mapping[str, Any]
    previous: str
    hash: str

    @classmethod
    def create(cls, number: int, previous: str, kind: str, data: Mapping[str, Any], time_ns: int) -> Entry:
        """The entry with this content that comes after the one whose hash is ``previous``."""
        content: dict[str, Any] = {"number": number, "time": utc(time_ns), "kind": kind}
        content |= {"data": finite(data), "previous": previous}
        return cls(**content, hash=_digest(content))

    @property
    def time_ns(self) -> int:
        seconds, _, fraction = self.time.rstrip("Z").partition(".")
        whole = datetime.fromisoformat(seconds).replace(tzinfo=UTC)
        return int(whole.timestamp()) * 10**9 + int(fraction or 0)

    def line(self) -> bytes:
        """The entry as a line of the file, with its line feed."""
        return _canonical({name: getattr(self, name) for name in _FIELDS}) + b"\n"

    @classmethod
    def parse(cls, line: bytes) -> Entry | None:
        """The entry in ``line`` (without its line feed); None when it is not exactly what :meth:`line` writes."""
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            return None
        if not isinstance(content, dict) or set(content) != _FIELDS:
            return None
        texts = (content["time"], content["kind"], content["previous"], content["hash"])
        if not isinstance(content["data"], dict) or type(content["number"]) is not int:
            return None
        if not all(isinstance(text, str) for text in texts):
            return None
        entry = cls(**content)
        content.pop("hash")
        try:
            genuine = entry.line() == line + b"\n" and entry.hash == _digest(content)
        except (ValueError, TypeError, RecursionError):
            return None
        return entry if genuine else None


@dataclass(frozen=True)
class ChainFinding:
    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


@dataclass
class ChainCheck:
    """What :func:`verify` found. ``head``: hash of the last good entry; ``seals`` torn lines that a restart vouched for;
    ``gaps`` entries about times in which nothing could be written; ``ended``: the last entry is the orderly end of a supervisor.
    """

    files: int = 0
    entries: int = 0
    head: str = GENESIS
    number: int = -1
    seals: int = 0
    gaps: int = 0
    ended: bool = False
    findings: list[ChainFinding] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        return not self.findings


@dataclass(frozen=True)
class Line:
    """A line of a file with its line feed: a genuine entry, or bytes that are none. ``complete``: it has a line feed."""

    number: int
    raw: bytes
    entry: Entry | None
    complete: bool


def lines_of(path: Path) -> Iterator[Line]:
    """The lines of a file of the log in order; one of more than :data:`MOST_LINE` bytes, which is no entry, comes in pieces."""
    with path.open("rb") as file:
        for number, raw in enumerate(iter(lambda: file.readline(MOST_LINE), b""), 1):
            complete = raw.endswith(b"\n")
            yield Line(number, raw, Entry.parse(raw[:-1]) if complete else None, complete)


def log_files(folder: Path) -> list[Path]:
    """The files of the log in order.

    Raises :class:`InvalidInput` when ``folder`` is no folder, or when something is named like a file of the log and is none.
    """
    if not folder.is_dir():
        raise InvalidInput(f"audit log {folder}: no such folder")
    files = sorted(folder.glob(PATTERN))
    for path in files:
        check_regular(path, f"audit log {path}")
    return files


def file_number(path: Path) -> int:
    digits = path.stem.removeprefix("audit-")
    if not (digits.isascii() and digits.isdecimal()):
        raise InvalidInput(f"{path}: expected a name such as audit-000001.jsonl")
    return int(digits)


def entries(folder: Path, newest_files: int = 0) -> Iterator[Entry]:
    """All genuine entries in order, whatever the chain is worth; of the ``newest_files`` only, if that is not 0."""
    for path in log_files(folder)[-newest_files:]:
        yield from (line.entry for line in lines_of(path) if line.entry is not None)


def seal_of(torn: bytes) -> dict[str, Any]:
    """The data of the entry that vouches for ``torn``: the bytes after the last good line, without the line feed added."""
    return {"torn_bytes": len(torn), "torn_sha256": hashlib.sha256(torn).hexdigest()}


def verify(folder: Path, head: str = "", since: str = GENESIS) -> ChainCheck:
    """Check every line of the log in ``folder``: one that was changed, removed, added or exchanged is found.

    ``since`` is the hash of the last entry of older files that were taken away, if any were. What was cut off at the very end
    leaves a good chain: give the hash that the supervisor published last as ``head``, which must be in the log then. Raises
    :class:`InvalidInput` when ``folder`` is no folder or holds no log.
    """
    files = log_files(folder)
    if not files:
        raise InvalidInput(f"{folder} holds no audit log ({PATTERN})")
    numbers = [file_number(path) for path in files]
    found = ChainCheck(files=len(files))
    previous, numbered = since, since == GENESIS
    head_seen = not head or head == since
    last = files[0], 0

    def find(path: Path, line: int, text: str) -> None:
        found.findings.append(ChainFinding(path.name, line, text))

    for index, path in enumerate(files):
        if index and numbers[index] != numbers[index - 1] + 1:
            find(path, 1, f"the file before it is number {numbers[index - 1]}: one is missing")
        torn: Line | None = None
        for line in lines_of(path):
            last = path, line.number
            entry = line.entry
            if entry is None:
                if torn is not None:
                    find(path, torn.number, _NO_ENTRY)
                torn = line
                continue
            if torn is None and entry.kind == SEAL:
                find(path, line.number, "vouches for a torn line that is not there")
            if torn is not None:
                sealed = entry.kind == SEAL and dict(entry.data) == seal_of(torn.raw[:-1])
                if sealed and entry.previous == previous:
                    found.seals += 1
                else:
                    find(path, torn.number, _NO_ENTRY)
                torn = None
            if entry.previous != previous:
                begins = f"the log begins with entry {entry.number}: older ones are missing"
                follows = f"entry {entry.number} does not follow entry {found.number}"
                find(path, line.number, follows if found.entries else begins)
            elif numbered and entry.number != found.number + 1:
                find(path, line.number, f"entry {entry.number} follows entry {found.number}")
            numbered = True
            previous = found.head = entry.hash
            head_seen |= entry.hash == head
            found.entries += 1
            found.number = entry.number
            found.gaps += entry.kind == "gap"
            found.ended = entry.kind == "stop"
        if torn is not None:
            find(path, torn.number, _NO_ENTRY if torn.complete else "torn: no later start has vouched for it")
    if not found.entries and found.whole:
        find(files[0], 1, "no entry: a supervisor writes one when it starts, so the log was emptied")
    if not head_seen:
        find(*last, f"no entry has the hash {head}: cut off after")
    return found


def finite(value: Any) -> Any:
    """``value`` with every number that JSON cannot hold as its name: ``nan``, ``inf``, ``-inf``."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def utc(time_ns: int) -> str:
    seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(content)).hexdigest()
