# SPDX-License-Identifier: Apache-2.0
"""EXIF orientation: cameras store pixels as the sensor has them, viewers show them upright."""

from __future__ import annotations

from io import BytesIO
from typing import Literal

from PIL import Image

from sticker_uq.lab.datasets.importing.labelled_picture import Corners
from sticker_uq.scene import InvalidInput

Frame = Literal["auto", "shown", "stored"]
_TAG = 0x0112
_SWAPPING = (5, 6, 7, 8)


def orientation_of(data: bytes) -> tuple[int, tuple[int, int]]:
    """EXIF orientation 1 to 8 of the picture file ``data``, and width and height in px as stored."""
    try:
        with Image.open(BytesIO(data)) as picture:
            value, size = picture.getexif().get(_TAG, 1), picture.size
    except Exception as error:  # noqa: BLE001 - Pillow raises anything for hostile metadata
        raise InvalidInput(f"the header of the picture cannot be read ({type(error).__name__})") from None
    return (value if isinstance(value, int) and 1 <= value <= 8 else 1), size


def shown_size(orientation: int, stored: tuple[int, int]) -> tuple[int, int]:
    """Width and height px of an imported picture of size ``stored``, in the orientation that viewers show."""
    return stored[::-1] if orientation in _SWAPPING else stored


def labelled_as_stored(
    orientation: int, stored: tuple[int, int], labelled: tuple[int, int] | None, frame: Frame
) -> bool:
    """Whether boxes of an imported picture are in its orientation as stored, otherwise as shown.

    With "auto" by the size that the annotations say; where that does not tell, as shown, which is what labelling tools do.
    Raises InvalidInput when that size is neither.
    """
    shown = shown_size(orientation, stored)
    if labelled is not None and labelled not in (stored, shown):
        raise InvalidInput(
            f"labelled as {labelled[0]}x{labelled[1]}, but is {shown[0]}x{shown[1]} px; expected the picture that was labelled"
        )
    if orientation == 1:
        return False
    if labelled is not None and stored != shown:
        return labelled == stored
    return frame == "stored"


def shown_box(orientation: int, stored: tuple[int, int], box: Corners) -> Corners:
    """``box`` of an imported picture, in pixels of the size ``stored``, in the orientation that viewers show."""
    width, height = stored
    x1, y1, x2, y2 = box
    if orientation in _SWAPPING:  # mirrored at the main diagonal
        x1, y1, x2, y2, width, height = y1, x1, y2, x2, height, width
    if orientation in (2, 3, 6, 7):
        x1, x2 = width - x2, width - x1
    if orientation in (3, 4, 7, 8):
        y1, y2 = height - y2, height - y1
    return x1, y1, x2, y2
