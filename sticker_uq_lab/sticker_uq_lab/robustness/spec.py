# SPDX-License-Identifier: Apache-2.0
"""Specification: the system, the circumstances it may meet, how much each may cost, and the metamorphic relation epsilon(d).

One YAML file per system (Wozniak et al., tasks 1 and 2). A circumstance is told from several points of view, has a frequency, a
risk, and the transformation that puts an image into it.
"""

from __future__ import annotations

import math
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from sticker_uq.io.reading import read_yaml
from sticker_uq.io.setting_fields import Finite, Frozen, words
from sticker_uq.scene import InvalidInput

_JUMP = 1e-9  # difference between two pieces where they meet, up to which they count as one line


class Piece(Finite):
    """One line of epsilon(d): ``slope * d + intercept`` up to and with ``up_to`` (None: without end)."""

    up_to: float | None = Field(None, gt=0, description="largest distance of this piece; none for the last")
    slope: float = Field(0.0, description="a of a * d + b")
    intercept: float = Field(0.0, description="b of a * d + b")

    def at(self, distance: float) -> float:
        return self.slope * distance + self.intercept


class Relation(Finite):
    """The metamorphic relation ``|P_source - P_target| <= epsilon(d)`` (Wozniak et al., section 5.8).

    Epsilon is piecewise linear: either ``points`` (d, epsilon) joined by straight lines, the last value held beyond the last
    point, or ``pieces``, as in the paper's spreadsheet. It must be continuous unless ``continuous`` is false: where epsilon
    jumps, a system passes or fails by which side of the jump its distance happens to fall on.
    """

    points: tuple[tuple[float, float], ...] = ()
    """pairs of distance and allowed difference"""
    pieces: tuple[Piece, ...] = Field((), description="lines by the distance up to which they count")
    continuous: bool = Field(True, description="whether jumps are refused")

    @model_validator(mode="after")
    def _is_a_function(self) -> Self:
        if bool(self.points) == bool(self.pieces):
            raise ValueError("give either points or pieces")
        if self.points:
            self._check_points()
        else:
            self._check_pieces()
        return self

    def _check_points(self) -> None:
        if self.points[0][0] != 0:
            raise ValueError(f"the first point must be at distance 0, got {self.points[0][0]}")
        if any(right[0] <= left[0] for left, right in pairwise(self.points)):
            raise ValueError("the distances of the points must increase")
        if any(epsilon < 0 for _, epsilon in self.points):
            raise ValueError("an allowed difference cannot be negative")

    def _check_pieces(self) -> None:
        *before, last = (piece.up_to for piece in self.pieces)
        if last is not None:
            raise ValueError("the last piece must have no up_to, so that every distance has an epsilon")
        ends = [end for end in before if end is not None]
        if len(ends) < len(before) or any(right <= left for left, right in pairwise(ends)):
            raise ValueError("every piece but the last needs an up_to, and they must increase")
        starts = [0.0, *ends]
        for start, piece in zip(starts, self.pieces, strict=True):
            if min(piece.at(start), piece.at(piece.up_to if piece.up_to is not None else start)) < 0:
                raise ValueError("an allowed difference cannot be negative")
        if self.pieces[-1].slope < 0:
            raise ValueError("the last piece must not fall: an allowed difference cannot become negative")
        if self.continuous:
            for end, (left, right) in zip(ends, pairwise(self.pieces), strict=True):
                if abs(left.at(end) - right.at(end)) > _JUMP:
                    raise ValueError(
                        f"epsilon jumps from {left.at(end):g} to {right.at(end):g} at d = {end:g}; "
                        "join the pieces or say continuous: false"
                    )

    def epsilon(self, distance: float) -> float:
        """The difference of performance that is allowed at ``distance`` >= 0; NaN for an unknown distance."""
        if math.isnan(distance):
            return math.nan
        if self.pieces:
            return next(p for p in self.pieces if p.up_to is None or distance <= p.up_to).at(distance)
        distances, allowed = zip(*self.points, strict=True)
        return float(np.interp(distance, distances, allowed))


def continuous_relation(flat: float = 0.02, until: float = 0.25) -> Relation:
    """The published example without its jump: ``flat`` up to d = ``until``, growing as much as d beyond."""
    return Relation(pieces=(Piece(up_to=until, intercept=flat), Piece(slope=1.0, intercept=flat - until)))


LARGEST_SIGNIFICANCE = 125

PERFORMANCE_METRICS = (
    *("precision", "recall", "ap", "ap50", "ap75"),
    *("wrongly_removed", "left_to_person", "missed_called_clean"),
)
"""Performance that a relation can be about, each in [0, 1]; the last three are the gate's: shares of the images."""

DistanceName = Literal["mse", "psnr", "ssim", "cw_ssim", "fid", "euclidean", "cosine", "linkage"]


class Circumstance(Finite):
    """One target circumstance (Wozniak et al., tables 2 to 5)."""

    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    """short name, also its tag in a data set"""
    views: dict[str, str] = Field(min_length=1, description="the circumstance as each point of view says it")
    transformation: str | None = Field(None, description="what puts an image into it; none: only described")
    parameters: dict[str, float | str] = Field({}, description="further parameters of the transformation")
    strength: tuple[float, float] | None = None
    """mild and severe end of the strengths drawn"""
    probability: float | None = Field(None, ge=0, le=1, description="how likely it is (M1)")
    relative_frequency: float | None = Field(None, ge=0, le=1, description="how often it was observed (M2)")
    exclusive_group: str = Field("", description="circumstances of one group never occur together")
    exposure: int = Field(ge=1, le=5, description="how often the system is exposed to it (M3)")
    likelihood: int = Field(ge=1, le=5, description="how likely it then occurs (M4)")
    severity: int = Field(ge=1, le=5, description="how bad a failure of the system in it is (M5)")

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if (self.probability is None) == (self.relative_frequency is None):
            raise ValueError(f"{self.name}: give either probability or relative_frequency")
        if (self.transformation is None) != (self.strength is None):
            raise ValueError(f"{self.name}: transformation and strength belong together")
        return self

    @property
    def frequency(self) -> float:
        known = self.probability if self.probability is not None else self.relative_frequency
        assert known is not None
        return known

    @property
    def significance(self) -> int:
        """Exposure times likelihood times severity, 1..125 (M6)."""
        return self.exposure * self.likelihood * self.severity


