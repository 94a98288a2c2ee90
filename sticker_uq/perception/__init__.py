# SPDX-License-Identifier: Apache-2.0
"""Perception, image in, SceneAssessment out: image checks, digest, exposure, detector, DiL, panel votes and novelty."""

from importlib import import_module
from typing import Any

from sticker_uq.perception.image_facts import ImageFacts, image_facts
from sticker_uq.perception.settings import PerceptionSettings

# loaded when first used: settings are needed by programs that never load torch
_WITH_TORCH = {"Perception": "pipeline"}

__all__ = ["ImageFacts", "Perception", "PerceptionSettings", "image_facts"]


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WITH_TORCH[name]}"), name)
