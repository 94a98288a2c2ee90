# SPDX-License-Identifier: Apache-2.0
"""Callbacks for SIGINT and SIGTERM in a process whose main thread may block inside the middleware."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def stop_signals() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Handle SIGINT and SIGTERM of a cell's process; yields a function that registers a callback.

    Callbacks run in a thread on the first signal, or at once if it has arrived. Python runs signal handlers only between two
    bytecodes of the main thread, which may block inside the middleware; a wake-up file descriptor reaches another thread.
    """
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    arrived = threading.Event()
    registered: list[Callable[[], None]] = []
    lock = threading.Lock()

    def watch() -> None:
        while receiver.recv(1):
            with lock:
                arrived.set()
                callbacks = list(registered)
            for callback in callbacks:
                callback()

    def register(callback: Callable[[], None]) -> None:
        with lock:
            registered.append(callback)
            already = arrived.is_set()
        if already:
            callback()

    watcher = threading.Thread(target=watch, name="signals", daemon=True)
    old_fd = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    old_handlers = {s: signal.signal(s, lambda *_: None) for s in (signal.SIGINT, signal.SIGTERM)}
    watcher.start()
    try:
        yield register
    finally:
        signal.set_wakeup_fd(old_fd)
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
        sender.close()
        watcher.join()
        receiver.close()
