# SPDX-License-Identifier: Apache-2.0
"""The detectors that can be used by name: the built-in ones, and those that other installed packages register.

Neither torch nor a detector is imported before an entry is asked for. See docs/detectors.md for a detector of your own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sticker_uq.detection.names import entry_point
from sticker_uq.scene import InvalidInput

if TYPE_CHECKING:
    from torch import nn

    from sticker_uq.detection.models.family import Family
    from sticker_uq.detection.settings import DetectorSettings


class Build(Protocol):
    """Makes a detector with random weights, all parameters trainable, in training mode."""

    def __call__(self, *, min_size: int, num_classes: int) -> nn.Module:
        """``min_size``: shorter side of the resized image px, without effect where the input size is fixed; ``num_classes``
        counts the background.
        """


FamilyFactory = Callable[[Any, "DetectorSettings"], "Family"]
"""Cuts a model, in evaluation mode and on its device, at its first dropout."""


@dataclass(frozen=True)
class DetectorEntry:
    """What is known about a detector: the only place that tells one detector from another.

    ``family``: key of training recipes and attack views; ``build``: makes the network, whose ``transform`` is torchvision's
    ``GeneralizedRCNNTransform``; ``reference``: the family computed by the network's own modules; ``fast``: the same over a
    frozen copy (``kernels.frozen``), which may depend on its device; None: the reference over a plain copy; ``passes_at_once``:
    stochastic passes computed together on a processor, whose caches they share. It is a constant, because another number changes
    the last bits of the result, and with them a replay; ``fixed_input_size``: images are resized to one size.
    """

    family: str
    build: Build
    reference: FamilyFactory
    fast: FamilyFactory | None = None
    passes_at_once: int = 1
    fixed_input_size: bool = False


def detector_entry(name: str) -> DetectorEntry:
    """The entry of detector ``name``. No built-in one can be replaced by a registered one.

    Raises InvalidInput for an unknown name and for an entry point that cannot be imported or is no :class:`DetectorEntry`.
    """
    point = entry_point(name)
    try:
        found = point.load()
    except Exception as error:
        raise InvalidInput(
            f"detector {name!r}: {point.value} cannot be loaded ({type(error).__name__}: {error})"
        ) from error
    if not isinstance(found, DetectorEntry):
        raise InvalidInput(
            f"detector {name!r}: {point.value} is a {type(found).__name__}, expected a DetectorEntry"
        )
    return found
