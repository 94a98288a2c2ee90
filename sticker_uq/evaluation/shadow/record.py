# SPDX-License-Identifier: Apache-2.0
"""The counted differences as JSON lines: one for each laptop, and at least one a minute."""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sticker_uq.io.reading import check_regular
from sticker_uq.scene import InvalidInput

Versions = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]
"""The hashes of the active side and of the candidate, as pairs of name and value."""
FILE = "shadow.jsonl"
MOST_LINE = 1 << 20
"""Bytes of a line. One with every count that there is has a thousandth of them."""


class Example(BaseModel):
    """The first image of a block that both sides judge differently: its stamp, ns, and the outcomes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stamp_ns: int = Field(ge=-(1 << 63), lt=1 << 63)
    active: str
    candidate: str


class Block(BaseModel):
    """One line: what was counted between two times (UTC) about one laptop, and who was compared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    since: str
    until: str
    workpiece: str = Field(description="Empty where laptops are not announced")
    active: dict[str, str] = Field(description="Hashes of what moves the arm")
    candidate: dict[str, str] = Field(description="Hashes of the bundle beside it, and of what is in it")
    counts: dict[str, Annotated[int, Field(ge=0, lt=1 << 53)]]
    example: Example | None = None

    @property
    def versions(self) -> Versions:
        """Which active bundle and candidate were compared; counts of others are never added to these."""
        return tuple(sorted(self.active.items())), tuple(sorted(self.candidate.items()))


class ShadowRecord:
    """Appends blocks to the file in ``folder``, which is made when it is missing and continued when it is there.

    A line that a crash tore is ended, and skipped by :func:`read_blocks`. Raises :class:`InvalidInput` when another process
    writes the file, OSError when it cannot be opened.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / FILE
        if self.path.exists():
            check_regular(self.path, f"shadow record {self.path}")
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise InvalidInput(
                f"shadow record {self.path} is being written by another process: give each shadow a folder of its own"
            ) from None
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")

    def append(self, block: Block) -> None:
        """Bring the shadow's counts in ``block`` to the disk. OSError when it refuses; the file ends where it ended before
        then.
        """
        line = memoryview(block.model_dump_json(exclude_none=True).encode() + b"\n")
        size = os.fstat(self._file).st_size
        try:
            while line:
                line = line[os.write(self._file, line) :]
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, size)
            raise

    def close(self) -> None:
        """Close the shadow's record of counts: let another process write."""
        os.close(self._file)


def read_blocks(folder: Path) -> Iterator[Block | None]:
    """The counted blocks of the shadow in ``folder`` in their order, None for a line that is none: torn by a crash, or
    changed.

    Raises :class:`InvalidInput` when there is no such file.
    """
    path = folder / FILE
    check_regular(path, f"shadow record {path}")
    with path.open("rb") as file:
        for raw in iter(lambda: file.readline(MOST_LINE), b""):
            if raw.strip():
                yield _parsed(raw)


def _parsed(raw: bytes) -> Block | None:
    try:
        return Block.model_validate_json(raw, strict=True)
    except ValidationError:
        return None


def sums(folder: Path) -> dict[Versions, Counter[str]]:
    """What the shadow counted in all of ``folder``, by who was compared (:attr:`Block.versions`); raises as
    :func:`read_blocks`.
    """
    found: dict[Versions, Counter[str]] = {}
    for block in read_blocks(folder):
        if block is not None:
            found.setdefault(block.versions, Counter()).update(block.counts)
    return found
