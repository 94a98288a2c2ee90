"""The specifications that come with the package; the people of a cell then correct a copy of one."""

from __future__ import annotations

from pathlib import Path

from sticker_uq.lab.robustness.spec import Specification

PRESETS = ("laptop-cell", "medical-diagnosis")
"""The laptop cell of this repository, and the example of Wozniak et al. (boxes 1, 3, 5, 7) as published."""


def preset(name: str) -> Specification:
    """The specification of PRESETS called ``name``."""
    return Specification.load(Path(__file__).with_name(f"{name.replace('-', '_')}.yaml"))


def laptop_cell() -> Specification:
    """The laptop cell of this repository."""
    return preset("laptop-cell")
