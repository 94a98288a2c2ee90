# SPDX-License-Identifier: Apache-2.0
"""Imports account for every key, picture and number: contradictions and what nobody knows stop them; shapes are turned right."""

import json
import unicodedata

import cv2
import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from lab_helpers.label_files import (
    BOX,
    HEIGHT,
    RECTANGLE,
    WIDTH,
    coco,
    pictures,
    refused,
    refused_again,
    region,
    sizes,
    taken,
    task,
    voc,
    write,
)
from sticker_uq_lab.datasets.importing.named_picture import turn_box


@pytest.mark.parametrize(("degrees", "box"), [(90, [148, 40, 24, 160]), (30, [90.5, 78.7, 139.0, 82.6])])
def test_a_turned_ellipse_of_label_studio_gives_the_box_around_it(degrees, box, tmp_path):
    pictures(tmp_path / "in", "a.png")
    one = region("ellipselabels", x=50, y=50, radiusX=25, radiusY=5, rotation=degrees)
    write(tmp_path / "in" / "a.json", [task(one)])
    np.testing.assert_allclose(sizes(taken(tmp_path / "in")[1][0]), [box], atol=0.1)


def test_a_turned_box_of_voc_gives_the_box_around_it(tmp_path):
    pictures(tmp_path / "in", "a.png")
    attribute = "<attribute><name>{}</name><value>{}</value></attribute>"
    inner = f"<attributes>{attribute.format('rotation', 90.0)}{attribute.format('track_id', 3)}</attributes>"
    write(tmp_path / "in" / "a.xml", voc("a.png", inner, (100, 100, 140, 120)))
    assert sizes(taken(tmp_path / "in")[1][0]) == [[110, 90, 20, 40]]


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0, 360), st.floats(20, 120), st.floats(20, 120), st.booleans(), st.booleans(),
)  # fmt: skip
def test_turned_shapes_have_the_box_of_their_pixels(degrees, width, height, ellipse, corner):
    """Every pixel is asked whether it is in the shape, by turning it back."""
    x1, y1 = 200.0, 210.0
    box = turn_box((x1, y1, x1 + width, y1 + height), degrees, ellipse, corner)
    pivot = (x1, y1) if corner else (x1 + width / 2, y1 + height / 2)
    y, x = np.mgrid[20:400, 20:400] + 0.5
    turn = np.exp(-1j * np.radians(degrees)) * (x - pivot[0] + 1j * (y - pivot[1]))
    u, v = turn.real + pivot[0] - x1 - width / 2, turn.imag + pivot[1] - y1 - height / 2
    inside = (
        (u / width) ** 2 + (v / height) ** 2 <= 0.25
        if ellipse
        else (abs(u) <= width / 2) & (abs(v) <= height / 2)
    )
    rows, columns = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
    # a corner may end in a pixel whose middle it does not reach
    expected = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]) + 20
    np.testing.assert_allclose(box, expected, atol=3)


def test_a_task_of_two_pictures_is_not_guessed(tmp_path):
    root = tmp_path / "in"
    pictures(root, "ref.png", "a.png")
    one = region("rectanglelabels", **RECTANGLE)
    write(root / "e.json", [task(one, reference="/data/upload/1/ref.png", image="/data/upload/1/a.png")])
    assert "task 1: has 2 pictures (reference, image)" in refused(root)
    _, (item,) = taken(root, "--ignore-key", "reference")
    assert item.source_name == "a.png"
    two = region("rectanglelabels", "right_view", **{**RECTANGLE, "x": 50})
    write(root / "e.json", [task(one, two, left="/data/upload/1/ref.png", right="/data/upload/1/a.png")])
    assert "and labels of image, right_view" in " ".join(refused_again(root, "--ignore-key", "left"))


CREATE_ML = [
    {
        "imagefilename": "a.png",
        "annotation": [{"label": "sticker", "coordinates": {"x": 4, "y": 4, "width": 6, "height": 6}}],
    }
]
MANIFEST = (
    '{"source-ref": "s3://x/b.png", "labels": {"annotations": [{"class_id": 0, "left": 10, "top": 10}]}}\n'
)


