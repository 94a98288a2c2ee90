# SPDX-License-Identifier: Apache-2.0
"""Training pictures that are prepared while the network computes."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from sticker_uq_lab.training.augmentation import Sample

_AHEAD = 4


Arrays = tuple[NDArray[Any], ...]


def ahead(prepare: Callable[[int], Arrays], count: int, workers: int, *, processes: bool) -> Iterator[Arrays]:
    """``prepare`` of 0 to ``count`` - 1 in order, ahead of the caller: by threads, enough for a processor, or ``processes``."""
    if not processes:
        with ThreadPoolExecutor(workers, "samples") as pool:
            waiting: deque[Future[Arrays]] = deque()
            for number in range(count):
                waiting.append(pool.submit(prepare, number))
                if len(waiting) > _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        return

    def tensors_of(number: Any) -> tuple[torch.Tensor, ...]:
        return tuple(map(torch.from_numpy, prepare(number)))

    # forked, so that the pictures are not copied; no worker uses the GPU
    loader: DataLoader[Any] = DataLoader(
        range(count),  # type: ignore[arg-type]
        batch_size=None,
        num_workers=workers,
        collate_fn=tensors_of,
        prefetch_factor=_AHEAD,
        multiprocessing_context="fork",
    )
    before = cv2.getNumThreads()
    cv2.setNumThreads(1)  # now: a forked process would wait for threads that only its parent has
    try:
        for tensors in loader:
            yield tuple(tensor.numpy() for tensor in tensors)
    finally:
        cv2.setNumThreads(before)


def pack(samples: Sequence[Sample]) -> Arrays:
    """``samples`` as four arrays: pixels and shapes of the pictures, and of each object its box and label with its picture."""
    owners = np.repeat(np.arange(len(samples)), [len(s.labels) for s in samples])
    return (
        np.concatenate([s.image.ravel() for s in samples]),
        np.array([s.image.shape for s in samples]),
        np.concatenate([s.boxes for s in samples]),
        np.stack([owners, np.concatenate([s.labels for s in samples])]),
    )


def unpack(arrays: Arrays) -> list[Sample]:
    """The inverse of :func:`pack`; the pictures are views."""
    pixels, shapes, boxes, (owners, labels) = arrays
    ends = np.cumsum(shapes.prod(axis=1))
    return [
        Sample(pixels[end - shape.prod() : end].reshape(shape), boxes[owners == i], labels[owners == i])
        for i, (shape, end) in enumerate(zip(shapes, ends, strict=True))
    ]
