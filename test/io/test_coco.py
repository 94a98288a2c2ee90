# SPDX-License-Identifier: Apache-2.0
import copy
import json
import os
from pathlib import Path

import cv2
import numpy as np
import pytest

from sticker_uq.cli import explain
from sticker_uq.io.coco import dataset_digest, label_counts, load_annotations, read_coco, write_coco
from sticker_uq.io.faults import LabelCounts
from sticker_uq.scene import InvalidFile, InvalidInput
from test.helpers.laptops import laptop, scene


def write(folder, numbers=(0, 1), image_format="png"):
    scenes = [scene(number, image_format) for number in numbers]
    write_coco(folder, scenes)
    return scenes


@pytest.fixture
def folder(tmp_path):
    """A folder with one picture and two boxes, and a function that changes its annotations."""
    (tmp_path / "images").mkdir()
    cv2.imwrite(str(tmp_path / "images" / "a.png"), np.zeros((60, 80, 3), np.uint8))
    document = {
        "categories": [{"id": 5, "name": "Sticker"}, {"id": 9, "name": "LOGO"}],
        "images": [{"id": 3, "file_name": "a.png", "width": 80, "height": 60}],
        "annotations": [
            {"id": 1, "image_id": 3, "category_id": 5, "bbox": [1, 2, 10, 20]},
            {"id": 2, "image_id": 3, "category_id": 9, "bbox": [30.5, 2, 49.5, 58]},
        ],
    }

    def change(edit=lambda document: None):
        changed = copy.deepcopy(document)
        edit(changed)
        (tmp_path / "annotations.json").write_text(json.dumps(changed))
        return tmp_path

    change()
    return change


@pytest.mark.parametrize("image_format", ["png", "jpg"])
def test_round_trip(tmp_path, image_format):
    scenes = write(tmp_path / "data", (2, 5, 7), image_format)
    images = read_coco(tmp_path / "data")
    assert [image.path.name for image in images] == [f"{s:08d}.{image_format}" for s in (2, 5, 7)]
    for image, given in zip(images, scenes, strict=True):
        np.testing.assert_array_equal(image.boxes, given.boxes)
        np.testing.assert_array_equal(image.labels, given.labels)
        assert image.boxes.dtype == np.float32
        picture = cv2.imread(str(image.path))
        assert picture.shape == (image.height, image.width, 3)
        if image_format == "png":
            np.testing.assert_array_equal(picture, laptop("small", given.seed))
    entries = json.loads((tmp_path / "data" / "annotations.json").read_text())
    assert [entry["seed"] for entry in entries["images"]] == [2, 5, 7]
    assert {c["name"]: c["id"] for c in entries["categories"]} == {"logo": 1, "sticker": 2}


def test_an_interrupted_dataset_leaves_nothing(tmp_path):
    def scenes():
        yield scene(0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_coco(tmp_path / "data", scenes())
    assert list(tmp_path.iterdir()) == []


def test_an_existing_dataset_is_not_overwritten(tmp_path):
    write(tmp_path / "data")
    with pytest.raises(InvalidInput, match="exists already"):
        write(tmp_path / "data")
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="is no folder"):
        write(tmp_path / "file")


def test_pictures_of_a_person_are_not_overwritten_and_those_of_a_killed_call_are(tmp_path):
    data = tmp_path / "data"
    write(data)
    whole = {path.name: path.read_bytes() for path in data.rglob("*.*")}
    (data / "annotations.json").unlink()
    with pytest.raises(InvalidInput, match=r"\.png: exists already; expected a folder without pictures"):
        write(data)
    (data / ".unfinished").touch()

    def interrupted():
        yield scene(0, "png")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_coco(data, interrupted())
    write(data)
    assert {path.name: path.read_bytes() for path in data.rglob("*.*")} == whole


def test_the_digest_of_a_data_set_is_that_of_its_pixels_too(folder):
    """What was computed from pictures must not be taken for others of the same names and labels."""
    data = folder()
    first = dataset_digest(read_coco(data))
    assert dataset_digest(read_coco(data)) == first
    cv2.imwrite(str(data / "images" / "a.png"), np.eye(60, 80, dtype=np.uint8) * 255)
    other = dataset_digest(read_coco(data))
    assert other != first
    folder(lambda document: document["annotations"].pop())
    assert dataset_digest(read_coco(data)) not in (first, other)


def test_unknown_picture_format():
    with pytest.raises(InvalidInput, match="'gif'"):
        scene(0, "gif")


def test_a_box_that_sticks_out_by_rounding_is_clipped(folder):
    (image,) = read_coco(folder(lambda d: d["annotations"][0].update(bbox=[-0.5, 0, 10, 60.7])))
    assert image.boxes[0].tolist() == [0, 0, 9.5, 60]


