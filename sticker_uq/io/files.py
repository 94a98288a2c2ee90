# SPDX-License-Identifier: Apache-2.0
"""Atomic file writes, and the files of a folder."""

from __future__ import annotations

import getpass
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

from sticker_uq.scene import InvalidInput

MOST_FILES = 1_000_000
"""Files of a folder that is searched."""
_UNFINISHED: dict[object, Callable[[], None]] = {}
_HIDDEN = {"thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir"}
"""Names that Windows, macOS and network drives leave behind, in lower case."""


@contextmanager
def atomic_write(
    path: str | os.PathLike[str], mode: str = "wb", *, private: bool = False
) -> Iterator[IO[Any]]:
    """Open a temporary file beside `path` and rename it to `path` once the block succeeded.

    `mode` is "wb" or "w" (UTF-8); with `private` only the owner can read the file. The data is synced to disk before the
    rename, so a reader sees the old file or the complete new one. When the block or the disk fails (OSError: disk full, no
    permission, no such folder) the temporary file is removed, an older file at `path` stays as it was and the error propagates.
    """
    target = Path(path)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    with undone_unless_finished(partial(Path(name).unlink, missing_ok=True)):
        with open(descriptor, mode, encoding=None if "b" in mode else "utf-8") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if not private:
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(name, 0o666 & ~umask)  # mkstemp creates files that only their owner can read
        os.replace(name, target)


def write_file(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write ``content`` to ``path``, whole or not at all, as :func:`atomic_write` does."""
    with atomic_write(path, "w" if isinstance(content, str) else "wb") as stream:
        stream.write(content)


@contextmanager
def undone_unless_finished(undo: Callable[[], None]) -> Iterator[None]:
    """Call ``undo`` if the block raises, or if :func:`undo_unfinished` is called in it."""
    key = object()
    _UNFINISHED[key] = undo
    try:
        yield
    except BaseException:
        undo()
        raise
    finally:
        del _UNFINISHED[key]


def undo_unfinished() -> None:
    """Undo, the innermost first, what :func:`undone_unless_finished` has begun: the process is about to be ended."""
    for undo in reversed(list(_UNFINISHED.values())):
        undo()


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def files_in(folder: Path, below: bool = False) -> list[Path]:
    """The files in ``folder``, or ``below`` it, by name, without hidden ones.

    InvalidInput for more than :data:`MOST_FILES` files and for a folder that cannot be listed.
    """
    found: list[Path] = []
    seen = {os.path.realpath(folder)}
    for here, inner, files in os.walk(folder, onerror=_refuse, followlinks=True):
        chosen = sorted(name for name in inner if below and not _is_hidden(name))
        inner.clear()
        for name in chosen:  # links to folders may form a circle
            real = os.path.realpath(os.path.join(here, name))
            inner += [name] if real not in seen else []
            seen.add(real)
        found += [Path(here, name) for name in sorted(files) if not _is_hidden(name)]
        if len(found) > MOST_FILES:
            raise InvalidInput(
                f"{folder}: has more than {MOST_FILES} files; expected the folder of a data set"
            )
    return found


def _refuse(error: OSError) -> None:
    raise InvalidInput(f"{error.filename}: the folder cannot be listed ({error.strerror})")


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name.lower() in _HIDDEN


def whereabouts() -> dict[str, Any]:
    """Which process writes files here: host, user and number."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid())
    return {"host": socket.gethostname(), "user": user, "pid": os.getpid()}
