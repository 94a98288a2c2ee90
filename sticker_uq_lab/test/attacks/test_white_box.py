# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch
from pydantic import ValidationError

from lab_helpers.scenes import rendered
from sticker_uq.detection import DetectorSettings, load_detector
from sticker_uq.evaluation.metrics.accuracy import average_precisions
from sticker_uq.io.coco import LabelledImage, read_coco, read_picture
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.attacks import targets
from sticker_uq_lab.attacks.white_box import Attack, DagSettings, attack, variant_seed
from test.helpers.models import picture, small_weights, tiny_detector

pytestmark = pytest.mark.usefixtures("one_thread")

SSDLITE = "ssdlite320_mobilenet_v3_large"


def seen(folder, name, seed=0):
    """A picture whose labels are what the tiny model ``name`` detects on it, so that there is something to attack."""
    image = picture(seed)
    path = folder / f"{seed}.png"
    cv2.imwrite(str(path), image)
    detector = tiny_detector(name)
    found = detector.detect(detector.encode(image))
    height, width = image.shape[:2]
    return LabelledImage(path, seed + 1, width, height, found.boxes, found.foreground_labels)


@torch.no_grad()
def belief(detector, item, *images):
    """The mean probability that each of ``images`` gives the classes of the targets on the clean picture of ``item``."""
    clean, *others = (
        torch.from_numpy(np.ascontiguousarray(image[..., ::-1].transpose(2, 0, 1)))[None].float()
        for image in (read_picture(item), *images)
    )
    attacked = targets.find_targets(detector, clean, [item])
    found = [
        targets.target_outputs(detector, pixels, attacked)[0].probabilities for pixels in (clean, *others)
    ]
    return [p.gather(1, attacked.labels[:, None]).mean().item() for p in found]


@pytest.mark.parametrize("name", [SSDLITE, "fasterrcnn_resnet50_fpn"])
def test_every_model_is_attacked_by_its_own_gradient(tmp_path, monkeypatch, name):
    monkeypatch.setattr(targets, "MOST_TARGETS", 40)  # 3000 proposals are slow on a processor
    item = seen(tmp_path, name)
    running = Attack(tiny_detector(name), [item], DagSettings(gamma=8.0, iterations=1, start=0.0), [0])
    course = [running.results()[0] for _ in running.steps()]
    assert course[0].targets > 0
    assert course[0].linf == 0
    changed = course[-1].image.astype(int) - read_picture(item)
    # how many targets fall over is a matter of the random weights: what all of them say must go down, and only this way
    opposite = (read_picture(item) - changed).clip(0, 255).astype(np.uint8)
    clean, attacked, spared = belief(tiny_detector(name), item, course[-1].image, opposite)
    assert attacked < 0.98 * min(clean, spared)
    assert course[-1].linf == abs(changed).max() <= 8
    assert course[-1].rms == pytest.approx(np.sqrt((changed**2).mean()))
    assert course[-1].image.dtype == np.uint8


def test_seed_decides_and_pictures_do_not_depend_on_each_other(tmp_path):
    detector = tiny_detector(SSDLITE)
    items = [seen(tmp_path, SSDLITE, seed) for seed in (0, 3)]
    settings = DagSettings(gamma=2.0, iterations=3)
    one, again, other = (
        attack(detector, items[:1], settings, [seed])[0].image.astype(int) for seed in (1, 1, 2)
    )
    both = attack(detector, items, settings, [1, 5])
    assert (one == again).all()
    assert (one != other).any()
    # torch's sums round differently in a batch, which may push a value over a rounding edge
    assert (abs(both[0].image.astype(int) - one) <= 1).mean() > 0.999
    assert both[1].image.shape == read_picture(items[1]).shape


def test_confidence_goes_on_after_the_class_has_changed(tmp_path):
    item = seen(tmp_path, SSDLITE)
    weak, strong = (
        attack(tiny_detector(SSDLITE), [item], DagSettings(gamma=4, iterations=6, confidence=c), [0])[0]
        for c in (0, 0.99)
    )
    assert strong.iterations >= weak.iterations
    assert strong.rms > weak.rms


def test_a_picture_without_a_target_stays_as_it_is(tmp_path):
    item = seen(tmp_path, SSDLITE)
    empty = replace(item, boxes=item.boxes[:0], labels=item.labels[:0])
    full, bare = attack(tiny_detector(SSDLITE), [item, empty], DagSettings(iterations=2, gamma=8), [0, 0])
    assert full.rms > 0
    assert (bare.image == read_picture(item)).all()
    assert (bare.targets, bare.iterations, bare.rms) == (0, 0, 0)
    assert np.isnan(bare.success)


def test_only_pictures_of_one_size_go_together(tmp_path):
    item = seen(tmp_path, SSDLITE)
    wide = replace(item, width=999)
    with pytest.raises(InvalidInput, match="all of one size"):
        attack(tiny_detector(SSDLITE), [item, wide], DagSettings(), [0, 0])
    with pytest.raises(InvalidInput, match="0 seeds"):
        attack(tiny_detector(SSDLITE), [item], DagSettings(), [])
    with pytest.raises(ValidationError):
        DagSettings(gamma=0)


def test_seeds_of_variants_differ_and_stay():
    seeds = {variant_seed(0, variant, name) for variant in range(10) for name in ("a.png", "b.png")}
    assert len(seeds) == 20
    assert variant_seed(0, 3, "a.png") in seeds


def test_the_packaged_model_loses_its_objects(tmp_path):
    weights = str(small_weights(tmp_path))
    detector = load_detector(DetectorSettings(weights=weights, device="cpu", score_floor=0.01))
    items = read_coco(rendered(tmp_path, [6], (320, 240), "png", stickers=2))
    attacked = attack(detector, items, DagSettings(gamma=3.0, iterations=12, confidence=0.8), [0])
    left = []
    for pictures in (map(read_picture, items), (one.image for one in attacked)):
        found = [detector.detect(detector.encode(picture)) for picture in pictures]
        left.append(np.nanmean(list(average_precisions(found, items).values())))
    assert left[0] > 0.9
    assert left[1] < 0.5
    assert max(one.rms for one in attacked) < 5
