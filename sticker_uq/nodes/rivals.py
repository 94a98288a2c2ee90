"""Who else publishes the gate. There is one supervisor in a cell; when a second one speaks, nobody may move. No ROS in here."""

from __future__ import annotations

import time
from collections.abc import Callable

QUIET_S = 2.0
"""A supervisor that was silent for so long is gone; an active one speaks at least once per second."""


class Speakers:
    """The active supervisors that were heard lately, by the names in their messages."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._heard: dict[str, float] = {}

    def heard(self, supervisor: str, active: bool) -> None:
        """A message of ``supervisor`` came; one that is not active permits nothing and does not count."""
        if active:
            self._heard[supervisor] = self._now_s()
        else:
            self._heard.pop(supervisor, None)

    def besides(self, own: str) -> list[str]:
        """The others, in the order of their names."""
        return [name for name in self.present() if name != own]

    def present(self) -> list[str]:
        """All of them, in the order of their names."""
        now = self._now_s()
        self._heard = {name: at for name, at in self._heard.items() if now - at < QUIET_S}
        return sorted(self._heard)