class SystemDescription(Frozen):
    name: str = Field(min_length=1)
    description: str = ""


class Specification(Finite):
    """Everything that a system is judged by. ``relations`` maps a performance metric to its relation."""

    system: SystemDescription
    circumstances: tuple[Circumstance, ...] = Field(min_length=1)
    distance: DistanceName = Field("cw_ssim", description="the distance d that epsilon depends on")
    relations: dict[str, Relation] = Field(
        default_factory=lambda: {
            name: continuous_relation() for name in ("precision", "recall", "ap50", "ap75", "ap")
        },
        min_length=1,
    )
    significance_tightening: float = Field(0.0, ge=0, lt=1)
    """share by which the highest significance makes epsilon smaller"""
    combinations: bool = Field(True, description="whether an image may be in several circumstances at once")
    confidence: float = Field(0.95, gt=0.5, lt=1, description="of every interval")
    resamples: int = Field(2000, ge=100, le=100_000, description="of the bootstrap")
    match_iou: float = Field(0.5, gt=0, lt=1, description="IoU from which a detection is an object")
    decision_score: float = Field(0.5, gt=0, lt=1, description="score from which precision and recall count")
    seed: int = Field(0, ge=0, description="of follow-up cases and intervals")

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        names = [circumstance.name for circumstance in self.circumstances]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"circumstances named twice: {', '.join(twice)}")
        unknown = sorted(set(self.relations) - set(PERFORMANCE_METRICS))
        if unknown:
            raise ValueError(
                f"relations for unknown metrics {', '.join(unknown)}; known: {', '.join(PERFORMANCE_METRICS)}"
            )
        for group, members in self.groups().items():
            total = sum(member.frequency for member in members)
            if total > 1 + 1e-9:
                raise ValueError(
                    f"exclusive group {group!r}: its frequencies sum to {total:g}, at most 1 is possible"
                )
        return self

    def groups(self) -> dict[str, tuple[Circumstance, ...]]:
        grouped = sorted(
            (c for c in self.circumstances if c.exclusive_group), key=lambda c: c.exclusive_group
        )
        return {name: tuple(members) for name, members in groupby(grouped, lambda c: c.exclusive_group)}

    def circumstance(self, name: str) -> Circumstance:
        named = {circumstance.name: circumstance for circumstance in self.circumstances}
        if name not in named:
            raise InvalidInput(
                f"circumstance {name!r} is not in the specification; known: {', '.join(named)}"
            )
        return named[name]

    def epsilon(self, metric: str, distance: float, significance: float = 1.0) -> float:
        """Allowed difference of performance ``metric`` at ``distance``, for circumstances of that ``significance`` (1..125).

        The higher the significance, the smaller the variation should be (Wozniak et al., section 5.3): epsilon shrinks linearly
        with it, by ``significance_tightening`` at 125. InvalidInput for a metric without relation.
        """
        if metric not in self.relations:
            raise InvalidInput(
                f"metric {metric!r} has no relation in the specification; expected one of {', '.join(self.relations)}"
            )
        share = (significance - 1) / (LARGEST_SIGNIFICANCE - 1)
        return self.relations[metric].epsilon(distance) * (1 - self.significance_tightening * share)

    @classmethod
    def load(cls, path: str | Path) -> Specification:
        """The specification in a YAML file. InvalidInput names the file and everything wrong in it."""
        values = read_yaml(path, f"specification {path}")
        if not isinstance(values, dict):
            raise InvalidInput(
                f"specification {path}: expected system, circumstances, ...; got {type(values).__name__}"
            )
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            problems = [_sentence(values, problem) for problem in error.errors()]
            raise InvalidInput(f"specification {path}: {'; '.join(problems)}") from None


def _sentence(values: dict[str, Any], problem: Any) -> str:
    """One problem of a file in words; a circumstance is called by its name, not its number."""
    where = list(problem["loc"])
    if len(where) > 1 and where[0] == "circumstances" and isinstance(where[1], int):
        listed = values.get("circumstances")
        entry = listed[where[1]] if isinstance(listed, list) else None
        named = entry.get("name") if isinstance(entry, dict) else None
        where[:2] = [str(named) if named else f"circumstance {where[1] + 1}"]
    text = words(problem, Specification)
    place = ".".join(map(str, where))
    shown = isinstance(problem["input"], str | int | float)
    return f"{place} = {problem['input']!r}: {text}" if place and shown else f"{place}: {text}".lstrip(": ")


PRESETS = ("laptop-cell", "medical-diagnosis")
"""The laptop cell of this repository, and the example of Wozniak et al. (boxes 1, 3, 5, 7) as published."""


def preset_file(name: str) -> Path:
    return Path(__file__).with_name(f"{name.replace('-', '_')}.yaml")


def preset(name: str) -> Specification:
    return Specification.load(preset_file(name))


def laptop_cell() -> Specification:
    return preset("laptop-cell")
