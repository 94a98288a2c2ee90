"""The executor of a node with an arm: goals, cancellations and the gate side by side, each handed out once."""

from __future__ import annotations

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
"""A motion, a goal that is handed over, a cancellation and the gate."""


class ArmExecutor(Executor):
    """Serves callbacks in four threads; its shutdown waits until a motion under way has stopped.

    rclpy's own ``MultiThreadedExecutor`` hands a callback out again and again until a thread has begun with it. Whoever hands
    out holds the interpreter meanwhile, so that on a busy machine thousands of copies of one callback queue up, and the arm is
    silent for seconds. Here the next callback is looked for when the last one has begun.
    """

    def __init__(self) -> None:
        super().__init__()
        self._pool = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="arm")
        self._begun: list[Task] = []
        # held by who waits for a callback and hands it out; reentrant for a signal handler that shuts down
        self._handing = threading.RLock()
        self._closed = False

    def spin_once(self, timeout_sec: float | None = None) -> None:
        """Wait for one callback and return when a thread has begun with it; raises what an earlier callback raised."""
        self._hand_out(timeout_sec, lambda: False)

    def spin_once_until_future_complete(
        self, future: Future, timeout_sec: float | TimeoutObject | None = None
    ) -> None:
        """:meth:`spin_once`, which ends early when ``future`` is done."""
        future.add_done_callback(lambda _: self.wake())
        self._hand_out(timeout_sec, future.done)

    def shutdown(self, timeout_sec: float | None = None) -> bool:
        """Wait for the callbacks that run, which rclpy does not, then shut down. A motion ends at the latest with its permit.

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
            task.cancel()  # or Python complains of a coroutine that was never awaited
        return bool(super().shutdown(timeout_sec))

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


def _run(task: Task, begins: threading.Event) -> None:
    begins.set()
    task()
