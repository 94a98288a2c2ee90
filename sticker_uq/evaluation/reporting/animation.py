# SPDX-License-Identifier: Apache-2.0
"""A cell's report as a short animation: some annotated pictures of every laptop, one a second."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sticker_uq.evaluation.reporting.report_model import ReportLaptop
from sticker_uq.io.files import atomic_write

LONGEST_S = 20
LARGEST_BYTES = 2_000_000
_WIDTH_PX, _BANNER_PX = 640, 40


def write_animation(laptops: Sequence[ReportLaptop], path: Path) -> None:
    """Write the animated WebP of the report's ``laptops`` that have pictures; raises OSError when the disk refuses.

    At most LONGEST_S seconds and, by lower quality, LARGEST_BYTES.
    """
    shown = [laptop for laptop in laptops if any(e.picture is not None for e in laptop.entries)]
    frames = [
        frame for laptop in shown[:LONGEST_S] for frame in _frames(laptop, LONGEST_S // len(shown) or 1)
    ]
    if not frames:
        return
    for quality in (60, 40, 20, 5):
        encoded = BytesIO()
        frames[0].save(
            encoded, "WEBP", save_all=True, append_images=frames[1:], duration=1000, loop=0, quality=quality
        )
        if encoded.tell() <= LARGEST_BYTES:
            break
    with atomic_write(path) as stream:
        stream.write(encoded.getvalue())


def _frames(laptop: ReportLaptop, most: int) -> list[Image.Image]:
    pictured = [(e.title, e.picture) for e in laptop.entries if e.picture is not None]
    chosen = np.unique(np.linspace(0, len(pictured) - 1, most).round().astype(int))
    return [_frame(f"{laptop.title}: {pictured[i][0]}", pictured[i][1]) for i in chosen]


def _frame(text: str, picture: NDArray[np.uint8]) -> Image.Image:
    height = round(picture.shape[0] * _WIDTH_PX / picture.shape[1])
    small = cv2.resize(picture, (_WIDTH_PX, height), interpolation=cv2.INTER_AREA)
    frame = cv2.copyMakeBorder(small, 0, _BANNER_PX, 0, 0, cv2.BORDER_CONSTANT, value=(48, 36, 28))
    cv2.putText(
        frame, text, (12, height + 26), cv2.FONT_HERSHEY_SIMPLEX, 0.55, (255, 255, 255), 1, cv2.LINE_AA
    )
    return Image.fromarray(frame[..., ::-1])
