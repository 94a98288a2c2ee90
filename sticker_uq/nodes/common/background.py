# SPDX-License-Identifier: Apache-2.0
"""Runs a node's slow work in a thread and delivers its result in the executor's thread."""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections.abc import Callable
from typing import Generic, TypeVar

from rclpy.exceptions import InvalidHandle
from rclpy.node import Node

from sticker_uq.scene import InvalidInput

R = TypeVar("R")


class BackgroundTask(Generic[R]):
    """Runs one task of a node at a time in a thread. Call all methods from the executor's thread."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._guard = node.create_guard_condition(self._finish)
        self._thread: threading.Thread | None = None
        self._result: R | None = None
        self._error = ""
        self._done: Callable[[R | None, str], None] = lambda result, error: None

    @property
    def busy(self) -> bool:
        return self._thread is not None

    def start(self, work: Callable[[], R], done: Callable[[R | None, str], None]) -> None:
        """Run ``work`` in the background of any node; its executor calls ``done`` with the result and "", or with None and the
        error.
        """
        if self.busy:
            raise RuntimeError("the task is busy")
        self._done = done
        self._thread = threading.Thread(target=self._run, args=(work,), name="background", daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], R]) -> None:
        self._result, self._error = None, ""
        try:
            self._result = work()
        except InvalidInput as error:
            self._error = str(error)
        except Exception as error:  # noqa: BLE001 - it is told to whoever waits
            self._error = f"{type(error).__name__}: {error}"
            self._node.get_logger().debug(traceback.format_exc())
        with contextlib.suppress(InvalidHandle):  # the node was destroyed meanwhile
            self._guard.trigger()

    def _finish(self) -> None:
        if self._thread is None:
            return
        self._thread.join()
        self._thread = None
        result, self._result = self._result, None
        self._done(result, self._error)
