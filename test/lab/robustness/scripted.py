# SPDX-License-Identifier: Apache-2.0
"""A system whose answers are known: it reads the picture, so that processes and resumed runs can be compared."""

from pathlib import Path

import numpy as np

from sticker_uq.io.images import Picture
from sticker_uq.lab.robustness.systems_interface import SystemAnswer
from sticker_uq.scene import Detections


class Scripted:
    """Sees one sticker in the middle whose score is the brightness of the picture; fails on dark ones.

    Writes the key of every image that it is asked about to ``log``, if there is one; after ``patience`` of them it raises
    KeyboardInterrupt.
    """

    name = "scripted"
    identity = "scripted 1"

    def __init__(self, log: Path | None = None, patience: int = 10**6) -> None:
        self._log, self._patience = log, patience

    def answer(self, image: Picture, key: str) -> SystemAnswer:
        if self._patience == 0:
            raise KeyboardInterrupt
        self._patience -= 1
        if self._log is not None:
            with open(self._log, "a", encoding="utf-8") as stream:
                stream.write(key + "\n")
        height, width = image.shape[:2]
        brightness = float(image.mean()) / 255
        if brightness < 0.25:
            return SystemAnswer.failed("too dark")
        box = np.float32([[width / 4, height / 4, width * 3 / 4, height * 3 / 4]])
        features = cv_features(image)
        return SystemAnswer(Detections(box, np.float32([[1 - brightness, 0, brightness]])), None, features)

    def close(self) -> None:
        pass


def cv_features(image: Picture) -> np.ndarray:
    """Means of 4 x 4 fields of the picture, (48,)."""
    height, width = image.shape[0] // 4 * 4, image.shape[1] // 4 * 4
    fields = image[:height, :width].reshape(4, height // 4, 4, width // 4, 3)
    return fields.mean(axis=(1, 3)).ravel().astype(np.float32)
