"""A slot that holds the newest item: what arrives while the worker is busy replaces what waits, and is
counted.
"""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """One writer side, one worker. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._item: T | None = None
        self._full = False
        self._closed = False
        self._dropped = 0

    def put(self, item: T) -> None:
        """Leave ``item``; one that still waits is dropped. A closed mailbox ignores it."""
        with self._condition:
            if self._closed:
                return
            self._dropped += self._full
            self._item, self._full = item, True
            self._condition.notify()

    def take(self) -> T | None:
        """Wait for an item and remove it; None as soon as the mailbox is closed, whatever it holds."""
        with self._condition:
            self._condition.wait_for(lambda: self._full or self._closed)
            if self._closed:
                return None
            item, self._item, self._full = self._item, None, False
            return item

    def close(self) -> None:
        """Wake the worker for the last time."""
        with self._condition:
            self._closed = True
            self._item = None
            self._condition.notify_all()

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        with self._condition:
            return self._closed

    @property
    def dropped(self) -> int:
        """Items that were replaced before they were taken."""
        with self._condition:
            return self._dropped
