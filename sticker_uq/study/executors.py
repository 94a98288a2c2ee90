"""Where the tasks of a study run: in this process, in several processes, or on a Ray cluster, with the same results."""

from __future__ import annotations

import importlib
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from typing import Any

import cv2

from sticker_uq.scene import InvalidInput
from sticker_uq.study.plan import StudySettings
from sticker_uq.study.tasks import Task, perform

Executor = Callable[[Sequence[Task], StudySettings], Iterator[dict[str, Any]]]
"""Takes tasks to what is to be kept of each, in any order."""

_UNDER_WAY = 4
"""Tasks on a cluster at once, per core."""


def executor(jobs: int, ray_address: str = "") -> Executor:
    """``ray_address``: a Ray cluster ("auto", "local", or its address), else ``jobs`` processes of this machine.

    Raises InvalidInput when Ray is wanted and not installed.
    """
    if ray_address:
        try:
            importlib.import_module("ray")
        except ModuleNotFoundError:
            raise InvalidInput(
                f"--ray-address {ray_address}: expected the Python package ray; pip install ray"
            ) from None
        return partial(_on_ray, address=ray_address)
    return _here if jobs == 1 else partial(_in_processes, jobs=jobs)


def _here(tasks: Sequence[Task], settings: StudySettings) -> Iterator[dict[str, Any]]:
    return (perform(task, settings) for task in tasks)


def _in_processes(tasks: Sequence[Task], settings: StudySettings, jobs: int) -> Iterator[dict[str, Any]]:
    if not tasks:
        return
    context = multiprocessing.get_context("spawn")  # neither torch nor OpenCV survives a fork
    pool = ProcessPoolExecutor(min(jobs, len(tasks)), context, _start_process)
    try:
        for done in as_completed([pool.submit(perform, task, settings) for task in tasks]):
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _start_process() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which ends this
    cv2.setNumThreads(1)


def _on_ray(tasks: Sequence[Task], settings: StudySettings, address: str) -> Iterator[dict[str, Any]]:
    ray: Any = importlib.import_module("ray")
    started_here = not ray.is_initialized()
    if started_here:
        ray.init(
            address=None if address == "local" else address, include_dashboard=False, log_to_driver=False
        )
    try:
        remote = ray.remote(perform)
        plan, waiting = ray.put(settings), list(tasks)[::-1]
        most = max(int(ray.cluster_resources().get("CPU", 1)) * _UNDER_WAY, 1)
        running: list[Any] = []
        while waiting or running:
            while waiting and len(running) < most:
                running.append(remote.remote(waiting.pop(), plan))
            finished, running = ray.wait(running)
            for reference in finished:
                yield ray.get(reference)
    finally:
        if started_here:
            ray.shutdown()
