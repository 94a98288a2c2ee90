# SPDX-License-Identifier: Apache-2.0
"""Laboratory work spread over processes of this machine."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from sticker_uq.evaluation.executors import start_worker

T = TypeVar("T")
R = TypeVar("R")


def mapped(function: Callable[[T], R], work: Sequence[T], jobs: int) -> Iterator[R]:
    """Laboratory work in parallel: ``function`` of each of ``work``, in order, in ``jobs`` processes, or for 1 in this one.

    ``function`` must be picklable.
    """
    if min(jobs, len(work)) <= 1:
        yield from map(function, work)
        return
    context = multiprocessing.get_context("spawn")  # neither torch nor OpenCV survives a fork
    pool = ProcessPoolExecutor(min(jobs, len(work)), context, start_worker)
    try:
        yield from pool.map(function, work)
    finally:
        pool.shutdown(cancel_futures=True)
