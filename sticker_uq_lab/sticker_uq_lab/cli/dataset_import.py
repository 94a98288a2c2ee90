# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq dataset import``: labelled photographs of another tool as COCO folders for train, calibrate and evaluate."""

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import typer
from rich.table import Table

from sticker_uq.cli import option
from sticker_uq.cli.options import output_file, output_folder
from sticker_uq.cli.terminal import list_lines, make_progress_bar, output
from sticker_uq.io.coco_entries import IGNORE
from sticker_uq.io.faults import Faults, LabelCounts
from sticker_uq.io.files import write_file
from sticker_uq.io.labelled_images import LabelledSource
from sticker_uq.messages import printable
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.datasets.checking import NEAR, class_balance
from sticker_uq_lab.datasets.frames import CLOSE, close_frames, close_frames_text, video_name
from sticker_uq_lab.datasets.importing import importing
from sticker_uq_lab.datasets.importing.formats import Format, read_source
from sticker_uq_lab.datasets.importing.grouping import CALIBRATE, shares_of
from sticker_uq_lab.datasets.importing.named_picture import NamedPicture
from sticker_uq_lab.datasets.importing.nets import ALPHA, FEWEST, agreement

_SHOWN = 10
_UNLIKE = 2.0
"""How many times as frequent as in all pictures, or as rare, something must be in a part for the person to be told."""
_ENOUGH = 5
"""Pictures that a part should have, below which its share says nothing."""
_MOST_JOINED = 0.2
"""Share of the pictures in one group of near duplicates above which the person is told."""


