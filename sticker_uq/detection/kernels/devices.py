# SPDX-License-Identifier: Apache-2.0
"""What a device does besides computing: its threads, its errors (short of memory, or unusable until a restart),
and how a GPU multiplies float32: IEEE 754, or TF32 with a mantissa of 10 bits.
"""

import ctypes
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch


@contextmanager
def single_thread() -> Iterator[None]:
    """Torch computes with one thread in the block.

    A network of a few layers loses more by waiting for others than it gains, and on a busy machine many times as much.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def keep_freed_memory() -> None:
    """From here on glibc keeps the memory that this process frees, where this is its C library.

    It gives what is larger than 32 MB back to the system otherwise, which clears every page again for the next image.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def return_freed_memory() -> None:
    """Give what this process freed and kept back to the system, once: after a training these are gigabytes."""
    gc.collect()  # models and their gradients are in cycles
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h
_OUT_OF_MEMORY = (
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "can't allocate memory",  # of a processor
)
_BROKEN = ("CUDA error:", "CUDNN_STATUS_EXECUTION_FAILED", "CUDNN_STATUS_INTERNAL_ERROR")


def out_of_memory(error: BaseException) -> bool:
    """Whether torch's ``error`` is lack of memory; allocator, driver, cuBLAS and cuDNN each say it in their own way."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)


def device_broken(error: BaseException) -> bool:
    """Whether ``error`` says that the GPU is lost to this process: device-side assertion, illegal address, lost device.

    Every further call of this process to the GPU fails after it.
    """
    if not isinstance(error, RuntimeError) or out_of_memory(error):
        return False
    return isinstance(error, torch.AcceleratorError) or any(words in str(error) for words in _BROKEN)


@contextmanager
def float32_products(tf32: bool, device: torch.device) -> Iterator[None]:
    """Convolutions and matrix products of float32 on ``device`` are computed in TF32 in the block, or exactly as IEEE float32.

    Torch allows TF32 in convolutions unless told otherwise. Its switches belong to the process: afterwards they are as before,
    and a thread that wants the other kind waits until no thread is in a block of this one. In the block, do not wait for a
    thread that enters another. Changes nothing for a processor. Raises RuntimeError inside a block of the other kind.
    """
    if device.type != "cuda":
        yield
        return
    with _products.held(tf32):
        yield


class _Products:
    """The switches of the process, shared by the threads that want them alike."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holders = 0
        self._tf32 = False
        self._waiting = {False: 0, True: 0}
        self._before = ("none", "none")
        self._own = threading.local()

    @contextmanager
    def held(self, tf32: bool) -> Iterator[None]:
        depth = getattr(self._own, "depth", 0)
        if depth and self._tf32 != tf32:
            raise RuntimeError(f"products in {_NAMES[tf32]} inside a block in {_NAMES[self._tf32]}")
        if not depth:
            self._enter(tf32)
        self._own.depth = depth + 1
        try:
            yield
        finally:
            self._own.depth = depth
            if not depth:
                self._leave()

    def _enter(self, tf32: bool) -> None:
        with self._changed:
            self._waiting[tf32] += 1
            # who wants the other kind would wait for ever if others of this one kept joining
            self._changed.wait_for(
                lambda: not self._holders or (self._tf32 == tf32 and not self._waiting[not tf32])
            )
            self._waiting[tf32] -= 1
            if not self._holders:
                self._tf32, self._before = tf32, _kinds()
                _switch(_NAMES[tf32], _NAMES[tf32])
            self._holders += 1

    def _leave(self) -> None:
        with self._changed:
            self._holders -= 1
            if not self._holders:
                _switch(*self._before)
                self._changed.notify_all()


_cudnn: Any = torch.backends.cudnn  # whose annotations leave out what it makes at run time
_NAMES = {False: "ieee", True: "tf32"}
_products = _Products()


def _kinds() -> tuple[str, str]:
    return str(_cudnn.conv.fp32_precision), str(torch.backends.cuda.matmul.fp32_precision)


def _switch(convolutions: str, products: str) -> None:
    _cudnn.conv.fp32_precision = convolutions
    if (torch.backends.cuda.matmul.fp32_precision == "tf32") != (products == "tf32"):
        # torch refuses some products while its older switch says otherwise; this one sets both
        torch.backends.cuda.matmul.allow_tf32 = products == "tf32"
    torch.backends.cuda.matmul.fp32_precision = products
