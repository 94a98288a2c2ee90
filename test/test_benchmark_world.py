# SPDX-License-Identifier: Apache-2.0
import numpy as np

from benchmarks.world import CELL, quantiles


def test_rendered_boxes_are_as_large_as_those_of_the_study(one_thread: None) -> None:
    measured = quantiles(range(5_000_000, 5_000_120), (816, 683))
    for kind, sides in CELL.items():
        for side, wanted in sides.items():
            np.testing.assert_allclose(measured[kind][side], wanted, rtol=0.2, err_msg=f"{kind}, {side}")
