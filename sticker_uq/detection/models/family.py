# SPDX-License-Identifier: Apache-2.0
"""What the engine needs from a family of detectors, and what the one-stage families share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torchvision.models.detection.image_list import ImageList

from sticker_uq.detection.dropout import Dropout
from sticker_uq.detection.features import Features, Maps
from sticker_uq.detection.selection import Rows, all_finite, decode_deltas, strongest

Deltas = Callable[[int | Tensor, Tensor], Tensor]


class Family(Protocol):
    """A detector cut in two at its first dropout. ``two_stage``: it has an objectness head."""

    two_stage: bool

    def encode(self, images: ImageList, image_size: tuple[int, int]) -> Features:
        """The part before the first dropout, for transformed images whose originals have ``image_size`` (W, H)."""

    def head_maps(self, features: Features, dropout: Dropout) -> Maps:
        """The maps that enter the heads, one (n, C, h, w) per level of n passes, fine to coarse."""

    def candidates(self, features: Features, maps: Maps, dropout: Dropout, score_floor: float) -> Rows:
        """The boxes above ``score_floor`` in ``maps``, px of the resized image, not yet suppressed."""

    def head_outputs(self, features: Features, maps: Maps, score_floor: float) -> HeadOutputs:
        """Candidates of the head maps (1, C, h, w) of an image, and the objectness before them (see ``DeterministicPass``)."""


class HeadOutputs(NamedTuple):
    """``rows`` like ``Family.candidates``, the rest like ``DeterministicPass``."""

    objectness: tuple[Tensor, ...]
    anchors: Tensor
    decode_boxes: Callable[[Tensor], Tensor]
    rows: Rows


def anchor_candidates(
    model: Any, features: Features, maps: Maps, probabilities: Tensor, deltas: Tensor, score_floor: float
) -> Rows:
    """Candidates of a one-stage detector from class distributions (n, A, 3) and box deltas (n, A, 4) of its anchors."""
    anchors, finite = anchors_of(model, features, maps), all_finite(probabilities, deltas)
    return anchor_outputs(model, (), anchors, probabilities, take_deltas(deltas), finite, score_floor).rows


def take_deltas(deltas: Tensor) -> Deltas:
    """Box deltas (n, N, 4) of a one-stage detector as :func:`anchor_outputs` asks for them."""
    return lambda number, rows: deltas[number, rows].to(torch.float32)


def anchor_outputs(
    model: Any,
    objectness: tuple[Tensor, ...],
    anchors: Tensor,
    probabilities: Tensor,
    deltas: Deltas,
    finite: Tensor,
    score_floor: float,
) -> HeadOutputs:
    """The head outputs of a one-stage detector: objectness per level (n, A, h, w), class distributions (n, N, 3), and its boxes.

    n is 1, or the passes of a family without a way of its own to their candidates.
    ``deltas(number, rows)``: the box deltas (K, 4) of the anchors ``rows`` (K,) in one of the n, or in that of each;
    ``finite``: whether what the heads made is, as ``all_finite`` tells.
    """

    def boxes(number: int | Tensor, rows: Tensor) -> Tensor:
        return decode_deltas(model.box_coder, deltas(number, rows), anchors[rows])

    numbers, chosen = strongest(probabilities, score_floor)
    rows = Rows(boxes(numbers, chosen), probabilities[numbers, chosen], numbers, finite)
    return HeadOutputs(objectness, anchors, partial(boxes, 0), rows)


def anchors_of(model: Any, features: Features, maps: Maps) -> Tensor:
    """The anchors (N, 4) of a one-stage detector, px of the resized image."""
    return features.anchors(model.anchor_generator, maps)
