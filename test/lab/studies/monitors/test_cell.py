# SPDX-License-Identifier: Apache-2.0
"""Crops of the cell's own objects."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sticker_uq.io.coco import write_coco
from sticker_uq.lab.rendering import encode_scene
from sticker_uq.lab.rendering.render import render
from sticker_uq.lab.rendering.scene_sampling import sample_scene
from sticker_uq.lab.studies.monitors.material import SIZE, cell_material, coco_material
from sticker_uq.scene import InvalidInput


def test_crops_of_rendered_scenes() -> None:
    material = cell_material(6, seed=50)
    assert material.classes == ("lid", "logo", "sticker")
    assert material.train.shape[1:] == (3, SIZE, SIZE)
    assert set(material.train_labels) == {0, 1, 2}
    assert 0 <= material.train.min() < material.train.max() <= 1
    assert len(material.invalid) >= 2
    # bare lid varies less than what lies on it
    spread = material.train.std(axis=(1, 2, 3))
    assert np.median(spread[material.train_labels == 0]) < np.median(spread[material.train_labels == 2])
    again = cell_material(6, seed=50)
    assert again.test.tolist() == material.test.tolist()


def test_crops_of_a_coco_folder(tmp_path: Path) -> None:
    scenes = [encode_scene(seed, render(sample_scene(seed), (320, 240))) for seed in range(6)]
    write_coco(tmp_path / "data", scenes)
    material = coco_material(tmp_path / "data")
    objects = sum(len(scene.boxes) for scene in scenes)
    lids = (material.train_labels == 0).sum() + (material.test_labels == 0).sum()
    assert len(material.train) + len(material.test) == objects + lids
    write_coco(tmp_path / "clean", [scenes[0]])
    with pytest.raises(InvalidInput, match="expected all of lid, logo and sticker"):
        coco_material(tmp_path / "clean")
