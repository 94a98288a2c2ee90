"""The arm's side of the gate: a permit, and a watch that says at any moment whether one is valid. No ROS in here.

A permit is a lease. The watch never trusts the presence of a message, only its time of expiry.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Permit:
    """An open gate as last received: for one object of one decision, until ``valid_until_ns`` of the node's clock."""

    decision_id: str
    object_id: int
    valid_until_ns: int

    def allows(self, decision_id: str, object_id: int, now_ns: int) -> bool:
        """Whether this permit covers that object now. A clock that stands at 0 has not started: nothing is allowed."""
        same = self.decision_id == decision_id != "" and self.object_id == object_id
        return same and 0 < now_ns < self.valid_until_ns


class PermitWatch:
    """Holds the newest state of the gate; safe to use from several threads."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._changed = threading.Condition()
        self._permit: Permit | None = None

    def update(self, permit: Permit | None) -> None:
        """Take over what the gate said last; ``None`` is a closed gate."""
        with self._changed:
            self._permit = permit
            self._changed.notify_all()

    def wake(self) -> None:
        """Wake everybody who waits, because something other than the gate has changed (a cancelled goal)."""
        with self._changed:
            self._changed.notify_all()

    def refusal(self, decision_id: str, object_id: int) -> str:
        """Why that object may not be touched now; empty when it may."""
        with self._changed:
            return self._refusal(decision_id, object_id)

    def expired(self, decision_id: str, object_id: int) -> bool:
        """Whether the gate still names that object but its lease has run out."""
        with self._changed:
            permit = self._permit
        named = permit is not None and (permit.decision_id, permit.object_id) == (decision_id, object_id)
        return named and self.refusal(decision_id, object_id) != ""

    def wait_until_allowed(self, decision_id: str, object_id: int, timeout_s: float) -> str:
        """Wait for a permit for that object; the refusal that stands after ``timeout_s`` seconds, empty when allowed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._refusal(decision_id, object_id), timeout_s)
            return self._refusal(decision_id, object_id)

    def wait(self, timeout_s: float) -> None:
        """Wait ``timeout_s`` seconds, less when the gate or the goal changes."""
        with self._changed:
            self._changed.wait(timeout_s)

    def _refusal(self, decision_id: str, object_id: int) -> str:
        if self._permit is None:
            return "the gate is closed"
        now = self._now_ns()
        if self._permit.allows(decision_id, object_id, now):
            return ""
        if (self._permit.decision_id, self._permit.object_id) != (decision_id, object_id):
            return f"the permit is for object {self._permit.object_id} of decision {self._permit.decision_id or '(none)'}"
        return f"the permit expired {(now - self._permit.valid_until_ns) / 1e6:.0f} ms ago"
