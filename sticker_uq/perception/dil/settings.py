# SPDX-License-Identifier: Apache-2.0
"""What distinctive localization can be asked for."""

from typing import Literal

from pydantic import Field

from sticker_uq.io.setting_fields import Frozen, Share

Technique = Literal["layercam", "gradcam", "gradcam++", "eigencam"]
ThresholdRule = Literal["fixed", "paper", "regional"]


class LocalizationSettings(Frozen):
    """Settings of distinctive localization. A bad value raises pydantic's ``ValidationError``."""

    technique: Technique = "layercam"
    """saliency technique: layercam keeps saliency where its object is; gradcam is the paper's; eigencam needs no gradient"""
    decision_threshold: float = Field(0.5, ge=0.01, le=0.99)
    """score from which a detection without dropout counts as predicted (FDT)"""
    alpha: Share = 0.2
    """how far a DiL of 1 lowers the dynamic decision threshold (degradation factor)"""
    region_objectness: Share = 0.05
    """objectness that no predicted box explains from which a place is reported as an unexplained region"""
