# SPDX-License-Identifier: Apache-2.0
"""A system whose answers are known: it reads the picture, so that processes can be compared."""

from pathlib import Path

import numpy as np

from sticker_uq.io.images import Picture
from sticker_uq.scene import Detections
from sticker_uq_lab.robustness.systems import SystemAnswer


class Scripted:
    """Sees one sticker in the middle whose score is the brightness of the picture; fails on dark ones."""

    name = "scripted"
    identity = "scripted 1"

    def answer(self, image: Picture, path: Path = Path()) -> SystemAnswer:
        height, width = image.shape[:2]
        brightness = float(image.mean()) / 255
        if brightness < 0.25:
            return SystemAnswer.from_failure("too dark")
        box = np.float32([[width / 4, height / 4, width * 3 / 4, height * 3 / 4]])
        features = cv_features(image)
        return SystemAnswer(Detections(box, np.float32([[1 - brightness, 0, brightness]])), None, features)


def cv_features(image: Picture) -> np.ndarray:
    """Means of 4 x 4 fields of the picture, (48,)."""
    height, width = image.shape[0] // 4 * 4, image.shape[1] // 4 * 4
    fields = image[:height, :width].reshape(4, height // 4, 4, width // 4, 3)
    return fields.mean(axis=(1, 3)).ravel().astype(np.float32)
