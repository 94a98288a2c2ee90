# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

from lab_helpers.scenes import rendered
from sticker_uq.detection import DetectorSettings, load_detector
from sticker_uq.io.coco import LabelledImage, read_coco, read_picture
from sticker_uq.scene import InvalidInput, ObjectClass
from sticker_uq.uncertainty import iou_matrix
from sticker_uq_lab.attacks.dpatch import PATCH_PIXELS, craft_patch
from sticker_uq_lab.cli.dataset import app
from sticker_uq_lab.datasets.abnormal import leave_untouched, paste_patch
from test.helpers.models import picture, small_weights, tiny_detector

pytestmark = pytest.mark.usefixtures("one_thread")

STICKER = np.array([2])


@pytest.fixture
def shapes(tmp_path):
    """A picture whose whole middle counts as a sticker, so that any detection of the tiny models is attacked."""
    image = picture(3)
    cv2.imwrite(str(tmp_path / "a.png"), image)
    height, width = image.shape[:2]
    box = np.array([[10, 10, width - 10, height - 10]], np.float32)
    return [LabelledImage(tmp_path / "a.png", 1, width, height, box, STICKER)]


FAMILIES = ("fasterrcnn_resnet50_fpn", "retinanet_resnet50_fpn_v2", "ssdlite320_mobilenet_v3_large")


@pytest.mark.parametrize("name", FAMILIES)
def test_the_gradient_reaches_the_patch_of_every_family(shapes, name):
    moved = craft_patch(tiny_detector(name), shapes, steps=1, seed=1, batch=1)
    assert moved.shape == (PATCH_PIXELS, PATCH_PIXELS, 3)
    assert moved.dtype == np.uint8
    drawn = np.random.default_rng(1).uniform(0.2, 0.8, (3, PATCH_PIXELS, PATCH_PIXELS))
    start = np.rint(drawn.transpose(1, 2, 0)[..., ::-1] * 255)
    # the first step of Adam is as long as its rate wherever there is a gradient
    assert (abs(moved - start) >= 8).mean() > 0.5


def test_same_seed_same_patch(shapes):
    detector = tiny_detector(FAMILIES[-1])
    patches = [craft_patch(detector, shapes, steps=2, seed=s, batch=1).astype(int) for s in (1, 1, 2)]
    assert abs(patches[0] - patches[1]).max() <= 2
    assert abs(patches[0] - patches[2]).max() > 50


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return rendered(tmp_path_factory.mktemp("scenes"), (1, 2), (320, 240), "png", stickers=3)


def one_attacked(scenes, mode):
    item = read_coco(scenes)[0]
    attacked = int(
        np.flatnonzero(item.labels == (ObjectClass.LOGO if mode == "forge" else ObjectClass.STICKER))[0]
    )
    return replace(item, boxes=item.boxes[[attacked]], labels=item.labels[[attacked]])


def test_a_sticker_with_a_patch_of_many_steps_is_seen_less(scenes, tmp_path):
    weights = str(small_weights(tmp_path))
    detector = load_detector(DetectorSettings(weights=weights, device="cpu", score_floor=0.01))
    item = one_attacked(scenes, "swap")

    def seen(steps):
        """The mean score of the attacked sticker in four lights."""
        patch = craft_patch(detector, [item], steps=steps, seed=0, mode="swap", batch=1)
        scores = []
        for seed in range(4):
            rng = np.random.default_rng(seed)
            laid = paste_patch(leave_untouched(read_picture(item), item.boxes, item.labels), rng, patch)
            found = detector.detect(detector.encode(laid.image))
            there = iou_matrix(found.boxes, item.boxes)[:, 0] > 0.3
            own = found.scores[there & (found.foreground_labels == ObjectClass.STICKER)]
            scores.append(own.max(initial=0))
        return np.mean(scores)

    assert seen(16) < seen(1) - 0.05


def test_commands_make_a_patch_and_scenes_that_bear_it(scenes, tmp_path):
    options = ["--out", str(tmp_path / "x.png"), "--steps", "1", "--weights", str(small_weights(tmp_path))]
    made = CliRunner().invoke(app, ["patch", "--data", str(scenes), *options])
    assert made.exit_code == 0, made.output
    arguments = ["--data", str(scenes), "--out", str(tmp_path / "abnormal"), "--count", "1"]
    laid = CliRunner().invoke(
        app, ["abnormal", *arguments, "--patch", str(tmp_path / "x.png"), "--case", "clean"]
    )
    assert laid.exit_code == 0, laid.output
    assert {path.name for path in (tmp_path / "abnormal").iterdir()} == {"clean", "patch-x"}
    assert len(read_coco(tmp_path / "abnormal" / "patch-x")) == 1


def test_pictures_without_a_sticker_cannot_be_attacked(shapes):
    bare = [LabelledImage(shapes[0].path, 1, 10, 10, shapes[0].boxes, np.array([1]))]
    with pytest.raises(InvalidInput, match="has a sticker"):
        craft_patch(tiny_detector(FAMILIES[-1]), bare, steps=1, seed=0)
    with pytest.raises(InvalidInput, match="has a logo"):
        craft_patch(tiny_detector(FAMILIES[-1]), shapes, steps=1, seed=0, mode="forge")
