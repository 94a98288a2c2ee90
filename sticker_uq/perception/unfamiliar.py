"""How strange an image and the places of its objects are to the detector, where somebody taught it to tell."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from sticker_uq.detection import Features, StochasticDetector
from sticker_uq.detection.weights import checksum
from sticker_uq.localization.strangeness import (
    ROLE,
    OtherWeights,
    StrangenessHead,
    load_head,
    packaged_head,
    strangeness,
    strangeness_map,
)
from sticker_uq.perception.settings import PerceptionSettings
from sticker_uq.scene import FloatArray, ObservedObject


class Strangeness:
    """The strangeness head of one detector. ``settings_hash``: of the settings, and of the head unless it is the packaged one."""

    def __init__(self, settings: PerceptionSettings, detector: StochasticDetector) -> None:
        """Look for the head: the packaged one for the packaged weights, else the file ``NAME_strangeness.safetensors`` beside

        the weights ``NAME.safetensors``. Without one nothing is measured. Raises :class:`InvalidInput` for a file that is no
        head of these weights.
        """
        self._detector = detector
        self.settings_hash = settings.hash
        if not settings.weights:
            self._head = _packaged(detector)
            return
        weights = Path(settings.weights)
        path = weights.with_name(f"{weights.stem}_{ROLE}.safetensors")
        self._head = load_head(detector, path) if path.is_file() else None
        if self._head is not None:
            both = f"{settings.hash}:{checksum(self._head.state_dict())}"
            self.settings_hash = hashlib.sha256(both.encode()).hexdigest()

    def of(self, features: Features) -> StrangePlaces:
        """How strange the image of ``features`` is and where."""
        if self._head is None:
            return StrangePlaces(None, features)
        maps = self._detector.head_maps(features)
        cells = strangeness_map(self._head, maps, features.padded)[0]
        return StrangePlaces(cells.cpu().numpy(), features, strangeness(cells))


def _packaged(detector: StochasticDetector) -> StrangenessHead | None:
    path = packaged_head(detector.name)
    try:
        return None if path is None else load_head(detector, path)
    except OtherWeights:  # the detector was handed over, with weights of its own
        return None


class StrangePlaces:
    """The strangeness of one image, ``scene``, 0..1 and NaN where it was not measured, and of places in it."""

    def __init__(self, cells: FloatArray | None, features: Features, scene: float = math.nan) -> None:
        """``cells`` (h, w): strangeness over the padded input of ``features``."""
        self.scene = scene
        self._cells = cells
        if cells is not None:
            (width, height), rows, columns = features.image_size, *cells.shape
            across = features.resized[1] / features.padded[1] * columns / width
            down = features.resized[0] / features.padded[0] * rows / height
            self._cells_per_px = np.array([across, down, across, down])

    def at(self, box: FloatArray) -> float:
        """Mean strangeness of the cells that ``box`` (4,) px touches."""
        if self._cells is None or not np.isfinite(box).all():
            return math.nan
        rows, columns = self._cells.shape
        edges = box * self._cells_per_px
        left, top = (int(np.clip(np.floor(edges[i]), 0, n - 1)) for i, n in ((0, columns), (1, rows)))
        right, bottom = (int(np.clip(np.ceil(edges[i]), 1, n)) for i, n in ((2, columns), (3, rows)))
        return float(self._cells[top : max(bottom, top + 1), left : max(right, left + 1)].mean())

    def on(self, objects: Iterable[ObservedObject]) -> tuple[ObservedObject, ...]:
        """``objects`` with the strangeness of their boxes."""
        if self._cells is None:
            return tuple(objects)
        return tuple(replace(o, strangeness=self.at(o.box)) for o in objects)
