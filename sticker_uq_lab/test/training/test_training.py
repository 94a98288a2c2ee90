# SPDX-License-Identifier: Apache-2.0
"""Training: what it writes, that it learns, that a pause leaves no trace, and how it refuses."""

import csv
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from torchvision.models.detection.image_list import ImageList
from torchvision.ops import box_iou

from lab_helpers.scenes import rendered
from sticker_uq.detection import DetectorSettings, build_model, load_detector, load_weights
from sticker_uq.detection.dropout import PassDropout, no_dropout
from sticker_uq.detection.models.ssd import backbone_maps
from sticker_uq.detection.names import PHOTO_MODEL
from sticker_uq.detection.weights import Unfilled, network_settings, packaged_weights, save_weights
from sticker_uq.io.coco import EncodedScene, read_coco, write_coco
from sticker_uq.perception.novelty.photo_network import read_photo_network
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.rendering import encode_scene, render, sample_scene
from sticker_uq_lab.training import starts
from sticker_uq_lab.training.augmentation import Sample, augment, split_items
from sticker_uq_lab.training.checkpoint import METRICS, STATE
from sticker_uq_lab.training.recipes import CLAIMED, batch_loss, encode, input_size, match
from sticker_uq_lab.training.training import BEST, EpochResult, Training, TrainSettings, train

pytestmark = pytest.mark.usefixtures("one_thread")

SSDLITE = "ssdlite320_mobilenet_v3_large"


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rendered(tmp_path_factory.mktemp("scenes"), range(8), (240, 180), stickers=3)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rendered(tmp_path_factory.mktemp("few"), range(4), (240, 180), stickers=3)


def settings(data: Path, out: Path, **changes: object) -> TrainSettings:
    values = {"epochs": 2, "batch_size": 4, "start": "random", "threads": 1, "seed": 3, "val_data": data}
    return TrainSettings(data=(data,), out=out, **(values | changes))


def test_several_folders_are_trained_on_as_one_and_exposure_is_never_validated_on(scenes, tmp_path):
    for name, seed, stickers in (("more", 99, 1), ("bare", 70, 0)):
        rendered(tmp_path / name, [seed], (240, 180), stickers=stickers)
    bare = tmp_path / "bare"
    both = {"data": (scenes, tmp_path / "more"), "val_data": None, "exposure": (bare,)}
    training = Training(settings(scenes, tmp_path / "out").model_copy(update=both))
    learned, validated = (
        [item.path.parent.parent for item in items] for items in (training.items, training.val_items)
    )
    assert {*learned, *validated} == {scenes, tmp_path / "more", bare}
    assert (len(learned) + len(validated), learned.count(bare), validated.count(bare)) == (10, 1, 0)


def test_it_says_what_it_validates_on_and_trains_on_too(few, scenes, tmp_path):
    said: list[str] = []
    both = {"data": (few, scenes), "val_data": few / ".." / few.name}
    Training(settings(few, tmp_path / "out").model_copy(update=both), say=said.append)
    assert "4 of the 4 pictures of --val-data are trained on: figures of them flatter" in said
    said.clear()
    Training(settings(few, tmp_path / "out", val_data=scenes), say=said.append)
    assert not [line for line in said if "flatter" in line]


def test_pictures_of_one_laptop_are_on_one_side_of_the_validation(tmp_path):
    def scenes(laptops: int) -> Iterator[EncodedScene]:
        for number in range(24):
            scene = encode_scene(number, render(sample_scene(number, stickers=1), (96, 72)))
            yield replace(scene, image_fields={"workpiece_id": f"laptop {number % laptops}"})

    write_coco(tmp_path / "six", scenes(6))
    for seed in range(5):
        training, validation = split_items((tmp_path / "six",), None, seed)
        learned, held_out = ({item.workpiece_id for item in part} for part in (training, validation))
        assert (len(training), len(validation)) == (20, 4)
        assert not learned & held_out
    write_coco(tmp_path / "one", scenes(1))
    with pytest.raises(InvalidInput, match="all 24 pictures show one laptop"):
        split_items((tmp_path / "one",), None, 0)


