# SPDX-License-Identifier: Apache-2.0
"""Multi-threaded rclpy executor of a node with an arm, which dispatches each callback once."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rclpy.executors import (
    ConditionReachedException,
    Executor,
    ExternalShutdownException,
    ShutdownException,
    TimeoutException,
    TimeoutObject,
)
from rclpy.task import Future, Task

THREADS = 4
"""One each for a motion, a new goal, a cancellation and the gate."""


class ArmExecutor(Executor):
    """Runs callbacks in four threads; its shutdown waits until the current motion has stopped.

    rclpy's ``MultiThreadedExecutor`` submits a callback again and again until a thread has started it, and holds the GIL
    meanwhile. On a busy machine thousands of copies of one callback queue up, and the heartbeat of the arm stops for seconds.
    Here the next callback is fetched when the last one has started.
    """

    def __init__(self) -> None:
        super().__init__()
        self._pool = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="arm")
        self._begun: list[Task] = []
        # held by who waits for a callback and hands it out; reentrant for a signal handler that shuts down
        self._handing = threading.RLock()
        self._closed = False

    def spin_once(self, timeout_sec: float | None = None) -> None:
        """Wait for one callback, until a thread has started it; raises what an earlier callback raised."""
        self._hand_out(timeout_sec, lambda: False)

    def spin_once_until_future_complete(
        self, future: Future, timeout_sec: float | TimeoutObject | None = None
    ) -> None:
        """:meth:`spin_once` that ends early when ``future`` is done; rclpy's own raises NotImplementedError."""
        future.add_done_callback(lambda _: self.wake())
        self._hand_out(timeout_sec, future.done)

    def _hand_out(self, timeout_sec: float | TimeoutObject | None, ends: Callable[[], bool]) -> None:
        begins = threading.Event()
        with self._handing:
            try:
                task, _, _ = self.wait_for_ready_callbacks(timeout_sec, None, lambda: self._closed or ends())
            except (
                ExternalShutdownException,
                ShutdownException,
                TimeoutException,
                ConditionReachedException,
            ):
                return
            if self._closed:
                task.cancel()
                return
            self._pool.submit(_run, task, begins)
        begins.wait()
        self._begun.append(task)
        done = [task for task in self._begun if task.done()]
        self._begun = [task for task in self._begun if not task.done()]
        for task in done:
            task.result()

    def shutdown(self, timeout_sec: float | None = None) -> bool:
        """Wait for the running callbacks, which rclpy does not, then shut down. A motion ends at the latest with its permit.

        What has not begun by then, such as a goal just accepted, never does. Another thread may be spinning: it is waited for,
        because rclpy would destroy the guard condition under its wait.
        """
        self._closed = True
        self.wake()
        with self._handing:
            self._pool.shutdown(wait=True)
        with self._tasks_lock:
            left = [task for task, _, _ in self._tasks]
        for task in left:
            task.cancel()  # avoids the warning about a coroutine that was never awaited
        return bool(super().shutdown(timeout_sec))


def _run(task: Task, begins: threading.Event) -> None:
    begins.set()
    task()
