# SPDX-License-Identifier: Apache-2.0
"""Entries of the audit log and the chain of hashes that joins them: how they are written as lines, read and checked."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
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
_FIELDS = {"number", "time", "kind", "data", "previous", "hash"}


@dataclass(frozen=True)
class Entry:
    """One line of the audit log: its number, when it was made (UTC), what it is about, and its place in the hash chain.

    ``hash`` is the SHA-256 of the line without it, ``previous`` that of the entry before; both are hex.
    """

    number: int
    time: str
    kind: str
    data: Mapping[str, Any]
    previous: str
    hash: str

    @classmethod
    def following(cls, number: int, previous: str, kind: str, data: Mapping[str, Any], time_ns: int) -> Entry:
        """The entry with this content that comes after the one whose hash is ``previous``."""
        content = {
            "number": number,
            "time": utc(time_ns),
            "kind": kind,
            "data": finite(data),
            "previous": previous,
        }
        return cls(**content, hash=_digest(content))

    @property
    def time_ns(self) -> int:
        seconds, _, fraction = self.time.rstrip("Z").partition(".")
        whole = datetime.fromisoformat(seconds).replace(tzinfo=UTC)
        return int(whole.timestamp()) * 10**9 + int(fraction or 0)

    def line(self) -> bytes:
        """The entry as the one line that it is in the file, with its line feed."""
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
    """What verifying the audit log found. ``head``: hash of the last good entry; ``seals`` torn lines that a restart vouched for;
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
    """The lines of an audit log file in their order; one of more than :data:`MOST_LINE` bytes, which is no entry, in pieces."""
    with path.open("rb") as file:
        for number, raw in enumerate(iter(lambda: file.readline(MOST_LINE), b""), 1):
            complete = raw.endswith(b"\n")
            yield Line(number, raw, Entry.parse(raw[:-1]) if complete else None, complete)


def log_files(folder: Path) -> list[Path]:
    """The files of the audit log in their order.

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
    """Verification of the audit log in ``folder``, every line: one that was changed, removed, added or exchanged is found.

    ``since`` is the hash of the last entry of older files that were taken away, if any were. What was cut off at the very end
    leaves a good chain: give the hash that the supervisor published last as ``head``, which must be in the log then. Raises
    :class:`InvalidInput` when ``folder`` is no folder or holds no log.
    """
    check = _Check(since, head)
    files = log_files(folder)
    if not files:
        raise InvalidInput(f"{folder} holds no audit log ({PATTERN})")
    previous_file: int | None = None
    for path in files:
        number = file_number(path)
        if previous_file is not None and number != previous_file + 1:
            check.find(path, 1, f"the file before it is number {previous_file}: one is missing")
        previous_file = number
        check.file(path)
    return check.result(files)


class _Check:
    def __init__(self, since: str, head: str) -> None:
        self._found = ChainCheck()
        self._previous = since
        self._first = since == GENESIS
        self._head = head
        self._head_seen = not head or head == since
        self._last_file = Path()
        self._last_line = 0

    def find(self, path: Path, line: int, text: str) -> None:
        self._found.findings.append(ChainFinding(path.name, line, text))

    def file(self, path: Path) -> None:
        self._found.files += 1
        torn: Line | None = None
        for line in lines_of(path):
            self._last_file, self._last_line = path, line.number
            entry = line.entry
            if entry is None:
                if torn is not None:
                    self.find(path, torn.number, "not an entry as it was written")
                torn = line
                continue
            if torn is not None and not self._sealed(torn, entry):
                self.find(path, torn.number, "not an entry as it was written")
            elif torn is None and entry.kind == SEAL:
                self.find(path, line.number, "vouches for a torn line that is not there")
            torn = None
            self._entry(path, line.number, entry)
        if torn is not None:
            how = (
                "not an entry as it was written"
                if torn.complete
                else "torn: no later start has vouched for it"
            )
            self.find(path, torn.number, how)

    def _sealed(self, torn: Line, entry: Entry) -> bool:
        good = entry.kind == SEAL and dict(entry.data) == seal_of(torn.raw[:-1])
        good = good and entry.previous == self._previous
        self._found.seals += good
        return good

    def _entry(self, path: Path, line: int, entry: Entry) -> None:
        found = self._found
        if entry.previous != self._previous:
            missing = found.entries == 0
            text = (
                f"the log begins with entry {entry.number}: older ones are missing"
                if missing
                else f"entry {entry.number} does not follow entry {found.number}"
            )
            self.find(path, line, text)
        elif self._first and entry.number != found.number + 1:
            self.find(path, line, f"entry {entry.number} follows entry {found.number}")
        self._first = True
        self._previous = found.head = entry.hash
        self._head_seen |= entry.hash == self._head
        found.entries += 1
        found.number = entry.number
        found.gaps += entry.kind == "gap"
        found.ended = entry.kind == "stop"

    def result(self, files: Sequence[Path]) -> ChainCheck:
        if not self._found.entries and self._found.whole:
            self.find(files[0], 1, "no entry: a supervisor writes one when it starts, so the log was emptied")
        if not self._head_seen:
            self.find(self._last_file, self._last_line, f"no entry has the hash {self._head}: cut off after")
        return self._found


def finite(value: Any) -> Any:
    """``value`` for the audit log's JSON: every number that JSON cannot hold as its name: ``nan``, ``inf``, ``-inf``."""
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
