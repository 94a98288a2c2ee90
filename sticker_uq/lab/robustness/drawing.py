# SPDX-License-Identifier: Apache-2.0
"""Which follow-up cases a robustness assessment has: images and circumstances drawn in the target proportions
(Wozniak et al., task 4).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sticker_uq.lab.corruptions import transformation_named
from sticker_uq.lab.robustness.cases import Application
from sticker_uq.lab.robustness.spec import Circumstance, Specification
from sticker_uq.scene import InvalidInput


@dataclass(frozen=True)
class Draft:
    """One follow-up case to be made: number of the source image, and what is done to it, in order."""

    image: int
    applied: tuple[Application, ...]


@dataclass(frozen=True)
class DraftSet:
    """Drafts of one set of follow-up cases; the fields are those of :class:`~sticker_uq.lab.robustness.cases.CaseSet`."""

    kind: Literal["target", "circumstance", "sweep"]
    circumstance: str
    strength: float
    drafts: tuple[Draft, ...]


def check_transformations(spec: Specification) -> None:
    """InvalidInput for a circumstance whose transformation, strength or parameter does not exist."""
    for circumstance in spec.circumstances:
        if circumstance.transformation is None or circumstance.strength is None:
            continue
        known = transformation_named(circumstance.transformation)
        for strength in (*circumstance.strength, *circumstance.sweep):
            try:
                known.check(strength, circumstance.parameters)
            except InvalidInput as error:
                raise InvalidInput(f"circumstance {circumstance.name}: {error}") from None


def with_transformation(spec: Specification) -> tuple[Circumstance, ...]:
    """The circumstances that a transformation can put an image into, the most significant first."""
    able = (c for c in spec.circumstances if c.transformation is not None)
    return tuple(sorted(able, key=lambda c: (-c.significance, c.name)))


def target_set(spec: Specification, images: int, count: int) -> DraftSet:
    """`count` follow-up cases in the target proportions, over `images` source images that are used equally often.

    Circumstances of one exclusive group never meet in one case; all others are independent of each other, so cases with several
    circumstances arise as often as they should, unless the specification forbids combinations. Shares are met as nearly as whole
    cases allow, given that a case is in at least one circumstance (Wozniak et al., section 5.5). InvalidInput when nothing can be
    drawn.
    """
    able = [c for c in with_transformation(spec) if c.frequency > 0]
    if not able or count < 1 or images < 1:
        raise InvalidInput(
            f"{count} follow-up cases of {images} images in {len(able)} circumstances with a transformation and a frequency; "
            "expected at least one of each"
        )
    rng = np.random.default_rng(_seed(spec.seed, "target"))
    chosen = _combined(spec, able, count, rng) if spec.combinations else _one_each(able, count, rng)
    order = np.concatenate([rng.permutation(images) for _ in range(math.ceil(count / images))])[:count]
    drafts = [
        Draft(int(image), tuple(_application(spec, c, int(image), f"target {number}") for c in several))
        for number, (image, several) in enumerate(zip(order, chosen, strict=True))
    ]
    return DraftSet("target", "", math.nan, tuple(drafts))


def circumstance_set(spec: Specification, circumstance: Circumstance, images: Sequence[int]) -> DraftSet:
    """Each of `images` (numbers) in `circumstance`, at strengths spread evenly over its range."""
    drafts = tuple(
        Draft(image, (_application(spec, circumstance, image, circumstance.name),)) for image in images
    )
    return DraftSet("circumstance", circumstance.name, math.nan, drafts)


def sweep_sets(
    spec: Specification, circumstance: Circumstance, images: Sequence[int]
) -> tuple[DraftSet, ...]:
    """Follow-up images of a circumstance's severity sweep at each strength; place, direction and noise of an image stay the
    same.
    """
    return tuple(
        DraftSet(
            "sweep",
            circumstance.name,
            strength,
            tuple(
                Draft(image, (_application(spec, circumstance, image, circumstance.name, strength),))
                for image in images
            ),
        )
        for strength in sweep_strengths(circumstance)
    )


def sweep_strengths(circumstance: Circumstance) -> tuple[float, ...]:
    """The strengths of a circumstance's severity sweep, mildest first: of the specification, else the transformation's ladder."""
    if circumstance.sweep or circumstance.transformation is None:
        return circumstance.sweep
    return transformation_named(circumstance.transformation).ladder


def _application(
    spec: Specification, circumstance: Circumstance, image: int, role: str, strength: float | None = None
) -> Application:
    assert circumstance.transformation is not None
    assert circumstance.strength is not None
    seed = _seed(spec.seed, circumstance.name, image, role)
    if strength is None:
        mild, severe = circumstance.strength
        strength = mild + (severe - mild) * float(np.random.default_rng(seed).random())
    return Application(
        circumstance.name,
        circumstance.transformation,
        float(f"{strength:.4g}"),
        seed,
        tuple(sorted(circumstance.parameters.items())),
    )


def _seed(*parts: object) -> int:
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")


def _combined(
    spec: Specification, able: Sequence[Circumstance], count: int, rng: np.random.Generator
) -> list[tuple[Circumstance, ...]]:
    """`count` combinations: each group deals its circumstances to trials of its own, and empty trials fall out."""
    groups: dict[str, list[Circumstance]] = {}
    for circumstance in able:
        groups.setdefault(circumstance.exclusive_group or f"/{circumstance.name}", []).append(circumstance)
    nothing = math.prod(1 - min(1.0, sum(c.frequency for c in group)) for group in groups.values())
    trials = math.ceil(count / (1 - nothing))
    while True:
        dealt: list[list[Circumstance]] = [[] for _ in range(trials)]
        for group in groups.values():
            shares = [c.frequency for c in group]
            places = rng.permutation(trials)
            quotas = _quotas([*shares, max(0.0, 1 - sum(shares))], trials)
            start = 0
            for circumstance, quota in zip(group, quotas, strict=False):
                for place in places[start : start + quota]:
                    dealt[place].append(circumstance)
                start += quota
        filled = [_in_order(several) for several in dealt if several]
        if len(filled) >= count:
            return filled[:count]
        trials += max(1, count - len(filled))


def _one_each(
    able: Sequence[Circumstance], count: int, rng: np.random.Generator
) -> list[tuple[Circumstance, ...]]:
    total = sum(c.frequency for c in able)
    quotas = _quotas([c.frequency / total for c in able], count)
    dealt = [(c,) for c, quota in zip(able, quotas, strict=True) for _ in range(quota)]
    return [dealt[place] for place in rng.permutation(count)]


def _quotas(shares: Sequence[float], total: int) -> list[int]:
    """Whole numbers in the proportions of `shares` (which sum to 1) that sum to `total`: largest remainders."""
    exact = np.asarray(shares) * total
    whole = np.floor(exact + 1e-9).astype(int)
    for index in np.argsort(whole - exact, kind="stable")[: total - int(whole.sum())]:
        whole[index] += 1
    return whole.tolist()


def _in_order(several: Sequence[Circumstance]) -> tuple[Circumstance, ...]:
    """As light meets them: first the workpiece, last the file."""
    return tuple(sorted(several, key=lambda c: (transformation_named(str(c.transformation)).stage, c.name)))
