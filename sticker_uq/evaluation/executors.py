# SPDX-License-Identifier: Apache-2.0
"""Where work that is spread runs: in this process, in several processes, or on a Ray cluster, with the same results."""

import errno
import importlib
import multiprocessing
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from typing import Any, ParamSpec, Protocol, TypeVar

import cv2

from sticker_uq.io.files import undo_unfinished
from sticker_uq.scene import InvalidInput

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

_UNDER_WAY = 4
"""Pieces of work that are handed out at once, per process or core."""
_OBJECT_STORE = 100 * 2**20
"""Bytes that a local cluster keeps for what travels between processes. Ray would take 30 % of the memory."""
_GRACE_S = 0.3
_HOST_AND_PORT = re.compile(r"(?:ray://)?([^/:]+):(\d+)")
_LOST = "a process that shared the work was killed, perhaps for lack of memory; give fewer --jobs"
_TERMINATED = 128 + signal.SIGTERM
_at_work = False


class Executor(Protocol):
    """Applies a function to many things at once."""

    def __call__(self, function: Callable[[T], R], work: Iterable[T]) -> Iterator[R]:
        """What ``function`` returns for each of ``work``, in any order; raises what it raises.

        Function, work and results must be picklable. Of ``work`` only as much is taken as is handed out.
        """


@contextmanager
def executor(jobs: int, ray_address: str = "") -> Iterator[Executor]:
    """An executor on the Ray cluster ``ray_address`` ("auto", its address, or "local": one of ``jobs`` processes), else in
    ``jobs`` processes, for 1 in this one.

    Processes and cluster serve all calls until the context ends. Raises InvalidInput when Ray is wanted and not installed, or no
    cluster is there, and OSError when a process was killed.
    """
    if ray_address:
        with _cluster(ray_address, jobs):
            yield _on_ray
    elif jobs == 1:
        yield _here
    else:
        with worker_pool(jobs) as pool:  # starts a process when there is work for it
            yield partial(_in_processes, pool=pool, most=jobs * _UNDER_WAY)


def map_over(
    function: Callable[[T], R], work: Sequence[T], jobs: int, chunksize: int = 1
) -> Generator[R, None, None]:
    """``function``, which must be picklable, of each of ``work``, in order, in ``jobs`` processes, or for 1 in this one."""
    if min(jobs, len(work)) <= 1:
        yield from map(function, work)
        return
    with worker_pool(min(jobs, len(work)), imports=()) as pool:
        yield from pool.map(function, work, chunksize=chunksize)


@contextmanager
def worker_pool(
    jobs: int,
    load: Callable[[], Any] | None = None,
    imports: Sequence[str] = ("sticker_uq.without_compiler", "sticker_uq.detection.detector"),
) -> Iterator[ProcessPoolExecutor]:
    """A pool of ``jobs`` processes, which share what they import: with torch that takes each of them seconds.

    They are forked from a server that imports ``imports`` and computes nothing: neither torch nor OpenCV survives the fork of a
    process that has used them. The first pool of a process decides what its server imports. ``load`` runs at the start of each
    process; it must be picklable. When the block raises, their work, which may take hours, is abandoned.
    """
    multiprocessing.set_forkserver_preload(list(imports))
    if threading.current_thread() is threading.main_thread():
        # the server, too, leaves Ctrl-C to its parent: interrupted while it imports, it would print a traceback
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            forkserver.ensure_running()
        finally:
            signal.signal(signal.SIGINT, before)
    pool = WorkerPool(jobs, multiprocessing.get_context("forkserver"), start_worker, (load,))
    try:
        yield pool
    except BaseException:
        _end(list((pool._processes or {}).values()))
        # else the rest of a result that was half sent would be awaited for ever
        pool._result_queue._writer.close()  # type: ignore[attr-defined]
        raise
    finally:
        pool.shutdown(cancel_futures=True)


class WorkerPool(ProcessPoolExecutor):
    """A pool whose processes undo what they have begun when they are terminated."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        return super().submit(partial(_work, fn), *args, **kwargs)


def _work(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    global _at_work
    try:
        _at_work = True
        return function(*args, **kwargs)
    except SystemExit:
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
            raise  # the work's own
        undo_unfinished()
        os._exit(_TERMINATED)
    finally:
        _at_work = False


def _terminate(*_: Any) -> None:
    """What is under way is undone first. A process that waits for work ends at once and keeps its lock on the queue: if it let go
    of it in the middle of a message, another would read the rest as the next.
    """
    # the next one, from a pool that lost a process, would interrupt what undoes
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if _at_work:
        sys.exit()
    os._exit(_TERMINATED)


def start_worker(load: Callable[[], Any] | None = None) -> None:
    """Prepare a worker process: Ctrl-C ends the parent, which ends this one, without leaving half a file, and it does not outlive
    a parent that was killed; each computes with one thread of OpenCV. Then call ``load``.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminate)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    cv2.setNumThreads(1)
    if load is not None:
        load()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _end(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + _GRACE_S
    for process in processes:
        process.join(max(deadline - time.monotonic(), 0.0))
        process.kill()


def _here(function: Callable[[T], R], work: Iterable[T]) -> Iterator[R]:
    return map(function, work)


def _in_processes(
    function: Callable[[T], R], work: Iterable[T], pool: ProcessPoolExecutor, most: int
) -> Iterator[R]:
    running: set[Future[R]] = set()
    try:
        for item in work:
            running.add(pool.submit(function, item))
            if len(running) >= most:
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)
        while running:
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in finished)
    except BrokenProcessPool:
        raise OSError(errno.ECHILD, _LOST) from None


@contextmanager
def _cluster(address: str, jobs: int) -> Iterator[None]:
    """Connected to the Ray cluster at ``address``; one that is there already stays."""
    try:
        ray: Any = importlib.import_module("ray")
    except ModuleNotFoundError:
        raise InvalidInput(
            f"--ray-address {address}: expected the Python package ray; pip install ray"
        ) from None
    started_here = not ray.is_initialized()
    if started_here and address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # work tells nobody that it runs
        # "local" itself, because nothing would connect to a cluster that happens to run here
        ray.init(
            address="local",
            num_cpus=jobs,
            object_store_memory=_OBJECT_STORE,
            include_dashboard=False,
            log_to_driver=False,
        )
    elif started_here:
        try:
            if found := _HOST_AND_PORT.fullmatch(address):  # Ray itself tries for minutes
                socket.create_connection((found[1], int(found[2])), timeout=5.0).close()
            ray.init(address=address, log_to_driver=False)
        except (OSError, OverflowError, ValueError, RuntimeError) as error:
            words = " ".join(str(error).split())
            raise InvalidInput(
                f"--ray-address {address}: expected the address of a Ray cluster ({words})"
            ) from None
    try:
        yield
    finally:
        if started_here:
            ray.shutdown()


def _on_ray(function: Callable[[T], R], work: Iterable[T]) -> Iterator[R]:
    ray: Any = importlib.import_module("ray")
    remote = ray.remote(_apply)
    shared, waiting = ray.put(function), iter(work)
    most = max(int(ray.cluster_resources().get("CPU", 1)) * _UNDER_WAY, 1)
    running: list[Any] = []
    try:
        while True:
            while len(running) < most and (item := next(waiting, None)) is not None:
                running.append(remote.remote(shared, item))
            if not running:
                return
            finished, running = ray.wait(running)
            for reference in finished:
                yield ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None  # not with the traceback of another machine as its text
    except ray.exceptions.RayError:
        raise OSError(errno.ECHILD, _LOST) from None


def _apply(function: Callable[[T], R], item: T) -> R:
    return function(item)
