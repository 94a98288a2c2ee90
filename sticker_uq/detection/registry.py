"""Which implementation computes the passes of a model, and how many passes at once."""

from __future__ import annotations

from typing import Any, Literal

import torch

from sticker_uq.detection.kernels.batched_faster_rcnn import BatchedFasterRcnn
from sticker_uq.detection.kernels.fast_faster_rcnn import FastFasterRcnn
from sticker_uq.detection.kernels.fast_retinanet import FastRetinaNet
from sticker_uq.detection.kernels.fast_ssd import FastSsd
from sticker_uq.detection.kernels.frozen import frozen
from sticker_uq.detection.models.family import Family
from sticker_uq.detection.models.faster_rcnn import FasterRcnn
from sticker_uq.detection.models.networks import is_ssd
from sticker_uq.detection.models.retinanet import RetinaNet
from sticker_uq.detection.models.ssd import Ssd
from sticker_uq.detection.settings import DetectorSettings

Kernels = Literal["fast", "reference"]

_CHUNKS = {"ssd300_vgg16": 5, "ssdlite320_mobilenet_v3_large": 10}
"""Passes at once on a processor, of the models whose passes are small. Constants, because another number changes the last bits of
what is seen, and with them what a replay says of a recording (`python -m benchmarks.chunks`).
"""


def stock_family(model: Any, settings: DetectorSettings) -> Family:
    """``model`` cut at its first dropout, computed by torchvision's own modules."""
    if is_ssd(settings.model):
        return Ssd(model, settings.dropout_site)
    return RetinaNet(model) if settings.model.startswith("retinanet") else FasterRcnn(model)


class FrozenModels:
    """The frozen copies of one model and their families, made when first asked for."""

    def __init__(self, model: Any) -> None:
        """``model``: its weights must not change any more."""
        self._model = model
        self._copies: dict[torch.dtype, Any] = {}
        self._families: dict[tuple[torch.dtype, float, str], Family] = {}

    def family(self, settings: DetectorSettings, dtype: torch.dtype) -> Family:
        """The model of ``settings`` cut at its first dropout, by kernels that are faster for the passes."""
        key = (dtype, settings.dropout_rate, settings.dropout_site)
        if key not in self._families:
            if dtype not in self._copies:
                self._copies[dtype] = frozen(self._model, dtype)
            self._families[key] = _fast_family(self._copies[dtype], settings)
        return self._families[key]


def _fast_family(model: Any, settings: DetectorSettings) -> Family:
    if is_ssd(settings.model):
        return FastSsd(model, settings.dropout_site, settings.dropout_rate)
    if settings.model.startswith("retinanet"):
        return FastRetinaNet(model, settings.dropout_rate)
    on_processor = next(model.parameters()).device.type == "cpu"
    return (FastFasterRcnn if on_processor else BatchedFasterRcnn)(model, settings.dropout_rate)


def chunk_size(settings: DetectorSettings, device: torch.device) -> int:
    """How many passes are computed at once: few on a processor, whose caches they share, all on a GPU."""
    if device.type == "cpu":
        return _CHUNKS.get(settings.model, 1)
    return settings.passes
