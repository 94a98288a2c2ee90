# SPDX-License-Identifier: Apache-2.0
"""Random surfaces of the shapes on abnormal scenes: plain, patterned, noisy, or cut out of a picture.

Cut-outs are from the picture itself and from two photographs in scikit-learn, for real textures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import cv2
import numpy as np
import numpy.typing as npt

from sticker_uq.lab.rendering.painting import Image

Floats = npt.NDArray[np.float32]

_GREYISH = 0.5
"""Share of the colours that are nearly grey, as metal, rubber and paper are."""
_DETAILED = 0.5
"""Share of the surfaces with lines and circles on them."""
_MOST_DETAILS = 6
_MOST_WAVES = 6


Surface = Callable[[int, int, Image, np.random.Generator], Image]
"""Makes a surface (height, width, 3) uint8, possibly of parts of a picture (H, W, 3)."""


def surface(height: int, width: int, image: Image, rng: np.random.Generator) -> Image:
    """Surface (height, width, 3) uint8 of a random shape on an abnormal scene; some are cut from ``image`` (H, W, 3) in other
    colours.
    """
    return _painted(_KINDS, height, width, image, rng)


def printed(height: int, width: int, image: Image, rng: np.random.Generator) -> Image:
    """As :func:`surface`, for abnormal scenes: of the kinds that can be printed, without the shading of a curved object."""
    return _painted(_PRINTED, height, width, image, rng)


def _painted(
    kinds: Sequence[Callable[..., Floats]], height: int, width: int, image: Image, rng: np.random.Generator
) -> Image:
    made = kinds[int(rng.integers(len(kinds)))](height, width, image, rng)
    grain = rng.standard_normal((height, width, 1), dtype=np.float32) * np.float32(rng.uniform(0, 10))
    painted = np.ascontiguousarray(np.clip(np.rint(made + grain), 0, 255), np.uint8)
    if rng.random() < _DETAILED:
        _details(painted, rng)
    return painted


def print_of(height: int, width: int, image: Image, rng: np.random.Generator) -> Image:
    """A surface (height, width, 3) uint8 of full colours: blocks, waves or clouds, over all grey
    levels.
    """
    kinds = (_noisy, _waves, _cloudy, _striped)
    made = kinds[int(rng.integers(len(kinds)))](height, width, image, rng)
    if rng.random() < 0.5:  # two interleaved ones
        other = kinds[int(rng.integers(len(kinds)))](height, width, image, rng)
        share = _wave(height, width, rng, 4, 60)[..., None] > rng.uniform(-0.5, 0.5)
        made = np.where(share, made, other)
    middle = made.mean(axis=(0, 1))
    strong = 128 + (made - middle) * np.float32(rng.uniform(1, 4))
    return np.asarray(np.clip(np.rint(strong), 0, 255), np.uint8)


def colour(rng: np.random.Generator) -> Floats:
    """Colour (3,) of a random shape on an abnormal scene, every second one nearly grey."""
    if rng.random() < _GREYISH:
        return np.clip(rng.uniform(10, 245) + rng.normal(0, 10, 3), 0, 255).astype(np.float32)
    return rng.uniform(0, 255, 3).astype(np.float32)


def _mixed(share: Floats, rng: np.random.Generator) -> Floats:
    """Two colours mixed by ``share`` (H, W) 0..1."""
    first, second = colour(rng), colour(rng)
    return np.asarray(first + (second - first) * share[..., None], np.float32)


def _plain(height: int, width: int, image: Image, rng: np.random.Generator) -> Floats:
    return np.broadcast_to(colour(rng), (height, width, 3)).astype(np.float32)


def _graded(height: int, width: int, image: Image, rng: np.random.Generator) -> Floats:
    if rng.random() < 0.5:
        along = _along(height, width, rng)
    else:  # around a bright or dark place
        rows, columns = np.ogrid[:height, :width]
        y, x = rng.uniform(0, height), rng.uniform(0, width)
        along = np.hypot(rows - y, columns - x).astype(np.float32)
    return _mixed((along - along.min()) / max(1.0, float(np.ptp(along))), rng)


def _striped(height: int, width: int, image: Image, rng: np.random.Generator) -> Floats:
    stripes = _wave(height, width, rng, 3, 50) > rng.uniform(-0.6, 0.6)
    if rng.random() < 0.3:  # checks
        stripes ^= _wave(height, width, rng, 3, 50) > rng.uniform(-0.6, 0.6)
    return _mixed(stripes.astype(np.float32), rng)


def _waves(height: int, width: int, image: Image, rng: np.random.Generator) -> Floats:
    made = np.zeros((height, width, 3), np.float32)
    for _ in range(int(rng.integers(2, _MOST_WAVES + 1))):
        made += _wave(height, width, rng, 4, 90)[..., None] * rng.normal(0, 60, 3).astype(np.float32)
    return np.asarray(made + colour(rng), np.float32)


def _cloudy(height: int, width: int, image: Image, rng: np.random.Generator) -> Floats:
    made = np.zeros((height, width, 3), np.float32)
    rough = rng.uniform(0.3, 1.0)
    for octave in range(5):
        cells = 2**octave + 1
        coarse = rng.standard_normal((cells, cells, 3), dtype=np.float32)
        made += cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC) * np.float32(rough**octave)
    return np.asarray(colour(rng) + made * np.float32(rng.uniform(15, 60)), np.float32)


def _noisy(height: int, width: int, image: Image, rng: np.random.Generator) -> Floats:
    """Blocks of random colours, from single pixels on."""
    block = float(rng.choice([1, 2, 3, 4, 6, 9, 14]))
    size = (math.ceil(height / block), math.ceil(width / block), 3)
    cells = rng.random(size)
    if rng.random() < 0.5:  # only the ends of every channel
        cells = (cells < rng.uniform(0.2, 0.8)).astype(float)
    how = cv2.INTER_NEAREST if rng.random() < 0.5 else cv2.INTER_LINEAR
    return np.asarray(
        cv2.resize(255 * cells.astype(np.float32), (width, height), interpolation=how), np.float32
    )


def _cut(height: int, width: int, image: Image, rng: np.random.Generator) -> Floats:
    return _part(image, height, width, rng)[..., rng.permutation(3)].astype(np.float32)


def _photographed(height: int, width: int, image: Image, rng: np.random.Generator) -> Floats:
    photographs = _photographs()
    part = _part(photographs[int(rng.integers(len(photographs)))], height, width, rng)
    return np.asarray(part[..., rng.permutation(3)].astype(np.float32) * np.float32(rng.uniform(0.5, 1.2)))


_KINDS = (_plain, _plain, _graded, _graded, _striped, _waves, _cloudy, _noisy, _cut, _photographed)
_PRINTED = (_plain, _plain, _plain, _striped, _waves, _noisy, _cut, _photographed)


def _part(picture: Image, height: int, width: int, rng: np.random.Generator) -> Image:
    """A part of ``picture``, taken at 0.5 to 2 times the size."""
    scale = float(rng.uniform(0.5, 2.0))
    rows, columns = (
        max(1, min(have, round(want / scale)))
        for have, want in zip(picture.shape[:2], (height, width), strict=True)
    )
    top, left = (
        int(rng.integers(picture.shape[0] - rows + 1)),
        int(rng.integers(picture.shape[1] - columns + 1)),
    )
    part = picture[top : top + rows, left : left + columns]
    return np.asarray(cv2.resize(part, (width, height), interpolation=cv2.INTER_LINEAR), np.uint8)


@lru_cache(maxsize=1)
def _photographs() -> tuple[Image, ...]:
    """The photographs that come with scikit-learn, BGR."""
    from sklearn.datasets import load_sample_images

    return tuple(np.ascontiguousarray(photo[..., ::-1]) for photo in load_sample_images().images)


def _along(height: int, width: int, rng: np.random.Generator) -> Floats:
    turn = float(rng.uniform(0, 2 * math.pi))
    rows, columns = np.ogrid[:height, :width]
    return np.asarray(columns * math.cos(turn) + rows * math.sin(turn), np.float32)


def _wave(height: int, width: int, rng: np.random.Generator, least: float, most: float) -> Floats:
    """A plane wave -1..1 whose length is between ``least`` and ``most`` px."""
    turns = 2 * math.pi / math.exp(rng.uniform(math.log(least), math.log(most)))
    return np.asarray(np.sin(_along(height, width, rng) * np.float32(turns) + np.float32(rng.uniform(0, 6))))


def _details(painted: Image, rng: np.random.Generator) -> None:
    """Some lines and circles on a surface, each in a colour of its own."""
    height, width = painted.shape[:2]
    most = max(2, round(0.06 * max(height, width)))
    for _ in range(int(rng.integers(1, _MOST_DETAILS + 1))):
        ink = colour(rng).tolist()
        thickness = int(rng.integers(1, most + 1))
        (x1, x2), (y1, y2) = rng.integers(0, width, 2).tolist(), rng.integers(0, height, 2).tolist()
        if rng.random() < 0.6:
            cv2.line(painted, (x1, y1), (x2, y2), ink, thickness, cv2.LINE_AA)
        else:
            radius = max(1, int(rng.uniform(0.05, 0.4) * max(height, width)))
            cv2.circle(painted, (x1, y1), radius, ink, -1 if rng.random() < 0.4 else thickness, cv2.LINE_AA)
