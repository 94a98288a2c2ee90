# SPDX-License-Identifier: Apache-2.0
"""What is fuzzed of the lab: its readers of labels, as the targets of :mod:`test.fuzz.targets`."""

from pathlib import Path
from typing import Any

import numpy as np

from sticker_uq.io.coco import ANNOTATIONS, read_coco
from sticker_uq.io.faults import Faults, LabelCounts
from sticker_uq_lab.datasets.importing.formats import read_source
from sticker_uq_lab.datasets.importing.importing import (
    Reader,
    class_mapping,
    complete_mapping,
    group_pictures,
)
from sticker_uq_lab.studies.annotator_votes import sticker_fractions
from test.fuzz import examples
from test.fuzz.targets import Target, write


def _votes(data: bytes, folder: Path) -> None:
    for number in (1, 2):
        write(examples.pictures()[2], folder / "images" / f"{number}.png")
    write(data, folder / ANNOTATIONS)
    for fractions in sticker_fractions(folder, read_coco(folder)).values():
        assert np.isfinite(fractions).all()


def _import_source(data: bytes, folder: Path) -> None:
    """Annotations of another tool, whatever format they claim to be."""
    (folder / "images").mkdir()
    write(examples.pictures()[2], folder / "images" / "1.png")
    if data.startswith(b"names:"):
        names, _, lines = data.partition(b"\n---\n")
        write(names, folder / "data.yaml")
        write(lines, folder / "labels" / "1.txt")
    else:
        write(data, folder / ("a.xml" if data.lstrip()[:1] == b"<" else "a.json"))
    faults, counts = Faults(str(folder)), LabelCounts()
    _, pictures = read_source(folder, "auto", None, faults, counts)
    faults.refuse()
    named = {one.name: "sticker" for picture in pictures for one in picture.objects}
    complete_mapping(pictures, class_mapping([], ["rest"]))
    found = Reader(folder, named, faults, counts, repair=True).read(pictures)
    for one in group_pictures(found, 6).pictures:
        assert np.isfinite(one.labelled_image.boxes).all()


def _import_files() -> list[bytes]:
    size = "<size><width>16</width><height>12</height></size>"
    box = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>6</xmax><ymax>7.5</ymax></bndbox>"
    image = '<image id="0" name="1.png" width="16" height="12">'
    shapes = (
        '<box label="s" xtl="1" ytl="2" xbr="5" ybr="6" rotation="30"/><polygon label="s" points="1,2;4,2;3,7"/>'
        '<ellipse label="s" cx="5" cy="5" rx="2" ry="1"/>'
    )
    voc = f"<annotation><filename>1.png</filename>{size}<object><name>s</name>{box}</object></annotation>"
    return [
        voc.encode(),
        f"<annotations>{image}{shapes}</image></annotations>".encode(),
        b"names: [s, t]\n---\n0 0.5 0.5 0.2 0.2\n1 0.1 0.1 0.5 0.1 0.5 0.5\n",
    ]


def _import_documents() -> list[Any]:
    value = {"x": 10, "y": 20.5, "width": 30, "height": 40, "rotation": 15, "rectanglelabels": ["s"]}
    points = {"points": [[10, 10], [40, 10], [40, 60]], "polygonlabels": ["s"]}
    size = {"original_width": 16, "original_height": 12, "image_rotation": 0}
    regions = [{"value": value, **size}, {"value": points, **size}]
    task = {"id": 1, "data": {"image": "/data/upload/1/1a2b3c4d-1.png"}, "annotations": [{"result": regions}]}
    document = examples.coco()
    document["images"] = document["images"][:1]
    document["annotations"] = document["annotations"][:1]
    return [[task], document]


TARGETS: dict[str, Target] = {
    "import": Target(_import_source, _import_files, _import_documents),
    "votes": Target(_votes, documents=lambda: [examples.coco()]),
}
