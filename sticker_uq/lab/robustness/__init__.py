# SPDX-License-Identifier: Apache-2.0
"""Robustness assessment of a system (S004, Wozniak et al.): specification of circumstances, follow-up images, distances,
metamorphic relation, verdict.

A :class:`Specification` describes the target circumstances and their significance (tasks 1 and 2). :mod:`frequencies` counts
which of them the source images show (task 3). :mod:`followups` makes follow-up images (task 4, :class:`FollowUpCase`).
:mod:`assessment` assesses a system on source and follow-up images (tasks 5 to 7). :func:`laptop_cell` returns the specification
to start from.
"""

from sticker_uq.lab.robustness.followups import Application, FollowUpCase
from sticker_uq.lab.robustness.spec import (
    PERFORMANCE_METRICS,
    Circumstance,
    Piece,
    Relation,
    Specification,
    continuous_relation,
    laptop_cell,
)

__all__ = [
    "PERFORMANCE_METRICS",
    "Application",
    "Circumstance",
    "FollowUpCase",
    "Piece",
    "Relation",
    "Specification",
    "continuous_relation",
    "laptop_cell",
]
