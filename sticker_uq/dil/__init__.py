# SPDX-License-Identifier: Apache-2.0
"""Distinctive localization (DiL, S002, Giloni et al. 2025) at run time: saliency that no predicted box explains, thresholds."""

from importlib import import_module
from typing import Any

from sticker_uq.dil.score import distinctive_localization, dynamic_threshold
from sticker_uq.dil.settings import LocalizationSettings

# loaded when first used: settings and score are needed by programs that never load torch
_WITH_TORCH = {"localize": "dil", "objectness_saliency": "dil", "unexplained_objectness": "dil"}

__all__ = ["LocalizationSettings", "distinctive_localization", "dynamic_threshold", *_WITH_TORCH]


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WITH_TORCH[name]}"), name)
