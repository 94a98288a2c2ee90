# SPDX-License-Identifier: Apache-2.0
"""Draws what the packaged weights for close-ups learned from: labelled close-ups of rendered laptops, as COCO folders.

    python scripts/close_up_pictures.py FOLDER FIRST_SEED COUNT

Laptops of both profiles as cameras of several sizes see them, an eighth without a sticker, a third with unknown objects, two
fifths with residue, glare, blur, noise, a hand or a gripper.
"""

import sys
from functools import cache
from pathlib import Path

import cv2
import numpy as np
import torch

from sticker_uq.detection import DetectorSettings, StochasticDetector, load_detector
from sticker_uq.evaluation.executors import map_over
from sticker_uq.io.coco import EncodedScene, write_coco
from sticker_uq_lab.datasets.abnormal import CASES, EXPOSURE, leave_untouched
from sticker_uq_lab.datasets.close_ups import close_up_scene
from sticker_uq_lab.rendering import render, sample_scene
from sticker_uq_lab.rendering.scene_sampling import Profile

PICTURES: tuple[tuple[Profile, tuple[int, int], float], ...] = (
    ("study", (1632, 1366), 0.45),
    ("study", (2448, 2048), 0.1),
    ("study", (1224, 1024), 0.1),
    ("study", (960, 804), 0.07),
    ("large", (960, 720), 0.2),
    ("large", (1440, 1080), 0.08),
)
"""Profile, size px, and share of the pictures."""
BARE = 0.12
UNKNOWN, DEGRADED = 0.35, 0.4


@cache
def detector() -> StochasticDetector:
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    return load_detector(DetectorSettings(device="cpu"))


def shown_closely(seed: int) -> EncodedScene:
    rng = np.random.default_rng((seed, 7))
    profile, size, _ = PICTURES[rng.choice(len(PICTURES), p=[share for *_, share in PICTURES])]
    laptop = render(sample_scene(seed, stickers=0 if rng.random() < BARE else None, profile=profile), size)
    scene, drawn = leave_untouched(laptop.image.copy(), laptop.boxes, laptop.labels), rng.random()
    if drawn < UNKNOWN:
        scene = CASES["unknown-object"](scene, rng)
    elif drawn < UNKNOWN + DEGRADED:
        scene = EXPOSURE[str(rng.choice(list(EXPOSURE)))](scene, rng)
    return close_up_scene(seed, np.ascontiguousarray(scene.image), scene.boxes, scene.labels, detector(), rng)


if __name__ == "__main__":
    folder, first, count = Path(sys.argv[1]), *map(int, sys.argv[2:])
    write_coco(folder, map_over(shown_closely, range(first, first + count), 2, chunksize=4))