@pytest.mark.parametrize(
    ("file", "content", "named"),
    [
        ("b/createml.json", CREATE_ML, "CreateML"),
        ("b/list.json", [{"file": "b.png", "objects": [{"category": "sticker", "bbox": BOX}]}], "another kind (.json)"),
        ("b/a.json", {k: v for k, v in coco({"b.png": {}}).items() if k != "categories"}, "COCO without categories"),
        ("b.xml", voc("b.png", space=' xmlns="urn:example:voc"'), "<{urn:example:voc}annotation>"),
        ("output.manifest", MANIFEST, "(.manifest)"),
        ("bounding_boxes.labels", '{"boundingBoxes": {"b.png": [{"label": "s", "x": 1}]}}', "(.labels)"),
        ("train.jsonl", '{"image": "b.png", "objects": {"bbox": [[1, 2, 3, 4]]}}', "(.jsonl)"),
        ("labels/b.txt", "0 0.5 0.5 0.1 0.1\n", "YOLO without a list of the names"),
        ("list.txt", "images/b.png 10,10,60,60,0\n", "lines of pictures and numbers"),
        ("b.csv", "b.png,10,10,60,60,sticker\n", "labels in CSV"),
        ("voc.tsv", "filename\txmin\tymin\n", "labels in CSV"),
        ("a.tfrecord", "\0\0", "(.tfrecord)"),
        ("via.json", {"metadata": {}, "file": {}, "view": {}}, "VGG Image Annotator 3"),
        ("vott.json", {"asset": {}, "regions": [], "version": ""}, "VoTT"),
        ("samples.json", {"samples": [{"filepath": "data/b.png", "ground_truth": {"detections": []}}]}, "FiftyOne"),
        ("dm.json", {"items": [], "categories": {}, "info": {}}, "Datumaro"),
    ],
)  # fmt: skip
def test_files_with_labels_that_are_not_read_stop_an_import(file, content, named, tmp_path):
    root = tmp_path / "in"
    pictures(root, "a.png", "b.png")
    write(root / "annotations.json", coco({"a.png": {}}))
    write(root / file, content)
    said = refused(root)
    assert named in said
    assert "label-studio" not in said
    taken(root, "--format", "coco")


def test_labels_in_a_folder_of_another_name_are_named(tmp_path):
    root = tmp_path / "in"
    pictures(root, "val/images/a.png", "train_images/b.png")
    for folder, name in (("val/labels", "a"), ("train_labels", "b")):
        write(root / folder / f"{name}.txt", "0 0.5 0.5 0.1 0.1\n")
    write(root / "data.yaml", "names: [sticker]\n")
    assert "train_labels/b.txt: has 1 labels, but there is no picture for it" in refused(root)


def test_texts_without_labels_do_not_stop_an_import(tmp_path):
    root = tmp_path / "in"
    pictures(root, "a.png")
    write(root / "annotations.json", coco({"a.png": {}}))
    write(root / "README.md", 'Each has a "bbox": [1, 2, 3, 4].')
    write(root / "README.roboflow.txt", "Resized to 640 x 640 px, 3 versions, 12 pictures\n")
    write(root / "poses.txt", "1 0 0 0 1 0 0 0 1\n")
    write(root / "notes.json", {"categories": [{"id": 0, "name": "sticker"}], "info": {"year": 2026}})
    write(root / "list.txt", "a.png\n")
    taken(root)


def test_pictures_of_another_folder_are_not_taken(tmp_path):
    root = tmp_path / "in"
    pictures(root, "cam_b/1.png", "cam_b/2.png")
    write(root / "a.json", coco({"cam_a/1.png": {}}))
    assert "'cam_a/1.png' is not there: " in refused(root)
    write(root / "a.json", coco({"cam_a/1.png": {}, "cam_b/2.png": {}}))
    assert "lies in another folder, as does" in refused(root)
    write(root / "a.json", coco({"/home/me/cam_a/1.png": {}, "/home/me/cam_b/2.png": {}}))
    assert "'/home/me/cam_a/1.png' is not there" in refused(root)
    write(root / "a.json", coco({"cam_a/1.png": {}, "cam_c/2.png": {}}))
    assert "'cam_c/2.png' is not there" in refused(root)
    # another machine's folder before a common end is said once
    write(root / "a.json", coco({"/home/me/cam_b/1.png": {}, "/home/me/cam_b/2.png": {}}))
    said, _ = taken(root)
    assert "pictures found under another folder: /home/me/cam_b/1.png -> " in said
    assert "and 1 more" in said


