# SPDX-License-Identifier: Apache-2.0
"""Which pixels boxes count where a picture has an EXIF orientation."""

from typing import Literal

from sticker_uq.scene import InvalidInput
from sticker_uq_lab.datasets.importing.named_picture import Corners

Frame = Literal["auto", "shown", "stored"]
_SWAPPING = (5, 6, 7, 8)
FRAMES: tuple[Frame, ...] = ("stored", "shown")


def shown_size(orientation: int, size: tuple[int, int]) -> tuple[int, int]:
    """The size as shown of a picture that is stored as ``size``, or the other way round."""
    return size[::-1] if orientation in _SWAPPING else size


def proven_frame(
    orientation: int, stored: tuple[int, int], labelled: tuple[int, int] | None
) -> Frame | Literal["either"]:
    """Whether boxes count the pixels of a picture as "stored" or as "shown", by the size in its annotations; "auto" where that
    does not tell, and "either" where both are the same.

    Raises InvalidInput when that size is neither.
    """
    shown = shown_size(orientation, stored)
    if labelled is not None and labelled not in (stored, shown):
        raise InvalidInput(
            f"labelled as {labelled[0]}x{labelled[1]}, but is {shown[0]}x{shown[1]} px; expected the picture that was labelled"
        )
    if orientation == 1:
        return "either"
    if labelled is None or stored == shown:
        return "auto"
    return "stored" if labelled == stored else "shown"


def shown_box(orientation: int, stored: tuple[int, int], box: Corners) -> Corners:
    """``box``, in pixels of the size ``stored``, in the orientation that viewers show."""
    width, height = stored
    x1, y1, x2, y2 = box
    if orientation in _SWAPPING:  # mirrored at the main diagonal
        x1, y1, x2, y2, width, height = y1, x1, y2, x2, height, width
    if orientation in (2, 3, 6, 7):
        x1, x2 = width - x2, width - x1
    if orientation in (3, 4, 7, 8):
        y1, y2 = height - y2, height - y1
    return x1, y1, x2, y2
