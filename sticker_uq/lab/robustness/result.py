# SPDX-License-Identifier: Apache-2.0
"""What a robustness assessment found, as one file that a report can be made from again."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from sticker_uq.io.files import atomic_write
from sticker_uq.io.reading import MOST_JSON, read_text
from sticker_uq.lab.robustness.frequencies import CoverageRow
from sticker_uq.lab.robustness.spec import Specification
from sticker_uq.lab.robustness.verdicts import Finding, RelationCheck
from sticker_uq.scene import InvalidInput

RESULT = "assessment.json"


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class SetResult(_Value):
    """Result of one set of images. ``figures``: performance by name;
    ``distances`` from the source set by name, empty for the source.

    ``kind``: source, target (all circumstances in their proportions), circumstance or sweep; ``strength`` NaN but for a sweep.
    """

    kind: Literal["source", "target", "circumstance", "sweep"]
    circumstance: str
    strength: float
    figures: dict[str, float]
    distances: dict[str, float]


class SweepPoint(_Value):
    """Performance at one strength of a severity sweep: ``value`` in [``low``, ``high``]; ``distance`` d and ``epsilon`` there."""

    strength: float
    distance: float
    epsilon: float
    value: float
    low: float
    high: float


class SweepResult(_Value):
    """One performance metric over the strengths of one circumstance, of a severity sweep.

    ``source``: the metric without the circumstance; ``breaks_at``: the strength from which the change exceeds epsilon, in
    [``breaks_low``, ``breaks_high``]; NaN: at no strength that was tried. ``at_mildest``: it is exceeded at the mildest already.
    """

    circumstance: str
    metric: str
    unit: str
    source: float
    points: tuple[SweepPoint, ...]
    breaks_at: float
    breaks_low: float
    breaks_high: float
    at_mildest: bool


class Assessment(_Value):
    """A whole robustness assessment. ``environment``: versions and settings; ``significance_shares``: of the significance,
    by finding. What an earlier version wrote beside that is not read.
    """

    model_config = ConfigDict(extra="ignore")

    specification: Specification
    system: str
    identity: str
    gated: bool
    sets: tuple[SetResult, ...]
    checks: tuple[RelationCheck, ...]
    sweeps: tuple[SweepResult, ...]
    coverage: tuple[CoverageRow, ...]
    finding: Finding
    significance_shares: dict[Finding, float]
    by_circumstance: dict[str, Finding]
    environment: dict[str, str]

    def set_named(self, kind: str, circumstance: str = "") -> SetResult | None:
        for one in self.sets:
            if one.kind == kind and one.circumstance == circumstance:
                return one
        return None

    def save(self, folder: Path) -> None:
        with atomic_write(folder / RESULT, "w") as stream:
            stream.write(self.model_dump_json(indent=1))

    @classmethod
    def load(cls, folder: Path) -> Assessment:
        """The robustness assessment in ``folder``. InvalidInput when there is none, or one that this version cannot read."""
        path = folder / RESULT
        if not path.exists():
            raise InvalidInput(f"{folder}: no assessment in it ({RESULT} is missing)")
        try:
            return cls.model_validate_json(read_text(path, MOST_JSON))
        except ValidationError as error:
            raise InvalidInput(
                f"{path}: not an assessment of this version ({error.error_count()} problems)"
            ) from None
