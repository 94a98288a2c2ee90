# SPDX-License-Identifier: Apache-2.0
"""Detections of stochastic passes made by hand: known objects, known noise, no detector."""

from collections.abc import Iterable, Sequence

import numpy as np

from sticker_uq.scene import StochasticSamples

STICKER = (0.05, 0.05, 0.9)
LOGO = (0.05, 0.9, 0.05)

Row = tuple[int, Sequence[float], Sequence[float]]


def samples(rows: Iterable[Row], passes: int) -> StochasticSamples:
    listed = list(rows)
    return StochasticSamples(
        boxes=np.array([box for _, box, _ in listed], np.float32).reshape(-1, 4),
        probabilities=np.array([vector for _, _, vector in listed], np.float32).reshape(-1, 3),
        pass_index=np.array([number for number, _, _ in listed], np.int64),
        passes=passes,
    )


def seen(
    box: Sequence[float],
    passes: Iterable[int],
    noise: float = 0.0,
    seed: int = 0,
    probabilities: Sequence[float] = STICKER,
) -> list[Row]:
    """``box`` as each of the ``passes`` sees it: the corners move by ``noise`` px (standard deviation)."""
    random = np.random.default_rng(seed)
    return [(t, (np.array(box) + noise * random.standard_normal(4)).tolist(), probabilities) for t in passes]
