# SPDX-License-Identifier: Apache-2.0
"""How often each target circumstance is in the source set already, with the uncertainty of counting
(Wozniak et al., task 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from pydantic import BaseModel, ConfigDict

from sticker_uq.evaluation.metrics.statistics import clopper_pearson
from sticker_uq.io.coco import read_picture
from sticker_uq.lab.robustness.estimators import Estimates, estimate
from sticker_uq.lab.robustness.source_set import SourceImage, SourceSet
from sticker_uq.lab.robustness.spec import Circumstance, Specification

MISSING, UNDER, COVERED, OVER, UNKNOWN = (
    "missing",
    "under-represented",
    "covered",
    "over-represented",
    "unknown",
)


class CoverageRow(BaseModel):
    """How often a circumstance is expected (``target``), and how often it was found among ``images``
    of the source set.

    ``found_by``: "tags", the quantity that was measured, or "" when nobody can tell (``count`` is 0 and the frequencies are NaN
    then). ``source``: the frequency, with its Clopper-Pearson interval ``low`` to ``high``. ``status``: missing (not once),
    under- or over-represented (the target frequency lies outside the interval), covered, or unknown.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    circumstance: str
    significance: int
    target: float
    images: int
    count: int
    source: float
    low: float
    high: float
    found_by: str
    status: str


@dataclass(frozen=True)
class Coverage:
    """All circumstances together, as the paper's sheet sums them up (Wozniak et al.,
    figure A1): shares.

    ``missing``: expected but not in the source set; ``misrepresented``: more or less frequent than expected, whatever the reason;
    ``covered``: the rest. ``to_generate``: those less frequent than expected, the most significant first.
    """

    missing: float
    misrepresented: float
    covered: float
    to_generate: tuple[str, ...]


def describe_source(
    spec: Specification,
    source: SourceSet,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[CoverageRow]:
    """The frequency of every circumstance in the source set, in the order of the specification.

    Tags decide where the set has any, for the circumstances that somebody tagged and for those that cannot be measured; what the
    specification says how to measure is measured otherwise. ``progress`` is called with the images seen and their number.
    InvalidInput for a picture that cannot be read.
    """
    tagged = set().union(*(image.tags for image in source.images)) if source.tagged else set()
    measured = [c for c in spec.circumstances if c.measured is not None and c.name not in tagged]
    estimates: list[Estimates] = []
    if measured:
        for done, image in enumerate(source.images):
            progress(done, len(source))
            estimates.append(estimate(read_picture(image.item)))
        progress(len(source), len(source))
    return [_frequency(spec, c, source, tagged, estimates) for c in spec.circumstances]


def coverage(frequencies: Sequence[CoverageRow]) -> Coverage:
    """How well the source images cover the target circumstances: comparison of frequencies, as in the paper. Unknown ones do
    not count.
    """
    known = [f for f in frequencies if f.found_by]
    short = [f for f in known if f.target > f.source]
    wrong = sum(not math.isclose(f.target, f.source, abs_tol=1e-9) for f in known)
    total = len(known)
    return Coverage(
        missing=sum(f.count == 0 and f.target > 0 for f in known) / total if total else math.nan,
        misrepresented=wrong / total if total else math.nan,
        covered=1 - wrong / total if total else math.nan,
        to_generate=tuple(
            f.circumstance for f in sorted(short, key=lambda f: (-f.significance, f.circumstance))
        ),
    )


def _frequency(
    spec: Specification,
    circumstance: Circumstance,
    source: SourceSet,
    tagged: set[str],
    estimates: Sequence[Estimates],
) -> CoverageRow:
    rule = circumstance.measured
    if circumstance.name in tagged or (source.tagged and rule is None):
        found_by, count = "tags", _tagged(circumstance.name, source.images)
    elif rule is not None:
        values = [asdict(one)[rule.quantity] for one in estimates]
        found_by, count = rule.quantity, sum(rule.holds(value) for value in values)
    else:
        found_by, count = "", 0
    images = len(source)
    low, high = clopper_pearson(count, images, spec.confidence) if found_by else (math.nan, math.nan)
    return CoverageRow(
        circumstance=circumstance.name,
        significance=circumstance.significance,
        target=circumstance.frequency,
        images=images,
        count=count,
        source=count / images if found_by else math.nan,
        low=low,
        high=high,
        found_by=found_by,
        status=_status(count, low, high, circumstance.frequency) if found_by else UNKNOWN,
    )


def _tagged(name: str, images: Sequence[SourceImage]) -> int:
    return sum(name in image.tags for image in images)


def _status(count: int, low: float, high: float, target: float) -> str:
    if count == 0 and target > 0:
        return MISSING
    if target > high:
        return UNDER
    return OVER if target < low else COVERED
