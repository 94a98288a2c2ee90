# SPDX-License-Identifier: Apache-2.0
"""Whether clusters of several passes find the stickers that one pass finds, by their size: part of benchmarks.better_uncertainty.

Few stickers of a rendered laptop are small. So the unchanged pictures are also shown shrunk, on a ground of the colour of their
edge; not below 0.6, where one pass finds next to none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from benchmarks import better_measure
from benchmarks.better_measure import CLUSTERINGS, PACKAGED, Instrument, Passes, Picture
from benchmarks.hard_scenes import HardScene, Material
from sticker_uq.io.files import atomic_write
from sticker_uq.scene import FloatArray

SCALES = (0.6, 0.75, 1.0)
KINDS = (Passes("inputs", 0.1), PACKAGED, Passes("inputs", 0.5))
SIZES = {
    "below 40 px": (0.0, 40.0),
    "40 to 55 px": (40.0, 55.0),
    "55 to 70 px": (55.0, 70.0),
    "from 70 px on": (70.0, np.inf),
}
"""Longer side of a sticker in px of a 640x480 picture; the network sees half of that."""
_KEPT = ("size", "found", "views", "agreement")


def shrunk(scene: HardScene, scale: float) -> HardScene:
    """``scene`` at ``scale`` in the middle of a picture of the same size."""
    height, width = scene.image.shape[:2]
    shift = np.array([width, height]) * (1 - scale) / 2
    edge = np.concatenate([scene.image[0], scene.image[-1], scene.image[:, 0], scene.image[:, -1]])
    small = cv2.resize(scene.image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    image = np.empty_like(scene.image)
    image[:] = np.median(edge, axis=0).astype(np.uint8)
    left, top = np.round(shift).astype(int)
    image[top : top + small.shape[0], left : left + small.shape[1]] = small

    def moved(boxes: FloatArray) -> FloatArray:
        return (boxes * scale + np.tile(shift, 2)).astype(np.float32)

    return HardScene(image, moved(scene.boxes), scene.labels, moved(scene.hidden), moved(scene.things))


def measure_shrunk(
    pictures: Sequence[Picture],
    cache: Path,
    instrument: Instrument,
    material: Material,
    progress: Callable[[int], None] = lambda _: None,
) -> list[dict[str, np.ndarray]]:
    """How the stickers of ``pictures`` at SCALES appear, as `Instrument.objects` says; what ``cache`` lacks is measured."""
    parts = [instrument.detector.weights_hash, *(kind.name for kind in KINDS)]
    parts += [Path(str(file)).read_text(encoding="utf-8") for file in (better_measure.__file__, __file__)]
    folder = cache / f"shrunk-{hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()}"
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for picture in pictures:
        for scale in SCALES:
            file = folder / f"{picture.name}-{scale:g}.npz"
            if not file.is_file():
                scene = shrunk(picture.case.scene(picture.seed, material), scale)
                own = instrument.objects(scene, KINDS, picture.seed)
                with atomic_write(file) as stream:
                    names = (*_KEPT, *(name for name in own if name.startswith("seen ")))
                    np.savez_compressed(stream, **{name: own[name] for name in names})  # type: ignore[arg-type]
            with np.load(file) as kept:
                found.append({name: kept[name] for name in kept})
            progress(1)
    return found


def recall_of(pictures: Sequence[dict[str, np.ndarray]]) -> dict[str, Any]:
    """The recall of stickers of SIZES by one pass and by the clusters of every kind, and what the packaged passes lost.

    "views": how many of the passes show the lost ones as stickers, counted in 0, 1 to 2, 3 to 9 and 10 to 20; "agreement": the
    median mean IoU of their boxes in these passes.
    """
    joined = {name: np.concatenate([one[name] for one in pictures]) for name in _KEPT}
    kinds = [name.removeprefix("seen ") for name in pictures[0] if name.startswith("seen ")]
    states = {kind: np.concatenate([one[f"seen {kind}"] for one in pictures]) for kind in kinds}
    rows, lost = [], []
    for words, (low, high) in SIZES.items():
        chosen = (joined["size"] >= low) & (joined["size"] < high)
        single, count = joined["found"][chosen].astype(bool), int(chosen.sum())
        rows.append({"stickers": words, "by": "one pass", "count": count, "found": int(single.sum())})
        for kind, own in states.items():
            for number, setting in zip(range(own.shape[1]), CLUSTERINGS, strict=False):
                state = own[chosen, number]
                row = {"stickers": words, "by": f"{kind}, {setting}" if number else kind, "count": count}
                row |= {"found": int((state == 2).sum()), "unstable": int((state == 1).sum())}
                row |= {"lost": int((single & (state != 2)).sum())}
                rows.append(row | {"gained": int((~single & (state == 2)).sum())})
        gone = single & (states[PACKAGED.name][chosen, 0] != 2)
        views, agreement = (joined[name][chosen][gone] for name in ("views", "agreement"))
        known = agreement[np.isfinite(agreement)]
        lost.append(
            {
                "stickers": words,
                "count": int(gone.sum()),
                "views": np.histogram(views, [0, 1, 3, 10, 21])[0].tolist(),
                "agreement": round(float(np.median(known)), 4) if len(known) else None,
            }
        )
    return {"rows": rows, "lost": lost}
