"""Novelty of an image and of its objects to the detector, where a novelty network or head was trained."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sticker_uq.detection import Features, StochasticDetector
from sticker_uq.novelty.head import ROLE, NoveltyHead, load_novelty_model, novelty, novelty_map
from sticker_uq.novelty.network import NoveltyMaps, NoveltyNetwork, novelty_maps, packaged_for
from sticker_uq.novelty.regions import scene_novelty
from sticker_uq.perception.settings import PerceptionSettings
from sticker_uq.scene import FloatArray, ObservedObject


class NoveltyEstimator:
    """Estimates the novelty of a picture, with a network of its own or with a head on the detector's maps.

    ``settings_hash``: of the settings and of the file of network or head.
    """

    def __init__(self, settings: PerceptionSettings, detector: StochasticDetector) -> None:
        """Load the network or head for the weights that ``settings`` name.

        For the packaged weights that is the packaged network, for others the file ``NAME_novelty.safetensors`` beside
        ``NAME.safetensors``. Without one, or switched off, nothing is measured. Raises :class:`InvalidInput` for a file that is
        neither a network nor a head of these weights.
        """
        self._detector = detector
        self.settings_hash = settings.hash_on(detector.device.type)
        self._model: NoveltyNetwork | NoveltyHead | None = None
        self._beside = ThreadPoolExecutor(1, "novelty")
        if not settings.novelty:
            return
        path = _file(settings, detector)
        if path is not None:
            self._model = load_novelty_model(detector, path)
            both = f"{self.settings_hash}:{hashlib.sha256(path.read_bytes()).hexdigest()}"
            self.settings_hash = hashlib.sha256(both.encode()).hexdigest()

    def begin(self, image: NDArray[np.uint8]) -> Callable[[Features], ImageNovelty]:
        """Start on ``image``; the returned function takes its features and waits for its novelty.

        A network of its own runs in parallel with the detector, on another core if there is one; on a GPU it runs after it.
        """
        network = self._model
        if not isinstance(network, NoveltyNetwork):
            return self._from_head
        if self._detector.device.type != "cpu":
            return lambda _: _from_network(network, image)
        running = self._beside.submit(_from_network, network, image)
        return lambda _: running.result()

    def _from_head(self, features: Features) -> ImageNovelty:
        if self._model is None:
            return ImageNovelty()
        assert isinstance(self._model, NoveltyHead)
        maps = self._detector.head_maps(features)
        cells = novelty_map(self._model, maps, features.padded)[0].cpu()
        return ImageNovelty(cells.numpy(), cell_of(features, *cells.shape), novelty(cells))


def _file(settings: PerceptionSettings, detector: StochasticDetector) -> Path | None:
    """The file of network or head for the weights that ``settings`` name, None where there is none."""
    if not settings.weights:
        return packaged_for(detector)
    weights = Path(settings.weights)
    path = weights.with_name(f"{weights.stem}_{ROLE}.safetensors")
    return path if path.is_file() else None


def _from_network(network: NoveltyNetwork, image: NDArray[np.uint8]) -> ImageNovelty:
    maps = novelty_maps(network, image)
    return ImageNovelty(maps.foreign, maps.cell, scene_novelty(maps), maps)


def cell_of(features: Features, rows: int, columns: int) -> tuple[float, float]:
    """Width and height of a cell in px of the image, of ``rows`` x ``columns`` cells over the padded input of ``features``."""
    width, height = features.image_size
    return (
        width * features.padded[1] / features.resized[1] / columns,
        height * features.padded[0] / features.resized[0] / rows,
    )


class ImageNovelty:
    """The novelty of one image, ``scene``, 0..1 and NaN where it was not measured, and of places in it."""

    def __init__(
        self,
        cells: FloatArray | None = None,
        cell: tuple[float, float] = (1.0, 1.0),
        scene: float = math.nan,
        maps: NoveltyMaps | None = None,
    ) -> None:
        """``cells`` (h, w): novelty of cells of ``cell`` (width, height) px; ``maps``: those of a network."""
        self.scene, self.maps = scene, maps
        self._cells = cells
        self._cells_per_px = 1 / np.array([*cell, *cell])

    def at(self, box: FloatArray) -> float:
        """Mean novelty of the cells that ``box`` (4,) px touches."""
        if self._cells is None or not np.isfinite(box).all():
            return math.nan
        rows, columns = self._cells.shape
        edges = box * self._cells_per_px
        left, top = (int(np.clip(np.floor(edges[i]), 0, n - 1)) for i, n in ((0, columns), (1, rows)))
        right, bottom = (int(np.clip(np.ceil(edges[i]), 1, n)) for i, n in ((2, columns), (3, rows)))
        return float(self._cells[top : max(bottom, top + 1), left : max(right, left + 1)].mean())

    def on(self, objects: Iterable[ObservedObject]) -> tuple[ObservedObject, ...]:
        """``objects`` with the novelty of their boxes."""
        if self._cells is None:
            return tuple(objects)
        return tuple(replace(o, novelty=self.at(o.box)) for o in objects)
