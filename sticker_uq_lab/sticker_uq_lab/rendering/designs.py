# SPDX-License-Identifier: Apache-2.0
"""A user's own pictures: what stickers show, marks that must stay, tables and screens."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path

import cv2
import numpy as np

from sticker_uq.io.files import files_in
from sticker_uq.io.images import MOST_PICTURE
from sticker_uq.io.reading import read_bytes
from sticker_uq.io.stored_pictures import decode
from sticker_uq.scene import InvalidInput, Rng
from sticker_uq_lab.rendering.painting import Image
from sticker_uq_lab.rendering.scene_spec import LogoSpec, SceneSpec, StickerSpec

FOLDERS = ("stickers", "logos", "photographs")
SHARE = 0.5
"""Of the stickers and logos, and of the tables and screens of all scenes, on average, that show a design."""
_MOST = 800  # px that are kept of a picture's longer side
_INK = 8  # of 255, opacity from which something is there


@dataclass(frozen=True)
class Designs:
    """Picture files of a folder's FOLDERS."""

    stickers: tuple[str, ...]
    logos: tuple[str, ...]
    photographs: tuple[str, ...]


def read_designs(folder: Path) -> Designs:
    """The designs in ``folder``, every one of which can be read; InvalidInput otherwise, and for none."""
    found = [
        tuple(str(file) for file in files_in(folder / name)) if (folder / name).is_dir() else ()
        for name in FOLDERS
    ]
    if not any(found):
        raise InvalidInput(
            f"{folder}: expected PNG or JPEG files in {'/, '.join(FOLDERS)}/, or in some of them"
        )
    for file in chain(*found):
        _design(file)
    return Designs(*found)


@lru_cache(maxsize=200)
def _design(file: str) -> Image:
    """Colours and opacity (h, w, 4), cropped to what is there."""
    try:
        image = decode(read_bytes(file, MOST_PICTURE, file), cv2.IMREAD_UNCHANGED)
    except InvalidInput as error:
        raise InvalidInput(f"design {file}: {error}") from None
    if image.dtype != np.uint8 or image.ndim != 3:
        raise InvalidInput(f"design {file}: expected colours of 8 bits")
    if image.shape[2] == 3:
        image = cv2.cvtColor(image, cv2.COLOR_BGR2BGRA)
    x, y, width, height = cv2.boundingRect((image[:, :, 3] >= _INK).astype(np.uint8))
    if min(width, height) < 2:
        raise InvalidInput(f"design {file}: is transparent everywhere")
    image = image[y : y + height, x : x + width]
    shrink = min(1.0, _MOST / max(width, height))
    size = max(2, round(width * shrink)), max(2, round(height * shrink))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)


def with_designs(scene: SceneSpec, designs: Designs) -> SceneSpec:
    """``scene`` with the designs on some of its stickers and logos, perhaps on its table and screen, as its seed says.

    A sticker keeps its area; a logo, which must stay on the laptop, becomes as large as fits where it was.
    """
    rng = np.random.default_rng((scene.seed, 3))
    return replace(
        scene,
        stickers=tuple(_sticker(one, designs.stickers, rng) for one in scene.stickers),
        logos=tuple(_logo(one, designs.logos, rng) for one in scene.logos),
        background=replace(scene.background, photograph=_drawn(designs.photographs, rng)),
        laptop=replace(scene.laptop, screen=_drawn(designs.photographs, rng)),
    )


def _drawn(files: tuple[str, ...], rng: Rng) -> str:
    """One of ``files``, or "" for what is drawn without them."""
    return files[rng.integers(len(files))] if files and rng.random() < SHARE else ""


def _sticker(sticker: StickerSpec, files: tuple[str, ...], rng: Rng) -> StickerSpec:
    if not (file := _drawn(files, rng)):
        return sticker
    rows, columns = _design(file).shape[:2]
    scale = math.sqrt(sticker.width * sticker.height / (rows * columns))
    return replace(sticker, shape="design", motif=file, width=scale * columns, height=scale * rows)


def _logo(logo: LogoSpec, files: tuple[str, ...], rng: Rng) -> LogoSpec:
    if not (file := _drawn(files, rng)):
        return logo
    rows, columns = _design(file).shape[:2]
    scale = min(logo.width / columns, logo.height / rows)
    return replace(logo, design=file, width=scale * columns, height=scale * rows)


def paint_design(file: str, width: int, height: int) -> tuple[Image, Image]:
    """Colours (h, w, 3) and coverage (h, w) of a design."""
    source = _design(file)
    how = cv2.INTER_AREA if width < source.shape[1] else cv2.INTER_LINEAR
    image = cv2.resize(source, (width, height), interpolation=how)
    return np.ascontiguousarray(image[:, :, :3]), np.ascontiguousarray(image[:, :, 3])


def paint_photograph(file: str, width: int, height: int) -> Image:
    """The middle of a picture (height, width, 3) that has the shape asked for."""
    source = _design(file)[:, :, :3]
    rows, columns = source.shape[:2]
    scale = max(width / columns, height / rows)
    down, across = min(rows, math.ceil(height / scale)), min(columns, math.ceil(width / scale))
    top, left = (rows - down) // 2, (columns - across) // 2
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    part = source[top : top + down, left : left + across]
    return np.asarray(cv2.resize(part, (width, height), interpolation=how), np.uint8)
