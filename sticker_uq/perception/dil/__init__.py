# SPDX-License-Identifier: Apache-2.0
"""Distinctive localization (DiL, S002, Giloni et al. 2025) at run time: saliency that no predicted box explains, thresholds."""

from typing import TYPE_CHECKING

from sticker_uq.imports import when_used
from sticker_uq.perception.dil.score import distinctive_localization, dynamic_threshold
from sticker_uq.perception.dil.settings import LocalizationSettings

__all__ = ["LocalizationSettings", "distinctive_localization", "dynamic_threshold", "localize"]

if TYPE_CHECKING:
    from sticker_uq.perception.dil.dil import localize
else:  # loaded when first used: settings and score are needed by programs that never load torch
    __getattr__ = when_used(__name__, {"localize": "dil"})
