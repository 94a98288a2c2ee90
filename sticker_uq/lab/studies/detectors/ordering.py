# SPDX-License-Identifier: Apache-2.0
"""From which detector beats which to tiers, the best models, and Table 3 of the detector study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from sticker_uq.lab.studies.detectors.measures import Profile
from sticker_uq.lab.studies.detectors.significance import Pair

Tiers = tuple[tuple[str, ...], ...]
"""Groups of models that are tied, the best first."""


def tiers(models: Sequence[str], pairs: Iterable[Pair], profile: Profile) -> Tiers:
    """The ``models`` in tiers by "better" of ``pairs``.

    ``paper``: the first tier holds the models that no other beats, the second those that none of the rest beats, and so on;
    models that beat each other in a circle are tied. It does not depend on the order of the models. ``simula_rp``: the published
    single pass of swaps and comparison of neighbours, which does.
    """
    beats = {(p.better, p.second if p.better == p.first else p.first) for p in pairs if p.better}
    return _published(list(models), beats) if profile == "simula_rp" else _layers(models, beats)


def best_everywhere(tops: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The detectors that are in every one of ``tops``, in the order of the first: a cell of Lu et al.'s Table 3; may be empty."""
    if not tops:
        return ()
    return tuple(model for model in tops[0] if all(model in top for top in tops))


def recommended(cells: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The last row of the Table 3: the models best on every data set, or else the set best on most of them."""
    shared = best_everywhere(cells)
    if shared:
        return shared
    counts = Counter(cell for cell in cells if cell)
    return counts.most_common(1)[0][0] if counts else ()


def _layers(models: Sequence[str], beats: set[tuple[str, str]]) -> Tiers:
    index = {model: number for number, model in enumerate(models)}
    reach = np.zeros((len(models), len(models)), bool)
    for winner, loser in beats:
        reach[index[winner], index[loser]] = True
    for middle in range(len(models)):  # Warshall's closure
        reach |= reach[:, [middle]] & reach[[middle], :]
    above = reach & ~reach.T
    left = list(models)
    found = []
    while left:
        tier = tuple(m for m in left if not any(above[index[other], index[m]] for other in left))
        found.append(tier)
        left = [m for m in left if m not in tier]
    return tuple(found)


def _published(order: list[str], beats: set[tuple[str, str]]) -> Tiers:
    for i in range(len(order)):
        for j in range(i + 1, len(order)):
            if (order[i], order[j]) in beats:
                order[i], order[j] = order[j], order[i]
    groups = [[order[0]]]
    for before, model in pairwise(order):
        if (model, before) in beats:
            groups.append([])
        groups[-1].append(model)
    return tuple(tuple(group) for group in reversed(groups))
