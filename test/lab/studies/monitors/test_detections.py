# SPDX-License-Identifier: Apache-2.0
"""The study of detections on a few rendered scenes with the packaged detector."""

from __future__ import annotations

import numpy as np
import pytest

from sticker_uq.detection import StochasticDetector, load_detector
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.io.coco import LabelledImage, read_coco, write_coco
from sticker_uq.lab.attacks.dag import DagSettings
from sticker_uq.lab.rendering import encode_scene
from sticker_uq.lab.rendering.render import render
from sticker_uq.lab.rendering.scene_sampling import sample_scene
from sticker_uq.lab.studies.monitors import detection_study
from sticker_uq.lab.studies.monitors.detection_study import (
    SETS,
    DetectionSettings,
    ObjectObserver,
    _attacked,
    _corrupted,
    _invalid,
    detection_report,
    unchanged_pictures,
)
from sticker_uq.scene import InvalidInput

SETTINGS = DetectionSettings(passes=2, attacked=1, dag=DagSettings(iterations=8, gamma=4.0))
SOME = ("max_softmax", "mc_mean_softmax", "ensemble_mean_softmax", "energy", "knn")


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> list[LabelledImage]:
    folder = tmp_path_factory.mktemp("scenes") / "data"
    scenes = [encode_scene(seed, render(sample_scene(seed, stickers=3), (320, 240))) for seed in range(6)]
    write_coco(folder, scenes)
    return read_coco(folder)


@pytest.fixture(scope="module")
def detector() -> StochasticDetector:
    return load_detector(DetectorSettings(device="cpu", passes=2, threads=1))


def test_what_is_seen_of_each_set(items: list[LabelledImage], detector: StochasticDetector) -> None:
    observer = ObjectObserver(detector, [], SETTINGS)
    nominal = observer.observe_set(unchanged_pictures(items), "all", passes=2)
    assert len(nominal.objects) > 6
    assert nominal.right.mean() > 0.7
    assert nominal.objects.samples.shape[0] == 2
    foreign_objects = observer.observe_set(_invalid(items, SETTINGS), "at", passes=1)
    assert foreign_objects.asked > 0
    assert len(foreign_objects.objects) <= len(nominal.objects)
    assert foreign_objects.missed <= foreign_objects.asked
    corrupted = list(_corrupted(items, SETTINGS))
    assert all((a != b[0]).any() for (a, *_), b in zip(corrupted, unchanged_pictures(items), strict=True))
    assert all(
        boxes.tolist() == item.boxes.tolist() for (_, boxes, *_), item in zip(corrupted, items, strict=True)
    )


def test_only_detections_of_a_wrong_class_count_of_attacked_pictures(
    items: list[LabelledImage], detector: StochasticDetector
) -> None:
    attacked = list(_attacked(detector, items, SETTINGS))
    assert len(attacked) == 1
    seen = ObjectObserver(detector, [], SETTINGS).observe_set(attacked, "wrong", passes=1)
    assert seen.asked == len(attacked[0][2])
    assert not seen.right.any()
    assert (seen.objects.labels > 0).all()


def test_the_whole_study(
    items: list[LabelledImage], detector: StochasticDetector, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the autoencoders have tests of their own; here any squares will do
    def squares(fitting, testing, settings):
        for image, boxes, labels, _ in unchanged_pictures(testing):
            changed, about = image.copy(), np.array([[140.0, 90, 190, 140]], np.float32)
            changed[90:140, 140:190] = (20, 200, 230)
            yield changed, boxes, labels, about

    monkeypatch.setattr(detection_study, "_ambiguous", squares)
    monkeypatch.setattr(detection_study, "MONITORS", {name: detection_study.MONITORS[name] for name in SOME})
    result = detection_study.run_detections(detector, [detector], items, SETTINGS)
    assert set(result.auc) == set(SOME)
    assert set(result.auc["ensemble_mean_softmax"]) == set(SETS)
    assert set(result.seen) == {"fitted", "nominal", "ambiguous", "adversarial", "corrupted", "invalid"}
    assert all(0 <= missed <= wrong for missed, wrong in result.missed.values())
    text = detection_report(result, "Detections")
    assert f"| nominal | {result.seen['nominal'][0]} | n/a | n/a |" in text
    with pytest.raises(InvalidInput, match="expected 6 or more"):
        detection_study.run_detections(detector, [], items[:5], SETTINGS)


def test_an_ensemble_is_left_out_without_members(
    items: list[LabelledImage], detector: StochasticDetector
) -> None:
    seen = ObjectObserver(detector, [], SETTINGS).observe_set(unchanged_pictures(items[:1]), "all", passes=1)
    assert seen.objects.members is None
