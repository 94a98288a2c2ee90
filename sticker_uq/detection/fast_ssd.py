"""The SSDs' passes over a frozen model."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor

from sticker_uq.detection.dropout import Dropout, no_dropout
from sticker_uq.detection.features import Features
from sticker_uq.detection.ssd import Ssd


class FastSsd(Ssd):
    """``Ssd`` over a frozen model, for one dropout rate."""

    def __init__(self, model: Any, site: Literal["in", "out"], rate: float) -> None:
        super().__init__(model, site)
        self._keep = 1.0 - rate

    def head_maps(self, features: Features, dropout: Dropout) -> list[Tensor]:
        """The backbone's six maps, with dropout where the site is "in"."""
        if dropout is no_dropout or self._site == "out":
            return super().head_maps(features, dropout)
        scaled = features.derive("scaled", lambda: [m / self._keep for m in features.maps])
        return [dropout.masks(m).mul_(m) for m in scaled]
