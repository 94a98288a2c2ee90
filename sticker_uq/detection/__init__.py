# SPDX-License-Identifier: Apache-2.0
"""Stochastic sticker detectors (Monte Carlo dropout): names, devices, features, class distributions, masks, passes, weights."""

from sticker_uq.detection.names import MODEL_NAMES
from sticker_uq.detection.registry import DetectorEntry, detector_entry
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.imports import when_used

# loaded when first used: settings are needed by programs that never load torch
_WITH_TORCH = {
    "NonFiniteOutput": "selection",
    "StochasticDetector": "detector",
    "Features": "features",
    "DeterministicPass": "deterministic_pass",
    "build_model": "catalogue",
    "load_detector": "detector",
    "load_weights": "weights",
    "save_weights": "weights",
}

__all__ = ["MODEL_NAMES", "DetectorEntry", "DetectorSettings", "detector_entry", *_WITH_TORCH]
__getattr__ = when_used(__name__, _WITH_TORCH)