def test_names_that_contradict_each_other_are_refused_with_both(tmp_path):
    root = tmp_path / "in"
    pictures(root, "001.png", "002.png")
    write(root / "001.xml", voc("002.png"))
    write(root / "002.xml", voc("001.png", box=(200, 100, 260, 160)))
    said = refused(root)
    assert "<filename> names" in said
    assert said.count("--ignore-key filename") == 2
    by_file = taken(root, "--ignore-key", "filename", out="file")[1]
    assert {item.source_name: sizes(item) for item in by_file}["001.png"] == [[10, 20, 20, 25]]
    by_name = taken(root, "--ignore-key", "xml-name", out="name")[1]
    assert {item.source_name: sizes(item) for item in by_name}["001.png"] == [[200, 100, 60, 60]]
    write(root / "001.xml", voc("001.png", head="<path>C:\\x\\002.png</path>"))
    write(root / "002.xml", voc("002.png"))
    assert "name two pictures that are there" in refused(root)


OUTLINE = [[50, 40, 100, 40, 100, 90, 50, 90]]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bbox": [50, 40, 100, 90], "bbox_mode": 0}, "bbox_mode 0: expected 1"),
        ({"bbox": [50, 40, 100, 90], "segmentation": OUTLINE}, "as corners they would agree"),
        ({"bbox": [200, 150, 40, 40], "segmentation": OUTLINE}, "they lie apart"),
        ({"bbox": [50, 40, 100, 90], "area": 2500}, "contradicts area 2500: as corners they would agree"),
        ({"bbox": [0.1, 0.2, 0.3, 0.4]}, "lies within 0..1"),
        ({"bbox": [200, 100, 260, 160]}, "as corners x1, y1, x2, y2 all would"),
        ({"category_name": "logo"}, "category_name 'logo', but its category_id is that of 'sticker'"),
        ({"angle": 30}, "key 'angle' (1 times in labels) is not known"),
        ({"attributes": {"theta": 0.5}}, "key 'theta'"),
    ],
)  # fmt: skip
def test_numbers_that_contradict_each_other_are_refused(fields, message, tmp_path):
    pictures(tmp_path / "in", "a.png")
    write(tmp_path / "in" / "a.json", coco({"a.png": fields}))
    assert message in refused(tmp_path / "in")
    assert message in refused(tmp_path / "in", "--repair")


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        ("<bndbox><xmin>1</xmin></bndbox>", "2 <bndbox>: expected a <bndbox>"),
        ("<polygon><x1>100</x1><y1>100</y1><x2>150</x2><y2>150</y2></polygon>", "contradicts <polygon>"),
        ("<type>robndbox</type>", "<type> 'robndbox': expected bndbox"),
        ("<robndbox><cx>3</cx></robndbox>", "key 'robndbox'"),
    ],
)
def test_objects_of_voc_with_several_shapes_are_refused(inner, message, tmp_path):
    pictures(tmp_path / "in", "a.png")
    write(tmp_path / "in" / "a.xml", voc("a.png", inner))
    assert message in refused(tmp_path / "in")


def test_what_sizes_prove_of_the_orientation_holds_for_the_source(tmp_path):
    root = tmp_path / "in"
    for name, orientation in (("a", 6), ("b", 3), ("c", 2)):
        pictures(root, f"{name}.png")
        exif = Image.Exif()
        exif[0x0112] = orientation
        noise = np.random.default_rng(orientation).integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
        Image.fromarray(noise).save(root / f"{name}.jpg", exif=exif)
        (root / f"{name}.png").unlink()
        write(root / f"{name}.xml", voc(f"{name}.jpg", box=(10, 20, 30, 45)))
    found = {item.source_name: sizes(item) for item in taken(root)[1]}
    assert found == {
        "a.jpg": [[195, 10, 25, 20]],
        "b.jpg": [[290, 195, 20, 25]],
        "c.jpg": [[290, 20, 20, 25]],
    }
    (root / "a.xml").unlink()  # the one that proves it
    assert "2 pictures have an EXIF orientation" in " ".join(refused_again(root))
    taken(root, "--orientation", "shown", out="shown")


def test_a_turned_tiff_is_imported_upright(tmp_path):
    root = tmp_path / "in"
    pictures(root, "a.png")
    Image.open(root / "a.png").save(root / "a.tif", tiffinfo={274: 6})
    (root / "a.png").unlink()
    content = coco({"a.tif": {}})
    content["images"][0] |= {"width": HEIGHT, "height": WIDTH}
    write(root / "a.json", content)
    assert sizes(taken(root)[1][0]) == [BOX]


def test_a_finished_task_of_json_min_without_a_region_shows_nothing(tmp_path):
    root = tmp_path / "in"
    pictures(root, "a.png", "b.png")
    label = {**RECTANGLE, "rectanglelabels": ["sticker"], "original_width": WIDTH, "original_height": HEIGHT}
    about = {"annotator": 1, "annotation_id": 1, "lead_time": 3.2}
    write(root / "e.json", [
        {"id": 1, "image": "/data/upload/1/a.png", "label": [label], **about},
        {"id": 2, "image": "/data/upload/1/b.png", **about},
    ])  # fmt: skip
    assert [len(item.boxes) for item in taken(root)[1]] == [1, 0]


