# SPDX-License-Identifier: Apache-2.0
"""The SSDs' passes over a frozen model: class scores of all places, box deltas where they are asked for."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from sticker_uq.detection.dropout import Dropout, no_dropout
from sticker_uq.detection.features import Features, Maps
from sticker_uq.detection.kernels.convolutions import convolve
from sticker_uq.detection.models.family import anchor_outputs, anchors_of
from sticker_uq.detection.models.ssd import Ssd
from sticker_uq.detection.selection import Rows, all_finite, check_finite, softmax_distribution
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.scene import FloatArray, IntArray

_MANY_PLACES = 256
"""Of a map of so many places, a 3x3 convolution with few outputs is faster as a product."""
_AT_ONCE = 1_500_000
"""Numbers in a map of all passes that are computed at once: as many as the caches hold. A constant, as another number of passes
may round differently in the last bits.
"""


class MapLevel(Protocol):
    few: int
    """Up to one place in so many of a map has its outputs computed by itself; of more the whole map is convolved."""

    def rows(self, x: Tensor, places: Tensor | None = None) -> Tensor:
        """Outputs (n, h * w, O) of the map ``x`` (n, C, h, w), or (K, O) of its ``places`` (K,) alone."""

    def at(self, patches: Tensor) -> Tensor:
        """Outputs (K, O) of places whose 3x3 neighbourhoods are ``patches`` (K, 9, C), which it may change."""


def levels_of(branch: Any) -> list[MapLevel]:
    """The levels of ``branch``, the classification or regression head of a frozen SSD300 or SSDLite."""
    return [_level(block, lambda values: values) for block in branch.module_list]


def levels_above_background(branch: Any) -> list[MapLevel]:
    """Those of the classification head, whose outputs are the logits of the classes less that of the background.

    Softmax asks for no more. Two outputs per default box instead of three fill one vector of the processor where three fill two.
    """

    def less(values: Tensor) -> Tensor:
        by_box = values.unflatten(0, (-1, branch.num_columns))
        return (by_box[:, 1:] - by_box[:, :1]).flatten(0, 1)

    return [_level(block, less) for block in branch.module_list]


def _level(block: nn.Module, outputs: Callable[[Tensor], Tensor]) -> MapLevel:
    """``outputs``: what becomes of the last convolution's filters and shifts."""
    convolutions = [m for m in block.modules() if isinstance(m, nn.Conv2d)]
    last = convolutions[-1]
    weight = outputs(last.weight.detach()).contiguous(memory_format=torch.channels_last)
    bias = None if last.bias is None else outputs(last.bias.detach())
    if len(convolutions) == 1:
        return Dense(weight, bias)
    return Separable(convolutions[0], weight, bias)


class Dense:
    few = 6

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = weight, bias

    def rows(self, x: Tensor, places: Tensor | None = None) -> Tensor:
        many = x.shape[2] * x.shape[3] >= _MANY_PLACES
        made = self._of_nine_places(x) if many else _rows(convolve(x, self._weight, self._bias, 1))
        return made if places is None else made.flatten(0, 1).index_select(0, places)

    def _of_nine_places(self, x: Tensor) -> Tensor:
        """The convolution as one product for all nine places of the filters, whose parts are shifted and added."""
        n, _, height, width = x.shape
        parts = convolve(x, self._as_product, None, 0).permute(0, 2, 3, 1).unflatten(3, (9, -1))
        made = parts.new_zeros(n, height + 2, width + 2, parts.shape[4])
        for number in range(9):
            down, across = 2 - number // 3, 2 - number % 3
            made[:, down : down + height, across : across + width] += parts[:, :, :, number]
        inner = made[:, 1:-1, 1:-1].flatten(1, 2)
        return inner if self._bias is None else inner + self._bias

    def at(self, patches: Tensor) -> Tensor:
        made = patches.flatten(1) @ self._by_place.T
        return made if self._bias is None else made + self._bias

    @cached_property
    def _by_place(self) -> Tensor:
        return self._weight.permute(0, 2, 3, 1).flatten(1)

    @cached_property
    def _as_product(self) -> Tensor:
        """The filters of the nine places as a 1x1 convolution (9 * O, C, 1, 1)."""
        return self._weight.permute(2, 3, 0, 1).flatten(0, 2)[:, :, None, None]


