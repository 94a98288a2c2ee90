"""Who else publishes the gate. There is one supervisor in a cell; when a second one speaks, nobody may move. No ROS in here."""

from __future__ import annotations

import time
from collections.abc import Callable

QUIET_S = 2.0
"""A supervisor that was silent for so long is gone; an active one speaks at least once per second."""


class GatePublishers:
    """The publishers of the gate that were received lately, by the names in their messages."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._heard: dict[str, float] = {}
        self._standing_by: dict[str, None] = {}

    def heard(self, supervisor: str, active: bool) -> None:
        """A message of ``supervisor`` came; one that is not active permits nothing, stands by and need not speak again."""
        if active:
            self._heard[supervisor] = self._now_s()
            self._standing_by.pop(supervisor, None)
        else:
            self._heard.pop(supervisor, None)
            self._standing_by[supervisor] = None

    def besides(self, own: str) -> list[str]:
        """The others that are active, in the order of their names."""
        return [name for name in self.present() if name != own]

    def present(self) -> list[str]:
        """All that are active, in the order of their names."""
        now = self._now_s()
        self._heard = {name: at for name, at in self._heard.items() if now - at < QUIET_S}
        return sorted(self._heard)

    def unheard(self, own: str, publishers: int) -> int:
        """How many of ``publishers`` of the gate, that of ``own`` not counted, were never heard.

        Of those that stand by, the ones heard first are taken to have gone when there are fewer publishers than were heard.
        """
        active = len(self.besides(own))
        others = [name for name in self._standing_by if name != own]
        for name in others[: max(0, active + len(others) - publishers)]:
            del self._standing_by[name]
        return max(0, publishers - active - len(others))
