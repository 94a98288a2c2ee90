# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq dataset check``: finds problems of a labelled data set before training or testing."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from sticker_uq.cli import option
from sticker_uq.cli.options import check_settings, field_options, output_file
from sticker_uq.cli.terminal import list_lines, make_progress_bar, output
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.io.coco import LabelledImage, label_counts, load_annotations, read_coco
from sticker_uq.io.files import write_file
from sticker_uq.messages import printable
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.datasets import checking
from sticker_uq_lab.datasets.frames import CLOSE, close_frames, close_frames_text, video_name

_SHOWN = 20


@field_options("detector_values", DetectorSettings, "model", "min_size")
def command(
    detector_values: dict[str, Any],
    data: Path = typer.Argument(..., help="COCO folder to check."),
    against: Path | None = option(
        None, "COCO folder that must not share pictures with it, e.g. the training set."
    ),
    near: int = option(checking.NEAR, "Highest Hamming distance of the 64-bit hashes of near duplicates."),
    consecutive: int = option(
        CLOSE,
        "With --against: pictures whose names differ only in a number, by at most this, may be frames of one video; "
        "0: do not look.",
        min=0,
    ),
    json_file: Path | None = output_file(
        None, "Also write what is declared and what was read to this JSON file.", "--json"
    ),
) -> None:
    """Find duplicates, implausible labels, imbalance, and drift against another set. Exit status 1 for shared pictures.

    Says whether the default boxes of --model (with --min-size), which resizes every picture, fit the labelled boxes.
    """
    if not 0 <= near <= 32:
        raise InvalidInput(f"--near {near}: expected 0 to 32")
    settings = check_settings(DetectorSettings, detector_values)
    items = read_coco(data, crowd=True)
    others = read_coco(against, crowd=True) if against is not None else []
    with make_progress_bar(transient=True) as bar:
        advance = partial(bar.advance, bar.add_task("reading", total=len(items) + len(others)))
        seen, known = (checking.picture_statistics(part, advance) for part in (items, others))
    console = output()
    counts = label_counts(items, load_annotations(data), data)
    balance = checking.class_balance(items)
    console.print(
        f"{len(items)} pictures of {data}: {balance['logo']} logos, {balance['sticker']} stickers, {balance['empty']} "
        "pictures without an object"
    )
    for line in counts.lines():
        typer.echo(printable(line))
    if json_file is not None:
        write_file(
            json_file,
            json.dumps({"source": str(data), "format": "coco", "labels": counts.as_json()}, indent=2),
        )
    table = Table("property", "least", "median", "largest")
    # only here torch is needed
    from sticker_uq_lab.datasets.default_boxes import default_box_advice, sides_in_view

    for name, values in {
        **checking.properties(seen),
        "object, shorter side in the model's view, px": sides_in_view(
            items, settings.model, settings.min_size
        ),
    }.items():
        if len(values):
            middle = sorted(values.tolist())[len(values) // 2]
            table.add_row(name, f"{values.min():.3g}", f"{middle:.3g}", f"{values.max():.3g}")
    console.print(table)
    names = {item.path: _name(item) for item in (*items, *others)}
    _tell_duplicates(checking.duplicates(seen, near=near), seen, names)
    _list("Labels to review", checking.label_findings(items), names)
    if advice := default_box_advice(items, settings.model, settings.min_size):
        typer.echo(f"Small objects: {advice}")
    if against is None:
        return
    shared = checking.duplicates(seen, known, near)
    _list(f"Shared with {against}", shared, names)
    _tell_frames(items, others, against, consecutive)
    console.print(_drift(checking.drift(seen, known)))
    if shared:
        raise typer.Exit(1)


def _name(item: LabelledImage) -> str:
    source = f" ({item.source_name})" if item.source_name not in ("", item.path.name) else ""
    return printable(f"{item.path.name}{source}")


def _given_name(item: LabelledImage) -> str:
    """The name that a camera or a person gave the picture; "" where a tool only counted them."""
    return item.source_name or ("" if item.path.stem.isdecimal() else item.path.name)


def _tell_duplicates(
    found: Sequence[checking.LabelFinding],
    seen: Sequence[checking.PictureStatistics],
    names: Mapping[Path, str],
) -> None:
    laptop_of = {one.item.path: one.item.workpiece_id for one in seen}
    listed = [
        one
        for one in found
        if one.kind == "duplicate" or len({laptop_of[path] or path for path in one.pictures}) > 1
    ]
    _list("Duplicates", listed, names)
    if any(one.kind != "duplicate" for one in listed):
        typer.echo(
            "  near duplicates count as different laptops here; `dataset import --near` joins such pictures to one laptop"
        )
    if len(found) > len(listed):
        typer.echo(f"{len(found) - len(listed)} pairs of near duplicates show one laptop each, as expected")


def _tell_frames(
    items: Sequence[LabelledImage], others: Sequence[LabelledImage], against: Path, within: int
) -> None:
    """Pictures that may be frames of a video of which ``against`` has a frame close to them."""
    parts = (items, others)
    ours, theirs = ([video_name(_given_name(one), one.workpiece_id) for one in part] for part in parts)
    close = close_frames(ours, theirs, within) if within else []
    if close:
        here, there, _ = min(close, key=lambda one: one[2])
        text = close_frames_text(len(close), len(items), within)
        typer.echo(
            printable(
                f"{text} in {against}: {ours[here]} and {theirs[there]}; if these are frames of a video, the two sets show "
                "the same laptops: import them again with --consecutive"
            )
        )


def _list(title: str, findings: Sequence[checking.LabelFinding], names: Mapping[Path, str]) -> None:
    lines = [f"{one.kind}: {', '.join(names[path] for path in one.pictures)}: {one.text}" for one in findings]
    list_lines(title, lines, _SHOWN)


def _drift(rows: Sequence[checking.Drift]) -> Table:
    table = Table("property", "here", "there", "KS distance", "p (Holm)", "", title="Drift, medians")
    for row in rows:
        words = "differs" if row.has_drifted else ""
        table.add_row(
            row.name, f"{row.first:.3g}", f"{row.second:.3g}", f"{row.distance:.2f}", f"{row.p:.2g}", words
        )
    return table
