# SPDX-License-Identifier: Apache-2.0
"""The names of the detectors that can be used: the built-in ones, and those that other installed packages register.

Neither torch nor a detector is imported for them.
"""

from importlib.metadata import EntryPoint, entry_points

from sticker_uq.scene import InvalidInput

ENTRY_POINT_GROUP = "sticker_uq.detectors"
"""An entry point of this group, named like the detector, refers to a :class:`DetectorEntry`."""

_CATALOGUE = "sticker_uq.detection.catalogue"

MODEL_NAMES = (
    "fasterrcnn_resnet50_fpn",
    "fasterrcnn_resnet50_fpn_v2",
    "retinanet_resnet50_fpn",
    "retinanet_resnet50_fpn_v2",
    "ssd300_vgg16",
    "ssdlite320_mobilenet_v3_large",
    "ssdlite320_mobilenet_v2",
)
"""The built-in detectors: first the six sticker detection models M1..M6 of Lu et al. by their torchvision names."""

PHOTO_MODEL = "ssdlite320_mobilenet_v2"
"""The detector whose training can start with filters that have seen photographs."""

DEFAULT_MODEL = "ssdlite320_mobilenet_v3_large"
"""The detector whose weights come with the package."""


def detector_names() -> tuple[str, ...]:
    """Names of all detectors that can be used: the built-in ones, then the registered ones in alphabetical order."""
    registered = {point.name for point in entry_points(group=ENTRY_POINT_GROUP)}
    return *MODEL_NAMES, *sorted(registered - set(MODEL_NAMES))


def check_name(name: str) -> str:
    """The detector ``name`` itself if it is one of :func:`detector_names`; raises InvalidInput, naming them, if not."""
    if name not in MODEL_NAMES and name not in detector_names():
        raise InvalidInput(f"unknown model {name!r}, expected one of {', '.join(detector_names())}")
    return name


def entry_point(name: str) -> EntryPoint:
    """Where the entry of detector ``name`` is found. No built-in one can be replaced by a registered one.

    Raises InvalidInput as :func:`check_name`.
    """
    if check_name(name) in MODEL_NAMES:
        return EntryPoint(name, f"{_CATALOGUE}:{name}", ENTRY_POINT_GROUP)
    return next(point for point in entry_points(group=ENTRY_POINT_GROUP) if point.name == name)
