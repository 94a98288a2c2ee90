# SPDX-License-Identifier: Apache-2.0
"""Who else publishes the gate. A cell has one supervisor; while a second one is active, nothing is permitted. No ROS in here."""

from __future__ import annotations

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
        """A message of the gate of ``supervisor`` came; one that is not active permits nothing and need not publish again."""
        if active:
            self._active[supervisor] = self._now_s()
            self._inactive.pop(supervisor, None)
        else:
            self._active.pop(supervisor, None)
            self._inactive[supervisor] = None

    def besides(self, own: str) -> list[str]:
        """The other active publishers of the gate, in the order of their names."""
        return [name for name in self.present() if name != own]

    def present(self) -> list[str]:
        """All active publishers of the gate, in the order of their names."""
        now = self._now_s()
        self._active = {name: at for name, at in self._active.items() if now - at < QUIET_S}
        return sorted(self._active)

    def never_received(self, own: str, publishers: int) -> int:
        """How many of ``publishers`` of the gate, that of ``own`` not counted, were never received.

        When fewer publishers exist than were received, the inactive ones that were received first are taken to have gone.
        """
        active = len(self.besides(own))
        others = [name for name in self._inactive if name != own]
        for name in others[: max(0, active + len(others) - publishers)]:
            del self._inactive[name]
        return max(0, publishers - active - len(others))
