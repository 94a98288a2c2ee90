# SPDX-License-Identifier: Apache-2.0
"""JSON values by keys in one file: what is in it survives a kill at any moment, and several processes may use it."""

import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from sticker_uq.scene import InvalidInput


class JsonStore:
    """A file of values that JSON can hold, by text keys. Every value is on the disk when :meth:`put` returns."""

    def __init__(self, path: Path) -> None:
        """Open or create the file; raises :class:`InvalidInput`, as all else does, when it is damaged or cannot be written."""
        self._path = path
        with self._usable():
            path.parent.mkdir(parents=True, exist_ok=True)
            # the thread that decodes images may read, the one that assesses them writes
            self._file = sqlite3.connect(path, timeout=60.0, check_same_thread=False)
            self._file.execute("CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, value BLOB)")

    @contextmanager
    def _usable(self) -> Iterator[None]:
        """Raise :class:`InvalidInput` where the file is something else, damaged or cannot be written."""
        try:
            yield
        except (OSError, sqlite3.Error, zlib.error, TypeError, ValueError) as error:
            raise InvalidInput(
                f"{self._path}: {error}; expected a file of stored results that can be written and is not in use: remove a "
                "damaged one, or choose another"
            ) from None

    def get(self, key: str) -> Any | None:
        with self._usable():
            row = self._file.execute("SELECT value FROM kept WHERE key = ?", (key,)).fetchone()
            return None if row is None else json.loads(zlib.decompress(row[0]))

    def __contains__(self, key: str) -> bool:
        with self._usable():
            return self._file.execute("SELECT 1 FROM kept WHERE key = ?", (key,)).fetchone() is not None

    def put(self, values: Mapping[str, Any]) -> None:
        """Keep all of ``values`` by their keys, or none of them."""
        rows = [(key, zlib.compress(json.dumps(value).encode(), 1)) for key, value in values.items()]
        with self._usable(), self._file:
            self._file.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
