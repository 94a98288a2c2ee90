"""Slots that hold the newest item of each sender: what arrives while the worker is busy replaces what waits, and is
counted. The worker takes from the senders in turn.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Senders are told apart by a name. One worker. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._waiting: dict[str, T] = {}
        self._turn_of: dict[str, int] = {}
        self._turn = 0
        self._closed = False
        self._dropped: Counter[str] = Counter()

    def put(self, item: T, sender: str = "") -> None:
        """Leave ``item``; one of the same sender that still waits is dropped. A closed mailbox ignores it."""
        with self._condition:
            if self._closed:
                return
            self._dropped[sender] += sender in self._waiting
            self._waiting[sender] = item
            self._condition.notify()

    def take(self) -> T | None:
        """Wait for an item and remove it: of the senders that have one, the one whose last turn is longest ago.

        None as soon as the mailbox is closed, whatever it holds.
        """
        with self._condition:
            self._condition.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return None
            sender = min(self._waiting, key=lambda name: self._turn_of.get(name, 0))
            self._turn += 1
            self._turn_of[sender] = self._turn
            return self._waiting.pop(sender)

    def close(self) -> None:
        """Wake the worker for the last time."""
        with self._condition:
            self._closed = True
            self._waiting.clear()
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
            return self._dropped.total()

    def dropped_of(self, sender: str) -> int:
        """Items of ``sender`` that were replaced before they were taken."""
        with self._condition:
            return self._dropped[sender]
