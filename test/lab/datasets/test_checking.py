# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

from sticker_uq.cli.dataset import app
from sticker_uq.io.coco import read_coco, write_coco
from sticker_uq.lab.datasets.checking import (
    class_balance,
    drift,
    duplicates,
    label_findings,
    perceptual_hash,
    picture_statistics,
)
from sticker_uq.lab.rendering import encode_scene, render, sample_scene
from sticker_uq.scene import InvalidInput


@pytest.fixture(scope="module")
def scenes(tmp_path_factory) -> tuple[Path, Path]:
    """Twelve scenes, and twelve others of which one is among the first and one a lighter copy of one of those."""
    first, second = (tmp_path_factory.mktemp(name) for name in ("a", "b"))
    made = {seed: render(sample_scene(seed), (160, 120)) for seed in range(24)}
    write_coco(first, (encode_scene(seed, made[seed], "png") for seed in range(12)))
    light = replace(made[3], image=cv2.convertScaleAbs(made[3].image, alpha=0.9, beta=20))
    others = [made[2], light, *(made[seed] for seed in range(14, 24))]
    write_coco(second, (encode_scene(100 + n, scene, "png") for n, scene in enumerate(others)))
    return first, second


def test_shared_and_nearly_shared_pictures_are_found(scenes) -> None:
    ours, theirs = (picture_statistics(read_coco(folder)) for folder in scenes)
    assert duplicates(ours, near=0) == []
    found = duplicates(ours, theirs, near=3)
    kinds = {(one.kind, *(path.name for path in one.pictures)) for one in found}
    assert ("duplicate", "00000002.png", "00000100.png") in kinds
    assert ("near duplicate", "00000003.png", "00000101.png") in kinds
    assert len([one for one in found if one.kind == "duplicate"]) == 1


def test_hash_survives_light_and_size_and_not_mirroring() -> None:
    grey = cv2.cvtColor(render(sample_scene(5), (320, 240)).image, cv2.COLOR_BGR2GRAY)
    small = cv2.resize(grey, (160, 120), interpolation=cv2.INTER_AREA)
    distances = [
        (perceptual_hash(grey) ^ perceptual_hash(other)).bit_count()
        for other in (small, grey[:, ::-1].copy())
    ]
    assert distances[0] <= 3
    assert distances[1] > 20


def test_unlikely_labels_are_named(scenes) -> None:
    item = read_coco(scenes[0])[0]
    boxes = np.array([[10, 10, 12, 40], [0, 0, 160, 118], [50, 50, 90, 90], [50, 50, 90, 91]], np.float32)
    texts = [one.text for one in label_findings([replace(item, boxes=boxes, labels=np.array([1, 2, 2, 1]))])]
    assert texts == [
        "logo of 2.0 x 30.0 px, smaller than 4 px",
        "sticker covers more than 90% of the picture",
        "sticker and logo in the same place (IoU above 0.9)",
    ]
    assert class_balance([replace(item, boxes=boxes[:0], labels=item.labels[:0])]) == {
        "logo": 0,
        "sticker": 0,
        "empty": 1,
    }


def test_drift_is_in_what_changed(scenes) -> None:
    seen = picture_statistics(read_coco(scenes[0]))
    dark = [replace(one, brightness=one.brightness / 5) for one in seen]
    assert [row.name for row in drift(seen, dark) if row.drifted] == ["brightness, grey levels"]
    assert not any(row.drifted for row in drift(seen, seen))


def test_the_command_tells_and_fails_when_pictures_are_shared(scenes, tmp_path) -> None:
    first, second = map(str, scenes)
    alone = CliRunner().invoke(app, ["check", first])
    assert alone.exit_code == 0, alone.output
    assert "12 pictures" in alone.output
    both = CliRunner().invoke(app, ["check", first, "--against", second])
    assert both.exit_code == 1
    assert "duplicate: 00000002.png, 00000100.png: the same pixels" in both.output
    refused = CliRunner().invoke(app, ["check", first, "--near", "60"])
    assert isinstance(refused.exception, InvalidInput)