def command(
    source: Path = typer.Argument(..., help="Folder or file with annotations of another tool."),
    out: Path = output_folder(
        ..., "New folder to write to: a COCO folder, or with --split three of them.", empty=True
    ),
    format_: Literal["auto", Format] = option(
        "auto", "Format of the annotations; auto: of what is there.", "--format"
    ),
    class_: list[str] | None = option(
        None, 'What a class means, "NAME=sticker", "NAME=logo" or "NAME=ignore"; may be repeated.', "--class"
    ),
    ignore: list[str] | None = option(
        None, "Class to leave out; rest: all without a meaning. May be repeated."
    ),
    ignore_key: list[str] | None = option(
        None, "Key of the annotations to pass over, after a look at it. May be repeated."
    ),
    images: Path | None = option(None, "Folder of the pictures, where they are not beside the annotations."),
    group: str | None = option(
        None, "Regular expression that finds the laptop in a file name; its first group, if any."
    ),
    near: int = option(
        NEAR,
        "Highest Hamming distance of the 64-bit hashes of near duplicates; -1: do not join them.",
        min=-1,
        max=32,
    ),
    consecutive: int = option(
        0,
        "Frames of a video whose names differ only in their number count as one laptop where the numbers are at most so "
        "far apart; 0: do not join them.",
        min=0,
    ),
    split: str | None = option(
        None, "Shares of OUT/learn, OUT/calibrate and OUT/test, such as 0.7,0.15,0.15. Default: no parts."
    ),
    seed: int = option(0, "Seed of the split.", min=0),
    orientation: Literal["auto", "shown", "stored"] = option(
        "auto",
        "Pixels that boxes of pictures with an EXIF orientation count, where the labelled size does not tell: as shown "
        "upright, or as stored; auto: as shown.",
    ),
    repair: bool = option(
        False,
        "Clip boxes to their picture, and leave out those outside of it, pictures that cannot be read, and those with "
        "the same pixels and other objects.",
        "--repair",
    ),
    crowd: Literal["keep", "object"] = option(
        "keep",
        "Regions of several objects (COCO's iscrowd 1); keep: as such, they are not learned; object: each is one, "
        "as in CVAT's masks.",
    ),
    compare: bool = option(
        True,
        "Compare the labels with what the packaged detector sees in 20 of the pictures.",
        "--compare/--no-compare",
    ),
    json_file: Path | None = output_file(
        None, "Also write what was declared and what was read to this JSON file.", "--json"
    ),
) -> None:
    """Import labelled photographs: Pascal VOC, YOLO, CVAT for images, Label Studio (JSON), COCO.

    The meaning of every class must be given. Pictures are written upright, copies once. Pictures of one laptop, by --group, as
    near duplicates or as --consecutive frames, get the same workpiece_id and are in the same part of a split.
    """
    mapping = importing.class_mapping(class_ or (), ignore or ())
    shares = None if split is None else shares_of(split)
    faults, counts = Faults(str(source)), LabelCounts()
    kind, pictures = read_source(source, format_, images, faults, counts, ignore_key or ())
    try:
        named = importing.complete_mapping(pictures, mapping)
    except InvalidInput:
        for one in (one for picture in pictures for one in picture.objects if one.fault):
            if mapping.get(one.name.lower(), mapping.get(importing.REST)) != IGNORE:
                faults.add(one.fault)
        faults.refuse()  # they may be why a class is not there
        raise
    root = source if source.is_dir() else source.parent
    reader = importing.Reader(root, named, faults, counts, orientation, repair, crowd == "object")
    with _progress("reading", len(pictures)) as advance:
        found = reader.read(pictures, advance)
    changes = reader.changes
    data = importing.group_pictures(found, near, group, consecutive, changes if repair else None)
    counts.read, all_ = (
        sum(len(one.labelled_image.labels) for one in part) for part in (data.pictures, found)
    )
    counts.crowd, crowds = (
        sum(len(one.labelled_image.crowd) for one in part) for part in (data.pictures, found)
    )
    counts.left_out["on copies that are left out"] = all_ - counts.read + crowds - counts.crowd
    counts.check(str(source))
    if not counts.read:
        regions = f"; {counts.crowd} regions are crowds, see --crowd" if counts.crowd else ""
        raise InvalidInput(
            f"{source}: no picture shows a logo or sticker; check --class and --ignore{regions}"
        )
    record = _record(source, kind, named, data, changes) | {
        "labels": counts.as_json(), "crowd": crowd,
        "ignored_keys": list(ignore_key or ()), "group": group, "near": near, "consecutive": consecutive,
        "split": split, "seed": seed, "orientation": orientation, "repair": repair,
    }  # fmt: skip
    with _progress("writing", len(data.pictures)) as advance:
        parts = importing.write_import(out, data, record, shares, seed, advance)
    _tell(kind, pictures, named, changes, data)
    for line in counts.lines():
        typer.echo(printable(line))
    output().print(_table(out, data, parts))
    compared = _compare_parts(data) if compare else []
    for line in (*compared, *_frames(data, parts), *_find_unbalanced(data, parts), *_provable(out, parts)):
        typer.echo(line, err=True)
    typer.echo(f"classes, copies and changes are in {out / importing.RECORD}")
    typer.echo(f"look at {out / importing.SHEET}: 16 pictures with their boxes and classes, the oddest first")
    if json_file is not None:
        write_file(
            json_file,
            json.dumps({"source": str(source), "format": kind, "labels": counts.as_json()}, indent=2),
        )


def _record(
    source: Path, kind: str, named: Mapping[str, str], data: importing.Grouped, changes: Sequence[str]
) -> dict[str, Any]:
    return {
        "source": source.name,
        "format": kind,
        "imported": dt.datetime.now(dt.UTC).date().isoformat(),
        "classes": dict(named),
        "copies_left_out": {printable(copy): printable(kept) for copy, kept in data.copies},
        "repaired": list(map(printable, changes)),
    }


