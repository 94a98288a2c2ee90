# SPDX-License-Identifier: Apache-2.0
"""The detectors that can be used by name: torchvision's six, and those that other installed packages register.

Neither torch nor a detector is imported before an entry is asked for. See docs/detectors.md for a detector of your own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Protocol

from sticker_uq.scene import InvalidInput

if TYPE_CHECKING:
    from torch import nn

    from sticker_uq.detection.models.family import Family
    from sticker_uq.detection.settings import DetectorSettings

ENTRY_POINT_GROUP = "sticker_uq.detectors"
"""An entry point of this group, named like the detector, refers to a :class:`DetectorEntry`."""

MODEL_NAMES = (
    "fasterrcnn_resnet50_fpn",
    "fasterrcnn_resnet50_fpn_v2",
    "retinanet_resnet50_fpn",
    "retinanet_resnet50_fpn_v2",
    "ssd300_vgg16",
    "ssdlite320_mobilenet_v3_large",
)
"""The built-in detectors by their torchvision names: first the six sticker detection models M1..M6 of Lu et al."""

DEFAULT_MODEL = "ssdlite320_mobilenet_v3_large"
"""The detector whose weights come with the package."""


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
    frozen copy (``kernels.frozen``), which may depend on its device; None: the reference over a plain copy;
    ``passes_at_once``: stochastic passes computed together on a processor, whose caches they share. It is a constant, because
    another number changes the last bits of the result, and with them a replay;
    ``fixed_input_size``: images are resized to one size.
    """

    family: str
    build: Build
    reference: FamilyFactory
    fast: FamilyFactory | None = None
    passes_at_once: int = 1
    fixed_input_size: bool = False


def detector_names() -> tuple[str, ...]:
    """Names of all detectors that can be used: the built-in ones, then the registered ones in alphabetical order."""
    return *MODEL_NAMES, *sorted(_registered().keys() - set(MODEL_NAMES))


def known_name(name: str) -> str:
    """The detector ``name`` itself if it is one of :func:`detector_names`; raises InvalidInput, naming them, if not."""
    if name not in MODEL_NAMES and name not in _registered():
        raise InvalidInput(f"unknown model {name!r}, expected one of {', '.join(detector_names())}")
    return name


def detector_entry(name: str) -> DetectorEntry:
    """The entry of detector ``name``. No built-in one can be replaced by a registered one.

    Raises InvalidInput for an unknown name and for an entry point that cannot be imported or is no :class:`DetectorEntry`.
    """
    if known_name(name) in MODEL_NAMES:
        entry: DetectorEntry = import_module("sticker_uq.detection.models.networks").DETECTORS[name]
        return entry
    point = _registered()[name]
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


def _registered() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
