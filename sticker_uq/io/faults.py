# SPDX-License-Identifier: Apache-2.0
"""All faults of a file at once: a person who corrects one by one would start the command as often."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sticker_uq.scene import InvalidFile, InvalidInput

MOST_SHOWN = 10


class Faults:
    """Collects the faults of the file ``name``. ``count`` is their number."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._shown: list[str] = []
        self._hint = ""
        self.count = 0

    def add(self, fault: str, hint: str = "") -> None:
        """Note a fault in a file, and what a person can do about it; of several hints the first is shown."""
        self.count += 1
        if len(self._shown) <= MOST_SHOWN:
            self._shown.append(fault)
        self._hint = self._hint or hint

    @contextmanager
    def collected(self, hint: str = "") -> Iterator[None]:
        """Note the InvalidInput that the block raises as a fault of a file, with ``hint``."""
        try:
            yield
        except InvalidInput as error:
            self.add(str(error), hint)

    def refuse(self) -> None:
        """Raise :class:`InvalidFile` with the first faults and their number, if there are any."""
        if not self.count:
            return
        if self.count > MOST_SHOWN + 1:  # a single one more is shown instead of being counted
            del self._shown[MOST_SHOWN:]
        more = self.count - len(self._shown)
        lines = [
            *self._shown,
            *([f"and {more} more"] if more else []),
            *([self._hint] if self._hint else []),
        ]
        if self.count == 1:
            raise InvalidFile(f"{self._name}: {lines[0]}", *lines[1:])
        raise InvalidFile(f"{self._name}: {self.count} faults", *lines)
