# SPDX-License-Identifier: Apache-2.0
"""Errors of torch that mean too little memory or a GPU that is lost, and how a GPU multiplies float32."""

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from sticker_uq.detection.dropout import CounterDropout
from sticker_uq.detection.features import Features
from sticker_uq.detection.kernels.devices import device_broken, float32_products, out_of_memory
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
def test_errors_are_told_apart(error):
    assert out_of_memory(error) is (error in SHORT)
    assert device_broken(error) is (error in BROKEN)


@pytest.mark.parametrize("error", [SHORT[0], MemoryError()], ids=repr)
def test_memory_is_given_back_when_nothing_holds_it_any_more(error, monkeypatch):
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


def test_other_errors_are_not_taken_for_lack_of_memory(monkeypatch):
    detector = tiny_detector("ssdlite320_mobilenet_v3_large", passes=4)

    def broken(*_: Any) -> Rows:
        raise BROKEN[0]

    features = detector.encode(picture())
    monkeypatch.setattr(detector, "_pass_rows", broken)
    with pytest.raises(torch.AcceleratorError, match="device-side assert"):
        detector.sample(features, passes=4, seed=1)
    assert detector.chunk == 20


CUDA, CPU = torch.device("cuda"), torch.device("cpu")
CONVOLUTIONS, MATMUL = torch.backends.cudnn.conv, torch.backends.cuda.matmul


def kinds() -> tuple[str, str]:
    return CONVOLUTIONS.fp32_precision, MATMUL.fp32_precision


@pytest.fixture(autouse=True)
def switches() -> Iterator[None]:
    before = kinds()
    assert before == ("tf32", "none"), "torch's own defaults"
    yield
    torch.set_float32_matmul_precision("highest")
    CONVOLUTIONS.fp32_precision, MATMUL.fp32_precision = before


def test_products_are_what_is_asked_for_and_as_before_afterwards():
    with float32_products(False, CUDA):
        assert kinds() == ("ieee", "ieee")
        with float32_products(False, CUDA):
            assert kinds() == ("ieee", "ieee")
        assert kinds() == ("ieee", "ieee")
        with pytest.raises(RuntimeError, match="tf32 inside a block in ieee"), float32_products(True, CUDA):
            pass
    assert kinds() == ("tf32", "none")
    with float32_products(True, CUDA):
        assert kinds() == ("tf32", "tf32")
        assert MATMUL.allow_tf32  # torch compares both of its switches before some products
    with pytest.raises(ZeroDivisionError), float32_products(True, CUDA):
        _ = 1 / 0
    assert kinds() == ("tf32", "none")


@pytest.mark.parametrize(
    "choose",
    [
        lambda: torch.set_float32_matmul_precision("high"),
        lambda: setattr(MATMUL, "allow_tf32", True),
        lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
        lambda: setattr(CONVOLUTIONS, "fp32_precision", "ieee"),
    ],
)
@pytest.mark.parametrize("tf32", [False, True])
def test_what_other_code_has_chosen_is_restored(choose, tf32):
    choose()
    before = *kinds(), MATMUL.allow_tf32
    with float32_products(tf32, CUDA):
        assert kinds() == (("tf32", "tf32") if tf32 else ("ieee", "ieee"))
        assert MATMUL.allow_tf32 is tf32
    assert (*kinds(), MATMUL.allow_tf32) == before


def test_a_processor_has_nothing_to_switch():
    with float32_products(True, CPU):
        assert kinds() == ("tf32", "none")


def test_threads_of_one_kind_share_and_the_other_kind_waits():
    entered, leave, joined, other = (threading.Event() for _ in range(4))
    seen: list[tuple[str, str]] = []

    def first() -> None:
        with float32_products(False, CUDA):
            entered.set()
            assert leave.wait(60)

    def same() -> None:
        with float32_products(False, CUDA):
            joined.set()

    def different() -> None:
        with float32_products(True, CUDA):
            seen.append(kinds())
            other.set()

    threads = [threading.Thread(target=work) for work in (first, same, different)]
    threads[0].start()
    assert entered.wait(60)
    threads[1].start()
    assert joined.wait(60), "two of one kind do not wait for each other"
    threads[2].start()
    assert kinds() == ("ieee", "ieee")
    assert not other.is_set()
    leave.set()
    assert other.wait(60)
    for thread in threads:
        thread.join(60)
    assert seen == [("tf32", "tf32")]
    assert kinds() == ("tf32", "none")
