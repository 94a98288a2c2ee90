# SPDX-License-Identifier: Apache-2.0
"""TF32 is switched on and off for the blocks that ask for it, and for nobody else in the process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch

from sticker_uq.detection.kernels.devices import float32_products

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


def test_products_are_what_is_asked_for_and_as_before_afterwards() -> None:
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
def test_what_other_code_has_chosen_is_restored(choose: Callable[[], None], tf32: bool) -> None:
    choose()
    before = *kinds(), MATMUL.allow_tf32
    with float32_products(tf32, CUDA):
        assert kinds() == (("tf32", "tf32") if tf32 else ("ieee", "ieee"))
        assert MATMUL.allow_tf32 is tf32
    assert (*kinds(), MATMUL.allow_tf32) == before


def test_a_processor_has_nothing_to_switch() -> None:
    with float32_products(True, CPU):
        assert kinds() == ("tf32", "none")


def test_threads_of_one_kind_share_and_the_other_kind_waits() -> None:
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
