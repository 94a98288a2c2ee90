# SPDX-License-Identifier: Apache-2.0
"""Whether exactly one arm sends its heartbeat, as the gate demands. No ROS in here."""

from __future__ import annotations


class Heartbeat:
    """The arms that send a heartbeat to the gate, by the names in their messages.

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
        """Time has passed for the arms' heartbeats; an arm without one for too long counts as gone."""
        longer = {arm: ticks + 1 for arm, ticks in self._missed.items()}
        self._missed = {arm: ticks for arm, ticks in longer.items() if ticks < self._patience}

    def lost(self) -> None:
        """An arm has died, and it is not known which one: each must send a heartbeat again."""
        self._missed.clear()

    @property
    def alone(self) -> bool:
        """Whether exactly one arm sends its heartbeat."""
        return len(self._missed) == 1
