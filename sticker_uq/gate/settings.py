# SPDX-License-Identifier: Apache-2.0
"""The gate's settings: counts, ages and time limits, as one validated model."""

import math
from typing import Self

from pydantic import Field, model_validator

from sticker_uq.io.setting_fields import Finite, Share

SECOND = 1_000_000_000
"""Nanoseconds."""
MOST_RELIEF_MM = 3.0
"""What stands out more is no sticker, or its height is in another unit."""


class GateSettings(Finite):
    """Settings of the gate; times in seconds."""

    consecutive_scenes: int = Field(3, ge=1, le=50)
    """Fresh scenes in a row that must agree before anything is concluded (K)"""
    max_scene_age_s: float = Field(2.0, ge=0.05, le=60.0)
    """Age of the newest scene, since its image and since its arrival, that closes, s"""
    max_clock_skew_s: float = Field(0.1, ge=0.0, le=5.0)
    """How far the stamp of an image may lie ahead of this clock, s"""
    lease_s: float = Field(0.5, ge=0.1, le=5.0)
    """A permit that is not renewed ends after this time, s"""
    tick_period_s: float = Field(0.1, ge=0.01, le=1.0)
    """Period at which the gate is re-sent and renewed, s"""
    max_clock_jump_s: float = Field(1.0, ge=0.05, le=60.0)
    """How far the clock may move against steady time between two ticks before it counts as a jump, s"""
    frozen_images: int = Field(3, ge=0, le=100)
    """Images in a row with exactly the same pixels that count as a frozen camera; 0: never (only for a simulated camera without
    noise)"""
    min_image_level: float = Field(10.0, ge=0.0, le=255.0)
    """Mean grey level below which an image is too dark, 0..255; 0: none is"""
    max_image_level: float = Field(245.0, ge=0.0, le=255.0)
    """Mean grey level above which an image is too bright, 0..255; 255: none is"""
    max_dark_share: Share = 0.9
    """Share of dark pixels above which an image is too dark; 1: none is"""
    max_saturated_share: Share = 0.5
    """Share of saturated pixels above which an image is too bright; 1: none is"""
    require_pose: bool = False
    """Whether nothing is removed whose place in the arm's frame is not known"""
    min_relief_mm: float = Field(0.0, ge=0.0, le=MOST_RELIEF_MM)
    """Height above the lid, measured on the topic relief, below which a sticker is asked about, mm; 0: relief is not required"""
    max_relief_age_s: float = Field(5.0, ge=0.05, le=60.0)
    """Age at which a relief counts no more, and how long one is waited for before the operator is asked, s"""
    match_iou: float = Field(0.5, ge=0.1, le=0.95)
    """Overlap (IoU) at which an object of the next scene is the same one"""
    doubt_margin: Share = 0.5
    """Share of a limit by which a permitted object may exceed it for fewer than consecutive_scenes scenes in a row: the noise of
    the passes; 0: not at all"""
    max_intrusion: Share = 0.2
    """Share of the smaller box up to which an object that was not there when the permit was given may overlap the permitted one
    """
    accept_timeout_s: float = Field(2.0, ge=0.1, le=60.0)
    """Time within which the arm must accept a goal, s"""
    removal_timeout_s: float = Field(60.0, ge=1.0, le=600.0, description="Longest duration of one removal, s")
    cancel_timeout_s: float = Field(2.0, ge=0.1, le=30.0)
    """Time within which the arm must end a cancelled goal, else the gate faults, s"""
    verify_timeout_s: float = Field(20.0, ge=0.5, le=600.0)
    """Time within which scenes must agree whether a sticker is gone, s"""
    undecided_timeout_s: float = Field(30.0, ge=0.5, le=3600.0)
    """Time after which a person is asked when the scenes keep disagreeing, s"""
    intervention_timeout_s: float = Field(300.0, ge=1.0, le=86400.0)
    """Time after which an unanswered request is overdue; the gate stays closed, s"""
    max_attempts: int = Field(2, ge=1, le=10)
    """Failed removals at one place before a person is asked"""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.frozen_images == 1:
            raise ValueError("frozen_images = 1 must be 0 or at least 2: one image repeats nothing")
        if self.min_image_level >= self.max_image_level:
            raise ValueError(
                f"min_image_level = {self.min_image_level} must be below max_image_level = {self.max_image_level}"
            )
        if self.lease_s < 2 * self.tick_period_s:
            raise ValueError(
                f"lease_s = {self.lease_s} must be at least twice tick_period_s = {self.tick_period_s}"
            )
        return self

    @property
    def max_silent_ticks(self) -> int:
        """Ticks without a scene after which the newest one is too old even if the clock stands still."""
        return math.ceil(self.max_scene_age_s / self.tick_period_s) + 1


def nanoseconds(seconds: float) -> int:
    return round(seconds * SECOND)
