# SPDX-License-Identifier: Apache-2.0
"""Values of several streams that belong to the same image, joined by its stamp, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any


class Pairing:
    """Joins one value of each of ``streams`` by the stamp of their image, whatever order they arrive in.

    At most ``limit`` images wait for the rest of their values. The one that began to wait first is given up then, and
    ``on_unpaired`` is called with the streams it had.
    """

    def __init__(
        self, streams: Collection[str], limit: int, on_unpaired: Callable[[frozenset[str]], None]
    ) -> None:
        self._streams = frozenset(streams)
        self._limit = limit
        self._on_unpaired = on_unpaired
        self._waiting: dict[int, dict[str, Any]] = {}

    def __len__(self) -> int:
        """How many images wait."""
        return len(self._waiting)

    def add(self, stream: str, stamp_ns: int, value: Any) -> dict[str, Any] | None:
        """For the shadow: take a value; the values of active side and candidate, by stream, once the image at ``stamp_ns`` has
        them all.

        A second value of the same stream and stamp replaces the first.
        """
        values = self._waiting.setdefault(stamp_ns, {})
        values[stream] = value
        if values.keys() == self._streams:
            return self._waiting.pop(stamp_ns)
        if len(self._waiting) > self._limit:
            oldest = next(iter(self._waiting))
            self._on_unpaired(frozenset(self._waiting.pop(oldest)))
        return None

    def give_up(self) -> None:
        """Give up the values of active side and candidate that wait for their image's others: nothing more arrives."""
        waiting, self._waiting = self._waiting, {}
        for values in waiting.values():
            self._on_unpaired(frozenset(values))
