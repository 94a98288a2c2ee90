# SPDX-License-Identifier: Apache-2.0
"""One training step, computed by several threads on a processor.

The threads of torch's operators synchronise hundreds of times per step, which is slow on two cores and much slower under other
load. Replicas that share the parameters, each with a part of the batch and one thread, synchronise once per step.
"""

import copy
import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

Loss = Callable[[Any, Any], Tensor]
"""Mean loss of a replica of the model on a part of the batch."""

_MALLOPT = {-8: 1, -4: 0, -1: 2**31 - 1, -2: 2**28}
"""malloc.h's M_ARENA_MAX, M_MMAP_MAX, M_TRIM_THRESHOLD and M_TOP_PAD."""


class Replicas:
    """``model`` and ``count`` - 1 more with its parameters but own gradients and batch statistics; those of ``model`` stay."""

    def __init__(self, model: nn.Module, count: int) -> None:
        self.models = [model]
        for _ in range(count - 1):
            twin = copy.deepcopy(model)
            for own, shared in zip(twin.parameters(), model.parameters(), strict=True):
                own.data = shared.data
            self.models.append(twin)
        self._pool = ThreadPoolExecutor(count) if count > 1 else None

    def gradients(self, parts: Sequence[Any], loss: Loss) -> float:
        """Set the model's gradients to the mean over ``parts`` (at most one per replica); returns the mean loss."""

        def work(model: nn.Module, part: Any) -> float:
            model.zero_grad(set_to_none=True)
            value = loss(model, part)
            value.backward()
            return value.item()

        used = self.models[: len(parts)]
        losses = list((self._pool.map if self._pool else map)(work, used, parts))
        if len(used) > 1:
            grads = [[p.grad for p in m.parameters() if p.grad is not None] for m in used]
            for others in grads[1:]:
                torch._foreach_add_(grads[0], others)
            torch._foreach_div_(grads[0], len(used))
        return sum(losses) / len(losses)

    def close(self) -> None:
        if self._pool:
            self._pool.shutdown()


def keep_freed_memory() -> None:
    """Tell glibc to keep freed memory for the next batch; returning it to the system triples the time of a step."""
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another C library: slower only
        return
    for option, value in _MALLOPT.items():
        mallopt(option, value)