def test_unused_parent_category_is_no_error(folder):
    assert len(read_coco(folder(lambda d: d["categories"].append({"id": 0, "name": "laptops"})))) == 1


def first(key, **values):
    return lambda document: document[key][0].update(values)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (first("categories", name="badge"), r"annotation 1: category_id 5 \('badge'\)"),
        (first("annotations", category_id=77), "annotation 1: category_id 77"),
        (first("annotations", category_id=None), "annotation 1: category_id None"),
        (first("annotations", bbox=[70, 2, 30, 20]), "annotation 1: bbox .* outside its image of 80x60"),
        (first("annotations", bbox=[-9, 2, 30, 20]), "annotation 1: bbox .* outside"),
        (first("annotations", bbox=[1, 2, 0, 20]), "annotation 1: bbox .* above 0"),
        (first("annotations", bbox=[1, 2, -5, 20]), "annotation 1: bbox .* above 0"),
        (first("annotations", bbox=[1, 2, 3]), "annotation 1: bbox .* four numbers"),
        (first("annotations", bbox=[1, 2, 3, float("nan")]), "annotation 1: bbox .* four numbers"),
        (first("annotations", bbox=None), "annotation 1: bbox None"),
        (first("annotations", bbox=[80.5, 2, 0.2, 4]), "annotation 1: bbox .* outside"),
        (first("annotations", id=2), "annotation id 2 is used twice"),
        (first("annotations", id="x"), "annotation id 'x'"),
        (first("annotations", image_id=4), "annotation 1: image_id 4 is not among the images"),
        (first("annotations", image_id=[3]), "annotation 1: image_id"),
        (first("images", file_name="b.png"), "image 3: b.png is neither"),
        (first("images", file_name=7), "image 3: file_name 7"),
        (first("images", width=0), "image 3: width 0"),
        (first("images", height="60"), "image 3: height '60'"),
        (lambda d: d["images"].append(dict(d["images"][0])), "image id 3 is used twice"),
        (lambda d: d["categories"].append({"id": 5, "name": "logo"}), "category id 5 is used twice"),
        (lambda d: d.pop("images"), "'images' to be a list"),
        (lambda d: d.update(annotations={}), "'annotations' to be a list"),
        (lambda d: d.update(categories=[3]), "'categories' to be a list"),
        (lambda d: d.update(images=[], annotations=[]), "at least one image"),
    ],
)
def test_what_is_wrong_is_named(folder, edit, message):
    path = folder(edit)
    with pytest.raises(InvalidInput, match=message) as caught:
        read_coco(path)
    assert "annotations.json" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"), [("{", "not valid JSON"), ("[]", "JSON object"), ("", "not valid")]
)
def test_broken_annotations_file(tmp_path, text, message):
    with pytest.raises(InvalidInput, match=r"annotations\.json: no such file"):
        read_coco(tmp_path)
    (tmp_path / "annotations.json").write_text(text)
    with pytest.raises(InvalidInput, match=message):
        read_coco(tmp_path)


def test_other_names_of_categories_come_from_a_small_file(folder):
    def rename(document):
        document["categories"] = [{"id": 5, "name": "Badge"}, {"id": 9, "name": "brand mark"}]

    root = folder(rename)
    with pytest.raises(
        InvalidInput, match=r"\('Badge'\): expected 'logo' or 'sticker', or a line Badge: \.\.\. in cat"
    ):
        read_coco(root)
    mapping = root / "categories.yaml"
    mapping.write_text("badge: sticker\nBrand Mark: logo\n")
    (item,) = read_coco(root)
    assert item.labels.tolist() == [2, 1]
    mapping.write_text("badge: ignore\nbrand mark: logo\n")
    (item,) = read_coco(root)
    assert item.labels.tolist() == [1]
    assert len(item.boxes) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("badge: [", "not a YAML file"),
        ("badge", "expected lines NAME: one of logo, sticker, ignore"),
        ("sticker: screw", "sticker: 'screw': expected one of logo, sticker, ignore"),
        ("bage: sticker", "'bage' is not a category of the annotations; expected one of logo, sticker"),
    ],
)
def test_a_wrong_line_of_the_names_is_told(folder, text, message):
    root = folder()
    (root / "categories.yaml").write_text(text)
    with pytest.raises(InvalidInput, match=message):
        read_coco(root)


def test_objects_of_an_ignored_category_are_not_looked_at(folder):
    def edit(document):
        document["categories"].append({"id": 7, "name": "crop mark"})
        document["annotations"] += [
            {"id": 3, "image_id": 3, "category_id": 7, "bbox": [5, 5, 0, 0]},
            {"id": 4, "category_id": 7},
        ]

    root = folder(edit)
    with pytest.raises(
        InvalidInput, match=r"annotation 3: category_id 7 \('crop mark'\).* \(in 2 annotations\)"
    ):
        read_coco(root)
    (root / "categories.yaml").write_text("crop mark: ignore\n")
    (item,) = read_coco(root)
    assert item.labels.tolist() == [2, 1]


