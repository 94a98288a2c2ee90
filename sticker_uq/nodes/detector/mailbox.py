# SPDX-License-Identifier: Apache-2.0
"""A queue of length one per sender: a newer item replaces the waiting one, which counts as dropped. Senders take turns."""

import threading
from collections import Counter
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Newest item of each sender, by the sender's name; for one worker. Thread-safe."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._waiting: dict[str, T] = {}
        self._last_served: dict[str, int] = {}
        self._served = 0
        self._closed = False
        self._dropped: Counter[str] = Counter()

    def put(self, item: T, sender: str = "") -> None:
        with self._condition:
            if self._closed:
                return
            self._dropped[sender] += sender in self._waiting
            self._waiting[sender] = item
            self._condition.notify()

    def take(self) -> T | None:
        """Wait for an item and remove it, from the sender that was served least recently.

        Returns None as soon as this is closed.
        """
        with self._condition:
            self._condition.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return None
            sender = min(self._waiting, key=lambda name: self._last_served.get(name, 0))
            self._served += 1
            self._last_served[sender] = self._served
            return self._waiting.pop(sender)

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._waiting.clear()
            self._condition.notify_all()

    @property
    def closed(self) -> bool:
        with self._condition:
            return self._closed

    @property
    def dropped_count(self) -> int:
        with self._condition:
            return self._dropped.total()

    def dropped_count_of(self, sender: str) -> int:
        with self._condition:
            return self._dropped[sender]
