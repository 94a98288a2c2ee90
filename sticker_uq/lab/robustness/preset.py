# SPDX-License-Identifier: Apache-2.0
"""The specifications that come with the package; the people of a cell correct a copy of one."""

from __future__ import annotations

from pathlib import Path

from sticker_uq.lab.robustness.spec import Specification

PRESETS = ("laptop-cell", "medical-diagnosis")
"""The laptop cell of this repository, and the example of Wozniak et al. (boxes 1, 3, 5, 7) as published."""


def preset(name: str) -> Specification:
    """The packaged specification called ``name``, one of PRESETS."""
    return Specification.load(Path(__file__).with_name(f"{name.replace('-', '_')}.yaml"))


def laptop_cell() -> Specification:
    return preset("laptop-cell")
