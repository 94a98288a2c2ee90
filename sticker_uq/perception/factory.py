# SPDX-License-Identifier: Apache-2.0
"""Perception as the live node and the replay make it from settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sticker_uq.perception.settings import PerceptionSettings

if TYPE_CHECKING:
    from sticker_uq.detection import StochasticDetector
    from sticker_uq.perception.pipeline import Perception


def load_perception(settings: PerceptionSettings, detector: StochasticDetector | None = None) -> Perception:
    """``detector``, if given, was made from ``settings``. Raises InvalidInput when weights, device or panel cannot be used."""
    # torch takes seconds to load: help and bad options need not wait
    from sticker_uq.perception.pipeline import Perception

    return Perception(settings, detector)
