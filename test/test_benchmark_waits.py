# SPDX-License-Identifier: Apache-2.0
"""How the benchmark counts the waits for a GPU, with what torch would say made up."""

from __future__ import annotations

import warnings

import pytest
import torch

from benchmarks.mc_dropout import waits


def test_only_what_torch_says_of_waiting_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[object] = [0]
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: modes[-1])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

    def work() -> None:
        assert modes[-1] == "warn"
        for _ in range(3):  # from one and the same line, too
            warnings.warn("called a synchronizing CUDA operation", UserWarning, stacklevel=1)
        warnings.warn("something else", UserWarning, stacklevel=1)

    assert waits(work) == 3
    assert waits(lambda: None) == 0
    assert modes == [0, "warn", 0, "warn", 0]
    with pytest.raises(ZeroDivisionError):
        waits(lambda: 1 / 0)
    assert modes[-1] == 0
