"""What the deterministic part of a detector computes from one image, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torchvision.models.detection.image_list import ImageList


@dataclass(frozen=True)
class Features:
    """Everything of one image that no dropout reaches; the input of every pass.

    ``image_size``: (width, height) of the original image, px; ``resized`` and ``padded``: (height, width) of
    the network's input without and with padding, px; ``maps``: the feature maps (1, C, h, w) that meet
    dropout first, fine to coarse; ``extra``: further tensors that are the same in every pass (see the model
    family).
    """

    image_size: tuple[int, int]
    resized: tuple[int, int]
    padded: tuple[int, int]
    maps: tuple[Tensor, ...]
    extra: tuple[Tensor, ...] = ()
    _derived: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def derive(self, name: str, compute: Callable[[], Any]) -> Any:
        """The value of ``compute()``, computed on the first call under ``name`` and kept with the features."""
        if name not in self._derived:
            self._derived[name] = compute()
        return self._derived[name]

    def image_list(self, passes: int) -> ImageList:
        """``passes`` images of this size as torchvision's anchor and region modules expect them, without pixels."""
        canvas = self.maps[0].new_empty(()).expand(passes, 3, *self.padded)
        return ImageList(canvas, [self.resized] * passes)
