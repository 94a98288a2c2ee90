"""The specification that an assessment of the laptop cell starts from; a cell's own people then correct it."""

from __future__ import annotations

from pathlib import Path

from sticker_uq.lab.robustness.spec import Specification


def laptop_cell() -> Specification:
    """The laptop cell of this repository, from ``laptop_cell.yaml`` beside this module."""
    return Specification.load(Path(__file__).with_name("laptop_cell.yaml"))
