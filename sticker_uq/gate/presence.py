# SPDX-License-Identifier: Apache-2.0
"""Who is there: one supervisor, or nothing is permitted, and exactly one arm that sends its heartbeat. No ROS in here."""

import time
from collections.abc import Callable

QUIET_S = 2.0
"""A supervisor that published nothing for this time, s, is gone; an active one publishes at least once per second."""


class GatePublishers:
    """The publishers of the gate that were received lately, by the names in their messages."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._active: dict[str, float] = {}
        self._inactive: dict[str, None] = {}

    def received(self, supervisor: str, active: bool) -> None:
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
