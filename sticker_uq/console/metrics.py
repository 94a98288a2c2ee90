# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads of a cell: https://prometheus.io/docs/instrumenting/exposition_formats/."""

import math
from collections.abc import Iterable, Mapping
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from sticker_uq.messages import BLOCK_REASONS, PHASES
from sticker_uq.scene import InvalidInput

_PERMIT = ("permitted", "removing")
_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class CellMetrics:
    """The metrics of one cell. Names and labels are in docs/howto/monitoring.md; without a person's name or a laptop's."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"namespace": "sticker_uq", "registry": self.registry}
        self._level = Gauge("level", "Level of a status: 0 OK, 1 WARN, 2 ERROR, 3 STALE", ["status"], **own)
        self._value = Gauge("value", "A number in /diagnostics", ["status", "key"], **own)
        self._gate = Gauge("gate_state", "1 for the state of the gate, 0 for the others", ["state"], **own)
        self._closed = Gauge("gate_closed", "1 while the reason closes the gate", ["reason"], **own)
        self._permits = Counter("permits", "Permits given to the arm", **own)
        self._revoked = Counter(
            "permits_revoked", "Permits that ended before the arm had finished", ["reason"], **own
        )
        self._answers = Counter("answers", "What persons answered", ["answer"], **own)
        self._stage = Histogram(
            "stage_seconds", "Time of a stage of perception", ["stage"], buckets=_BUCKETS, **own
        )
        self._state = ""
        self._server: WSGIServer | None = None
        self._thread: Thread | None = None
        self.port = 0

    def gate(self, state: str, closed: Iterable[str]) -> None:
        """The gate is in ``state``, of :data:`PHASES`, and these block reasons close it."""
        reasons = set(closed)
        for name in list(PHASES)[1:]:  # without "unknown"
            self._gate.labels(name).set(name == state)
        for name in BLOCK_REASONS:
            self._closed.labels(name).set(name in reasons)
        had, has = self._state in _PERMIT, state in _PERMIT
        self._permits.inc(has and not had)
        if had and not has and state != "verifying":
            for name in reasons:
                self._revoked.labels(name).inc()
        self._state = state

    def stages(self, milliseconds: Mapping[str, float]) -> None:
        """The stages of one assessment took so long, ms."""
        for name, value in milliseconds.items():
            self._stage.labels(name).observe(value / 1000)

    def answered(self, answers: Iterable[str]) -> None:
        for name in answers:
            self._answers.labels(name).inc()

    def status(self, name: str, level: int, values: Mapping[str, str]) -> None:
        """A status of ``/diagnostics``; of its values those that are finite numbers."""
        self._level.labels(name).set(level)
        for key, text in values.items():
            try:
                value = float(text)
            except ValueError:
                continue
            if math.isfinite(value):
                self._value.labels(name, key).set(value)

    def serve(self, host: str, port: int) -> None:
        """Serve them on http://host:port/metrics until :meth:`close`. Raises InvalidInput when nothing can listen there.

        A ``port`` of 0 is any free one; :attr:`port` says which.
        """
        try:
            self._server, self._thread = start_http_server(port, host, self.registry)
        except OSError as error:
            raise InvalidInput(f"metrics_port {port}: cannot be listened on: {error.strerror}") from None
        self.port = self._server.server_port

    def close(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
