# SPDX-License-Identifier: Apache-2.0
"""What an error of torch says about the device: short of memory, or unusable until the process is started again."""

from __future__ import annotations

import torch

_OUT_OF_MEMORY = (
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "can't allocate memory",  # of a processor
)
_BROKEN = ("CUDA error:", "CUDNN_STATUS_EXECUTION_FAILED", "CUDNN_STATUS_INTERNAL_ERROR")


def out_of_memory(error: BaseException) -> bool:
    """Whether the torch ``error`` is lack of GPU or other memory; allocator, driver, cuBLAS and cuDNN each say it in their own
    way.
    """
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)


def device_broken(error: BaseException) -> bool:
    """Whether a kernel's ``error`` says that the GPU is lost to this process: device-side assertion, illegal address, lost
    device.

    Every further call of this process to the GPU fails after it.
    """
    if not isinstance(error, RuntimeError) or out_of_memory(error):
        return False
    return isinstance(error, torch.AcceleratorError) or any(words in str(error) for words in _BROKEN)
