# SPDX-License-Identifier: Apache-2.0
"""Who is there: one supervisor, or nothing is permitted, exactly one arm that sends its heartbeat, and one publisher of each
input. No ROS in here.
"""

import math
import time
from collections.abc import Callable

QUIET_S = 2.0
"""A supervisor that published nothing for this time, s, is gone; an active one publishes at least once per second."""

SETTLE_S = 1.0
"""After another publisher of an input has come or gone, its messages count again after this time, s: what is under way may be of
either.
"""


class Succession:
    """Whether the messages of a subscription come from one publisher, and always from the same.

    A publisher may come, send and go before anybody looks: what counts is how many there have ever been, and that each numbers
    its messages from 1.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._ever = self._present = 0
        self._heard = False
        self._number: int | None = None
        self._changed_s = -math.inf
        self.changes = 0
        """How many publishers have come beside the first or in its place."""

    def note_matched(self, ever: int, present: int) -> None:
        """So many publishers have ever matched the subscription, and so many do now."""
        others = max(ever - max(self._ever, 1), 0)
        self._ever, self._present = max(self._ever, ever), present
        self.changes += others
        if others:
            self._number = None  # the new one counts from 1
        if others or present > 1:
            self._changed_s = self._now_s()

    def note_message(self, number: int | None) -> None:
        """A message came, with the number that its publisher gave it; None where the middleware has none."""
        if number is not None and self._number is not None and number <= self._number:
            self._changed_s = self._now_s()
        self._heard, self._number = True, number

    def note_renewal(self) -> None:
        """The subscription was made anew, and counts anew: whoever matches it may be another publisher than those so far."""
        if self._heard and not self._ever == self._present == 1:
            self._changed_s = self._now_s()
        self._ever = self._present = 0

    @property
    def is_settled(self) -> bool:
        """Whether there has been no other publisher for :data:`SETTLE_S`."""
        return self._now_s() - self._changed_s >= SETTLE_S


GHOST_S = 15.0
"""A publisher that is matched for so long, s, without being known to discovery is none: names come within a second."""


class Ghosts:
    """Whether a subscription is matched with what is no publisher any more, as many that come and go quickly may leave behind."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._since_s = math.inf

    def has_lasted(self, matched: int, known: int) -> bool:
        """So many publishers are matched and so many known now: whether more were matched all the time for :data:`GHOST_S`."""
        self._since_s = min(self._since_s, self._now_s()) if matched > known else math.inf
        return self._now_s() - self._since_s >= GHOST_S


class GatePublishers:
    """The publishers of the gate that were received lately, by the names in their messages."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._active: dict[str, float] = {}
        self._inactive: dict[str, None] = {}

    def note_message(self, supervisor: str, active: bool) -> None:
        """A message of ``supervisor`` came; one that is not active permits nothing and need not publish again."""
        if active:
            self._active[supervisor] = self._now_s()
            self._inactive.pop(supervisor, None)
        else:
            self._active.pop(supervisor, None)
            self._inactive[supervisor] = None

    def besides(self, own: str) -> list[str]:
        """The active publishers but ``own``, by name."""
        return [name for name in self.present() if name != own]

    def present(self) -> list[str]:
        """The active publishers, by name."""
        now = self._now_s()
        self._active = {name: at for name, at in self._active.items() if now - at < QUIET_S}
        return sorted(self._active)

    def never_received(self, own: str, publishers: int) -> int:
        """How many of ``publishers``, that of ``own`` not counted, were never received.

        When fewer publishers exist than were received, the inactive ones that were received first are taken to have gone.
        """
        active = len(self.besides(own))
        others = [name for name in self._inactive if name != own]
        for name in others[: max(0, active + len(others) - publishers)]:
            del self._inactive[name]
        return max(0, publishers - active - len(others))


class Heartbeat:
    """The arms that send a heartbeat, by the names in their messages.

    Time without a heartbeat is counted in calls of :meth:`tick`, not in seconds: a process that was stopped for a while ticks
    once when it goes on, and does not take that time for a missing heartbeat. ``patience``: ticks without a heartbeat after which
    an arm is gone.
    """

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._missed: dict[str, int] = {}
        self._newest: str | None = None

    def beat(self, arm: str) -> bool:
        """A heartbeat of ``arm`` came; whether the last one was of another arm."""
        changed = self._newest not in (None, arm)
        self._newest = arm
        self._missed[arm] = 0
        return changed

    def tick(self) -> None:
        """Time has passed: an arm without a heartbeat for too long counts as gone."""
        longer = {arm: ticks + 1 for arm, ticks in self._missed.items()}
        self._missed = {arm: ticks for arm, ticks in longer.items() if ticks < self._patience}

    def lost(self) -> None:
        """An arm has died, and it is not known which one: each must send a heartbeat again."""
        self._missed.clear()

    @property
    def alone(self) -> bool:
        return len(self._missed) == 1
