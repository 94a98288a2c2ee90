# SPDX-License-Identifier: Apache-2.0
"""Training of novelty detection: its reference, and how well it tells the unknown from the known, on held-out pictures."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sticker_uq.evaluation.metrics.statistics import area_under_roc, bootstrap
from sticker_uq.gate.assumptions.familiarity import tail_limit
from sticker_uq.io.coco import LabelledImage, read_picture
from sticker_uq.lab.datasets.abnormal import add_foreign_objects
from sticker_uq.novelty.network import NoveltyNetwork, ready, scene_activations
from sticker_uq.novelty.quality import Auroc, NoveltyQuality
from sticker_uq.novelty.reference import SceneReference
from sticker_uq.perception.novelty import ImageNovelty, novelty_from_network
from sticker_uq.scene import FloatArray, InvalidInput

HELD_OUT, MOST_HELD_OUT = 0.2, 400
"""Share of the pictures that nothing is learned from, and the largest number of them."""
MOST_IN_REFERENCE = 1200
BEYOND = 0.001
"""Share of familiar scenes that are expected beyond distance 1."""
FEWEST = 50
_PHOTOGRAPHS = (
    "astronaut", "brick", "camera", "cat", "clock", "coffee", "coins", "grass", "gravel", "hubble_deep_field",
    "immunohistochemistry", "moon", "page", "retina", "rocket", "text",
)  # fmt: skip
"""Those that come with scikit-image; the ones of scikit-learn are trained on."""

Picture = NDArray[np.uint8]


def split(items: Sequence[LabelledImage], seed: int) -> tuple[list[LabelledImage], list[LabelledImage]]:
    """``items`` to train novelty detection on, and those that are held out, drawn by ``seed``. InvalidInput for fewer than 50."""
    if len(items) < FEWEST:
        raise InvalidInput(
            f"{len(items)} pictures to train novelty detection on, expected some hundreds, at least {FEWEST}; `sticker-uq "
            "dataset frames` takes more from a recording"
        )
    held = min(round(len(items) * HELD_OUT), MOST_HELD_OUT)
    order = np.random.default_rng(seed).permutation(len(items))
    return [items[i] for i in sorted(order[held:])], [items[i] for i in sorted(order[:held])]


def measured(
    model: NoveltyNetwork,
    learned: Sequence[LabelledImage],
    held: Sequence[LabelledImage],
    seed: int = 0,
    on_picture: Callable[[], None] = lambda: None,
) -> NoveltyQuality:
    """The quality of ``model`` on pictures ``held``, after its reference was fitted to ``learned`` ones.

    ``on_picture`` is called :func:`pictures_read` times and once more for each held-out picture. InvalidInput for a picture that
    cannot be read.
    """
    network = ready(copy.deepcopy(model))
    set_reference(network.reference, partial(scene_activations, network), learned, held, on_picture)
    model.reference.load_state_dict(network.reference.state_dict())
    return measure_quality(partial(novelty_from_network, network), held, seed, on_picture)


def set_reference(
    reference: SceneReference,
    activations: Callable[[Picture], Tensor],
    learned: Sequence[LabelledImage],
    held: Sequence[LabelledImage],
    on_picture: Callable[[], None] = lambda: None,
) -> None:
    """Fit ``reference`` to ``activations`` (C,) of pictures ``learned``; 0.1 % of ``held`` ones are expected
    beyond 1.

    The covariance is shrunk (Ledoit and Wolf 2004), so that fewer pictures than channels suffice. So few held-out pictures lie
    far out that their tail is continued as an exponential one. InvalidInput for a picture that cannot be read.
    """
    from sklearn.covariance import LedoitWolf  # takes a second to load

    def measured(items: Sequence[LabelledImage]) -> FloatArray:
        rows = []
        for item in items:
            rows.append(activations(read_picture(item)).double().cpu().numpy())
            on_picture()
        return np.array(rows)

    step = -(-len(learned) // MOST_IN_REFERENCE)
    known = measured(learned[::step])
    mean, spread = known.mean(axis=0), known.std(axis=0) + 1e-6
    gaussian = LedoitWolf(assume_centered=True).fit((known - mean) / spread)
    values, vectors = np.linalg.eigh(gaussian.precision_)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))).T / spread
    distances = np.linalg.norm((measured(held) - mean) @ root.T, axis=1)
    unit = tail_limit(distances, BEYOND)
    reference.set(torch.from_numpy(mean), torch.from_numpy(root / unit))


def pictures_read(learned: int, held: int) -> int:
    """How many pictures :func:`set_reference` of novelty training reads, for a progress bar."""
    return -(-learned // -(-learned // MOST_IN_REFERENCE)) + held


def measure_quality(
    novelty: Callable[[Picture], ImageNovelty],
    held: Sequence[LabelledImage],
    seed: int = 0,
    on_picture: Callable[[], None] = lambda: None,
) -> NoveltyQuality:
    """How well ``novelty`` tells the unknown from the known on pictures ``held``, which it did not learn
    from.

    Objects: those of kinds that no training picture holds, drawn into the pictures, against the labelled ones. Scenes:
    photographs that come with scikit-image, whole and in quarters, against the pictures. InvalidInput for a picture that
    cannot be read.
    """
    known: list[list[float]] = []
    unknown: list[list[float]] = []
    familiar = []
    for item in held:
        picture = read_picture(item)
        rng = np.random.default_rng((seed, item.image_id))
        plain = novelty(picture)
        scene = add_foreign_objects(picture, item.boxes, item.labels, rng, stickers=False)
        changed = novelty(scene.image)
        familiar.append(plain.distance)
        known.append([plain.at(box) for box in item.boxes])
        unknown.append([changed.at(box) for box in scene.added])
        on_picture()
    foreign = [[novelty(view).distance for view in views] for views in photographs()]
    return NoveltyQuality(_auroc(known, unknown), _auroc([[d] for d in familiar], foreign), len(held))


def _auroc(known: Sequence[Sequence[float]], unknown: Sequence[Sequence[float]]) -> Auroc:
    """The area with its interval; values of one picture are drawn together. 0 to 1 around 0.5 where nothing was measured."""

    def area(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
        rows = (
            [v for i in drawn for v in values[i]] for drawn, values in ((first, known), (second, unknown))
        )
        return area_under_roc(*(np.array(row) for row in rows))

    value = area(np.arange(len(known)), np.arange(len(unknown)))
    if np.isnan(value):
        return Auroc(0.5, 0.0, 1.0)
    low, high = bootstrap(area, [len(known), len(unknown)], resamples=300)
    return Auroc(*(round(float(v), 4) for v in (value, low, high)))


@lru_cache(maxsize=1)
def photographs() -> tuple[tuple[Picture, ...], ...]:
    """Novelty training's unknown pictures to measure on: scikit-image's photographs, as views (H, W, 3) uint8 BGR, whole and
    quarters.
    """
    import skimage.data

    return tuple(_views(np.asarray(getattr(skimage.data, name)(), np.uint8)) for name in _PHOTOGRAPHS)


def _views(photo: Picture) -> tuple[Picture, ...]:
    colour = photo[..., :3] if photo.ndim == 3 else np.repeat(photo[..., None], 3, axis=2)
    bgr = np.ascontiguousarray(colour[..., ::-1])
    rows, columns = (side // 2 for side in bgr.shape[:2])
    quarters = (
        (r, c) for r in (slice(rows), slice(rows, None)) for c in (slice(columns), slice(columns, None))
    )
    return bgr, *(np.ascontiguousarray(bgr[part]) for part in quarters)
