# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads of a cell: https://prometheus.io/docs/instrumenting/exposition_formats/.

What is not known now is absent: a value of a node that has been silent for ``FRESH_S`` would otherwise look as if it held.
"""

import datetime as dt
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Thread
from typing import Any, NamedTuple
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sticker_uq.messages import ANSWERS, BLOCK_REASONS, PHASES, SCENE_ANSWERS
from sticker_uq.scene import InvalidInput

FRESH_S = 5.0
"""What has not been heard for so long is absent; nodes report every second, the gate ten times."""
DONE = ("clean", "left_to_operator")
"""How a laptop may be finished."""
_PERMIT = ("permitted", "removing")
_GATE = "supervisor: gate"
_COUNTED = {"removals": "verified", "removals_failed": "failed"}
"""Counts of the status of the gate, by the result of the removals that they count."""
_STAGE_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_ANSWER_S = (2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)


class _Status(NamedTuple):
    level: int
    values: dict[str, float]


class CellMetrics(Collector):
    """The metrics of one cell. Names and labels are in docs/howto/monitoring.md; without a person's name or a laptop's.

    ``expected``: statuses whose silence is told from the start, even if they never come. ``clock``: monotonic time, s.
    """

    def __init__(self, expected: Sequence[str] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"namespace": "sticker_uq", "registry": self.registry}
        self._permits = Counter("permits", "Permits given to the arm", **own)
        self._revoked = Counter(
            "permits_revoked", "Permits that ended before the arm had finished", ["reason"], **own
        )
        self._questions = Counter("questions", "Questions to the operator", **own)
        self._answers = Counter("answers", "What operators answered", ["answer"], **own)
        self._laptops = Counter("laptops", "Finished laptops", ["result"], **own)
        self._answer_time = Histogram(
            "answer_seconds", "Time from a question to its answer", buckets=_ANSWER_S, **own
        )
        self._stage = Histogram(
            "stage_seconds", "Time of a stage of perception", ["stage"], buckets=_STAGE_S, **own
        )
        # a counter that begins with its first event hides it: an increase is seen only from a value before
        for counter, labels in (
            (self._revoked, BLOCK_REASONS), (self._answers, (*ANSWERS, *SCENE_ANSWERS)), (self._laptops, DONE)
        ):  # fmt: skip
            for label in labels:
                if label not in ("unknown", "none"):
                    counter.labels(label)
        self._clock = clock
        self._lock = threading.Lock()
        self._heard = dict.fromkeys(("gate", *expected), clock())
        self._statuses: dict[str, _Status] = {}
        self._state = ""
        self._closed: frozenset[str] = frozenset()
        self._removals = dict.fromkeys(_COUNTED.values(), 0.0)
        self._asked: tuple[str, float] | None = None
        self._server: WSGIServer | None = None
        self._thread: Thread | None = None
        self.port = 0
        self.registry.register(self)

    def gate(self, state: str, closed: Iterable[str]) -> None:
        """The gate is in ``state``, of :data:`PHASES`, and these block reasons close it."""
        with self._lock:
            had, has = self._state in _PERMIT, state in _PERMIT
            self._heard["gate"] = self._clock()
            self._state, self._closed = state, frozenset(closed)
        self._permits.inc(has and not had)
        if had and not has and state != "verifying":
            for name in self._closed:
                self._revoked.labels(name).inc()

    def stages(self, milliseconds: Mapping[str, float]) -> None:
        """The stages of one assessment took so long, ms."""
        for name, value in milliseconds.items():
            self._stage.labels(name).observe(value / 1000)

    def count_question(self, request_id: str) -> None:
        """A question was opened."""
        self._questions.inc()
        self._asked = request_id, self._clock()

    def count_answers(self, request_id: str, answers: Iterable[str]) -> None:
        """The question ``request_id`` was answered with ``answers``, of :data:`ANSWERS` and :data:`SCENE_ANSWERS`."""
        if self._asked is not None and self._asked[0] == request_id:
            self._answer_time.observe(self._clock() - self._asked[1])
            self._asked = None
        for name in answers:
            self._answers.labels(name).inc()

    def done(self, result: str) -> None:
        """A laptop was finished with ``result``, of :data:`DONE`."""
        self._laptops.labels(result).inc()

    def status(self, name: str, level: int, values: Mapping[str, str]) -> None:
        """A status of ``/diagnostics``; of its values those that are finite numbers, and days."""
        numbers = {key: number for key, text in values.items() if math.isfinite(number := _number(text))}
        with self._lock:
            self._heard[name] = self._clock()
            self._statuses[name] = _Status(level, numbers)
            if name == _GATE:
                self._removals |= {result: numbers[key] for key, result in _COUNTED.items() if key in numbers}

    def collect(self) -> Iterator[Metric]:
        """What holds now, when Prometheus asks."""
        with self._lock:
            ages = {name: self._clock() - heard for name, heard in self._heard.items()}
            statuses = {name: each for name, each in self._statuses.items() if ages[name] <= FRESH_S}
            state, closed = (self._state, self._closed) if ages["gate"] <= FRESH_S else ("", frozenset())
            removals = dict(self._removals)
        yield _gauges("age_seconds", "Time since the gate or a status was heard", ["source"], ages)
        levels = {name: status.level for name, status in statuses.items()}
        yield _gauges("level", "Level of a status: 0 OK, 1 WARN, 2 ERROR, 3 STALE", ["status"], levels)
        values = {(name, key): x for name, status in statuses.items() for key, x in status.values.items()}
        yield _gauges("value", "A number in /diagnostics", ["status", "key"], values)
        phases = {name: name == state for name in list(PHASES)[1:] if state}  # without "unknown"
        yield _gauges("gate_state", "1 for the state of the gate, 0 for the others", ["state"], phases)
        reasons = {name: name in closed for name in BLOCK_REASONS if state}
        yield _gauges("gate_closed", "1 while the reason closes the gate", ["reason"], reasons)
        counted = CounterMetricFamily("sticker_uq_removals", "Removals that the arm ended", labels=["result"])
        for result, count in removals.items():
            counted.add_metric([result], count)
        yield counted

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


def _gauges(name: str, text: str, labels: list[str], values: Mapping[Any, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"sticker_uq_{name}", text, labels=labels)
    for key, value in values.items():
        family.add_metric([key] if isinstance(key, str) else list(key), float(value))
    return family


def _number(text: str) -> float:
    """The number in ``text``; of a day (2027-01-31) its end in UTC, s since 1970; NaN where it is neither."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        day = dt.date.fromisoformat(text)
    except ValueError:
        return math.nan
    return dt.datetime.combine(day + dt.timedelta(1), dt.time.min, dt.UTC).timestamp()
