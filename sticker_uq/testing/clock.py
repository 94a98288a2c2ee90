# SPDX-License-Identifier: Apache-2.0
"""Test double of the clock: simulated time for nodes with ``use_sim_time``."""

import time

from rosgraph_msgs.msg import Clock

from sticker_uq.nodes.common import qos
from sticker_uq.testing.bench import Bench

START_NS = 1_800_000_000 * 10**9


class SimulatedClock:
    """Publishes ``/clock`` at 50 Hz once ``runs`` is true, at wall speed unless it stands still."""

    def __init__(self, bench: Bench) -> None:
        self._publisher = bench.publisher(Clock, "/clock", qos.RELIABLE)
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
