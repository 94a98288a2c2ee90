# SPDX-License-Identifier: Apache-2.0
"""How many threads a detector's small network computes with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
