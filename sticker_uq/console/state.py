# SPDX-License-Identifier: Apache-2.0
"""What the operator's page shows, as plain values that JSON can hold. No ROS and no web server in here."""

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

FRESH_S = 2.0
"""A gate message older than this is shown as a lost supervisor."""
HOLD_REPLY_S = 3.0
"""A hold that is reported so long after the gate was seen held is taken for the one that did it."""
HEALTH_FRESH_S = 3.5
"""A node that has not told how it is for so long is shown as silent; it should tell every second."""
HISTORY = 100
LEVELS = ("ok", "warning", "error", "silent")
_SILENT = LEVELS.index("silent")
_LASTING = {"part": "policy", "level": "warning"}
"""No guarantee, or release without novelty: it can be read, but a level that never ends warns of nothing. Where nobody has
allowed it, the gate is closed, which is a warning of its own."""


class ConsoleState:
    """What the page shows: newest gate, scene and question, recent events, state of the nodes. Thread-safe.

    Written by the node, read by the pages. ``version`` grows with every change, so that a reader can wait for the next one.
    """

    def __init__(self, expected_nodes: tuple[str, ...] = ()) -> None:
        self.version = 0
        self._values: dict[str, Any] = {}
        self._changed = threading.Condition()
        self._gate_seen = -float("inf")
        self._scene_seen = -float("inf")
        self._hold: dict[str, Any] | None = None
        self._history: deque[dict[str, Any]] = deque(maxlen=HISTORY)
        self._health: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in expected_nodes}
        self._heard: dict[str, float] = {}

    def put(self, name: str, value: Any) -> None:
        with self._changed:
            if name == "gate":
                self._gate_seen = time.monotonic()
                self._follow_hold(bool(value.get("held")))
            before = self._values.get("scene") or {}
            if name == "scene" and value and value.get("stamp") != before.get("stamp"):
                self._scene_seen = time.monotonic()
            if name in self._values and self._values[name] == value:
                return
            self._values[name] = value
            self._bump()

    def add_event(
        self,
        stamp_ns: int,
        kind: str,
        reasons: Sequence[Mapping[str, Any]] = (),
        name: str = "",
        answers: Sequence[str] = (),
    ) -> None:
        """Add a line to the page's history, newest first: what happened (``kind``), to or by whom (``name``), what was answered.

        ``reasons``: why, as the page shows reasons.
        """
        with self._changed:
            if kind == "hold":
                self._held_by(name)
            elif kind == "release":
                self._hold = None
            line = {"stamp_ms": stamp_ns // 1_000_000, "kind": kind, "name": name}
            self._history.appendleft(line | {"answers": list(answers), "reasons": list(reasons)})
            self._bump()

    def report(self, node: str, part: str, level: int, message: str) -> None:
        level = level if 0 <= level < len(LEVELS) else _SILENT
        told = {"part": part, "level": LEVELS[level], "message": message}
        with self._changed:
            self._heard[node] = time.monotonic()
            parts = self._health.setdefault(node, {})
            if parts.get(part) != told:
                parts[part] = told
                self._bump()

    def snapshot(self) -> dict[str, Any]:
        """Everything on the page but the pictures; ``connected``: whether the supervisor still publishes.

        ``hold``: who holds the gate (``name``, empty: unknown) and since when (``since_ms`` since 1970, None: unknown), or None;
        ``scene_age_s``: how long ago the newest scene came, s, or None.
        ``sent_s`` is the time of this snapshot on the monotonic clock: a page tells by it how old a message is on arrival.
        """
        with self._changed:
            now = time.monotonic()
            return {
                **self._values,
                "version": self.version,
                "sent_s": now,
                "connected": now - self._gate_seen < FRESH_S,
                "hold": self._hold,
                "scene_age_s": now - self._scene_seen if self._scene_seen > -float("inf") else None,
                "history": list(self._history),
                "health": [self._node_health(name, parts, now) for name, parts in self._health.items()],
            }

    def wait_for_change(self, version: int, timeout_s: float) -> int:
        """Wait for a change after ``version``; returns the present version, also after ``timeout_s``."""
        with self._changed:
            self._changed.wait_for(lambda: self.version > version, timeout_s)
            return self.version

    def _follow_hold(self, held: bool) -> None:
        """Note since when the gate is held where nobody said so: a command from elsewhere shows in its state alone."""
        before = self._values.get("gate")
        if not held and before and before.get("held"):
            self._hold = None
        elif held and self._hold is None and not (before and before.get("held")):
            # how long a gate has been held that is held when it is seen first is unknown
            self._hold = {"name": "", "since_ms": _now_ms() if before else None}

    def _held_by(self, name: str) -> None:
        if self._hold is None:
            self._hold = {"name": name, "since_ms": _now_ms()}
        elif not self._hold["name"] and _now_ms() - (self._hold["since_ms"] or 0) < 1000 * HOLD_REPLY_S:
            self._hold = self._hold | {"name": name}

    def _node_health(self, name: str, parts: Mapping[str, Mapping[str, Any]], now: float) -> dict[str, Any]:
        silent = now - self._heard.get(name, -float("inf")) > HEALTH_FRESH_S
        passing = (part["level"] for part in parts.values() if not _LASTING.items() <= part.items())
        worst = max(map(LEVELS.index, passing), default=0 if parts else _SILENT)
        level = LEVELS[_SILENT if silent else worst]
        return {"node": name, "level": level, "parts": [dict(part) for part in parts.values()]}

    def _bump(self) -> None:
        self.version += 1
        self._changed.notify_all()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
