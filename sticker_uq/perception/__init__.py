# SPDX-License-Identifier: Apache-2.0
"""Perception, image in, SceneAssessment out: image checks, digest, exposure, detector, DiL, panel votes and novelty."""

from typing import TYPE_CHECKING

from sticker_uq.imports import when_used
from sticker_uq.perception.image_facts import ImageFacts, image_facts
from sticker_uq.perception.settings import PerceptionSettings

__all__ = ["ImageFacts", "Perception", "PerceptionSettings", "image_facts"]

if TYPE_CHECKING:
    from sticker_uq.perception.pipeline import Perception
else:  # loaded when first used: settings are needed by programs that never load torch
    __getattr__ = when_used(__name__, {"Perception": "pipeline"})