@pytest.mark.parametrize("enough", [True, False])
def test_the_best_epoch_is_chosen_on_enough_pictures_only(enough, few, tmp_path, monkeypatch):
    monkeypatch.setattr("sticker_uq_lab.training.training.ENOUGH_TO_CHOOSE", 4 if enough else 5)
    shares = iter([0.1, 0.2])  # the mAP says the opposite
    monkeypatch.setattr(
        Training, "_validate", lambda self, size: ((share := next(shares)), dict.fromkeys((1, 2), share))
    )
    said: list[str] = []
    quick = {"freeze": "backbone", "input_size": 320}
    train(settings(few, tmp_path, start="packaged", **quick), say=said.append)
    assert load_weights(tmp_path / BEST)[1]["epoch"] == (1 if enough else 2)
    assert any("4 pictures to validate on are too few" in line for line in said) != enough


def test_a_training_learns_and_leaves_weights_that_say_where_they_come_from(few, tmp_path, monkeypatch):
    monkeypatch.setattr("sticker_uq_lab.training.training.ENOUGH_TO_CHOOSE", 4)
    results: list[EpochResult] = []
    steps = []
    finished = train(
        settings(few, tmp_path, epochs=6, batch_size=2),
        command="sticker-uq train --data scenes",
        on_epoch=results.append,
        on_step=steps.append,
    )
    assert finished
    assert [s.step for s in steps] == list(range(1, 13))
    assert steps[-1].epoch == 6
    assert steps[-1].images == 24
    # pictures grow during the training, so only epochs at one size compare
    assert results[2].loss < 0.85 * results[0].loss
    assert [r.input_size for r in results] == [192, 192, 192, 256, 320, 320]

    state, metadata = load_weights(tmp_path / BEST)
    best = min(reversed([r for r in results if r.input_size == 320]), key=lambda r: r.wrongful)
    assert metadata["epoch"] == best.epoch
    assert metadata["wrongful"] == best.wrongful
    assert metadata["map50"] == best.map50
    assert metadata["model"] == SSDLITE
    assert metadata["classes"] == ["background", "logo", "sticker"]
    assert metadata["command"] == "sticker-uq train --data scenes"
    assert metadata["seed"] == 3
    assert metadata["initial"] == "random"
    assert metadata["data"]["images"] == 4
    build_model(SSDLITE).load_state_dict(state, strict=False)
    assert (tmp_path / BEST).stat().st_size < 8e6
    with open(tmp_path / METRICS, encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [float(row["loss"]) for row in rows] == [r.loss for r in results]


def test_a_paused_training_goes_on_as_if_it_had_not_been_and_as_no_other_one(few, tmp_path):
    straight, paused = (
        settings(few, tmp_path / name, epochs=1, batch_size=2) for name in ("straight", "paused")
    )
    assert train(straight)
    assert not train(paused, stop=lambda: True)  # in the middle of the first epoch
    assert not (paused.out / BEST).exists()
    for changes, message in (
        ({"seed": 4}, r"--seed is 4, was 3; give --seed 3$"),
        ({"freeze": "backbone", "epochs": 3}, r"--epochs is 3, was 1; .*; --freeze is backbone, was nothing"),
    ):
        with pytest.raises(InvalidInput, match=message):
            train(paused.model_copy(update=changes), resume=True)
    path = few / "annotations.json"
    text = path.read_text()
    try:
        path.write_text(json.dumps(json.loads(text) | {"annotations": json.loads(text)["annotations"][1:]}))
        with pytest.raises(
            InvalidInput, match="--data has other images or labels now; expected the same folders"
        ):
            train(paused, resume=True)
    finally:
        path.write_text(text)
    said: list[str] = []
    assert train(paused, resume=True, say=said.append)
    assert said == ["resumes after epoch 0 of 1 and 1 of 2 steps of the next"]
    one, two = (load_weights(s.out / BEST) for s in (straight, paused))
    assert one[1] == two[1]
    assert all(torch.equal(one[0][name], two[0][name]) for name in one[0])
    losses = [
        [line.split(",")[1] for line in (s.out / METRICS).read_text().split()] for s in (straight, paused)
    ]
    assert losses[0] == losses[1]


def test_input_size_and_default_boxes_travel_with_the_weights(few, tmp_path):
    scales = (0.1, 0.15, 0.25, 0.4, 0.6, 0.9, 1.0)
    said: list[str] = []
    first = settings(few, tmp_path / "one", epochs=1, input_size=352, anchor_scales=scales, dropout=0.2)
    assert train(first, say=said.append)
    assert "default boxes from 0.1 of the picture, input of 352 px" in said
    weights = tmp_path / "one" / BEST
    assert network_settings(weights) == {"input_size": 352, "anchor_scales": list(scales)}
    assert load_weights(weights)[1]["dropout"] == {"rate": 0.2, "site": "in"}
    model = load_detector(DetectorSettings(model=SSDLITE, weights=str(weights))).model
    assert model.transform.fixed_size == (352, 352)
    assert model.anchor_generator.scales == list(scales)
    more = Training(settings(few, tmp_path / "two", start=str(weights)))
    assert more.model.transform.fixed_size == (352, 352)
    with pytest.raises(InvalidInput, match=r"for an SSD, expected none for fasterrcnn_resnet50_fpn"):
        Training(settings(few, tmp_path / "no", model="fasterrcnn_resnet50_fpn", input_size=640))
    with pytest.raises(InvalidInput, match=r"anchor_scales \[0\.1\]: expected 7 shares"):
        Training(settings(few, tmp_path / "no", anchor_scales=(0.1,)))


def test_small_objects_get_small_default_boxes(tmp_path):
    small = rendered(tmp_path / "small", range(4), (320, 268), stickers=6, profile="study")
    assert min(Training(settings(small, tmp_path / "out")).model.anchor_generator.scales) < 0.1
    heads_too = Training(settings(small, tmp_path / "packaged", start="packaged"))
    own = load_detector(DetectorSettings()).model.anchor_generator.scales
    assert heads_too.model.anchor_generator.scales == own, "the heads know these boxes only"


@pytest.mark.parametrize("name", ["fasterrcnn_resnet50_fpn", SSDLITE])
def test_dropout_in_training_changes_the_loss_by_its_seed(name, scenes):
    torch.manual_seed(0)
    model = build_model(name, min_size=96)
    rng = np.random.default_rng(0)
    samples = [augment(item, input_size(name, model) or (128, 96), rng) for item in read_coco(scenes)[:2]]

    def loss(seed: int | None) -> float:
        torch.manual_seed(1)  # torchvision samples proposals
        drop = no_dropout if seed is None else PassDropout(0.3, seed, [0, 1], torch.device("cpu"))
        with torch.no_grad():
            return float(batch_loss(name, model, samples, torch.device("cpu"), drop))

    first = loss(5)
    assert loss(5) == first
    assert len({loss(None), first, loss(6)}) == 3


@pytest.mark.parametrize(
    ("frozen", "changing"),
    [
        ("nothing", {"backbone weights", "statistics", "head weights"}),
        ("statistics", {"backbone weights", "head weights"}),
        ("backbone", {"head weights"}),
    ],
)
def test_what_is_frozen_stays_and_all_else_learns(frozen, changing, scenes, tmp_path):
    training = Training(settings(scenes, tmp_path, freeze=frozen, learning_rate=1e-2, batch_size=2))
    before = {name: tensor.clone() for name, tensor in training.model.state_dict().items()}
    assert not training.run(lambda step: None, lambda epoch: None, stop=lambda: training.position.step == 1)
    changed = set()
    for name, tensor in training.model.state_dict().items():
        if tensor.is_floating_point() and not torch.equal(tensor, before[name]):
            part = name.partition(".")[0]
            changed.add("statistics" if ".running_" in name else f"{part} weights")
    assert changed == changing


# SSD300 is in test_unit_variance.py
@pytest.mark.parametrize("name", ["fasterrcnn_resnet50_fpn", "retinanet_resnet50_fpn", SSDLITE])
def test_every_model_has_a_loss_whose_gradient_reaches_its_backbone(name, scenes):
    torch.manual_seed(0)
    model = build_model(name, min_size=64).train()
    if name.startswith("fasterrcnn"):
        model.rpn._post_nms_top_n["training"] = 32
    size = input_size(name, model, 0.0)
    items = [item for item in read_coco(scenes) if len(item.labels)][:2]
    samples = [augment(item, size, np.random.default_rng(i)) for i, item in enumerate(items)]
    loss = batch_loss(name, model, samples, torch.device("cpu"))
    loss.backward()
    assert math.isfinite(loss.item())
    assert loss.item() > 0
    assert next(p for p in model.backbone.parameters() if p.ndim == 4).grad.abs().sum() > 0


def test_a_picture_without_objects_teaches_only_background():
    torch.manual_seed(0)
    model = build_model(SSDLITE).train()
    empty = Sample(np.full((192, 192, 3), 90, np.uint8), np.zeros((0, 4), np.float32), np.zeros(0, np.int64))
    loss = batch_loss(SSDLITE, model, [empty, empty], torch.device("cpu"))
    loss.backward()
    assert 0 < loss.item() < 100
    assert model.head.regression_head.module_list[0][1].weight.grad.abs().sum() == 0


def test_every_object_claims_default_boxes_however_small():
    model = build_model(SSDLITE).eval()
    maps = list(model.backbone(torch.zeros(1, 3, 320, 320)).values())
    anchors = model.anchor_generator(ImageList(torch.zeros(1, 3, 320, 320), [(320, 320)]), maps)[0]
    boxes = torch.tensor([[100.0, 100, 116, 112], [30, 200, 110, 290], [200, 50, 222, 74]])
    matched, background = match(anchors, boxes)
    assert all((matched == i).sum() >= CLAIMED for i in range(3))
    assert not (background & (matched >= 0)).any()
    iou = box_iou(boxes, anchors)
    assert not background[iou.amax(dim=0) >= 0.5].any()
    assert background[iou.amax(dim=0) == 0].all()
    # what the head is taught is what torchvision decodes
    rows = (matched >= 0).nonzero()[:, 0]
    decoded = model.box_coder.decode_single(encode(boxes[matched[rows]], anchors[rows]), anchors[rows])
    torch.testing.assert_close(decoded, boxes[matched[rows]], rtol=1e-4, atol=1e-3)


def test_augmentation_moves_boxes_with_what_they_are_around(tmp_path, scenes):
    """On a picture that is black but for a white rectangle the box must stay the rectangle's."""
    item = next(item for item in read_coco(scenes) if len(item.labels))
    image = np.zeros((item.height, item.width, 3), np.uint8)
    image[60:100, 80:150] = 255
    path = tmp_path / "rectangle.png"
    cv2.imwrite(str(path), image)
    item = type(item)(
        path, 1, item.width, item.height, np.float32([[80, 60, 150, 100]]), np.array([2], np.int64)
    )
    seen = set()
    for seed in range(60):
        sample = augment(item, (192, 192), np.random.default_rng(seed))
        assert sample.image.shape == (192, 192, 3)
        if not len(sample.labels):
            continue
        x1, y1, x2, y2 = sample.boxes[0]
        grey = sample.image.max(axis=2).astype(int)
        inside = grey[math.ceil(y1) + 2 : int(y2) - 2, math.ceil(x1) + 2 : int(x2) - 2]
        centre = grey[int((y1 + y2) / 2), int((x1 + x2) / 2)]
        assert inside.min() > centre - 30
        seen.add((round(float(x1)), round(float(y1))))
    assert len(seen) > 20


def test_it_starts_from_torchvisions_weights_where_it_is_told_to(few, tmp_path, monkeypatch):
    class Published:
        def get_state_dict(self, **options: object) -> dict[str, torch.Tensor]:
            return {}

        def __str__(self) -> str:
            return "COCO_V1"

    monkeypatch.setattr(starts, "get_model_weights", lambda name: type("W", (), {"DEFAULT": Published()}))
    found = Training(settings(few, tmp_path / "a", start="torchvision"))
    packaged = Training(settings(few, tmp_path / "b", start="packaged"))
    assert found.position.initial == "COCO_V1"
    assert found._network != packaged._network  # its default boxes follow the labels


def test_without_torchvisions_weights_it_starts_from_the_packaged_ones_with_their_network_and_says_so(
    few, tmp_path, monkeypatch
):
    class Unreachable:
        def get_state_dict(self, **options: object) -> None:
            raise OSError("no route to host")

    monkeypatch.setattr(starts, "get_model_weights", lambda name: type("W", (), {"DEFAULT": Unreachable()}))
    lines: list[str] = []
    found = Training(settings(few, tmp_path / "a", start="auto"), say=lines.append)
    packaged = Training(settings(few, tmp_path / "b", start="packaged"))
    assert found.position.initial == packaged.position.initial
    state, other = packaged.model.state_dict(), found.model.state_dict()
    assert other.keys() == state.keys()
    assert all(torch.equal(value, state[key]) for key, value in other.items())
    assert found._network == packaged._network != {}
    assert "torchvision's weights cannot be downloaded (no route to host)" in lines
    assert f"starting from the packaged weights of {SSDLITE}" in lines
    assert "train" in packaged.position.initial
    with pytest.raises(InvalidInput, match="start torchvision: expected a connection"):
        Training(settings(few, tmp_path / "c", start="torchvision"))
    path = packaged_weights(SSDLITE)
    assert path is not None
    assert all(torch.equal(state[key], v.to(state[key].dtype)) for key, v in load_weights(path)[0].items())
    with pytest.raises(
        InvalidInput, match=f"no packaged weights of model 'ssd300_vgg16'; expected '{SSDLITE}'"
    ):
        Training(settings(few, tmp_path / "c", start="packaged", model="ssd300_vgg16"))


def test_a_model_that_torchvision_has_no_weights_of_starts_with_what_there_is(few, tmp_path):
    lines: list[str] = []
    found = Training(settings(few, tmp_path / "a", start="auto", model=PHOTO_MODEL), say=lines.append)
    assert f"torchvision has no weights of {PHOTO_MODEL}" in lines
    assert lines[-1].endswith("that has seen photographs, all else random")
    assert found.position.initial.startswith("backbone of the photo network")
    with pytest.raises(InvalidInput, match=r"start torchvision: expected .* a model that it has some of"):
        Training(settings(few, tmp_path / "b", start="torchvision", model=PHOTO_MODEL))
    assert starts.published_weights("of_another_package", lines.append) is None


def test_a_detector_that_starts_with_photographs_has_the_maps_of_the_photo_network(tmp_path):
    model, network = build_model(PHOTO_MODEL).eval(), read_photo_network()
    heads = {key: value.clone() for key, value in model.head.state_dict().items()}
    made_by = starts.fill_from_photographs(model, PHOTO_MODEL, lambda line: None)
    assert network.hash[:16] in made_by
    pictures = torch.rand(1, 3, 160, 96) * 2 - 1
    with torch.inference_mode():
        maps, (_, *expected) = backbone_maps(model.backbone, pictures), network(pictures)
    assert len(maps) == 6
    for found, wanted in zip(maps, expected, strict=False):
        assert torch.equal(found, wanted)
    assert all(torch.equal(value, heads[key]) for key, value in model.head.state_dict().items())
    with pytest.raises(InvalidInput, match=f"for model '{PHOTO_MODEL}', found '{SSDLITE}'"):
        starts.fill_from_photographs(model, SSDLITE, lambda line: None)


def test_weights_of_another_class_count_fill_all_but_the_class_layers():
    torch.manual_seed(1)
    published = build_model(SSDLITE, num_classes=91).state_dict()

    model = build_model(SSDLITE)
    assert starts.fill_from_published(model, ("COCO", published), lambda line: None) == "COCO"
    kept = [k for k, v in model.state_dict().items() if not torch.equal(v, published[k])]
    assert kept
    assert all("classification_head" in key for key in kept)


def test_data_without_an_object_is_refused_before_the_work(scenes, tmp_path):
    annotations = rendered(tmp_path / "none", [1], (240, 180), stickers=1) / "annotations.json"
    annotations.write_text(json.dumps(json.loads(annotations.read_text()) | {"annotations": []}))
    for changes in ({"data": (tmp_path / "none",)}, {"val_data": tmp_path / "none"}):
        chosen = settings(scenes, tmp_path / "out").model_copy(update=changes)
        with pytest.raises(InvalidInput, match="none of 1 pictures has a logo or sticker"):
            train(chosen)
    assert not (tmp_path / "out").exists()


def test_it_refuses_what_it_cannot_train_on(scenes, tmp_path):
    with pytest.raises(InvalidInput, match="expected the state of a training"):
        train(settings(scenes, tmp_path / "b"), resume=True)
    with pytest.raises(InvalidInput, match="batch of 1 picture"):
        train(settings(scenes, tmp_path / "c", batch_size=1))
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / STATE).write_bytes(b"not a state")
    with pytest.raises(InvalidInput, match="exists already"):
        train(settings(scenes, tmp_path / "d"))
    with pytest.raises(InvalidInput, match="not the complete state"):
        train(settings(scenes, tmp_path / "d"), resume=True)
    with pytest.raises(InvalidInput, match="no such file"):
        train(settings(scenes, tmp_path / "e", start=str(tmp_path / "missing.safetensors")))
    assert [path.name for path in tmp_path.iterdir()] == ["d"], "a refusal leaves no folder"


