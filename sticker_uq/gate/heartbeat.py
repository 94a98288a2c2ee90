"""Whether an arm is there: it must say so again and again. No ROS in here."""

from __future__ import annotations


class Heartbeat:
    """The arms that speak, by the names in their messages.

    Silence is counted in looks, not in time: a process that was stopped for a while looks once when it goes on, and does not
    take the time in which it heard nothing for the silence of the arm. ``patience``: looks without a word after which an arm
    is silent.
    """

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._silence: dict[str, int] = {}
        self._newest: str | None = None

    def beat(self, arm: str) -> bool:
        """``arm`` speaks; whether another one spoke last."""
        changed = self._newest not in (None, arm)
        self._newest = arm
        self._silence[arm] = 0
        return changed

    def look(self) -> None:
        """Time has passed."""
        longer = {arm: looks + 1 for arm, looks in self._silence.items()}
        self._silence = {arm: looks for arm, looks in longer.items() if looks < self._patience}

    def lost(self) -> None:
        """An arm has died, nobody knows which one: each must speak anew."""
        self._silence.clear()

    @property
    def alone(self) -> bool:
        """Whether exactly one arm speaks."""
        return len(self._silence) == 1
