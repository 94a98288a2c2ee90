"""A clock of the tests for nodes that take their time from /clock."""

from __future__ import annotations

import time

from rosgraph_msgs.msg import Clock

from test.helpers import ros

START_NS = 1_800_000_000 * 10**9


class SimulatedClock:
    """Publishes the time fifty times a second; runs with the wall clock unless it is stopped, plus what it has jumped."""

    def __init__(self, bench: ros.Bench) -> None:
        self._publisher = bench.publisher(Clock, "/clock", ros.qos.RELIABLE)
        self._base_ns = START_NS - time.monotonic_ns()
        self._stands_ns = 0
        self.runs = False
        bench.probe.create_timer(0.02, self._publish)

    def now_ns(self) -> int:
        return self._stands_ns or self._base_ns + time.monotonic_ns()

    def jump(self, seconds: float) -> None:
        self._base_ns += round(seconds * 1e9)

    def stand(self, still: bool) -> None:
        if still:
            self._stands_ns = self.now_ns()
        else:
            self._base_ns = self._stands_ns - time.monotonic_ns()
            self._stands_ns = 0

    def _publish(self) -> None:
        if self.runs:
            message = Clock()
            message.clock.sec, message.clock.nanosec = divmod(self.now_ns(), 10**9)
            self._publisher.publish(message)
