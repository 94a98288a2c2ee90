# SPDX-License-Identifier: Apache-2.0
"""Where the detector study's tasks run: in this process, in several processes, or on a Ray cluster, with the same results."""

from __future__ import annotations

import importlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from typing import Any

from sticker_uq.lab.processes import start_worker
from sticker_uq.lab.studies.detectors.study_plan import StudySettings
from sticker_uq.lab.studies.detectors.study_tasks import Task, perform_task
from sticker_uq.scene import InvalidInput

Executor = Callable[[Sequence[Task], StudySettings], Iterator[dict[str, Any]]]
"""Takes tasks to what is to be kept of each, in any order."""

_UNDER_WAY = 4
"""Tasks on a cluster at once, per core."""
_OBJECT_STORE = 100 * 2**20
"""Bytes that a local cluster keeps for what travels between processes: plans and rows. Ray would take 30 % of the memory."""


@contextmanager
def executor(jobs: int, ray_address: str = "") -> Iterator[Executor]:
    """Executor of the detector study's tasks.

    ``ray_address``: a Ray cluster ("auto", its address, or "local", one of ``jobs`` processes), else ``jobs`` processes.

    Processes and cluster serve all calls until the context ends. Raises InvalidInput when Ray is wanted and not installed.
    """
    if ray_address:
        try:
            importlib.import_module("ray")
        except ModuleNotFoundError:
            raise InvalidInput(
                f"--ray-address {ray_address}: expected the Python package ray; pip install ray"
            ) from None
        with _cluster(ray_address, jobs):
            yield _on_ray
    elif jobs == 1:
        yield _here
    else:
        context = multiprocessing.get_context("spawn")  # neither torch nor OpenCV survives a fork
        pool = ProcessPoolExecutor(jobs, context, start_worker)  # starts a process when there is work for it
        try:
            yield partial(_in_processes, pool=pool)
        finally:
            pool.shutdown(cancel_futures=True)


def _here(tasks: Sequence[Task], settings: StudySettings) -> Iterator[dict[str, Any]]:
    return (perform_task(task, settings) for task in tasks)


def _in_processes(
    tasks: Sequence[Task], settings: StudySettings, pool: ProcessPoolExecutor
) -> Iterator[dict[str, Any]]:
    for done in as_completed([pool.submit(perform_task, task, settings) for task in tasks]):
        yield done.result()


@contextmanager
def _cluster(address: str, jobs: int) -> Iterator[None]:
    """Connected to the Ray cluster at ``address``; one that is there already stays."""
    ray: Any = importlib.import_module("ray")
    started_here = not ray.is_initialized()
    if started_here and address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a study tells nobody that it runs
        # "local" itself, because nothing would connect to a cluster that happens to run here
        ray.init(
            address="local",
            num_cpus=jobs,
            object_store_memory=_OBJECT_STORE,
            include_dashboard=False,
            log_to_driver=False,
        )
    elif started_here:
        ray.init(address=address, log_to_driver=False)
    try:
        yield
    finally:
        if started_here:
            ray.shutdown()


def _on_ray(tasks: Sequence[Task], settings: StudySettings) -> Iterator[dict[str, Any]]:
    ray: Any = importlib.import_module("ray")
    remote = ray.remote(perform_task)
    plan, waiting = ray.put(settings), list(tasks)[::-1]
    most = max(int(ray.cluster_resources().get("CPU", 1)) * _UNDER_WAY, 1)
    running: list[Any] = []
    while waiting or running:
        while waiting and len(running) < most:
            running.append(remote.remote(waiting.pop(), plan))
        finished, running = ray.wait(running)
        for reference in finished:
            yield ray.get(reference)
