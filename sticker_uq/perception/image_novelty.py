# SPDX-License-Identifier: Apache-2.0
"""Novelty of an image and of its objects to the detector, where a novelty network was trained."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sticker_uq.detection import StochasticDetector
from sticker_uq.perception.novelty.network import (
    NoveltyMaps,
    NoveltyNetwork,
    load_network,
    novelty_maps,
    packaged_file_for,
    scene_activations,
)
from sticker_uq.perception.novelty.regions import scene_novelty
from sticker_uq.perception.settings import PerceptionSettings
from sticker_uq.scene import FloatArray, ObservedObject


class NoveltyEstimator:
    """Estimates the novelty of a picture with a network of its own.

    ``settings_hash``: of the settings and of the file of the network. ``problem``: why novelty is not measured although it
    is switched on, and what to do; empty where it is.
    """

    def __init__(self, settings: PerceptionSettings, detector: StochasticDetector) -> None:
        """Load the network for the weights that ``settings`` name.

        For the packaged weights that is the packaged network, for others the file ``NAME_novelty.safetensors`` beside
        ``NAME.safetensors``. Without one, with one that is too weak (:class:`NoveltyQuality`), or switched off, nothing is
        measured; with one that is too weak for objects, the distance of the scene alone. Raises :class:`InvalidInput` for a file
        that is no such network.
        """
        self._detector = detector
        self.settings_hash = settings.hash_on(detector.device.type)
        self.problem = ""
        self._model: NoveltyNetwork | None = None
        self._objects = True
        self._beside = ThreadPoolExecutor(1, "novelty")
        if not settings.novelty:
            return
        path = _file(settings, detector)
        if path is None:
            self.problem = _none_for(settings, detector)
            return
        model = load_network(path, detector.device)
        self.problem = _weakness(model, path)
        if not self.problem:
            self._model = model
            self._objects = not (model.quality and model.quality.objects_weakness)
            both = f"{self.settings_hash}:{hashlib.sha256(path.read_bytes()).hexdigest()}"
            self.settings_hash = hashlib.sha256(both.encode()).hexdigest()

    def begin(self, image: NDArray[np.uint8]) -> Callable[[], ImageNovelty]:
        """Start on ``image``; the returned function waits for its novelty.

        The network runs in parallel with the detector, on another core if there is one; on a GPU it runs after it.
        """
        if (network := self._model) is None:
            return ImageNovelty

        def measure() -> ImageNovelty:
            if self._objects:
                return novelty_from_network(network, image, self._detector)
            return ImageNovelty(distance=network.scene_distance(scene_activations(network, image)))

        return measure if self._detector.device.type != "cpu" else self._beside.submit(measure).result


def _none_for(settings: PerceptionSettings, detector: StochasticDetector) -> str:
    if not settings.weights:
        return f"novelty is not measured: no novelty network for the weights of {detector.name}"
    return (
        f"novelty is not measured: no file {_beside_weights(settings).name} beside the weights, "
        "make one with `sticker-uq dil learn`"
    )


def _weakness(model: NoveltyNetwork, path: Path) -> str:
    if model.quality is None:
        return f"novelty is not measured: the quality of {path.name} is unknown, make it anew with `sticker-uq dil learn`"
    weakness = model.quality.weakness
    return weakness and (
        f"novelty is not measured: {path.name} is too weak: {weakness}; learn from more pictures with `sticker-uq dil learn`"
    )


def _beside_weights(settings: PerceptionSettings) -> Path:
    weights = Path(settings.weights)
    return weights.with_name(f"{weights.stem}_novelty.safetensors")


def _file(settings: PerceptionSettings, detector: StochasticDetector) -> Path | None:
    """The file of the network for the weights that ``settings`` name, None where there is none."""
    if not settings.weights:
        return packaged_file_for(detector)
    path = _beside_weights(settings)
    return path if path.is_file() else None


def novelty_from_network(
    network: NoveltyNetwork, image: NDArray[np.uint8], detector: StochasticDetector | None = None
) -> ImageNovelty:
    """``detector``: whose device and settings compute it; None: those of the network."""
    maps = novelty_maps(network, image, None if detector is None else detector.run_stage)
    return ImageNovelty(maps.foreign, maps.cell, scene_novelty(maps), maps.distance, maps)


class ImageNovelty:
    """The novelty of one image, ``scene``, 0..1, of places in it, and its ``distance``, 1 at the limit; NaN: not measured."""

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
        if self._cells is None or not np.isfinite(box).all():
            return math.nan
        rows, columns = self._cells.shape
        edges = box * self._cells_per_px
        left, top = (int(np.clip(np.floor(edges[i]), 0, n - 1)) for i, n in ((0, columns), (1, rows)))
        right, bottom = (int(np.clip(np.ceil(edges[i]), 1, n)) for i, n in ((2, columns), (3, rows)))
        return float(self._cells[top : max(bottom, top + 1), left : max(right, left + 1)].mean())

    def on(self, objects: Iterable[ObservedObject]) -> tuple[ObservedObject, ...]:
        """The clustered ``objects`` of an image with the novelty of their boxes."""
        if self._cells is None:
            return tuple(objects)
        return tuple(replace(o, novelty=self.at(o.box)) for o in objects)
