# SPDX-License-Identifier: Apache-2.0
"""Which errors of torch mean too little memory, and which that the process can use the GPU no more."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

from sticker_uq.detection.dropout import CounterDropout
from sticker_uq.detection.features import Features
from sticker_uq.detection.kernels.devices import device_broken, out_of_memory
from sticker_uq.detection.selection import NonFiniteOutput, Rows
from test.helpers.models import picture, tiny_detector

SHORT = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    torch.AcceleratorError("CUDA error: out of memory"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory"),
    MemoryError(),
]
BROKEN = [
    torch.AcceleratorError("CUDA error: device-side assert triggered"),
    torch.AcceleratorError("an illegal memory access was encountered"),
    RuntimeError("CUDA error: device-side assert triggered"),
    RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
]
OTHERS = [RuntimeError("expected all tensors to be on the same device"), NonFiniteOutput("NaN"), ValueError()]


@pytest.mark.parametrize("error", [*SHORT, *BROKEN, *OTHERS], ids=repr)
def test_errors_are_told_apart(error: Exception) -> None:
    assert out_of_memory(error) is (error in SHORT)
    assert device_broken(error) is (error in BROKEN)


@pytest.mark.parametrize("error", SHORT, ids=repr)
def test_memory_is_given_back_when_nothing_holds_it_any_more(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error keeps the frames that it came through, and they keep their tensors: giving back before frees nothing."""
    plain = tiny_detector("ssdlite320_mobilenet_v3_large", passes=4)
    detector = plain.with_settings(plain.settings)
    detector.chunk = 4
    features = detector.encode(picture())
    compute, held, freed = detector._pass_rows, [], []

    def limited(features: Features, dropout: CounterDropout) -> Rows:
        if len(dropout._numbers) > 2:
            large = torch.zeros(8)
            held.append(weakref.ref(large))
            raise type(error)(*error.args)
        return compute(features, dropout)

    def freeing() -> None:
        freed.append([reference() for reference in held])

    monkeypatch.setattr(detector, "_pass_rows", limited)
    monkeypatch.setattr(detector, "free_memory", freeing)
    gc.disable()  # the tensors have to be gone at once, not when rings of objects are looked for
    try:
        found = detector.sample(features, passes=4, seed=1)
    finally:
        gc.enable()
    assert freed == [[None]]
    assert found.passes == 4
    assert detector.chunk == 2


def test_other_errors_are_not_taken_for_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = tiny_detector("ssdlite320_mobilenet_v3_large", passes=4)

    def broken(*_: Any) -> Rows:
        raise BROKEN[0]

    features = detector.encode(picture())
    monkeypatch.setattr(detector, "_pass_rows", broken)
    with pytest.raises(torch.AcceleratorError, match="device-side assert"):
        detector.sample(features, passes=4, seed=1)
    assert detector.chunk == 20
