# SPDX-License-Identifier: Apache-2.0
"""Settings of the white-box attack, which load no torch."""

from typing import Literal

from pydantic import Field

from sticker_uq.io.setting_fields import Frozen

Mode = Literal["swap", "vanish", "random"]


class DagSettings(Frozen):
    """An invalid value raises pydantic's ``ValidationError``."""

    method: Literal["dag"] = "dag"
    mode: Mode = "swap"
    """target class: swap (logo for sticker and sticker for logo), vanish (background), random (for each object one of these
    two)"""
    iterations: int = Field(150, ge=1, le=10_000, description="highest number of iterations per picture")
    gamma: float = Field(0.5, gt=0.0, le=16.0)
    """highest change of a pixel in one iteration, grey levels"""
    confidence: float = Field(0.0, ge=0.0, lt=1.0)
    """a target is attacked until its new class has this probability; 0: until its old class is no longer the most probable"""
    start: float = Field(1.0, ge=0.0, le=16.0)
    """highest random change of each pixel at the start, grey levels"""

    def __str__(self) -> str:
        until = f", until the new class has {self.confidence:g}" if self.confidence else ""
        return (
            f"Dense Adversary Generation, DAG; mode {self.mode}, at most {self.gamma:g} grey levels per iteration, at most "
            f"{self.iterations} iterations{until}"
        )
