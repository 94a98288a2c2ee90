# SPDX-License-Identifier: Apache-2.0
"""Data sets of rendered scenes."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from sticker_uq.io.coco import write_coco
from sticker_uq_lab.rendering import RenderedScene, encode_scene, render, sample_scene


def rendered(
    folder: Path,
    seeds: Iterable[int],
    size: tuple[int, int],
    image_format: str = "jpg",
    stickers: int | Callable[[int], int] | None = None,
    **options: Any,
) -> Path:
    """A COCO folder with a picture of the scene of each seed; ``stickers`` may depend on it, ``options``: of ``sample_scene``."""

    def scene(seed: int) -> RenderedScene:
        count = stickers(seed) if callable(stickers) else stickers
        return render(sample_scene(seed, stickers=count, **options), size)

    write_coco(folder, (encode_scene(seed, scene(seed), image_format) for seed in seeds))
    return folder
