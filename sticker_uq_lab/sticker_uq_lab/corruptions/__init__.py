# SPDX-License-Identifier: Apache-2.0
"""Corruptions of labelled pictures: glare, blur, noise, occlusion, tilt, another make, each with a strength in a physical
unit; the labelled objects follow.

:func:`transform` is the entry point::

    picture = LabelledPicture.of(image, boxes, labels)             # (H, W, 3) uint8 BGR, (N, 4) px, (N,)
    blurred = transform(picture, "motion_blur", 15, seed=7)        # kernel of 15 px
    blurred.image, blurred.boxes, blurred.labels

``TRANSFORMATIONS`` maps every name to its unit, its valid strengths, a ladder from mild to severe, and its parameters. The same
arguments give the same bytes: every call has its own generator. Boxes follow the objects: a map of the plane maps them, an
occlusion shrinks or hides them, the other transformations leave them unchanged.
"""

from sticker_uq.scene import InvalidInput
from sticker_uq_lab.corruptions import camera, workpiece  # noqa: F401
from sticker_uq_lab.corruptions.labelled_picture import LabelledPicture
from sticker_uq_lab.corruptions.registry import TRANSFORMATIONS, Parameter, Transformation

__all__ = ["TRANSFORMATIONS", "LabelledPicture", "Transformation", "transform", "transformation_named"]


def transformation_named(name: str) -> Transformation:
    if name not in TRANSFORMATIONS:
        raise InvalidInput(f"transformation {name!r}: expected one of {', '.join(TRANSFORMATIONS)}")
    return TRANSFORMATIONS[name]


def transform(
    picture: LabelledPicture, name: str, strength: float, seed: int, **parameters: Parameter
) -> LabelledPicture:
    """Corrupt `picture` by the transformation `name`; InvalidInput for an unknown name, strength or parameter."""
    return transformation_named(name)(picture, strength, seed, **parameters)
