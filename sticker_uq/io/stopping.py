# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends a command within a second, whatever it computes, and leaves no process and no half-written file."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from sticker_uq.io.files import undo_unfinished

if TYPE_CHECKING:
    import psutil

INTERRUPTED = 130
"""Exit status after Ctrl-C."""
_GRACE_S = 0.5
_TRACKER = "resource_tracker"  # of multiprocessing, which ends by itself when all others have ended
_SHOW_CURSOR = "\x1b[?25h"
_begun = threading.Event()
_resumable: list[tuple[str, Path]] = []


def end_on_interrupt() -> None:
    """From now on Ctrl-C ends this process within a second with :data:`INTERRUPTED`, and those of Python that it has started.

    It is a KeyboardInterrupt first. What has not ended by that in time, because it computes outside of Python or waits for what
    does, and at a second Ctrl-C, is ended from a thread.
    """
    heard, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(heard,), name="interrupt", daemon=True).start()
    sys.excepthook, sys.unraisablehook, threading.excepthook = _excepthook, _unraisablehook, _threadhook
    sys.warnoptions.append(f"ignore:{_TRACKER}")  # it warns of what it removes


def take_time_to_end() -> None:
    signal.set_wakeup_fd(-1)


def resumable(how: str, kept: Path) -> None:
    """Tell whoever interrupts this command ``how`` to go on, once ``kept`` exists."""
    _resumable[:] = [(how, kept)]


def describe_interruption() -> str:
    return "; ".join(["interrupted", *(how for how, kept in _resumable if kept.exists())])


def _watch(heard: int) -> None:
    while signal.SIGINT not in os.read(heard, 1):
        pass
    _begun.set()
    select.select([heard], [], [], _GRACE_S)
    _end()


def leave() -> NoReturn:
    """End this process with :data:`INTERRUPTED` when all is closed, and what it has started: a worker waits for ever for what
    nobody sends any more. To take apart what was imported would need seconds on a busy machine.
    """
    try:
        _end_processes()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:  # also where what they were piped to has ended
        os._exit(INTERRUPTED)


def _end() -> None:
    try:
        _end_processes()
        cursor = _SHOW_CURSOR if sys.stderr.isatty() else ""
        with contextlib.suppress(OSError):  # whoever read it has ended
            os.write(sys.stderr.fileno(), f"{cursor}\n{describe_interruption()}\n".encode())
        _end_processes()  # that another thread has started meanwhile, such as a pool that lost its workers
        undo_unfinished()  # last, as another thread may still write
    finally:
        os._exit(INTERRUPTED)


def _end_processes() -> None:
    import psutil  # which most commands never need

    here, ours = psutil.Process(), list[psutil.Process]()
    while more := [p for p in here.children(recursive=True) if p not in ours and _is_ours(p)]:
        for process in more:  # which starts no further one while it is stopped
            with contextlib.suppress(psutil.Error):
                process.suspend()
        ours += more
    for process in ours:
        with contextlib.suppress(psutil.Error):
            process.terminate()
            process.resume()
    for process in psutil.wait_procs(ours, _GRACE_S / 5)[1]:
        with contextlib.suppress(psutil.Error):
            process.kill()


def _is_ours(process: psutil.Process) -> bool:
    import psutil

    try:  # not the browser
        return process.exe() == psutil.Process().exe() and _TRACKER not in " ".join(process.cmdline())
    except psutil.Error:  # it has ended
        return False


def _excepthook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    if issubclass(kind, KeyboardInterrupt):
        _end()
    sys.__excepthook__(kind, error, trace)


def _threadhook(found: threading.ExceptHookArgs) -> None:
    if not _begun.is_set():  # what is left where it is may fail
        threading.__excepthook__(found)


def _unraisablehook(found: Any) -> None:
    if not isinstance(found.exc_value, KeyboardInterrupt):  # the thread remembers it
        sys.__unraisablehook__(found)
