# SPDX-License-Identifier: Apache-2.0
import pytest

from benchmarks.imports import cost, table


def test_a_new_process_is_measured_with_what_it_computes_and_keeps() -> None:
    small = cost("pass")
    large = cost("kept = b'x' * 100_000_000; sum(range(10_000_000))")
    assert large[0] > small[0]
    assert large[1] > small[1] + 90


def test_a_program_that_fails_has_no_cost() -> None:
    with pytest.raises(RuntimeError, match="status 3"):
        cost("raise SystemExit(3)")


def test_the_ratio_is_to_torchvision_by_itself() -> None:
    rows = [{"imports": name, "seconds": s, "mb": 1.0} for name, s in (("torchvision", 4.0), ("other", 1.0))]
    assert table(rows).endswith("| other | 1.00 | 0.25 | 1 |")
