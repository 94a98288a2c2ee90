"""What the operator's page shows, as plain values that JSON can hold. No ROS and no web server in here."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

FRESH_S = 2.0
"""A gate message older than this is shown as a lost supervisor."""


@dataclass
class ConsoleState:
    """The newest gate, decision, question and picture; written by the node, read by the page. Thread-safe.

    ``version`` grows with every change, so that a reader can wait for the next one.
    """

    version: int = 0
    _values: dict[str, Any] = field(default_factory=dict)
    _picture: bytes = b""
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _gate_seen: float = -float("inf")

    def put(self, name: str, value: Any) -> None:
        """Set one value; only a real change wakes the readers."""
        with self._changed:
            if name == "gate":
                self._gate_seen = time.monotonic()
            if name in self._values and self._values[name] == value:
                return
            self._values[name] = value
            self._bump()

    def put_picture(self, jpeg: bytes) -> None:
        """Set the live picture."""
        with self._changed:
            self._picture = jpeg
            self._values["picture"] = self.version + 1
            self._bump()

    def picture(self) -> bytes:
        """The live picture as JPEG, empty while there is none."""
        with self._changed:
            return self._picture

    def snapshot(self) -> dict[str, Any]:
        """Everything but the picture; ``connected`` says whether the supervisor still speaks."""
        with self._changed:
            connected = time.monotonic() - self._gate_seen < FRESH_S
            return {**self._values, "version": self.version, "connected": connected}

    def wait_for_change(self, version: int, timeout_s: float) -> int:
        """Wait until there is something newer than ``version``; the present version, also after ``timeout_s``."""
        with self._changed:
            self._changed.wait_for(lambda: self.version > version, timeout_s)
            return self.version

    def _bump(self) -> None:
        self.version += 1
        self._changed.notify_all()
