# SPDX-License-Identifier: Apache-2.0
"""Labelled close-ups show what their labels say, one picture of each, and train weights that look at close-ups."""

import json

import cv2
import numpy as np
from typer.testing import CliRunner

from lab_helpers.scenes import rendered
from sticker_uq.detection import DetectorSettings, load_detector
from sticker_uq.io.coco import read_coco
from sticker_uq.scene import ObjectClass
from sticker_uq_lab.cli.dataset import app
from sticker_uq_lab.datasets.close_ups import close_up_scene
from test.helpers.models import small_weights


def test_a_labelled_sticker_is_shown_whole_where_its_label_says(tmp_path):
    detector = load_detector(DetectorSettings(weights=str(small_weights(tmp_path))))
    image = np.full((480, 640, 3), 90, np.uint8)
    boxes, labels = np.array([[300, 200, 340, 230]], np.float32), np.array([ObjectClass.STICKER])
    image[200:230, 300:340] = (20, 40, 250)
    for number in range(4):
        scene = close_up_scene(number, image, boxes, labels, detector, np.random.default_rng(number), "png")
        red = cv2.imdecode(np.frombuffer(scene.data, np.uint8), cv2.IMREAD_COLOR)[..., 2] > 170
        assert len(scene.boxes) >= 1
        for x1, y1, x2, y2 in scene.boxes.round().astype(int):
            assert red[y1 + 1 : y2 - 1, x1 + 1 : x2 - 1].mean() > 0.95
            red[max(y1 - 1, 0) : y2 + 1, max(x1 - 1, 0) : x2 + 1] = False
        assert red.mean() < 0.01


def test_the_command_makes_one_picture_of_each_and_keeps_its_laptop(tmp_path):
    weights = small_weights(tmp_path)
    rendered(tmp_path / "data", range(3), (320, 240), stickers=3)
    file = tmp_path / "data" / "annotations.json"
    document = json.loads(file.read_text())
    document["images"][1]["workpiece_id"] = "L7"
    file.write_text(json.dumps(document))
    arguments = ["close-ups", "--data", str(tmp_path / "data"), "--weights", str(weights)]
    for name in "ab":
        result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / name)])
        assert result.exit_code == 0, result.output
    items, again = read_coco(tmp_path / "a"), read_coco(tmp_path / "b")
    assert [one.workpiece_id for one in items] == ["", "L7", ""]
    assert sum(len(one.labels) for one in items) > sum(
        len(one.labels) for one in read_coco(tmp_path / "data")
    )
    assert [one.path.read_bytes() for one in items] == [one.path.read_bytes() for one in again]
