# SPDX-License-Identifier: Apache-2.0
"""Stochastic sticker detectors (Monte Carlo dropout): names, devices, features, class distributions, masks, passes, weights."""

from typing import TYPE_CHECKING

from sticker_uq.detection.names import MODEL_NAMES
from sticker_uq.detection.registry import DetectorEntry, detector_entry
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.imports import when_used

__all__ = [
    "MODEL_NAMES",
    "DetectorEntry",
    "DetectorSettings",
    "DeterministicPass",
    "Features",
    "NonFiniteOutput",
    "StochasticDetector",
    "build_model",
    "detector_entry",
    "load_detector",
    "load_weights",
    "save_weights",
]

if TYPE_CHECKING:
    from sticker_uq.detection.catalogue import build_model
    from sticker_uq.detection.detector import StochasticDetector, load_detector
    from sticker_uq.detection.deterministic_pass import DeterministicPass
    from sticker_uq.detection.features import Features
    from sticker_uq.detection.selection import NonFiniteOutput
    from sticker_uq.detection.weights import load_weights, save_weights
else:  # loaded when first used: settings are needed by programs that never load torch
    __getattr__ = when_used(
        __name__,
        {
            "DeterministicPass": "deterministic_pass",
            "Features": "features",
            "NonFiniteOutput": "selection",
            "StochasticDetector": "detector",
            "build_model": "catalogue",
            "load_detector": "detector",
            "load_weights": "weights",
            "save_weights": "weights",
        },
    )
