# SPDX-License-Identifier: Apache-2.0
"""A key that is dropped, added, renamed or retyped never gives other labels; what tools write beside labels stops nothing."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import cv2
import numpy as np
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lab_helpers.label_files import HEIGHT, RECTANGLE, WIDTH, coco, region, taken, task, voc, write
from sticker_uq.io.faults import Faults, LabelCounts
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.datasets.importing.formats import FORMATS, read_source
from sticker_uq_lab.datasets.importing.importing import Reader, class_mapping, complete_mapping

ORDINARY = coco(
    {"a.png": {
        "segmentation": [[10, 20, 30, 20, 30, 45, 10, 45]], "area": 500.0, "iscrowd": 0,
        "attributes": {"occluded": False, "id": 3},
        "keypoints": [1, 2, 2], "num_keypoints": 1, "score": 0.9, "caption": "x", "track_id": 4,
    }},
    info={"year": 2026, "contributor": ""},
    licenses=[{"id": 1, "name": "", "url": ""}],
)  # fmt: skip
ORDINARY["images"][0] |= {
    "license": 1,
    "coco_url": "http://x/9.jpg",
    "flickr_url": "",
    "date_captured": 0,
    "extra": {"name": "9.jpg"},
}
ORDINARY["categories"][0] |= {
    "supercategory": "none",
    "keypoints": ["a"],
    "skeleton": [[1, 1]],
    "color": "#fff",
}


def label_studio_task() -> dict[str, Any]:
    whole = task(
        {
            **region("rectanglelabels", **RECTANGLE),
            "id": "x",
            "from_name": "label",
            "origin": "manual",
            "score": 0.9,
        }
    )
    whole["annotations"][0] |= {
        "completed_by": {"id": 1}, "was_cancelled": False, "ground_truth": False, "created_at": "", "updated_at": "x",
        "draft_created_at": None, "lead_time": 2.5, "prediction": {}, "result_count": 1, "unique_id": "u", "import_id": None,
        "last_action": None, "bulk_created": False, "task": 1, "project": 1, "updated_by": 1, "parent_prediction": None,
    }  # fmt: skip
    whole |= {
        "file_upload": "1f2e3d4c-a.png", "drafts": [], "meta": {}, "created_at": "x", "updated_at": "x", "allow_skip": True,
        "inner_id": 1, "total_annotations": 1, "cancelled_annotations": 0, "total_predictions": 1, "comment_count": 0,
        "unresolved_comment_count": 0, "last_comment_updated_at": None, "project": 1, "updated_by": 1, "comment_authors": [],
        "predictions": [{"id": 2, "result": [region("rectanglelabels", **RECTANGLE)], "score": 0.4}],
    }  # fmt: skip
    return whole


LABEL_IMG = "<folder>x</folder><path>/home/me/x/a.png</path><source><database>Unknown</database></source><segmented>0</segmented>"
CVAT = (
    f'<annotations><version>1.1</version><meta><task><id>1</id></task></meta><image id="0" name="a.png" subset="train" '
    f'width="{WIDTH}" height="{HEIGHT}">'
    '<box label="sticker" source="manual" occluded="0" xtl="10" ytl="20" xbr="30" ybr="45" z_order="0" rotation="40">'
    '<attribute name="colour">red</attribute></box><polygon label="sticker" points="60,60;90,60;90,100" z_order="0"/>'
    '<ellipse label="sticker" cx="200" cy="100" rx="20" ry="9" rotation="20"/></image></annotations>'
)
DATA_YAML = {
    "path": ".", "train": "images", "val": "images", "nc": 2, "names": ["sticker", "logo"],
    "roboflow": {"workspace": "x", "version": 1}, "download": "http://x",
}  # fmt: skip
SOURCES: dict[str, tuple[str, Any]] = {
    "coco": ("a.json", ORDINARY),
    "label-studio": ("a.json", [label_studio_task()]),
    "voc": (
        "a.xml",
        voc(
            "a.png",
            "<pose>Unspecified</pose><truncated>0</truncated><difficult>0</difficult>",
            head=LABEL_IMG,
        ),
    ),
    "cvat": ("a.xml", CVAT),
    "yolo": ("data.yaml", DATA_YAML),
}


def lay_out(root: Path, kind: str, content: Any = None) -> Path:
    if not (root / "images").is_dir():
        (root / "images").mkdir(parents=True)
        (root / "images" / "a.png").write_bytes(picture())
    file, ordinary = SOURCES[kind]
    content = ordinary if content is None else content
    if kind == "yolo":
        write(root / "labels" / "a.txt", "\n".join(YOLO_LINES))
        content = yaml.safe_dump(content)
    write(root / file, content)
    return root


def picture() -> bytes:
    return cv2.imencode(".png", np.full((HEIGHT, WIDTH, 3), 90, np.uint8))[1].tobytes()


@pytest.mark.parametrize("kind", FORMATS)
def test_what_tools_write_beside_labels_stops_nothing(kind, tmp_path):
    said, (item,) = taken(lay_out(tmp_path / "in", kind))
    assert len(item.boxes)
    if kind == "label-studio":
        assert "not read: 1 predictions with regions" in said


def labels_of(root: Path) -> list[Any]:
    """What an import would write: names of pictures and boxes of classes."""
    faults, counts = Faults(str(root)), LabelCounts()
    _, found = read_source(root, "auto", None, faults, counts)
    try:
        named = complete_mapping(found, class_mapping([], []))
    except InvalidInput:
        faults.refuse()
        raise
    read = Reader(root, named, faults, counts).read(found)
    counts.read = sum(len(one.labelled_image.boxes) for one in read)
    counts.crowd = sum(len(one.labelled_image.crowd) for one in read)
    counts.check(str(root))
    return [
        (
            one.name,
            np.round(one.labelled_image.boxes, 3).tolist(),
            one.labelled_image.labels.tolist(),
            one.labelled_image.crowd.tolist(),
        )
        for one in read
    ]


DEFAULTED = {"rotation", "iscrowd", "was_cancelled", "ground_truth"}
"""Keys that tools leave out where their value is the usual one: without one the file says so, and another value says another."""


def places(document: Any) -> Iterator[tuple[dict[str, Any], str]]:
    if isinstance(document, dict):
        for key, value in document.items():
            yield document, key
            yield from places(value)
    for value in document if isinstance(document, list) else ():
        yield from places(value)


ODD = (None, True, "x", "12", [], {}, 0.5, -7, [1, 2], ["sticker"], {"x": 3})
CHANGES = st.tuples(
    st.sampled_from(("drop", "add", "rename", "retype")), st.integers(0, 10**6), st.integers(0, 10**6)
)


def changed(document: Any, kind: str, where: int, what: int) -> Any:
    """A copy with one key dropped, added, renamed or of another type."""
    whole = copy.deepcopy(document)
    found = [
        (holder, key)
        for holder, key in places(whole)
        if not (kind in ("drop", "retype") and key in DEFAULTED)
    ]
    holder, key = found[where % len(found)]
    if kind == "drop":
        del holder[key]
    elif kind == "add":
        name = ("angle", "bbox2", "theta", "image2", "label2", "points_2", "crop", key + "_")[what % 8]
        holder[name] = (30, [1, 2, 3, 4], "b.png", "logo")[what % 4]
    elif kind == "rename":
        holder[("_" + key, key + "2", key.upper() + "_")[what % 3]] = holder.pop(key)
    else:
        holder[key] = ODD[what % len(ODD)]
    return whole


def changed_xml(text: str, kind: str, where: int, what: int) -> str:
    root = ElementTree.fromstring(text)
    labels = (
        ("object", "image", "box", "polygon", "ellipse") if kind == "drop" else ()
    )  # without one it says less
    found: list[tuple[Any, Any]] = [
        (parent, child) for parent in root.iter() for child in parent if child.tag not in labels
    ]
    found += [(one, key) for one in root.iter() for key in one.attrib if key not in DEFAULTED]
    parent, one = found[where % len(found)]
    if isinstance(one, str):
        value = parent.attrib.pop(one)
        if kind == "rename":
            parent.attrib[one + "2"] = value
        elif kind == "add":
            parent.attrib |= {one: value, ("angle", "theta", "x2")[what % 3]: "30"}
        elif kind == "retype":
            parent.attrib[one] = ("x", "", "1;2", "nan")[what % 4]
    elif kind == "rename":
        one.tag += "2"
    elif kind == "add":
        ElementTree.SubElement(parent, ("angle", "bndbox2", "robndbox", "shape")[what % 4]).text = "30"
    elif kind == "drop":
        parent.remove(one)
    else:
        one.text = ("x", "", "nan")[what % 3]
    return ElementTree.tostring(root, "unicode")


@pytest.fixture(scope="module", params=FORMATS)
def ordinary(request, tmp_path_factory):
    """A format, a folder that every change is written over, and its labels without one."""
    root = tmp_path_factory.mktemp("fuzz") / "in"
    return request.param, root, labels_of(lay_out(root, request.param))


@settings(max_examples=120, deadline=None)
@example(("rename", 0, 0))
@given(CHANGES)
def test_a_changed_key_never_gives_other_labels(ordinary, change):
    kind, root, expected = ordinary
    source = SOURCES[kind][1]
    made = changed_xml(source, *change) if isinstance(source, str) else changed(source, *change)
    try:
        found = labels_of(lay_out(root, kind, made))
    except InvalidInput:
        return
    assert found == expected, made


YOLO_LINES = ("0 0.3 0.4 0.1 0.2", "1 0.6 0.6 0.2 0.1")
SECOND = "<object><name>logo</name><bndbox><xmin>60</xmin><ymin>60</ymin><xmax>90</xmax><ymax>99</ymax></bndbox></object>"


@pytest.mark.parametrize("kind", ["voc", "cvat", "yolo"])
@pytest.mark.parametrize("number", range(2))
def test_a_label_that_is_taken_out_takes_no_other_with_it(kind, number, tmp_path):
    """Nothing in these formats says how many there were: the others have to be what they were."""
    root, content = lay_out(tmp_path / "in", kind), SOURCES[kind][1]
    if kind == "voc":
        content = content.replace("</annotation>", SECOND + "</annotation>")
        lay_out(root, kind, content)
    ((name, boxes, classes, crowd),) = labels_of(root)
    if kind == "yolo":
        write(root / "labels" / "a.txt", YOLO_LINES[1 - number])
    else:
        tree = ElementTree.fromstring(content)
        holder = tree if kind == "voc" else tree.find("image")
        one = [child for child in holder if child.tag in ("object", "box", "polygon", "ellipse")][number]
        holder.remove(one)
        lay_out(root, kind, ElementTree.tostring(tree, "unicode"))
    del boxes[number], classes[number]
    assert labels_of(root) == [(name, boxes, classes, crowd)]


@pytest.mark.parametrize("word", ["x", "nan", "", "0,5", "0.5.5", "7", "-0.2", "1e9", "0.3 0.3"])
@pytest.mark.parametrize("place", range(5))
def test_a_word_of_a_yolo_line_that_is_none_is_refused(place, word, tmp_path):
    root = lay_out(tmp_path / "in", "yolo")
    words = YOLO_LINES[0].split()
    words[place] = word
    write(root / "labels" / "a.txt", f"{' '.join(words)}\n{YOLO_LINES[1]}\n")
    with pytest.raises(InvalidInput):
        labels_of(root)


@pytest.mark.parametrize("kind", ["voc", "cvat"])
def test_a_label_of_another_tag_is_counted(kind, tmp_path):
    text = SOURCES[kind][1]
    tag = "object" if kind == "voc" else "box"
    changed = text.replace(f"<{tag}", "<thing").replace(f"</{tag}>", "</thing>")
    with pytest.raises(InvalidInput):
        labels_of(lay_out(tmp_path / "in", kind, changed))
