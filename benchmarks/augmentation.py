# SPDX-License-Identifier: Apache-2.0
"""Test-time augmentation, one of the methods that the benchmark ``hard`` compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from sticker_uq.detection.detector import StochasticDetector
from sticker_uq.scene import Detections, FloatArray, InvalidInput, StochasticSamples

_MOST_SHIFT = 0.03  # of the image's size
_SCALES = (0.92, 1.08)
_GAINS = (0.8, 1.2)


@dataclass(frozen=True)
class View:
    """How a pass of test-time augmentation sees the image: mirrored or not, scaled about the corner, shifted px, brighter."""

    mirrored: bool
    scale: float
    shift: tuple[float, float]
    gain: float

    def of(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Test-time augmentation, a detector's sampler: ``image`` (H, W, 3) in this view; what it does not show is filled with
        its border.
        """
        height, width = image.shape[:2]
        sign = -1.0 if self.mirrored else 1.0
        offset = self.shift[0] + (self.scale * (width - 1) if self.mirrored else 0.0)
        matrix = np.array([[sign * self.scale, 0.0, offset], [0.0, self.scale, self.shift[1]]])
        seen = cv2.warpAffine(image, matrix, (width, height), borderMode=cv2.BORDER_REPLICATE)
        return np.asarray(cv2.convertScaleAbs(seen, alpha=self.gain), np.uint8)

    def back(self, boxes: FloatArray, size: tuple[int, int]) -> FloatArray:
        """Boxes of the image of ``size`` (width, height) from a sampler's ``boxes`` (N, 4) px in this augmented view, cut at
        its edges.
        """
        width, height = size
        x, y = (
            (boxes[:, [0, 2]] - self.shift[0]) / self.scale,
            (boxes[:, [1, 3]] - self.shift[1]) / self.scale,
        )
        if self.mirrored:
            x = (width - 1) - x[:, ::-1]
        corners = np.stack([x[:, 0], y[:, 0], x[:, 1], y[:, 1]], axis=1)
        return np.clip(corners, 0, [width, height, width, height]).astype(np.float32)


PLAIN = View(False, 1.0, (0.0, 0.0), 1.0)


class TestTimeAugmentation:
    """Every pass is a whole detection without dropout in another view of the image (Ayhan and Berens, 2018).

    Pass 0 sees the image as it is.
    """

    __test__ = False  # the name begins like a test's

    def __init__(self, detector: StochasticDetector) -> None:
        self._detector = detector

    def encode(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """What this sampler, test-time augmentation, starts from: the image itself; nothing is shared."""
        return image

    def sample(self, features: NDArray[np.uint8], passes: int, seed: int) -> StochasticSamples:
        """Test-time augmentation as a sampler: see :meth:`StochasticDetector.sample`. Raises InvalidInput if ``passes`` < 1."""
        size = (features.shape[1], features.shape[0])
        found = []
        for number in _numbers(passes):
            view = _view(seed, number, size)
            seen = self._detector.detect(self._detector.encode(view.of(features)))
            boxes = view.back(seen.boxes, size)
            there = (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
            found.append(Detections(boxes[there], seen.probabilities[there]))
        return _joined(found)


def _view(seed: int, number: int, size: tuple[int, int]) -> View:
    if number == 0:
        return PLAIN
    generator = np.random.default_rng((seed, number))
    shift = generator.uniform(-_MOST_SHIFT, _MOST_SHIFT, 2) * size
    return View(
        mirrored=bool(generator.random() < 0.5),
        scale=float(generator.uniform(*_SCALES)),
        shift=(float(shift[0]), float(shift[1])),
        gain=float(generator.uniform(*_GAINS)),
    )


def _numbers(passes: int) -> range:
    if passes < 1:
        raise InvalidInput(f"passes is {passes}, expected at least 1")
    return range(passes)


def _joined(found: Sequence[Detections]) -> StochasticSamples:
    return StochasticSamples(
        np.concatenate([one.boxes for one in found]),
        np.concatenate([one.probabilities for one in found]),
        np.repeat(np.arange(len(found)), [len(one) for one in found]),
        len(found),
    )
