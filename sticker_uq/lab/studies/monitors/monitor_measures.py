# SPDX-License-Identifier: Apache-2.0
"""The figures of Weiss et al. 2022: how ambiguous pictures are to a classifier, what a threshold on their scores lets through."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sticker_uq.scene import FloatArray, IntArray
from sticker_uq.uncertainty.metrics import entropy


@dataclass(frozen=True)
class Ambiguity:
    """One row of Weiss et al.'s Table I: shares 0..1, ``entropy`` in bits; ``top_pair`` NaN where there is one class."""

    top_1: float
    top_2: float
    top_pair: float
    entropy: float


def nominal_row(vectors: FloatArray, labels: IntArray) -> Ambiguity:
    """Row of Weiss et al.'s Table I for class vectors (N, K) of crops of one class ``labels`` (N,) each."""
    ranked = np.argsort(-vectors, axis=1, kind="stable")
    hit = ranked[:, :2] == labels[:, None]
    return Ambiguity(
        float(hit[:, 0].mean()), float(hit.any(axis=1).mean()), float("nan"), float(entropy(vectors).mean())
    )


def ambiguous_row(vectors: FloatArray, pairs: IntArray, probabilities: FloatArray) -> Ambiguity:
    """Row of Weiss et al.'s Table I for class vectors (N, K) of crops of ``pairs`` (N, 2) with
    ``probabilities`` (N, 2).

    The right class of Top-1 and Top-2 is the more probable one; Top-Pair: the two surest classes are the two.
    """
    right = pairs[np.arange(len(pairs)), probabilities.argmax(axis=1)]
    row = nominal_row(vectors, right)
    surest = np.sort(np.argsort(-vectors, axis=1, kind="stable")[:, :2], axis=1)
    both = (surest == np.sort(pairs, axis=1)).all(axis=1)
    return Ambiguity(row.top_1, row.top_2, float(both.mean()), row.entropy)


def threshold_at(usual: FloatArray, alarms: float) -> float:
    """The score above which at most a share ``alarms`` of the ``usual`` crops or objects (N,) lies."""
    ordered = np.sort(np.where(np.isnan(usual), np.inf, usual))
    return float(ordered[max(0, int(np.ceil((1 - alarms) * len(ordered))) - 1)])


def missed_share(wrong: NDArray[np.bool_], scores: FloatArray, threshold: float) -> tuple[int, int]:
    """How many of the ``wrong`` objects a monitor's ``threshold`` misses, and how many wrong ones there are."""
    caught = np.where(np.isnan(scores), np.inf, scores) > threshold
    return int((wrong & ~caught).sum()), int(wrong.sum())