@contextmanager
def _progress(what: str, total: int) -> Iterator[Any]:
    with make_progress_bar(transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


def _tell(
    kind: str,
    pictures: Sequence[NamedPicture],
    named: Mapping[str, str],
    changes: Sequence[str],
    data: importing.Grouped,
) -> None:
    counts = Counter(one.name for picture in pictures for one in picture.objects)
    listed = ", ".join(f"{printable(name)} = {meaning} ({counts[name]})" for name, meaning in named.items())
    typer.echo(f"{len(pictures)} pictures of format {kind}; {listed}")
    copies = [f"{copy} has the pixels of {kept}" for copy, kept in data.copies]
    for title, lines in (("repaired", changes), ("left out as copies", copies)):
        if lines:
            list_lines(title, lines, _SHOWN)
    turned = sum(one.turned for one in data.pictures)
    if turned:
        typer.echo(f"{turned} pictures were turned upright by their EXIF orientation; look at some of them")
    sizes = Counter(data.groups).most_common(1)
    if sizes and sizes[0][1] > max(2, _MOST_JOINED * len(data.groups)):
        group, size = sizes[0]
        typer.echo(
            f"{size} of {len(data.groups)} pictures count as one laptop ({data.laptops[group]}); if they are not, give --group, "
            "or a lower --near or --consecutive",
            err=True,
        )


def _table(out: Path, data: importing.Grouped, parts: Mapping[str, Sequence[int]]) -> Table:
    table = Table("folder", "pictures", "laptops", "logos", "stickers", "pictures without a sticker")
    for name, numbers in parts.items():
        items = [data.pictures[index].labelled_image for index in numbers]
        balance = class_balance(items)
        clean = sum(not item.shows_sticker for item in items)
        laptops = len({data.groups[index] for index in numbers})
        cells = (len(items), laptops, balance["logo"], balance["sticker"], clean)
        table.add_row(str(out / name), *map(str, cells))
    return table


def _compare_parts(data: importing.Grouped) -> list[str]:
    items = [one.labelled_image for one in data.pictures]
    if sum(len(item.boxes) > 0 for item in items) < FEWEST:
        return []
    # takes seconds
    from sticker_uq.detection import DetectorSettings, load_detector

    detector = load_detector(DetectorSettings())
    count, p = agreement(items, lambda picture: detector.detect(detector.encode(picture)).boxes)
    if p <= ALPHA:
        return []
    return [
        f"In {count} pictures the labels agree with what the packaged detector sees no better than with what it sees in another "
        f"picture (permutation test, p = {p:.2g}): it does not know such pictures, or labels are on the wrong ones. Look at "
        f"{importing.SHEET}"
    ]


def _frames(data: importing.Grouped, parts: Mapping[str, Sequence[int]]) -> list[str]:
    """One line for each part with frames that are close to one of another part."""
    names = [video_name(one.name, laptop) for one, laptop in zip(data.pictures, data.laptops, strict=True)]
    found = []
    for part, numbers in parts.items():
        others = [index for name, inside in parts.items() if name != part for index in inside]
        close = close_frames([names[n] for n in numbers], [names[n] for n in others], CLOSE)
        if close:
            here, there, _ = min(close, key=lambda one: one[2])
            example = f"{names[numbers[here]]} and {names[others[there]]}"
            found.append(f"{part}: {close_frames_text(len(close), len(numbers))} in another part: {example}")
    if found:
        found.append(
            "If these are frames of a video, a test measures memory: import again with --consecutive N, where N is more than the "
            "numbers between two frames of one laptop"
        )
    return [printable(line) for line in found]


def _find_unbalanced(data: importing.Grouped, parts: Mapping[str, Sequence[int]]) -> list[str]:
    """One line for each part in which pictures without a sticker are half or twice as frequent as in all."""
    clean = [not one.labelled_image.shows_sticker for one in data.pictures]
    share = sum(clean) / len(clean)
    found = []
    for part, numbers in parts.items():
        count, expected = sum(clean[n] for n in numbers), share * len(numbers)
        if expected >= _ENOUGH and not expected / _UNLIKE <= count <= expected * _UNLIKE:
            found.append(
                f"{part}: {count} of {len(numbers)} pictures show no sticker, {expected:.0f} would be its share; another --seed "
                "makes other parts"
            )
    return found


def _provable(out: Path, parts: Mapping[str, Sequence[int]]) -> list[str]:
    if CALIBRATE not in parts:
        return []
    # takes a second, and only a split needs it
    from sticker_uq.calibration.fitting import Levels
    from sticker_uq.calibration.making import evidence

    levels, lines = Levels(), list[str]()
    try:
        known = evidence([LabelledSource(out / CALIBRATE)], levels.delta)
        lines.append(f"{CALIBRATE}: {known.text()}")
        known.check(levels.alpha, levels.beta)
    except InvalidInput as error:
        lines.append(f"{CALIBRATE}: not enough for the default levels: {error}")
    return lines
