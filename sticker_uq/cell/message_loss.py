"""How many messages of a publisher never came, by the numbers that the middleware gives to them."""

from __future__ import annotations


class SequenceWatch:
    """Counts the numbers that are missing between the messages that came.

    A middleware numbers the messages of one publisher but does not tell whose a number is. So with several publishers nothing
    can be counted, and what lies between two of them, or between two lives of one, is not missing: :meth:`publishers` must be
    told of every change. A jump counts only when the next message follows without such a change, for the news of a change may
    come after the first message.
    """

    def __init__(self) -> None:
        self._missing = 0
        self._jump = 0
        self._last: int | None = None
        self._alone = True
        self._numbered = True

    @property
    def missing(self) -> int | None:
        """How many never came; None where it cannot be told."""
        return self._missing if self._alone and self._numbered else None

    def publishers(self, count: int) -> None:
        """The publishers have changed and are so many now."""
        self._alone = count <= 1
        self._last, self._jump = None, 0

    def saw(self, number: int | None) -> None:
        """A message came with this number; None where the middleware gives none."""
        self._numbered = number is not None
        self._missing += self._jump
        self._jump = 0
        # a smaller number is a publisher that has begun anew
        if number is not None and self._last is not None and number > self._last:
            self._jump = number - self._last - 1
        self._last = number