class Separable:
    """SSD branch of a depthwise 3x3 convolution, ReLU6, and a 1x1 convolution (SSDLite)."""

    few = 12

    def __init__(self, depthwise: nn.Conv2d, weight: Tensor, bias: Tensor | None) -> None:
        self._filters, self._shift = depthwise.weight.detach(), depthwise.bias
        self._weight, self._bias = weight, bias

    def rows(self, x: Tensor, places: Tensor | None = None) -> Tensor:
        hidden = convolve(x, self._filters, self._shift, 1, x.shape[1])
        if places is not None:
            return self._last(_rows(hidden).flatten(0, 1).index_select(0, places))
        return _rows(convolve(hidden.clamp_(0.0, 6.0), self._weight, self._bias, 0))

    def at(self, patches: Tensor) -> Tensor:
        hidden = patches.mul_(self._by_place).sum(dim=1)
        return self._last(hidden if self._shift is None else hidden.add_(self._shift))

    def _last(self, hidden: Tensor) -> Tensor:
        made = hidden.clamp_(0.0, 6.0) @ self._matrix
        return made if self._bias is None else made + self._bias

    @cached_property
    def _matrix(self) -> Tensor:
        return self._weight[:, :, 0, 0].T.contiguous()

    @cached_property
    def _by_place(self) -> Tensor:
        return self._filters.flatten(1).T.contiguous()


def _rows(maps: Tensor) -> Tensor:
    """The places (n, h * w, C) of ``maps`` (n, C, h, w)."""
    return maps.permute(0, 2, 3, 1).flatten(1, 2)


_PLACES_AT_ONCE = 32
"""Neighbourhoods that are gathered together: as many as the caches hold."""


