# SPDX-License-Identifier: Apache-2.0
"""Draws the rendered laptops that the packaged photo head learned from, and those that it is measured on, as a COCO folder.

    python scripts/photo_pictures.py FOLDER KIND FIRST_SEED COUNT

KIND: clean, prints, unknown-object, residue, or mixed: COUNT of each, and three times as many clean ones.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sticker_uq.io.coco import EncodedScene, write_coco
from sticker_uq_lab.datasets.abnormal import CASES, EXPOSURE, leave_untouched
from sticker_uq_lab.rendering import render, sample_scene
from sticker_uq_lab.rendering.scene_sampling import with_prints

SIZE, OPACITY = (1224, 1024), 0.7
KINDS = ("clean", "prints", "unknown-object", "residue")
STEP = 1000
"""Between the first seeds of the kinds."""


def pictures(kind: str, first: int, count: int) -> Iterator[EncodedScene]:
    for seed in range(first, first + count):
        spec = sample_scene(seed, profile="study")
        if kind == "prints" and len(spec.stickers) > 1:
            laptop, _ = with_prints(spec, OPACITY, SIZE)
        else:
            laptop = render(spec, SIZE)
        scene = leave_untouched(laptop.image.copy(), laptop.boxes, laptop.labels)
        if change := {**CASES, **EXPOSURE}.get(kind):
            scene = change(scene, np.random.default_rng(seed))
        yield EncodedScene.of(np.ascontiguousarray(scene.image), seed, "jpg", scene.boxes, scene.labels)


if __name__ == "__main__":
    folder, kind, first, count = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
    kinds = (*KINDS, "clean", "clean") if kind == "mixed" else (kind,)
    if unknown := set(kinds) - set(KINDS):
        sys.exit(f"KIND {', '.join(unknown)}: expected one of {', '.join(KINDS)}, mixed")
    write_coco(
        folder, (one for n, name in enumerate(kinds) for one in pictures(name, first + STEP * n, count))
    )
