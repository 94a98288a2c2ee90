"""What the engine needs from a family of detectors, and what the one-stage families share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor
from torchvision.models.detection.image_list import ImageList

from sticker_uq.detection.features import Features
from sticker_uq.detection.selection import Rows, check_finite, strongest

Dropout = Callable[[Tensor], Tensor]
"""Takes maps (1 or n, C, h, w) to the maps of n passes (n, C, h, w)."""


class Family(Protocol):
    """A detector cut in two at its first dropout."""

    def encode(self, images: ImageList, image_size: tuple[int, int]) -> Features:
        """The part before the first dropout, for one transformed image whose original has ``image_size`` (W, H)."""

    def head_maps(self, features: Features, dropout: Dropout) -> list[Tensor]:
        """The maps that enter the heads, one (n, C, h, w) per level, fine to coarse."""

    def candidates(
        self, features: Features, maps: list[Tensor], dropout: Dropout, score_floor: float
    ) -> Rows:
        """Boxes above ``score_floor`` that the heads see in ``maps``, px of the resized image, not yet suppressed."""

    def objectness(self, maps: list[Tensor]) -> list[Tensor]:
        """Objectness per level (A, h, w), differentiable with respect to the head maps (1, C, h, w)."""


def no_dropout(maps: Tensor) -> Tensor:
    """The maps as they are: the deterministic detector."""
    return maps


def anchor_candidates(
    model: Any,
    features: Features,
    maps: list[Tensor],
    probabilities: Tensor,
    deltas: Tensor,
    score_floor: float,
) -> Rows:
    """Candidates of a one-stage detector: class distributions (n, A, 3) and box deltas (n, A, 4) of its anchors."""
    check_finite(probabilities, deltas)
    anchors = features.derive("anchors", lambda: model.anchor_generator(features.image_list(1), maps)[0])
    passes, chosen = strongest(probabilities, score_floor)
    boxes = model.box_coder.decode_single(deltas[passes, chosen], anchors[chosen])
    return Rows(boxes, probabilities[passes, chosen], passes)


def by_level(scores: Tensor, maps: list[Tensor], anchors_per_location: list[int]) -> list[Tensor]:
    """One value per anchor (sum of h * w * A,) in torchvision's order, as one tensor (A, h, w) per level of ``maps``."""
    shapes = [(*m.shape[-2:], a) for m, a in zip(maps, anchors_per_location, strict=True)]
    levels = scores.split([h * w * a for h, w, a in shapes])
    return [level.view(shape).permute(2, 0, 1) for level, shape in zip(levels, shapes, strict=True)]
