# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq dataset prelabel``: the detector's boxes as labels to be corrected by a person."""

import operator
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np
import typer

from sticker_uq.cli import option
from sticker_uq.cli.options import Topic, check_settings, field_options, load_bundle, output_folder
from sticker_uq.cli.terminal import make_progress_bar, tell_of_source
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.io.coco import EncodedScene, encode_picture, read_coco, read_picture, write_coco
from sticker_uq.io.files import whole_folder
from sticker_uq.io.images import MOST_PICTURE, Picture
from sticker_uq.io.reading import read_bytes
from sticker_uq.io.sources import SourceImage, open_source
from sticker_uq.messages import printable
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import InvalidInput, ObjectClass
from sticker_uq_lab.datasets.checking import pixel_digest
from sticker_uq_lab.datasets.frames import plain_stem

_PACKAGED = (
    "without --weights or --bundle the packaged weights are used, which know rendered laptops: on photographs expect most "
    "of their boxes to be wrong; label some pictures, train, and come back with --weights"
)
_DESCRIPTION = "Boxes of a detector, to be corrected by a person: not labels yet"


@field_options("detector_values", DetectorSettings, "model", "weights", "min_size", "device")
def command(
    detector_values: dict[str, Any],
    pool: Path = typer.Argument(..., help="Pictures without labels: a folder, a recording or a video."),
    out: Path = output_folder(..., "New folder for images/ and annotations.json.", empty=True),
    min_score: float = option(0.3, "Lowest probability of logo or sticker for a box.", min=0.01, max=1),
    bundle: Path | None = option(
        None, "Bundle of `sticker-uq bundle create`: its weights and settings.", metavar="FOLDER"
    ),
    labelled: list[Path] | None = option(
        None,
        "COCO folder that is labelled already: pictures of the pool with the name or the pixels of one of it are left "
        "out. May be repeated.",
    ),
    topic: Topic = None,
    image_format: Literal["same", "jpg", "png"] = option(
        "same", "Picture files; same: pictures of a folder as they are, others png.", "--format"
    ),
) -> None:
    """Write the detector's boxes as a COCO folder, to be corrected in a labelling tool such as CVAT or Label Studio.

    Train on some labels of your own first, and give these --weights, or a --bundle: the packaged weights know rendered laptops.
    Files keep their names; each annotation has its probability as "score". Nothing here is a label before a person has seen it.
    """
    # only this command needs torch
    from sticker_uq.detection import StochasticDetector, load_detector

    chosen = load_bundle(bundle, detector_values, None)
    source = open_source(pool, topic)
    settings = check_settings(DetectorSettings, detector_values)
    if chosen is not None:
        settings = chosen.settings(PerceptionSettings(device=settings.device))
    elif not settings.weights:
        typer.echo(_PACKAGED, err=True)
    known = (one for folder in labelled or () for one in read_coco(folder, crowd=True))
    already = {m for one in known for m in _marks(one.source_name or one.path.name, read_picture(one))}
    detector: StochasticDetector = load_detector(
        settings.model_copy(update={"score_floor": min(settings.score_floor, min_score)})
    )
    found: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    failed: list[str] = []
    named: set[str] = set()

    def encode(item: SourceImage, number: int) -> EncodedScene:
        assert item.image is not None
        seen = detector.detect(detector.encode(item.image))
        scores = seen.probabilities.max(axis=1, initial=0.0)
        height, width = item.image.shape[:2]
        boxes = seen.boxes.clip(0, np.array([width, height, width, height], np.float32))
        sides = boxes[:, 2:] - boxes[:, :2]
        kept = (seen.labels != ObjectClass.BACKGROUND) & (scores >= min_score) & (sides > 0).all(axis=1)
        found.update(ObjectClass(int(label)).name.lower() for label in seen.labels[kept])
        stem = Path(item.name).stem
        if stem in named:
            raise InvalidInput(f"{pool}: two pictures are named {stem!r}; expected different names")
        named.add(stem)
        suffix, data = _file(item, item.image, image_format)
        return EncodedScene(
            seed=number,
            format=suffix,
            data=data,
            width=width,
            height=height,
            boxes=boxes[kept],
            labels=seen.labels[kept].astype(np.int64),
            box_fields=tuple({"score": round(float(score), 4)} for score in scores[kept]),
            name=stem,
        )

    def scenes() -> Iterator[EncodedScene]:
        number = 0
        for item in source:
            if not already.isdisjoint(_marks(item.name, item.image)):
                left_out["labelled"] += 1
            elif item.image is None:
                failed.append(f"{item.name}: {item.error}")
                number += 1
            else:
                yield encode(item, number)
                number += 1
            bar.advance(task)

    with make_progress_bar() as bar, whole_folder(out) as folder:
        task = bar.add_task("detecting", total=operator.length_hint(source, 0) or None)
        written = write_coco(folder, scenes(), description=_DESCRIPTION)
        if not written and left_out and not failed:
            raise InvalidInput(f"{pool}: all its {left_out['labelled']} pictures are labelled already")
        if not written:
            raise InvalidInput(f"{pool}: none of its pictures can be read; first {failed[0]}")
    for line in failed:
        typer.echo(f"left out {printable(line)}", err=True)
    if left_out:
        typer.echo(f"{left_out['labelled']} pictures were left out, they are labelled already")
    typer.echo(
        f"{written} pictures in {out}: {found['logo']} logos, {found['sticker']} stickers to be corrected"
    )
    if tell_of_source(pool, source.remarks, source.lost):
        raise typer.Exit(1)


def _marks(name: str, image: Picture | None) -> set[str | bytes]:
    # a name that is only a number, as of frames of a recording, says nothing
    stem = plain_stem(PurePosixPath(name))
    marks: set[str | bytes] = set() if image is None else {pixel_digest(image)}
    return marks if not stem or stem.isdecimal() else {*marks, stem}


def _file(item: SourceImage, image: Picture, image_format: str) -> tuple[str, bytes]:
    if image_format != "same":
        return image_format, encode_picture(image, image_format)
    if item.path is None:
        return "png", encode_picture(image, "png")
    return item.path.suffix[1:], read_bytes(item.path, MOST_PICTURE)
