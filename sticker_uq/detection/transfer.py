# SPDX-License-Identifier: Apache-2.0
"""Between a processor and a GPU with as few waits as possible: each of them lasts until the GPU has computed all it was given."""

import torch
from torch import Tensor


def to_device(host: Tensor, device: torch.device) -> Tensor:
    """``host``, which lies on the processor, in the memory of ``device``, without waiting for it."""
    if device.type != "cuda" or not host.numel():
        return host.to(device)
    # only out of pinned memory, which torch keeps until the copy is made
    return host.pin_memory().to(device, non_blocking=True)


def to_host(*tensors: Tensor) -> tuple[Tensor, ...]:
    """``tensors`` of one device in the processor's memory, by a single transfer, with which everything is waited for at once.

    On a processor they are returned as they are; from a device they come as float32, whole numbers exact up to 2^24.
    """
    if tensors[0].device.type == "cpu":
        return tensors
    joined = torch.cat([t.detach().to(torch.float32).flatten() for t in tensors]).cpu()
    parts = joined.split([t.numel() for t in tensors])
    return tuple(part.view(t.shape) for part, t in zip(parts, tensors, strict=True))
