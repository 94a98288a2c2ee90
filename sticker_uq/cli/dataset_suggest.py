# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq dataset suggest``: which pictures to label next."""

from __future__ import annotations

import csv
import math
import operator
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from sticker_uq.cell.bundle import Bundle
from sticker_uq.cell.detector_settings import NODE_ONLY
from sticker_uq.cli.options import output_file, settings_options
from sticker_uq.cli.terminal import counting, tell_of_source
from sticker_uq.io.coco import read_coco, read_picture
from sticker_uq.io.files import atomic_write
from sticker_uq.io.sources import open_source
from sticker_uq.lab.datasets.labelled_already import LabelledAlready, unlabelled
from sticker_uq.messages import printable
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.factory import load_perception
from sticker_uq.scene import InvalidInput

if TYPE_CHECKING:
    from sticker_uq.lab.datasets.suggesting import Suggestion

_SHOWN = 10


@settings_options("settings", PerceptionSettings, "detector", also_known=NODE_ONLY)
def command(
    pool: Annotated[Path, typer.Argument(help="Pictures without labels: a folder, a recording or a video.")],
    settings: PerceptionSettings,
    bundle: Bundle | None,
    out: Annotated[Path, output_file("CSV file to write the suggestions to, the most useful first.")],
    count: Annotated[int, typer.Option(min=1, help="How many pictures to suggest.")] = 50,
    labelled: Annotated[
        list[Path] | None,
        typer.Option(
            help="COCO folder that is labelled already: pictures of the pool with the name or the pixels of one of it are left "
            "out, and pictures like those are suggested last. May be repeated."
        ),
    ] = None,
    topic: Annotated[str | None, typer.Option(help="Image topic of a recording, if it has several.")] = None,
) -> None:
    """Suggest pictures to label next, by the detector's uncertainty, novelty, and difference from each other.

    Of the pictures with the highest scores each row is the one farthest from what is labelled and from the rows above it. The
    packaged weights know rendered laptops: give --weights or --bundle as soon as there are own ones.
    """
    del bundle  # it only makes the settings
    # only this command needs torch
    from sticker_uq.lab.datasets.suggesting import measured_pool, pooled_features, suggested

    source = open_source(pool, topic)
    known = [item for folder in labelled or () for item in read_coco(folder, crowd=True)]
    perception = load_perception(settings)
    already = LabelledAlready()
    left_out = Counter[str]()
    with counting() as bar:
        covered = []
        for item in bar.track(known, description="labelled"):
            image = read_picture(item)
            already.add(item, image)
            covered.append(pooled_features(perception.detector, image))
        task = bar.add_task("assessing", total=operator.length_hint(source, 0) or None)

        def skipped() -> None:
            left_out["labelled"] += 1
            bar.advance(task)

        pictures, failed = measured_pool(
            unlabelled(source, already, skipped), perception, lambda: bar.advance(task)
        )
    if not pictures and not failed and left_out:
        raise InvalidInput(f"{pool}: all its {left_out['labelled']} pictures are labelled already")
    chosen = suggested(pictures, count, covered)
    with atomic_write(out, "w") as stream:
        _write(stream, chosen)
    labelled_text = f"; {left_out['labelled']} were left out, they are labelled already" if left_out else ""
    typer.echo(f"{len(chosen)} of {len(pictures)} pictures in {out}{labelled_text}")
    for line in failed[:_SHOWN]:
        typer.echo(f"left out {printable(line)}", err=True)
    if len(failed) > _SHOWN:
        typer.echo(f"left out {len(failed) - _SHOWN} more", err=True)
    if tell_of_source(pool, source.remarks, source.lost):
        raise typer.Exit(1)


def _write(stream: IO[str], chosen: Sequence[Suggestion]) -> None:
    names = list(chosen[0].picture.signals)
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["picture", "score", "distance", *names])
    for one in chosen:
        values = (one.score, one.distance, *one.picture.signals.values())
        writer.writerow([one.picture.name, *("" if math.isnan(v) else f"{v:.6g}" for v in values)])
