# SPDX-License-Identifier: Apache-2.0
"""The labelled pictures of the data sets, those of recordings as files of the study."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sticker_uq.io.coco import ANNOTATIONS, LabelledImage, encode_picture, read_coco
from sticker_uq.io.files import atomic_write
from sticker_uq.io.labelled_images import LabelledSource
from sticker_uq.io.sources import is_recording
from sticker_uq.lab.studies.detectors.study_plan import DataSet
from sticker_uq.scene import InvalidInput


def with_topics(datasets: Sequence[DataSet], topics: Sequence[str]) -> tuple[DataSet, ...]:
    """``datasets`` with image topics of their recordings, from [NAME=]TOPIC; without NAME for all
    others.

    Raises InvalidInput for a NAME that is no recording, or that comes twice.
    """
    recordings = [one.name for one in datasets if is_recording(one.folder)]
    wanted: dict[str, str] = {}
    for text in topics:
        name, equals, topic = text.rpartition("=")
        if not topic.strip("/") or not recordings or (equals and name not in recordings):
            raise InvalidInput(
                f"--topic {text!r}: expected [NAME=]TOPIC, NAME a recording among the data sets "
                f"({', '.join(recordings) or 'none'})"
            )
        if name in wanted:
            raise InvalidInput(f"--topic {text!r}: expected one topic, {wanted[name]} is given already")
        wanted[name] = topic
    common = wanted.get("", "")
    return tuple(
        one.model_copy(update={"topic": wanted.get(one.name, common)}) if is_recording(one.folder) else one
        for one in datasets
    )


def labelled_images(data: DataSet, folder: Path) -> list[LabelledImage]:
    """The labelled pictures of the plan for data set ``data``, in order.

    Those of a COCO folder lie there. Those of a recording (rosbag2 folder with the ``annotations.json`` that
    `sticker-uq calibrate` reads, see `LabelledSource`) are taken out of it, once, as PNG files below ``folder``, where every
    process of the study finds them. Raises InvalidInput for what `read_coco` or `LabelledSource` refuses and an image that cannot
    be decoded.
    """
    if not is_recording(data.folder):
        return read_coco(data.folder)
    source = LabelledSource(data.folder, data.topic or None)
    states = [(file.name, file.stat()) for file in sorted(data.folder.iterdir())]
    facts = [data.topic, *((name, state.st_size, state.st_mtime_ns) for name, state in states)]
    own = folder / "recordings" / data.name / hashlib.blake2b(repr(facts).encode(), digest_size=8).hexdigest()
    places = {name: own / f"{name}.png" for name in source.items}
    if not all(place.is_file() for place in places.values()):
        own.mkdir(parents=True, exist_ok=True)
        for image in source:
            if image.image is None:
                raise InvalidInput(f"{data.folder}: image {image.name}: {image.error}")
            item = source.items[image.name]
            height, width = image.image.shape[:2]
            if (width, height) != (item.width, item.height):
                raise InvalidInput(
                    f"{data.folder / ANNOTATIONS}: image {image.name} is labelled as {item.width}x{item.height}, "
                    f"but recorded as {width}x{height}"
                )
            with atomic_write(places[image.name]) as stream:
                stream.write(encode_picture(image.image, "png"))
    return [replace(item, path=places[name]) for name, item in source.items.items()]
