# SPDX-License-Identifier: Apache-2.0
"""Ends a process whose executor stands still: it lives, so that nothing starts it again, and does nothing."""

import contextlib
import faulthandler
import os
import sys
import threading
from collections.abc import Iterator

BEAT_S = 1.0
"""Period at which the executor shows that it works, s."""
PATIENCE = 30
"""Periods without that after which the process ends."""

END_S = 30.0
"""Longest duration of an orderly end, s: the entries of the audit log and the current image have 5 s each."""


class Watchdog(threading.Thread):
    """Ends the process when :meth:`beat` is not called any more, as in a deadlock inside the middleware.

    Time is counted in periods of this thread: a process that was stopped for a while does not take that for a standstill. Where
    not even this thread runs, because a call that does not return keeps the interpreter, faulthandler ends the process.
    """

    def __init__(self, name: str, beat_s: float = BEAT_S, patience: int = PATIENCE) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._node, self._beat_s, self._patience = name, beat_s, patience
        self._beats = self._pauses = 0
        self._ended = threading.Event()

    def beat(self) -> None:
        self._beats += 1

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """While work is done that may take any time, such as loading a model."""
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            self.beat()

    def expect_end(self, most_s: float = END_S) -> None:
        """From now on only the end of the process is waited for, which may deadlock as anything else: so long at most."""
        self._ended.set()
        if self.is_alive():
            self.join(self._beat_s)
        faulthandler.dump_traceback_later(most_s, exit=True)

    def end(self) -> None:
        self._ended.set()
        faulthandler.cancel_dump_traceback_later()

    def run(self) -> None:
        missed, seen = 0, self._beats
        while not self._ended.wait(self._beat_s):
            faulthandler.dump_traceback_later(2 * self._patience * self._beat_s, exit=True)
            missed = missed + 1 if seen == self._beats and not self._pauses else 0
            seen = self._beats
            if missed >= self._patience:
                print(
                    f"[FATAL] [{self._node}]: giving up: the executor has stood still for {missed * self._beat_s:g} s, perhaps "
                    "in a deadlock of the middleware; a new process goes on (respawn). Where it stands:",
                    file=sys.stderr,
                    flush=True,
                )
                faulthandler.dump_traceback(all_threads=True)
                os._exit(1)
