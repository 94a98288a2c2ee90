# SPDX-License-Identifier: Apache-2.0
"""How novel what lies in an image is to the detector."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from sticker_uq.detection import load_detector
from sticker_uq.gate import Policy, judge
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.perception.image_novelty import ImageNovelty
from sticker_uq.perception.novelty.network import (
    load_network,
    novelty_maps,
    packaged_file,
    read_network,
    save_network,
    scene_activations,
)
from sticker_uq.perception.novelty.quality import Auroc, NoveltyQuality
from sticker_uq.scene import InvalidInput, Outcome, SceneAssessment, Status, Verdict
from sticker_uq.testing.scenes import object_at
from test.helpers.laptops import laptop

pytestmark = pytest.mark.usefixtures("small_packaged")

SSDLITE = "ssdlite320_mobilenet_v3_large"
GOOD = NoveltyQuality(Auroc(0.95, 0.9, 0.99), Auroc(0.99, 0.98, 1.0), 50)
SETTINGS = PerceptionSettings(model=SSDLITE, passes=3, device="cpu", threads=1)


@pytest.fixture(scope="module")
def picture() -> np.ndarray:
    return laptop()


@pytest.fixture(scope="module")
def packaged() -> Perception:
    return Perception(SETTINGS)


@pytest.fixture(scope="module")
def seen(packaged: Perception, picture: np.ndarray) -> SceneAssessment:
    return packaged.assess(picture)


def places(cell: tuple[float, float] = (160, 120)) -> ImageNovelty:
    """640 x 480 px, seen as 4 x 4 cells of which the one at the top left is novel."""
    cells = np.zeros((4, 4), np.float32)
    cells[0, 0] = 0.8
    return ImageNovelty(cells, cell, 0.2)


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ((10, 10, 20, 20), 0.8),
        ((0, 0, 160, 120), 0.8),
        ((0, 0, 320, 120), 0.4),
        ((0, 0, 640, 480), 0.05),
        ((-50, -50, -10, -10), 0.8),
        ((600, 400, 900, 900), 0.0),
    ],
)
def test_an_object_is_as_novel_as_the_cells_that_its_box_touches(box, expected):
    assert places().at(np.array(box, np.float32)) == pytest.approx(expected)


def test_nothing_is_measured_without_network_or_head():
    nowhere = ImageNovelty()
    assert math.isnan(nowhere.scene)
    (one,) = nowhere.on([replace(object_at(), novelty=math.nan)])
    assert math.isnan(one.novelty)
    (one,) = places().on([replace(object_at(), box=np.array([0, 0, 160, 120], np.float32))])
    assert one.novelty == pytest.approx(0.8)


def covered(picture: np.ndarray) -> np.ndarray:
    """``picture`` with coloured blocks on it."""
    odd = picture.copy()
    odd[200:420, 300:560] = np.random.default_rng(0).integers(0, 255, (11, 13, 3)).repeat(20, 0).repeat(20, 1)
    return odd


def with_network(
    files: tuple[Path, Path], folder: Path, quality: NoveltyQuality | None
) -> PerceptionSettings:
    """Settings with copies of the packaged ``files``, weights and their novelty network, whose quality is as told."""
    weights = folder / "mine.safetensors"
    shutil.copy(files[0], weights)
    settings = SETTINGS.model_copy(update={"weights": str(weights)})
    network = read_network(files[1])
    network.quality = quality
    save_network(network, load_detector(settings), folder / "mine_novelty.safetensors")
    return settings


def test_the_packaged_network_measures_how_far_a_scene_is_and_not_its_objects(seen):
    assert seen.status is Status.OK
    assert seen.scene_distance > 0
    assert math.isnan(seen.localization.novelty)
    assert seen.objects
    assert all(math.isnan(o.novelty) for o in seen.objects)
    asked, released = (judge(seen, Policy(max_object_novelty=limit)) for limit in (0.7, 1.0))
    assert not [v for v in asked.verdicts if v.verdict is Verdict.REMOVE]
    assert not [r for v in released.verdicts for r in v.reasons if r.subject == "object_novelty"]


def test_a_network_for_objects_finds_a_thing_on_the_lid_novel_and_says_where(
    small_packaged, tmp_path, picture
):
    perception = Perception(with_network(small_packaged, tmp_path, GOOD))
    calm, odd = perception.assess(picture), perception.assess(covered(picture))
    assert calm.localization.novelty < odd.localization.novelty
    assert all(0.0 <= o.novelty <= 1.0 for o in (*odd.objects, *odd.unstable))
    # the place is in a predicted box, or marked as one that none explains
    boxes = [r.box for r in odd.localization.unexplained] + [o.box for o in odd.objects]
    assert any(box[0] < 430 < box[2] and box[1] < 310 < box[3] for box in boxes)


def test_the_distance_is_the_same_without_distinctive_localization_and_a_person_is_asked_about_it(
    packaged, seen, picture
):
    alone = Perception(SETTINGS.model_copy(update={"dil": False}), packaged.detector)
    rng = np.random.default_rng(0)
    foreign = rng.integers(0, 255, picture.shape, np.uint8)
    for image, whole in ((picture, seen), (foreign, packaged.assess(foreign))):
        scene = alone.assess(image)
        assert scene.localization is None
        assert scene.scene_distance == whole.scene_distance
        open_to_all = {"max_dil": 1.0, "max_dil_clean": 1.0}
        for limit in (scene.scene_distance, math.nextafter(scene.scene_distance, 0)):
            policy = Policy(**open_to_all, max_scene_distance=limit)
            doubts = [[r.subject for r in judge(one, policy).reasons] for one in (scene, whole)]
            assert [("scene_distance" in said) for said in doubts] == [limit < scene.scene_distance] * 2


def with_limit(file: Path, copy: Path, limit: object) -> Path:
    """A ``copy`` of the network in ``file`` that says this about its limit, nothing where that is None."""
    with safe_open(file, "pt") as opened:
        said = json.loads(opened.metadata()["sticker_uq"])
    changed = {name: value for name, value in (said | {"limit": limit}).items() if value is not None}
    save_file(load_file(file), copy, {"sticker_uq": json.dumps(changed)})
    return copy


def test_distances_are_in_units_of_the_limit_that_the_file_of_the_network_brings(
    small_packaged, tmp_path, picture
):
    """A file of before 0.4 has none: its unit was what a person set the limit in."""
    distances = {}
    for limit in (None, 0.5, 2):
        network = load_network(with_limit(small_packaged[1], tmp_path / f"{limit}.safetensors", limit))
        distances[limit] = network.scene_distance(scene_activations(network, picture))
        assert novelty_maps(network, picture).distance == pytest.approx(distances[limit], rel=1e-5)
    assert distances[0.5] == 2 * distances[None] == 4 * distances[2]
    packaged = packaged_file(SSDLITE)
    assert packaged is not None
    assert read_network(packaged).limit == 0.57
    for limit in (0, -1, True, "1", float("nan"), float("inf")):
        with pytest.raises(InvalidInput, match=r"limit .* expected a number above 0"):
            load_network(with_limit(small_packaged[1], tmp_path / "bad.safetensors", limit))


def test_novelty_can_be_switched_off_and_the_packaged_network_is_part_of_the_settings(packaged, picture):
    """A policy that was calibrated with another one is refused."""
    off = Perception(SETTINGS.model_copy(update={"novelty": False, "dil": False, "close_ups": False}))
    assert off.settings_hash == off.settings.hash_on("cpu")
    assert packaged.settings_hash != SETTINGS.hash_on("cpu")
    with_dil = off.settings.model_copy(update={"dil": True})
    assert len({packaged.settings_hash, SETTINGS.hash_on("cpu"), with_dil.hash_on("cpu")}) == 3
    assert all(math.isnan(o.novelty) for o in off.assess(picture).objects)


@pytest.mark.parametrize(
    ("quality", "said"),
    [
        (None, "the quality of mine_novelty.safetensors is unknown"),
        (NoveltyQuality(Auroc(0.95, 0.9, 0.99), Auroc(0.6, 0.5, 0.7), 50), "foreign scenes 0.600"),
    ],
)
def test_novelty_that_cannot_tell_the_unknown_from_the_known_is_not_used(
    small_packaged, tmp_path, picture, quality, said
):
    settings = with_network(small_packaged, tmp_path, quality)
    perception = Perception(settings)
    assert perception.settings_hash == settings.hash_on("cpu"), "it has no part in what is measured"
    scene = perception.assess(picture)
    assert scene.status is Status.DEGRADED
    assert said in scene.status_text
    assert math.isnan(scene.localization.novelty)
    assert math.isnan(scene.scene_distance)
    decision = judge(scene, Policy())
    assert decision.outcome is Outcome.ASK
    assert "no_novelty_network" in [reason.code for reason in decision.reasons]
    assert not [v for v in decision.verdicts if v.verdict is Verdict.REMOVE]


def test_what_lies_beside_ones_own_weights_is_used_and_part_of_the_settings(
    small_packaged, tmp_path, picture
):
    weights = tmp_path / "mine.safetensors"
    shutil.copy(small_packaged[0], weights)
    settings = SETTINGS.model_copy(update={"weights": str(weights)})
    alone = Perception(settings)
    assert alone.settings_hash == settings.hash_on("cpu")
    beside = tmp_path / "mine_novelty.safetensors"
    shutil.copy(small_packaged[1], beside)
    taught = Perception(settings)
    assert taught.settings_hash != alone.settings_hash
    assert taught.assess(picture).scene_distance > 0
    beside.write_bytes(weights.read_bytes())
    with pytest.raises(InvalidInput, match="no novelty network"):
        Perception(settings)
