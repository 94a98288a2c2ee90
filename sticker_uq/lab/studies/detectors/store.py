"""Finished pieces of a study in one file: what is in it survives a kill at any moment."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from sticker_uq.scene import InvalidInput


class Store:
    """JSON values by keys. Every value is on the disk when :meth:`put` returns. One process writes."""

    def __init__(self, path: Path) -> None:
        """Open or create the file; raises InvalidInput when it is something else."""
        try:
            self._file = sqlite3.connect(path, timeout=60.0)
            self._file.execute("CREATE TABLE IF NOT EXISTS cells (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
        except sqlite3.DatabaseError as error:
            raise InvalidInput(f"{path}: {error}; expected the cells of a study") from None

    def __contains__(self, key: str) -> bool:
        return self._file.execute("SELECT 1 FROM cells WHERE key = ?", (key,)).fetchone() is not None

    def __getitem__(self, key: str) -> Any:
        row = self._file.execute("SELECT value FROM cells WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise KeyError(key)
        return json.loads(row[0])

    def put(self, values: Mapping[str, Any]) -> None:
        """Keep all of ``values``, or none of them."""
        with self._file:
            self._file.executemany(
                "INSERT OR REPLACE INTO cells VALUES (?, ?)", [(k, json.dumps(v)) for k, v in values.items()]
            )

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def key_of(facts: Mapping[str, Any]) -> str:
    """A key from everything that decides a value, 32 hex digits."""
    text = json.dumps(facts, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