def test_uploads_of_label_studio_are_found_in_every_format(tmp_path):
    """Beside JSON it writes COCO, VOC and YOLO, with the names of its uploads: here the photographs lie where they always did."""
    photographs, root = tmp_path / "photographs", tmp_path / "in"
    pictures(photographs, "a.png")
    document = coco({"/data/upload/1/1f2e3d4c-a.png": {}})
    fraction = "0 0.0625 0.135416667 0.0625 0.104166667"
    for format_, name, content in (
        ("coco", "result.json", document),
        ("voc", "1f2e3d4c-a.xml", voc("1f2e3d4c-a.png", head="<folder>images</folder>")),
        ("yolo", "labels/1f2e3d4c-a.txt", fraction),
    ):
        write(root / format_ / name, content)
    write(root / "yolo" / "classes.txt", "sticker\n")
    for format_ in ("coco", "voc", "yolo"):
        _, (item,) = taken(root / format_, "--images", photographs, out=f"../{format_}")
        assert (item.source_name, sizes(item)) == ("a.png", [BOX])
    write(root / "yolo" / "labels" / "aaaaaaaa-a.txt", fraction)  # of another picture of this name
    assert "there is no picture for it" in refused_again(root / "yolo", "--images", photographs)[0]


def test_label_files_lie_as_their_pictures_do_below_images(tmp_path):
    root, photographs = tmp_path / "in", tmp_path / "photographs"
    pictures(photographs, "x/a.png", "y/a.png")
    write(root / "classes.txt", "sticker\n")
    write(root / "labels" / "x" / "a.txt", "0 0.5 0.5 0.1 0.1\n")
    write(root / "labels" / "y" / "a.txt", "0 0.5 0.5 0.1 0.2\n")
    _, items = taken(root, "--images", photographs)
    assert [sizes(item) for item in items] == [[[144, 108, 32, 24]], [[144, 96, 32, 48]]]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("data.yaml", "path: .\nnames:\n0: sticker\n1: logo\n", "data.yaml: names is empty"),
        ("data.yaml", "nc: 1\nnames: sticker\n", "names 'sticker': expected a list"),
        ("data.yaml", "nc: 1\nnames: [logo, sticker]\n", "nc 1: contradicts names, which has 2"),
        ("data.yaml", "names: [no, yes]\n", 'give --class "no=sticker"'),
        ("data.yaml", "names: [sticker]\nbox_format: xyxy\n", "key 'box_format'"),
        ("classes.txt", "\nlogo\nsticker\n", "line 1 is empty"),
    ],
)
def test_lists_of_names_are_read_as_they_are_written(file, text, message, tmp_path):
    root = tmp_path / "in"
    pictures(root, "images/a.png")
    write(root / "labels" / "a.txt", "0 0.5 0.5 0.1 0.1\n")
    write(root / file, text)
    assert message in refused(root)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0 160 120 32 24", "value 160: expected fractions"),
        ("0 0.7 0.7 0.1 0.1 0.66 0.66 0.72 0.74", "the first four values are a box that holds the rest"),
        (
            "0 0.5 0.5 0.2 0.2 0.4 0.4 0.6 0.4 0.6 0.6 0.4 0.6",
            "the first four values are a box that holds the rest",
        ),
    ],
)
def test_numbers_of_yolo_that_are_no_fractions_or_polygons_are_refused(line, message, tmp_path):
    root = tmp_path / "in"
    pictures(root, "a.png")
    write(root / "classes.txt", "sticker\n")
    write(root / "a.txt", line)
    assert message in refused(root)
    write(root / "a.txt", "0 0.5 0.5 0.55 0.5 0.56 0.55 0.5 0.55\n")  # a polygon in the middle
    taken(root)


def test_labelled_pictures_that_are_in_no_list_are_said(tmp_path):
    root = tmp_path / "in"
    pictures(root, "images/a.png", "images/b.png")
    for name in "ab":
        write(root / "labels" / f"{name}.txt", "0 0.5 0.5 0.1 0.1\n")
    write(root / "data.yaml", "path: .\ntrain: train.txt\nnames: [sticker]\n")
    write(root / "train.txt", "./images/a.png\n")
    assert "1 labelled picture is not in train.txt" in taken(root)[0]


