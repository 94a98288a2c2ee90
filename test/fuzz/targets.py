# SPDX-License-Identifier: Apache-2.0
"""What is fuzzed: the readers of what comes from outside of a cell, each with examples and with what it does to an input.

A target returns or raises :class:`sticker_uq.scene.InvalidInput`. Anything else is a finding. What was found before
lies in `seeds/TARGET/` and is tried first.
"""

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from sticker_uq.detection.weights import load_into
from sticker_uq.evaluation.replay.recording import read_recording
from sticker_uq.gate import Policy
from sticker_uq.io.bags import Bag
from sticker_uq.io.coco import ANNOTATIONS, read_annotations, read_coco, read_picture
from sticker_uq.io.faults import Faults, LabelCounts
from sticker_uq.io.images import read_image_file
from sticker_uq.io.labelled_images import recorded_workpieces
from sticker_uq.io.reading import read_yaml
from sticker_uq.io.sources import open_source
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.datasets.importing.formats import read_source
from sticker_uq_lab.datasets.importing.importing import Reader, class_mapping, complete_mapping, grouped
from sticker_uq_lab.studies.annotator_votes import sticker_fractions
from test.fuzz import examples
from test.fuzz.mutation import as_json, as_yaml, changed_bytes, changed_documents

SEEDS = Path(__file__).parent / "seeds"


@dataclass(frozen=True)
class Target:
    """A reader of what others made.

    ``run`` reads one input, in a folder of its own that is empty before; ``seeds`` are inputs that work; ``documents`` are
    some that ``written`` makes bytes of. ``share`` of the examples of a short run: less for what takes long.
    """

    run: Callable[[bytes, Path], object]
    seeds: Callable[[], list[bytes]] = list
    documents: Callable[[], list[Any]] = list
    written: Callable[[Any], bytes] = as_json
    share: float = 1.0

    def inputs(self) -> st.SearchStrategy[bytes]:
        """Inputs that resemble those that work."""
        documents = self.documents()
        seeds = [*self.seeds(), *map(self.written, documents)]
        kinds = [changed_bytes(seeds)]
        if documents:
            kinds += [changed_documents(documents, self.written)] * 3  # they get further than bytes
        return st.one_of(kinds)


def tried(target: Target, data: bytes, folder: Path) -> bool:
    """Whether ``target`` takes ``data``, in ``folder``, which is emptied before. Anything but a refusal propagates."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        target.run(data, folder)
    except InvalidInput as refusal:
        str(refusal).encode()  # it must be possible to print it
        return False
    return True


def kept(name: str) -> list[Path]:
    """The inputs in the repository that the target ``name`` once failed with."""
    return sorted((SEEDS / name).glob("*.bin"))


def _written(data: bytes, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _image_file(data: bytes, folder: Path) -> None:
    picture = read_image_file(_written(data, folder / "a.jpg"))
    assert picture.dtype == np.uint8
    assert picture.ndim == 3
    assert picture.shape[2] == 3


def _recording(data: bytes, folder: Path) -> None:
    suffix = ".db3" if data.startswith(b"SQL") else ".mcap"
    path = _written(data, folder / f"bag{suffix}")
    bag = Bag(path)
    for topic in bag.topics:
        with contextlib.suppress(InvalidInput):
            for item in bag.messages(topic):
                assert (item.message is None) == bool(item.error)
    for read in (open_source, recorded_workpieces):
        with contextlib.suppress(InvalidInput):
            list(read(path))
    read_recording(bag)


def _metadata(data: bytes, folder: Path) -> None:
    for number, recording in enumerate(_recordings()):
        suffix = ".db3" if recording.startswith(b"SQL") else ".mcap"
        _written(recording, folder / f"bag_{number}{suffix}")
    _written(data, folder / "metadata.yaml")
    bag = Bag(folder)
    for item in bag.messages("/image"):
        assert (item.message is None) == bool(item.error)


def _metadata_documents() -> list[Any]:
    topic = {
        "topic_metadata": {
            "name": "/image", "type": "sensor_msgs/msg/Image", "serialization_format": "cdr", "offered_qos_profiles": [],
            "type_description_hash": "",
        },
        "message_count": 1,
    }  # fmt: skip
    part = {"path": "bag_0.mcap", "starting_time": {"nanoseconds_since_epoch": 0}, "message_count": 1}
    information = {
        "version": 9, "storage_identifier": "mcap", "relative_file_paths": ["bag_0.mcap"],
        "duration": {"nanoseconds": 1}, "starting_time": {"nanoseconds_since_epoch": 0}, "message_count": 1,
        "topics_with_message_count": [topic], "compression_format": "", "compression_mode": "",
        "files": [part | {"duration": {"nanoseconds": 1}}], "custom_data": {}, "ros_distro": "jazzy",
    }  # fmt: skip
    return [{"rosbag2_bagfile_information": information}]


@cache
def _recordings() -> list[bytes]:
    return examples.recordings()


def _coco(data: bytes, folder: Path) -> None:
    for number in (1, 2):
        _written(examples.pictures()[2], folder / "images" / f"{number}.png")
    path = _written(data, folder / ANNOTATIONS)
    read_annotations(folder)
    items = read_coco(folder)
    sticker_fractions(folder, items)
    for item in items:
        assert path.parent in item.path.parents
        assert np.isfinite(item.boxes).all()
        read_picture(item)


def _weights(data: bytes, folder: Path) -> None:
    suffix = ".pth" if data.startswith(b"PK") else ".safetensors"
    load_into(examples.model(), examples.MODEL, _written(data, folder / f"weights{suffix}"))


def _policy(data: bytes, folder: Path) -> None:
    Policy.load(_written(data, folder / "policy.yaml"))


def _policy_documents() -> list[Any]:
    """The packaged policies; of thousands of reference values a few are enough."""
    names = ("limits.yaml", "policy.yaml")
    read = [read_yaml(examples.ROOT / "config" / name) for name in names]
    signals = read[1]["reference"]["signals"]
    read[1]["reference"]["signals"] = {name: values[:100] for name, values in signals.items()}
    return read


def _import_source(data: bytes, folder: Path) -> None:
    """Annotations of another tool, whatever format they claim to be."""
    (folder / "images").mkdir()
    _written(examples.pictures()[2], folder / "images" / "1.png")
    if data.startswith(b"names:"):
        names, _, lines = data.partition(b"\n---\n")
        _written(names, folder / "data.yaml")
        _written(lines, folder / "labels" / "1.txt")
    else:
        _written(data, folder / ("a.xml" if data.lstrip()[:1] == b"<" else "a.json"))
    faults, counts = Faults(str(folder)), LabelCounts()
    _, pictures = read_source(folder, "auto", None, faults, counts)
    faults.refuse()
    named = {one.name: "sticker" for picture in pictures for one in picture.objects}
    complete_mapping(pictures, class_mapping([], ["rest"]))
    found = Reader(folder, named, faults, counts, repair=True).read(pictures)
    for one in grouped(found, 6).pictures:
        assert np.isfinite(one.labelled.boxes).all()


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
    "image": Target(_image_file, examples.pictures),
    "recording": Target(_recording, _recordings, share=0.25),
    "recording_metadata": Target(_metadata, documents=_metadata_documents, written=as_yaml, share=0.25),
    "coco": Target(_coco, documents=lambda: [examples.coco()]),
    "import": Target(_import_source, _import_files, _import_documents),
    "policy": Target(_policy, documents=_policy_documents, written=as_yaml),
    "weights": Target(_weights, examples.weights),
}
