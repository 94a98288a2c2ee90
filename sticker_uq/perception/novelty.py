# SPDX-License-Identifier: Apache-2.0
"""Novelty of an image and of its objects to the detector, where a novelty network or head was trained."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from sticker_uq.detection import Features, StochasticDetector
from sticker_uq.novelty.head import (
    ROLE,
    NoveltyHead,
    cells_of,
    load_novelty_model,
    novelty,
    novelty_map,
)
from sticker_uq.novelty.network import NoveltyMaps, NoveltyNetwork, novelty_maps, packaged_for
from sticker_uq.novelty.regions import scene_novelty
from sticker_uq.perception.settings import PerceptionSettings
from sticker_uq.scene import FloatArray, ObservedObject


class NoveltyEstimator:
    """Estimates the novelty of a picture, with a network of its own or with a head on the detector's maps.

    ``settings_hash``: of the settings and of the file of network or head. ``problem``: why novelty is not measured although it
    is switched on, and what to do; empty where it is.
    """

    def __init__(self, settings: PerceptionSettings, detector: StochasticDetector) -> None:
        """Load the network or head for the weights that ``settings`` name.

        For the packaged weights that is the packaged network, for others the file ``NAME_novelty.safetensors`` beside
        ``NAME.safetensors``. Without one, with one that is too weak (:class:`NoveltyQuality`), or switched off, nothing is
        measured. Raises :class:`InvalidInput` for a file that is neither a network nor a head of these weights.
        """
        self._detector = detector
        self.settings_hash = settings.hash_on(detector.device.type)
        self.problem = ""
        self._model: NoveltyNetwork | NoveltyHead | None = None
        self._beside = ThreadPoolExecutor(1, "novelty")
        if not settings.novelty:
            return
        path = _file(settings, detector)
        if path is None:
            self.problem = _none_for(settings, detector)
            return
        model = load_novelty_model(detector, path)
        self.problem = _weakness(model, path)
        if not self.problem:
            self._model = model
            both = f"{self.settings_hash}:{hashlib.sha256(path.read_bytes()).hexdigest()}"
            self.settings_hash = hashlib.sha256(both.encode()).hexdigest()

    def begin(self, image: NDArray[np.uint8]) -> Callable[[Features], ImageNovelty]:
        """Perception starts on ``image``; the returned function takes its features and waits for its novelty.

        A network of its own runs in parallel with the detector, on another core if there is one; on a GPU it runs after it.
        """
        network = self._model
        if not isinstance(network, NoveltyNetwork):
            return self._from_head
        if self._detector.device.type != "cpu":
            return lambda _: novelty_from_network(network, image)
        running = self._beside.submit(novelty_from_network, network, image)
        return lambda _: running.result()

    def _from_head(self, features: Features) -> ImageNovelty:
        if self._model is None:
            return ImageNovelty()
        assert isinstance(self._model, NoveltyHead)
        return novelty_from_head(self._detector, self._model, features)


def _none_for(settings: PerceptionSettings, detector: StochasticDetector) -> str:
    if not settings.weights:
        return f"novelty is not measured: no novelty network for the weights of {detector.name}"
    return (
        f"novelty is not measured: no file {_beside_weights(settings).name} beside the weights, "
        "make one with `sticker-uq dil learn --network`"
    )


def _weakness(model: NoveltyNetwork | NoveltyHead, path: Path) -> str:
    if model.quality is None:
        return f"novelty is not measured: the quality of {path.name} is unknown, make it anew with `sticker-uq dil learn`"
    weakness = model.quality.weakness
    return weakness and (
        f"novelty is not measured: {path.name} is too weak: {weakness}; learn from more pictures with `sticker-uq dil learn`"
    )


def _beside_weights(settings: PerceptionSettings) -> Path:
    weights = Path(settings.weights)
    return weights.with_name(f"{weights.stem}_{ROLE}.safetensors")


def _file(settings: PerceptionSettings, detector: StochasticDetector) -> Path | None:
    """The file of network or head for the weights that ``settings`` name, None where there is none."""
    if not settings.weights:
        return packaged_for(detector)
    path = _beside_weights(settings)
    return path if path.is_file() else None


def novelty_from_network(network: NoveltyNetwork, image: NDArray[np.uint8]) -> ImageNovelty:
    """Perception's novelty of ``image`` (H, W, 3) uint8 BGR by ``network``."""
    maps = novelty_maps(network, image)
    return ImageNovelty(maps.foreign, maps.cell, scene_novelty(maps), maps.distance, maps)


def novelty_from_head(detector: StochasticDetector, head: NoveltyHead, features: Features) -> ImageNovelty:
    """Perception's novelty of an image with these ``features`` of ``detector`` by ``head``."""
    cells = cells_of(detector.head_maps(features), features.padded)
    probabilities = novelty_map(head, cells)[0].cpu()
    with torch.inference_mode():
        distance = head.reference.distance(cells[0].mean(dim=(1, 2)))
    cell = cell_of(features, *probabilities.shape)
    return ImageNovelty(probabilities.numpy(), cell, novelty(probabilities), distance)


def cell_of(features: Features, rows: int, columns: int) -> tuple[float, float]:
    """In perception, width and height in px of a novelty cell, of ``rows`` x ``columns`` cells over the padded input of
    ``features``.
    """
    width, height = features.image_size
    return (
        width * features.padded[1] / features.resized[1] / columns,
        height * features.padded[0] / features.resized[0] / rows,
    )


class ImageNovelty:
    """The novelty of one image, ``scene``, 0..1, of places in it, and its scene ``distance``; NaN where it was not measured."""

    def __init__(
        self,
        cells: FloatArray | None = None,
        cell: tuple[float, float] = (1.0, 1.0),
        scene: float = math.nan,
        distance: float = math.nan,
        maps: NoveltyMaps | None = None,
    ) -> None:
        """``cells`` (h, w): novelty of cells of ``cell`` (width, height) px; ``maps``: those of a network."""
        self.scene, self.distance, self.maps = scene, distance, maps
        self._cells = cells
        self._cells_per_px = 1 / np.array([*cell, *cell])

    def at(self, box: FloatArray) -> float:
        """In perception, the mean novelty of the cells of an image that ``box`` (4,) px touches."""
        if self._cells is None or not np.isfinite(box).all():
            return math.nan
        rows, columns = self._cells.shape
        edges = box * self._cells_per_px
        left, top = (int(np.clip(np.floor(edges[i]), 0, n - 1)) for i, n in ((0, columns), (1, rows)))
        right, bottom = (int(np.clip(np.ceil(edges[i]), 1, n)) for i, n in ((2, columns), (3, rows)))
        return float(self._cells[top : max(bottom, top + 1), left : max(right, left + 1)].mean())

    def on(self, objects: Iterable[ObservedObject]) -> tuple[ObservedObject, ...]:
        """Perception's clustered ``objects`` of an image with the novelty of their boxes."""
        if self._cells is None:
            return tuple(objects)
        return tuple(replace(o, novelty=self.at(o.box)) for o in objects)
