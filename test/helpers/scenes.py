# SPDX-License-Identifier: Apache-2.0
"""Data sets of rendered scenes."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sticker_uq.io.coco import write_coco
from sticker_uq.lab.rendering import encode_scene, render, sample_scene


def rendered(
    folder: Path, seeds: Iterable[int], size: tuple[int, int], image_format: str = "jpg", **options: Any
) -> Path:
    """A COCO folder with a picture of the scene of each seed; ``options``: those of ``sample_scene``."""
    scenes = ((seed, render(sample_scene(seed, **options), size)) for seed in seeds)
    write_coco(folder, (encode_scene(seed, scene, image_format) for seed, scene in scenes))
    return folder