class Dropped:
    """Maps (n, C, h, w) of n passes, multiplied where somebody asks: ``shared`` (1, C, h, w) by bytes ``kept`` (n, C, h, w)."""

    def __init__(self, shared: Tensor, kept: Tensor | None) -> None:
        """``kept``: None keeps everything."""
        self._shared, self._kept = shared, kept
        self._together = max(1, _AT_ONCE // shared.numel())
        count = 1 if kept is None else len(kept)
        self.shape = (count, *shared.shape[1:])

    def rows(self, level: MapLevel) -> Tensor:
        """Outputs (n, h * w, O) of all places."""
        return torch.cat([level.rows(group) for group in self._groups()])

    def at(self, level: MapLevel, places: IntArray) -> Tensor:
        """Outputs (K, O) of ``places`` (K,), rising, counted over passes, rows and columns."""
        count, _, height, width = self.shape
        if level.few * len(places) > count * height * width:
            size = self._together * height * width
            ends = np.searchsorted(places, np.arange(size, count * height * width, size)).tolist()
            wanted = torch.from_numpy(places % size).tensor_split(ends)
            return torch.cat([level.rows(*pair) for pair in zip(self._groups(), wanted, strict=True)])
        return torch.cat([level.at(patches) for patches in self._patches(places)])

    def _groups(self) -> Iterator[Tensor]:
        """The maps of so many passes as are computed at once."""
        if self._kept is None:
            yield self._shared
            return
        for kept in self._kept.split(self._together):
            yield kept.to(self._shared.dtype).mul_(self._shared)

    def _patches(self, places: IntArray) -> Iterator[Tensor]:
        """The neighbourhoods (., 9, C) of ``places`` (K,), some at a time, zeros beyond the edges."""
        _, channels, height, width = self.shape
        row, column = places // width % height, places % width
        step = np.arange(-1, 2)
        down, across = row[:, None, None] + step[:, None], column[:, None, None] + step
        inside = (down >= 0) & (down < height) & (across >= 0) & (across < width)
        index = np.where(inside, places[:, None, None] + step[:, None] * width + step, 0)
        of_shared = np.where(inside, index % (height * width), height * width)
        some = (torch.from_numpy(each.ravel()).split(9 * _PLACES_AT_ONCE) for each in (index, of_shared))
        for of_kept, of_table in zip(*some, strict=True):
            found = self._table.index_select(0, of_table)
            if self._kept is not None:
                kept = self._kept.permute(0, 2, 3, 1).view(-1, channels).index_select(0, of_kept)
                found = kept.to(found.dtype).mul_(found)
            yield found.view(-1, 9, channels)

    @cached_property
    def _table(self) -> Tensor:
        """The places (h * w + 1, C) of what the passes share, and one of zeros."""
        rows = _rows(self._shared)[0]
        return torch.cat([rows, rows.new_zeros(1, self.shape[1])])


class SsdDeltas:
    """Box deltas (n, N, 4) of the maps of n images, on a processor, computed where somebody asks."""

    def __init__(self, levels: Sequence[MapLevel], maps: Sequence[Dropped], counts: Sequence[int]) -> None:
        """``levels``: of the regression head; ``counts``: default boxes per level of ``maps``."""
        self._levels, self._maps, self._ends = levels, maps, np.cumsum(counts)
        self._counts = counts

    def __call__(self, image: int | Tensor, rows: Tensor) -> Tensor:
        """The deltas (K, 4) of the boxes ``rows`` (K,) of one image, or of the image of each. NonFiniteOutput if any is not."""
        images = image.numpy() if isinstance(image, Tensor) else np.full(len(rows), image)
        numbers = rows.numpy()
        level_of = np.searchsorted(self._ends, numbers, side="right")
        deltas = np.empty((len(rows), 4), np.float32)
        for level in set(level_of.tolist()):
            members = np.flatnonzero(level_of == level)
            start = self._ends[level] - self._counts[level]
            deltas[members] = self._of_level(level, images[members], numbers[members] - start)
        found = torch.from_numpy(deltas)
        check_finite(found)
        return found

    def _of_level(self, level: int, images: IntArray, rows: IntArray) -> FloatArray:
        maps = self._maps[level]
        _, _, height, width = maps.shape
        boxes = self._counts[level] // (height * width)
        places, place = np.unique(images * (height * width) + rows // boxes, return_inverse=True)
        outputs = maps.at(self._levels[level], places)
        return np.asarray(outputs.float().view(-1, boxes, 4).numpy()[place, rows % boxes])


class FastSsd(Ssd):
    """``Ssd`` over a frozen model, for one dropout rate."""

    def __init__(self, model: Any, settings: DetectorSettings) -> None:
        super().__init__(model, settings)
        self._keep = 1.0 - settings.dropout_rate
        self._foreground = model.head.classification_head.num_columns - 1
        self._classes = levels_above_background(model.head.classification_head)
        self._boxes = levels_of(model.head.regression_head)

    def head_maps(self, features: Features, dropout: Dropout) -> Maps:
        """As of :class:`Ssd`, but of stochastic passes on a processor only their masks, of bytes."""
        if dropout is no_dropout or self._site == "out":
            return super().head_maps(features, dropout)
        scaled = self._scale(features)
        if scaled[0].device.type != "cpu":
            return [dropout.masks(m).mul_(m) for m in scaled]
        return [dropout.masks(torch.empty_like(m, dtype=torch.uint8)) for m in scaled]

    def candidates(self, features: Features, maps: Maps, dropout: Dropout, score_floor: float) -> Rows:
        if maps[0].dtype != torch.uint8:
            return super().candidates(features, maps, dropout, score_floor)
        dropped = [Dropped(*pair) for pair in zip(self._scale(features), maps, strict=True)]
        # a small picture has fewer maps than the head has levels
        outputs = [d.rows(level) for level, d in zip(self._classes, dropped, strict=False)]
        logits = [rows.reshape(len(rows), -1, self._foreground) for rows in outputs]
        # a background of zero before the others
        probabilities = softmax_distribution(functional.pad(torch.cat(logits, dim=1), (1, 0)))
        deltas = SsdDeltas(self._boxes, dropped, [part.shape[1] for part in logits])
        anchors, finite = anchors_of(self._model, features, maps), all_finite(probabilities)
        return anchor_outputs(self._model, (), anchors, probabilities, deltas, finite, score_floor).rows

    def _deltas(self, maps: Maps, counts: list[int]) -> tuple[Any, ...]:
        if maps[0].device.type != "cpu":
            return super()._deltas(maps, counts)
        return (SsdDeltas(self._boxes, [Dropped(m, None) for m in maps], counts),)

    def _scale(self, features: Features) -> Maps:
        return features.derive("scaled", lambda: [m / self._keep for m in features.maps])
