# SPDX-License-Identifier: Apache-2.0
"""Stochastic sticker detectors (Monte Carlo dropout): names, devices, features, class distributions, masks, passes, weights."""

from importlib import import_module
from typing import Any

from sticker_uq.detection.names import MODEL_NAMES
from sticker_uq.detection.registry import DetectorEntry, detector_entry
from sticker_uq.detection.settings import DetectorSettings

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


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WITH_TORCH[name]}"), name)
