# SPDX-License-Identifier: Apache-2.0
"""The arm's side of the gate: a permit, and whether it is valid now; used by the arm's node. No ROS in here.

A permit is a lease. The watch never trusts the presence of a message, only its time of expiry.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from sticker_uq.gate.presence import GatePublishers


@dataclass(frozen=True)
class Lease:
    """An open gate as last received: for one object of one decision, until ``valid_until_ns`` of the node's clock.

    ``lease_s``: how long it was valid when it was sent. It is no longer valid after that time on a steady clock either, so
    that a clock that is put back makes no permit longer.
    """

    decision_id: str
    object_id: int
    valid_until_ns: int
    lease_s: float = math.inf

    def allows(self, decision_id: str, object_id: int, now_ns: int) -> bool:
        """Whether this permit lets the arm touch that object now. A clock at 0 has not started: nothing is allowed."""
        same = self.decision_id == decision_id != "" and self.object_id == object_id
        return same and 0 < now_ns < self.valid_until_ns


class PermitWatch:
    """Holds the newest state of the gate; safe to use from several threads.

    While more than one supervisor is active, it allows nothing: an arm must not obey two.
    """

    def __init__(self, now_ns: Callable[[], int], steady_s: Callable[[], float] = time.monotonic) -> None:
        self._now_ns = now_ns
        self._steady_s = steady_s
        self._received_s = 0.0
        self._changed = threading.Condition()
        self._permit: Lease | None = None
        self._publishers = GatePublishers()
        self._losses = 0

    def update(self, permit: Lease | None, supervisor: str = "", active: bool = True) -> None:
        """Take over the newest state of the gate; ``None``: closed. It came from ``supervisor``, ``active`` or not."""
        with self._changed:
            self._publishers.note_message(supervisor, active)
            if permit is None and not active and self._publishers.present():
                return  # an inactive supervisor does not close the gate of the active one
            self._permit = permit
            self._received_s = self._steady_s()
            self._changed.notify_all()

    def lose(self) -> None:
        """The supervisor has died: what it permitted is void, also what is still on its way here."""
        with self._changed:
            self._permit = None
            self._losses += 1
            self._changed.notify_all()

    @property
    def losses(self) -> int:
        with self._changed:
            return self._losses

    def wake(self) -> None:
        """Wake the threads that wait for a permit: something other than the gate has changed (a cancelled goal)."""
        with self._changed:
            self._changed.notify_all()

    def refusal(self, decision_id: str, object_id: int) -> str:
        """Why no permit lets the arm touch that object now; empty when one does."""
        with self._changed:
            return self._refusal(decision_id, object_id)

    def has_expired(self, decision_id: str, object_id: int) -> bool:
        """Whether the gate still names that object, but its lease has run out or another supervisor publishes too."""
        with self._changed:
            permit = self._permit
        named = permit is not None and (permit.decision_id, permit.object_id) == (decision_id, object_id)
        return named and self.refusal(decision_id, object_id) != ""

    def wait_until_allowed(
        self, decision_id: str, object_id: int, timeout_s: float, given_up: Callable[[], bool] = lambda: False
    ) -> str:
        """Wait until the gate allows that object; the refusal that stands after ``timeout_s`` seconds, empty when allowed.

        Ends early when ``given_up`` says so, which is called after each message of the gate and after :meth:`wake`.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._refusal(decision_id, object_id) or given_up(), timeout_s)
            return self._refusal(decision_id, object_id)

    def wait(self, timeout_s: float) -> None:
        with self._changed:
            self._changed.wait(timeout_s)

    def _refusal(self, decision_id: str, object_id: int) -> str:
        if self._permit is None:
            return "the gate is closed"
        if len(names := self._publishers.present()) > 1:
            return f"{len(names)} gate publishers: {', '.join(name[:8] or '(nameless)' for name in names)}"
        now = self._now_ns()
        held_s = self._steady_s() - self._received_s
        if held_s < self._permit.lease_s and self._permit.allows(decision_id, object_id, now):
            return ""
        if (self._permit.decision_id, self._permit.object_id) != (decision_id, object_id):
            return f"the permit is for object {self._permit.object_id} of decision {self._permit.decision_id or '(none)'}"
        late_ms = max((now - self._permit.valid_until_ns) / 1e6, (held_s - self._permit.lease_s) * 1e3)
        return f"the permit expired {late_ms:.0f} ms ago"
