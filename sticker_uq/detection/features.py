# SPDX-License-Identifier: Apache-2.0
"""What the deterministic part of a detector computes from an image, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.image_list import ImageList

from sticker_uq.detection.transfer import to_device

Maps = list[Tensor]
"""One of each level, fine to coarse."""


@dataclass(frozen=True)
class Features:
    """Everything of an image that no dropout reaches; the input of every pass.

    ``image_size``: (width, height) of the original image, px; ``resized`` and ``padded``: (height, width) of the network's input
    without and with padding, px; ``maps``: the feature maps (1, C, h, w) that meet dropout first, fine to coarse; ``extra``:
    further tensors (1, ...) that are the same in every pass (see the model family).
    """

    image_size: tuple[int, int]
    resized: tuple[int, int]
    padded: tuple[int, int]
    maps: tuple[Tensor, ...]
    extra: tuple[Tensor, ...] = ()
    _derived: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def derive(self, name: str, compute: Callable[[], Any]) -> Any:
        """The value of ``compute()``, computed on the first call under ``name`` and kept."""
        if name not in self._derived:
            self._derived[name] = compute()
        return self._derived[name]

    def as_float32(self) -> Features:
        """In single precision; itself where it already is."""
        if all(m.dtype == torch.float32 for m in (*self.maps, *self.extra)):
            return self
        return self.derive("as_float32", self._widen)

    def _widen(self) -> Features:
        maps, extra = (tuple(t.to(torch.float32) for t in group) for group in (self.maps, self.extra))
        return replace(self, maps=maps, extra=extra, _derived={})

    def image_list(self, passes: int) -> ImageList:
        """``passes`` images of this size as torchvision's anchor and region modules expect them, without pixels."""
        canvas = self.maps[0].new_empty((), dtype=torch.float32).expand(passes, 3, *self.padded)
        return ImageList(canvas, [self.resized] * passes)

    def anchors(self, generator: Any, maps: Sequence[Tensor]) -> Tensor:
        """Anchors (N, 4) float32 that torchvision's ``generator`` makes for ``maps``, px of the resized image."""

        def generate() -> Tensor:
            # default boxes come from the processor in any case: whole, so that nothing waits for their copy
            device = maps[0].device if isinstance(generator, AnchorGenerator) else torch.device("cpu")
            # the generator takes the type of its anchors from the maps, and half precision is too coarse for pixels
            shells = [torch.empty((), device=device).expand(1, *m.shape[1:]) for m in maps]
            made: Tensor = generator(self.image_list(1), shells)[0]
            return made if device == maps[0].device else to_device(made, maps[0].device)

        made: Tensor = self.derive("anchors", generate)
        return made
