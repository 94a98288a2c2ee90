# SPDX-License-Identifier: Apache-2.0
"""Groups of pictures of one laptop, and a split that keeps each group in one part."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import compress

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from sticker_uq.scene import InvalidInput
from sticker_uq_lab.datasets.frames import LIKE

CALIBRATE = "calibrate"
PARTS = ("learn", CALIBRATE, "test")


def names_by_pattern(names: Sequence[str], pattern: str) -> list[str]:
    """The laptop of each picture: what ``pattern`` finds in its name, its first group if it has one.

    Raises InvalidInput for a pattern that is none, and naming pictures in which it finds nothing.
    """
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidInput(f"--group {pattern!r}: not a regular expression ({error})") from None
    found = [compiled.search(name) for name in names]
    keys = [(match[1] if compiled.groups else match[0]) if match else "" for match in found]
    missing = [name for name, key in zip(names, keys, strict=True) if not key]
    if missing:
        raise InvalidInput(
            f"--group {pattern!r}: finds nothing in {len(missing)} of {len(names)} names, first {missing[0]!r}; expected a "
            "laptop in each"
        )
    return [str(key) for key in keys]


def laptops_of(
    names: Sequence[str], alike: Iterable[tuple[int, int]], titles: Sequence[str]
) -> tuple[list[int], list[str]]:
    """The group of each picture, as its lowest number, and its laptop, "" for one that is alone and has no name.

    Pictures of a group have a name in common or are a pair of ``alike``; one without a name is like its first of ``titles``.
    """
    if not names:
        return [], []
    start: dict[str, int] = {}
    pairs = [*alike, *((start.setdefault(name, index), index) for index, name in enumerate(names) if name)]
    first, second = np.array(pairs, int).reshape(-1, 2).T
    graph = coo_array((np.ones(len(first)), (first, second)), shape=(len(names), len(names)))
    components = connected_components(graph, directed=False)[1]
    groups = np.unique(components, return_index=True)[1][components].tolist()
    named = {group: name for group, name in zip(groups[::-1], names[::-1], strict=True) if name}
    sizes = Counter(groups)
    return groups, [named.get(g, f"{LIKE}{titles[g]}" if sizes[g] > 1 else "") for g in groups]


def shares_of(text: str) -> tuple[float, ...]:
    """The shares of learn, calibrate and test in a text such as "0.7,0.15,0.15"; InvalidInput unless they sum to 1."""
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError:
        shares = ()
    if len(shares) != len(PARTS) or not all(0 <= s <= 1 for s in shares) or abs(sum(shares) - 1) > 1e-6:
        raise InvalidInput(
            f"--split {text!r}: expected the shares of {', '.join(PARTS)}, which sum to 1, for example 0.7,0.15,0.15"
        )
    return shares


def split_groups(
    groups: Sequence[int], shares: Sequence[float], seed: int, clean: Sequence[bool] | None = None
) -> list[int]:
    """The part of each picture, an index into ``shares``; all pictures of one of the ``groups`` (N,) are in the same part.

    Groups come in an order drawn from ``seed``, larger ones first, each into the part that lacks most pictures. Groups with a
    picture that is ``clean`` (N,) are divided first, by the same shares: calibration needs some of them. Raises InvalidInput when
    a part with a share stays empty.
    """
    sizes = Counter(groups)
    order = np.random.default_rng(seed).permutation(sorted(sizes)).tolist()
    order.sort(key=lambda group: -sizes[group])
    with_clean = set(compress(groups, clean or ()))
    used = [number for number, share in enumerate(shares) if share > 0]
    missing = [0.0] * len(shares)
    part_of: dict[int, int] = {}
    for stratum in (with_clean, set(sizes) - with_clean):
        total = sum(sizes[group] for group in stratum)
        missing = [lacking + share * total for lacking, share in zip(missing, shares, strict=True)]
        for group in order:
            if group in stratum:
                part_of[group] = max(used, key=lambda number: missing[number])
                missing[part_of[group]] -= sizes[group]
    empty = [PARTS[p] for p in range(len(shares)) if shares[p] > 0 and p not in part_of.values()]
    if empty:
        raise InvalidInput(
            f"{len(groups)} pictures of {len(sizes)} laptops: nothing is left for {' and '.join(empty)}; give more laptops, "
            "other shares, or a lower --near or --consecutive"
        )
    return [part_of[group] for group in groups]
