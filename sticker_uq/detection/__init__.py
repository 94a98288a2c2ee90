"""Sticker detection models: six of torchvision's detectors made stochastic, their weights, their training."""

from sticker_uq.detection.settings import MODEL_NAMES, DetectorSettings

__all__ = ["MODEL_NAMES", "DetectorSettings"]
