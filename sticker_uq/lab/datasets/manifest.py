# SPDX-License-Identifier: Apache-2.0
"""The manifest of generated pictures: JSON lines, appended before and after every request, to survive a kill."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from sticker_uq.lab.datasets.prompts import Prompt
from sticker_uq.scene import InvalidInput

MANIFEST = "manifest.jsonl"
STATUSES = ("asked", "done", "refused", "retry", "failed")


@dataclass(frozen=True)
class Entry:
    """One line of generated pictures' manifest: the status of one request for one prompt."""

    index: int
    seed: int
    prompt: str
    generator: str
    attempt: int
    """From 1, over all runs."""
    status: str
    """asked (no answer yet), done, refused, retry (asked again after it) or failed (the next run asks again)."""
    cost: float
    file: str = ""
    """Below the folder."""
    detail: str = ""
    """Reason of a failure, or the revised prompt."""


class Manifest:
    """The manifest of generated pictures in a folder, held by one process at a time."""

    def __init__(self, path: Path, stream: IO[bytes], entries: list[Entry]) -> None:
        self._path = path
        self._stream = stream
        self._requests: dict[tuple[int, int], Entry] = {}
        self._prompts: dict[int, Entry] = {}
        for entry in entries:
            self._note(entry)

    @property
    def spent(self) -> float:
        """Upper bound of the cost of all requests for generated pictures; one without an answer counts as paid."""
        return sum(entry.cost for entry in self._requests.values())

    @property
    def done(self) -> int:
        """Number of prompts with a generated picture."""
        return sum(entry.status == "done" for entry in self._prompts.values())

    def last(self, prompt: Prompt, generator: str) -> Entry | None:
        """The last entry of a prompt. InvalidInput when the folder holds another prompt or generator at its index."""
        entry = self._prompts.get(prompt.index)
        if entry is not None and (entry.seed, entry.prompt, entry.generator) != (
            prompt.seed,
            prompt.prompt,
            generator,
        ):
            raise InvalidInput(
                f"{self._path}: prompt {prompt.index} was given to {entry.generator} with seed {entry.seed} as "
                f"{entry.prompt!r}; expected the same prompts and generator, or another folder"
            )
        return entry

    def append(self, entry: Entry) -> None:
        """Add a line to the manifest of generated pictures and sync it to disk."""
        self._stream.write(json.dumps(asdict(entry), ensure_ascii=False).encode() + b"\n")
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._note(entry)

    def _note(self, entry: Entry) -> None:
        self._requests[entry.index, entry.attempt] = entry
        self._prompts[entry.index] = entry


@contextmanager
def open_manifest(folder: Path) -> Iterator[Manifest]:
    """The manifest of generated pictures in `folder`, created if it does not exist. A truncated last line is removed.

    InvalidInput when another process holds it or a line is wrong.
    """
    path = folder / MANIFEST
    with path.open("a+b") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidInput(f"{path}: locked by another process") from None
        stream.seek(0)
        content = stream.read()
        whole = content[: content.rfind(b"\n") + 1]
        entries = [
            _entry(line, f"{path}: line {number}") for number, line in enumerate(whole.splitlines(), 1)
        ]
        stream.truncate(len(whole))
        yield Manifest(path, stream, entries)


def _entry(line: bytes, where: str) -> Entry:
    try:
        entry = Entry(**json.loads(line))
        usable = (
            type(entry.index) is type(entry.attempt) is int and entry.status in STATUSES and entry.cost >= 0
        )
    except (ValueError, TypeError):
        usable = False
    if not usable:
        raise InvalidInput(f"{where}: expected a line that `dataset generate` wrote")
    return entry