def test_class_names_are_compared_as_composed(tmp_path):
    root = tmp_path / "in"
    pictures(root, "a.png")
    name = unicodedata.normalize("NFD", "Prüfmarke")
    write(root / "a.json", coco({"a.png": {}}, categories=[{"id": 1, "name": name}]))
    taken(root, "--class", "Prüfmarke=sticker")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            [
                {
                    "ID": "x",
                    "Labeled Data": "a.png",
                    "Label": {"objects": [{"value": "s", "bbox": {"top": 1}}]},
                }
            ],
            "Labelbox",
        ),
        ([{"task_id": "x", "params": {}, "response": {"annotations": [{"label": "s", "left": 1}]}}], "Scale"),
        (
            coco({"a.png": {"segments_info": [{"id": 5}]}}),
            "COCO panoptic (segments_info): export object detection",
        ),
    ],
)
def test_exports_of_further_tools_are_named(content, message, tmp_path):
    pictures(tmp_path / "in", "a.png")
    write(tmp_path / "in" / "a.json", content)
    said = refused(tmp_path / "in")
    assert message in said
    assert "abel Studio" not in said


def test_an_ignored_key_is_passed_over_and_must_be_there(tmp_path):
    root = tmp_path / "in"
    pictures(root, "a.png")
    write(root / "a.json", coco({"a.png": {"angle": 30}}))
    assert "--ignore-key 'angel': no label, shape, task or header has this key" in refused(
        root, "--ignore-key", "angel"
    )
    taken(root, "--ignore-key", "angle")
    assert yaml.safe_load((tmp_path / "out" / "import.yaml").read_text())["ignored_keys"] == ["angle"]


def test_a_key_that_stands_twice_is_counted(tmp_path):
    root = tmp_path / "in"
    pictures(root, "a.png")
    write(root / "a.json", json.dumps(coco({"a.png": {}})).replace('"bbox"', '"bbox": [1, 2, 3, 4], "bbox"'))
    assert "has 2 shapes (" in refused(root)


def test_pictures_of_a_project_of_cvat_are_those_of_their_subset(tmp_path):
    root = tmp_path / "in"
    pictures(root, "images/Train/a.png", "images/Test/a.png")
    image = f'<image id="0" name="a.png" subset="{{}}" width="{WIDTH}" height="{HEIGHT}">{{}}</image>'
    box = '<box label="sticker" xtl="{}" ytl="20" xbr="90" ybr="45"/>'
    train, test = image.format("Train", box.format(10)), image.format("Test", box.format(50))
    write(root / "a.xml", f"<annotations>{train}{test}</annotations>")
    found = {item.source_name: sizes(item) for item in taken(root)[1]}
    assert found == {"images/Train/a.png": [[10, 20, 80, 25]], "images/Test/a.png": [[50, 20, 40, 25]]}
    (root / "images" / "Train" / "a.png").unlink()
    assert "'Train/a.png' is not there" in " ".join(refused_again(root))


@pytest.mark.parametrize(
    ("rle", "fits"), [("0, 3000000", True), ("0, 2999999", False), ("x, 3000000", False)]
)
def test_a_mask_of_cvat_has_as_many_pixels_as_its_box(rle, fits, tmp_path):
    """Large masks have runs that are longer than any side of a picture."""
    root = tmp_path / "in"
    root.mkdir()
    cv2.imwrite(str(root / "a.png"), np.full((1600, 2000, 3), 90, np.uint8))
    mask = f'<mask label="sticker" left="0" top="0" width="2000" height="1500" rle="{rle}"/>'
    image = f'<image id="0" name="a.png" width="2000" height="1600">{mask}</image>'
    write(root / "a.xml", f"<annotations>{image}</annotations>")
    assert taken(root) if fits else "2000 x 1500 of its box" in refused(root)


def test_a_region_without_a_size_matters_only_where_its_class_does(tmp_path):
    root = tmp_path / "in"
    pictures(root, "a.png")
    point = {"type": "keypointlabels", "value": {"x": 1, "y": 2, "width": 1, "keypointlabels": ["tip"]}}
    write(root / "a.json", [task(region("rectanglelabels", **RECTANGLE), point)])
    assert sizes(taken(root, "--ignore", "tip")[1][0]) == [[32, 24, 64, 48]]
    lone = region("rectanglelabels", **{**RECTANGLE, "x": 50})
    del lone["original_width"], lone["original_height"]
    write(root / "a.json", [task(lone)])
    assert "original_width None: expected a number" in " ".join(refused_again(root))
