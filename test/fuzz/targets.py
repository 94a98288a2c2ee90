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

from sticker_uq.calibration.answers import read_answers
from sticker_uq.detection.weights import load_into
from sticker_uq.evaluation.replay.recording import read_recording
from sticker_uq.gate import Policy
from sticker_uq.io.bags import Bag
from sticker_uq.io.coco import ANNOTATIONS, read_annotations, read_coco, read_picture
from sticker_uq.io.images import read_image_file
from sticker_uq.io.labelled_images import read_workpieces
from sticker_uq.io.reading import read_yaml
from sticker_uq.io.sources import open_source
from sticker_uq.scene import InvalidInput
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


def kept(name: str, seeds: Path = SEEDS) -> list[Path]:
    """The inputs in the folder ``seeds`` that the target ``name`` once failed with."""
    return sorted((seeds / name).glob("*.bin"))


def write(data: bytes, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _image_file(data: bytes, folder: Path) -> None:
    picture = read_image_file(write(data, folder / "a.jpg"))
    assert picture.dtype == np.uint8
    assert picture.ndim == 3
    assert picture.shape[2] == 3


def _recording(data: bytes, folder: Path) -> None:
    suffix = ".db3" if data.startswith(b"SQL") else ".mcap"
    path = write(data, folder / f"bag{suffix}")
    bag = Bag(path)
    for topic in bag.topics:
        with contextlib.suppress(InvalidInput):
            for item in bag.messages(topic):
                assert (item.message is None) == bool(item.error)
    for read in (open_source, read_workpieces):
        with contextlib.suppress(InvalidInput):
            list(read(path))
    read_recording(bag)


def _metadata(data: bytes, folder: Path) -> None:
    for number, recording in enumerate(_recordings()):
        suffix = ".db3" if recording.startswith(b"SQL") else ".mcap"
        write(recording, folder / f"bag_{number}{suffix}")
    write(data, folder / "metadata.yaml")
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
        write(examples.pictures()[2], folder / "images" / f"{number}.png")
    path = write(data, folder / ANNOTATIONS)
    read_annotations(folder)
    items = read_coco(folder)
    for item in items:
        assert path.parent in item.path.parents
        assert np.isfinite(item.boxes).all()
        read_picture(item)


def _weights(data: bytes, folder: Path) -> None:
    suffix = ".pth" if data.startswith(b"PK") else ".safetensors"
    load_into(examples.model(), examples.MODEL, write(data, folder / f"weights{suffix}"))


def _answers(data: bytes, folder: Path) -> None:
    for one in read_answers(write(data, folder / "answers.jsonl"))[1].values():
        assert one.covers([box.box for box in one.boxes])
        assert (
            len(one.met(np.array([box.box for box in one.boxes]).reshape(-1, 4)).peeled_stickers)
            <= one.sticker_count
        )


def _answer_lines(document: Any) -> bytes:
    return b"".join(
        as_json(line) + b"\n" for line in (document if isinstance(document, list) else [document])
    )


def _answers_document() -> list[Any]:
    about = {"format": "answers 1", "model_hash": "m", "settings_hash": "s", "panel_hash": ""}
    boxes = [
        {"box": [1.0, 2.0, 30.5, 40.0], "answer": "sticker"},
        {"box": [2.0, 2.0, 30.0, 40.0], "answer": "takes_logo", "same_as": 0},
        {"box": [50.0, 2.0, 80.0, 40.0], "answer": "no_sticker"},
    ]
    said = {"image": "a", "name": "a.jpg", "boxes": boxes, "other": True, "time": ""}
    return [about, said, said | {"image": "b"}, {"undo": "b"}]


def _policy(data: bytes, folder: Path) -> None:
    Policy.load(write(data, folder / "policy.yaml"))


def _policy_documents() -> list[Any]:
    """The packaged policies, and one of before with its reference inside; of thousands of values a few are enough."""
    names = ("limits.yaml", "policy.yaml")
    read = [read_yaml(examples.ROOT / "config" / name) for name in names]
    calibrated = Policy.load(examples.ROOT / "config" / "policy.yaml")
    assert calibrated.reference is not None
    signals = {name: values[:100] for name, values in calibrated.reference.signals.items()}
    return [*read, read[1] | {"reference": {"signals": signals}}]


TARGETS: dict[str, Target] = {
    "image": Target(_image_file, examples.pictures),
    "recording": Target(_recording, _recordings, share=0.25),
    "recording_metadata": Target(_metadata, documents=_metadata_documents, written=as_yaml, share=0.25),
    "coco": Target(_coco, documents=lambda: [examples.coco()]),
    "answers": Target(_answers, documents=lambda: [_answers_document()], written=_answer_lines),
    "policy": Target(_policy, documents=_policy_documents, written=as_yaml),
    "weights": Target(_weights, examples.weights),
}
