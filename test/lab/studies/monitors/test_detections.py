# SPDX-License-Identifier: Apache-2.0
"""The study of detections on a few rendered scenes with the packaged detector."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from sticker_uq.detection import StochasticDetector, load_detector
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.io.coco import LabelledImage, read_coco, read_picture, write_coco
from sticker_uq.lab.attacks.dag import DagSettings
from sticker_uq.lab.rendering import encode_scene
from sticker_uq.lab.rendering.render import render
from sticker_uq.lab.rendering.scene_sampling import sample_scene
from sticker_uq.lab.studies.monitors import detection_study
from sticker_uq.lab.studies.monitors.detection_attacks import EPSILON, attacked_picture
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
from sticker_uq.monitors import monitor_named
from sticker_uq.monitors.detections import observe_boxes
from sticker_uq.scene import InvalidInput

SETTINGS = DetectionSettings(passes=2, attacked=1, steps=6, dag=DagSettings(iterations=8, gamma=4.0))
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
    assert set(result.adaptive) == {"max_softmax", "mdsa", "autoencoder"}
    text = detection_report(result, "Detections")
    assert "| mdsa | " in text.split("## Attacks that know the monitor")[1]
    assert f"| nominal | {result.seen['nominal'][0]} | n/a | n/a |" in text
    with pytest.raises(InvalidInput, match="expected 6 or more"):
        detection_study.run_detections(detector, [], items[:5], SETTINGS)


def test_an_ensemble_is_left_out_without_members(
    items: list[LabelledImage], detector: StochasticDetector
) -> None:
    seen = ObjectObserver(detector, [], SETTINGS).observe_set(unchanged_pictures(items[:1]), "all", passes=1)
    assert seen.objects.members is None


def test_an_attack_that_knows_the_supervisor_lowers_its_score(
    items: list[LabelledImage], detector: StochasticDetector
) -> None:
    seen = ObjectObserver(detector, [], SETTINGS).observe_set(unchanged_pictures(items), "all", passes=1)
    monitor = monitor_named("mdsa").fit(seen.objects)
    item = next(item for item in items if len(item.labels) > 1)
    clean = read_picture(item)

    def score(image: NDArray[np.uint8]) -> float:
        """Of the places of the objects, taken for the other class."""
        boxes, swapped = item.boxes, np.eye(3)[3 - item.labels]
        features = detector.encode(image)
        samples = detector.sample(features, 1, 0)
        return float(monitor.score(observe_boxes(detector, image, features, boxes, swapped, samples)).mean())

    plain_attack = attacked_picture(detector, item, None, steps=12)
    aware = attacked_picture(detector, item, monitor, steps=12)
    for image in (plain_attack, aware):
        assert 0 < np.abs(image.astype(int) - clean).max() <= EPSILON
    assert score(aware) < score(plain_attack)
    with pytest.raises(InvalidInput, match="no gradient known"):
        attacked_picture(detector, item, monitor_named("knn").fit(seen.objects), steps=1)