def test_the_backbone_of_another_model_is_taken_and_nothing_else(tmp_path):
    torch.manual_seed(1)
    other = build_model("fasterrcnn_resnet50_fpn", min_size=64)
    path = tmp_path / "other.safetensors"
    save_weights(other, path, {"model": "fasterrcnn_resnet50_fpn", "command": "sticker-uq train"})
    model, heard = build_model("retinanet_resnet50_fpn", min_size=64), list[str]()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    theirs = other.state_dict()
    made_by = starts.fill_from_file(model, "retinanet_resnet50_fpn", path, heard.append)
    assert made_by.startswith("backbone of fasterrcnn_resnet50_fpn")
    assert "fasterrcnn_resnet50_fpn" in heard[0]
    for key, value in model.state_dict().items():
        expected = theirs[key] if key.startswith("backbone.body.") else before[key]
        assert torch.equal(value, expected), key
    with (
        pytest.raises(
            InvalidInput, match="'fasterrcnn_resnet50_fpn': expected 'ssd300_vgg16', or one with the same"
        ),
        Unfilled(),
    ):  # refused before a weight is touched
        starts.fill_from_file(build_model("ssd300_vgg16"), "ssd300_vgg16", path, heard.append)


def test_a_picture_that_is_no_picture_ends_the_training_by_name(tmp_path):
    folder = rendered(tmp_path / "broken", range(2), (240, 180), stickers=1)
    broken = next((folder / "images").iterdir())
    broken.write_bytes(b"\xff\xd8 cut off")
    with pytest.raises(InvalidInput, match=broken.name):
        train(settings(folder, tmp_path / "out", batch_size=2))
