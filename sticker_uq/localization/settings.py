"""What distinctive localization can be asked for."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Technique = Literal["gradcam", "gradcam++"]


class LocalizationSettings(BaseModel):
    """Settings of distinctive localization. A bad value raises pydantic's ``ValidationError``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    technique: Technique = Field(
        "gradcam", description="saliency technique; gradcam++ is more sensitive to small objects"
    )
    decision_threshold: float = Field(
        0.5,
        ge=0.01,
        le=0.99,
        description="score from which a detection without dropout counts as predicted (FDT)",
    )
    alpha: float = Field(
        0.2,
        ge=0.0,
        le=1.0,
        description="how far a DiL of 1 lowers the dynamic decision threshold (degradation factor)",
    )
