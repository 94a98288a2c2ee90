# SPDX-License-Identifier: Apache-2.0
"""A panel of monitors fitted for the tiny detector on the pictures that it was tuned for."""

from pathlib import Path

import cv2
import numpy as np

from sticker_uq.calibration.panel import Labelled, fit_panel
from sticker_uq.gate import Policy
from sticker_uq.io.coco import LabelledImage
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.perception.monitors.folder import PanelFile
from sticker_uq.scene import ObjectClass
from test.helpers.models import MIN_SIZE, picture, tiny_weights

MODEL = "ssdlite320_mobilenet_v3_large"
NAMES = ("pcs", "mdsa", "energy", "knn")
PICTURES = 4
OPEN = Policy(
    min_probability=0.34,
    min_detection_rate=0,
    max_variation_ratio=1,
    max_shannon_entropy=1.6,
    max_mutual_information=1.6,
    max_relative_total_variance=100,
    max_relative_predictive_surface=100,
    max_logo_overlap=1,
    ask_duplicated=False,
    max_dil=1,
    max_dil_clean=1,
)
"""Removes whatever is called a sticker: the tiny detector is sure of nothing."""


def settings(folder: Path, **changes: object) -> PerceptionSettings:
    values: dict[str, object] = {
        "model": MODEL,
        "weights": str(tiny_weights(MODEL, folder)),
        "min_size": MIN_SIZE,
        "device": "cpu",
        "passes": 5,
        "dil": False,
        "threads": 1,
    }
    return PerceptionSettings.model_validate(values | changes)


def labelled(folder: Path, perception: Perception) -> list[Labelled]:
    """Pictures in ``folder``, labelled with most of what ``perception`` sees there; every fifth object is bare lid."""
    found: list[Labelled] = []
    for number in range(PICTURES):
        image = picture(number)
        path = folder / f"{number}.png"
        cv2.imwrite(str(path), image)
        scene, _ = perception.examine(image)
        kept = [
            one
            for place, one in enumerate(scene.objects)
            if one.label is not ObjectClass.BACKGROUND and place % 5 < 4
        ]
        height, width = image.shape[:2]
        boxes = np.array([one.box for one in kept], np.float32).reshape(-1, 4)
        labels = np.array([int(one.label) for one in kept], np.int64)
        shares = np.where(labels == ObjectClass.STICKER, 0.8, 0.1)
        found.append((LabelledImage(path, number, width, height, boxes, labels), shares))
    return found


def tiny_panel(folder: Path, names: tuple[str, ...] = NAMES, **changes: object) -> tuple[PanelFile, Path]:
    """A panel in ``folder``/panel, and the weights file that it is for."""
    chosen = settings(folder)
    perception = Perception(chosen)
    pictures = labelled(folder, perception)
    document = fit_panel(perception, pictures, pictures, names, folder / "panel", OPEN, **changes)
    return document, Path(chosen.weights)
