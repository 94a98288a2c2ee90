# SPDX-License-Identifier: Apache-2.0
"""Atomic file writes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


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
    try:
        with open(descriptor, mode, encoding=None if "b" in mode else "utf-8") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if not private:
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(name, 0o666 & ~umask)  # mkstemp creates files that only their owner can read
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Bring the names in ``folder`` to the disk; OSError when it refuses."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