def test_all_faults_are_listed_at_once(folder):
    def edit(document):
        document["images"][0]["file_name"] = "b.png"
        document["annotations"] += [
            {"id": n, "image_id": 3, "category_id": 5, "bbox": [n, 1, 0, 4]} for n in range(10, 22)
        ]

    root = folder(edit)
    with pytest.raises(InvalidFile) as caught:
        read_coco(root)
    lines = caught.value.lines
    assert lines[0] == f"{root / 'annotations.json'}: 12 faults"
    assert lines[1] == "annotation 10: bbox [10, 1, 0, 4]: expected a width and height above 0"
    assert lines[10:] == (
        "annotation 19: bbox [19, 1, 0, 4]: expected a width and height above 0",
        "and 2 more",
        f"`sticker-uq dataset import {root} --out NEW --repair --class sticker=sticker --class logo=logo` makes a repaired copy",
    )
    text, status = explain(caught.value)
    assert (text.count("\n"), status) == (len(lines) - 1, 2)


def test_regions_of_several_objects_are_no_objects(folder):
    root = folder(lambda d: d["annotations"][0].update(iscrowd=1))
    with pytest.raises(InvalidInput, match="1 regions are marked as crowd"):
        read_coco(root)
    (item,) = read_coco(root, crowd=True)
    whole = read_coco(folder())[0]
    assert item.boxes.tolist() == whole.boxes[1:].tolist()
    assert item.crowd.tolist() == whole.boxes[:1].tolist()
    assert item.crowd_labels.tolist() == whole.labels[:1].tolist()
    assert item.shows_sticker
    with pytest.raises(InvalidInput, match="annotation 1: iscrowd 'yes': expected 0 or 1"):
        read_coco(folder(lambda d: d["annotations"][0].update(iscrowd="yes")))


def test_whole_floats_are_ids_and_text_is_called_text(folder):
    plain = read_coco(folder())[0]

    def floats(document):
        for entry in (*document["images"], *document["annotations"], *document["categories"]):
            entry.update({key: float(value) for key, value in entry.items() if key.endswith("id")})

    (item,) = read_coco(folder(floats))
    assert item.boxes.tolist() == plain.boxes.tolist()
    assert item.labels.tolist() == plain.labels.tolist()
    with pytest.raises(InvalidInput, match="image_id '3' is text, expected an integer"):
        read_coco(folder(lambda d: d["annotations"][0].update(image_id="3")))
    with pytest.raises(InvalidInput, match=r"category_id '5' \(text; expected the number of a category\)"):
        read_coco(folder(lambda d: d["annotations"][0].update(category_id="5")))
    with pytest.raises(InvalidInput, match="image id '3' is text"):
        read_coco(folder(lambda d: d["images"][0].update(id="3")))


@pytest.mark.parametrize("box", [[79.9999999, 2, 0.7, 5], [40, 2, 0.000001, 5]])
def test_a_box_has_an_area_as_it_is_stored(folder, box):
    with pytest.raises(InvalidInput, match="above 0"):
        read_coco(folder(lambda d: d["annotations"][0].update(bbox=box)))


def test_what_is_declared_is_counted(folder):
    def edit(document):
        document["categories"].append({"id": 11, "name": "screw"})
        document["annotations"].append({"id": 9, "image_id": 3, "category_id": 11, "bbox": [1, 1, 5, 5]})
        document["annotations"][0].update(iscrowd=1)
        document["annotations"][1].update(difficult=1)

    root = Path(os.path.relpath(folder(edit)))
    (root / "categories.yaml").write_text("screw: ignore\n")
    (root / "images").mkdir(exist_ok=True)
    (root / "images" / "forgotten.PNG").write_bytes(b"")
    counts = label_counts(read_coco(root, crowd=True), load_annotations(root), root)
    assert (counts.objects, counts.read, counts.crowd, counts.difficult) == (3, 1, 1, 1)
    assert counts.as_json()["ignored"] == {"screw": 1}
    assert counts.as_json()["passed_over"] == {"pictures that the annotations do not name": 1}
    assert counts.lines()[0] == "3 labels declared, 1 read, 1 ignored, 1 crowd"


def test_a_label_that_is_nowhere_is_an_error():
    counts = LabelCounts(objects=3, read=1, crowd=1)
    with pytest.raises(InvalidInput, match="declares 3 labels, but 2 were found"):
        counts.check("x.xml")
