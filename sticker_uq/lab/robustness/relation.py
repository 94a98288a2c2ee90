# SPDX-License-Identifier: Apache-2.0
"""The metamorphic relation: how much performance may change with the distance: epsilon(d)."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

_JUMP = 1e-9
"""Difference between two pieces where they meet, up to which they count as one line."""


class Piece(BaseModel):
    """One line of epsilon(d), the metamorphic relation: ``slope * d + intercept`` up to and with ``up_to`` (None:
    without end).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    up_to: float | None = Field(None, gt=0, description="largest distance of this piece; none for the last")
    slope: float = Field(0.0, description="a of a * d + b")
    intercept: float = Field(0.0, description="b of a * d + b")

    def at(self, distance: float) -> float:
        """The allowed difference of performance on this line of the metamorphic relation."""
        return self.slope * distance + self.intercept


class Relation(BaseModel):
    """The metamorphic relation ``|P_source - P_target| <= epsilon(d)`` (Wozniak et al., section 5.8).

    Epsilon is piecewise linear: either ``points`` (d, epsilon) joined by straight lines, the last value held beyond the last
    point, or ``pieces``, as in the paper's spreadsheet. It must be continuous unless ``continuous`` is false: where epsilon
    jumps, a system passes or fails by which side of the jump its distance happens to fall on.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    points: tuple[tuple[float, float], ...] = Field(
        (), description="pairs of distance and allowed difference"
    )
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
        """The difference of performance that the metamorphic relation allows at ``distance`` >= 0.
        NaN for an unknown distance.
        """
        if math.isnan(distance):
            return math.nan
        if self.pieces:
            return next(p for p in self.pieces if p.up_to is None or distance <= p.up_to).at(distance)
        before = self.points[0]
        for point in self.points:
            if distance <= point[0]:
                span = point[0] - before[0]
                share = (distance - before[0]) / span if span else 1.0
                return before[1] + share * (point[1] - before[1])
            before = point
        return before[1]


def continuous_relation(flat: float = 0.02, until: float = 0.25) -> Relation:
    """The metamorphic relation published as example, without its jump: ``flat`` up to d = ``until``,
    growing as much as d beyond.
    """
    return Relation(pieces=(Piece(up_to=until, intercept=flat), Piece(slope=1.0, intercept=flat - until)))
