# SPDX-License-Identifier: Apache-2.0
"""Counts lost messages of a publisher by the middleware's sequence numbers."""

from __future__ import annotations


class MessageLossCounter:
    """Counts lost messages: gaps in the sequence numbers of received messages.

    Sequence numbers are per publisher, and a message does not identify its publisher. With several publishers gaps cannot be
    counted, and the gap after a publisher was replaced or restarted is not a loss: call :meth:`publishers_changed` for every
    change. A gap counts only when the next message arrives without such a change, because the event may come after the first
    message of the new publisher.
    """

    def __init__(self) -> None:
        self._missing = 0
        self._jump = 0
        self._last: int | None = None
        self._alone = True
        self._numbered = True

    @property
    def missing(self) -> int | None:
        """Messages lost between the cell's processes; None when it is unknown."""
        return self._missing if self._alone and self._numbered else None

    def publishers_changed(self, count: int) -> None:
        """Note for the count of messages lost in the cell that the set of publishers changed to ``count``."""
        self._alone = count <= 1
        self._last, self._jump = None, 0

    def received(self, number: int | None) -> None:
        """Count messages lost in the cell up to one with this sequence number; None where the middleware has none."""
        self._numbered = number is not None
        self._missing += self._jump
        self._jump = 0
        # a smaller number: the publisher restarted
        if number is not None and self._last is not None and number > self._last:
            self._jump = number - self._last - 1
        self._last = number
