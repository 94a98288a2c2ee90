# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq dataset frames``: frames of a recording or video to label."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sticker_uq.cli.options import output_folder
from sticker_uq.cli.terminal import tell_of_source
from sticker_uq.io.coco import IMAGE_FORMATS, encode_picture
from sticker_uq.io.files import atomic_write
from sticker_uq.io.labelled_images import recorded_workpieces
from sticker_uq.io.outputs import whole_folder
from sticker_uq.io.sources import open_source
from sticker_uq.lab.datasets.frames import chosen_frames, file_name
from sticker_uq.scene import InvalidInput


def command(
    recording: Annotated[Path, typer.Argument(help="rosbag2 recording or video.")],
    out: Annotated[Path, output_folder("New folder to write the frames to.", empty=True)],
    every: Annotated[float, typer.Option(min=0, help="Shortest time between two frames, s.")] = 2.0,
    min_motion: Annotated[
        float,
        typer.Option(
            min=0,
            max=255,
            help="Smallest difference from the last chosen frame, mean over the picture, grey levels.",
        ),
    ] = 2.0,
    count: Annotated[int, typer.Option(min=0, help="Most frames; 0: no limit.")] = 0,
    topic: Annotated[
        str | None, typer.Option(help="Image topic of the recording, if it has several.")
    ] = None,
    image_format: Annotated[str, typer.Option("--format", help="Picture files: jpg or png.")] = "png",
) -> None:
    """Choose frames of a recording by time and by their difference from the last chosen one.

    A frame is named after its number in the recording, as `replay` counts, and after the laptop if the recording announces it:
    `dataset import --group "laptop\\d+"` then keeps frames of one laptop together.
    """
    if image_format not in IMAGE_FORMATS:
        raise InvalidInput(f"--format {image_format!r}: expected {' or '.join(IMAGE_FORMATS)}")
    source = open_source(recording, topic)
    if not source.continuous:
        raise InvalidInput(f"{recording}: is no recording or video; its pictures can be labelled as they are")
    workpieces = recorded_workpieces(recording) if source.topic else ()
    read = unreadable = written = 0
    with whole_folder(out) as folder:
        for frame in chosen_frames(source, every, min_motion):
            read, unreadable = frame.read, frame.unreadable
            if frame.picture is None:
                continue
            with atomic_write(folder / file_name(frame.picture, workpieces, image_format)) as stream:
                assert frame.picture.image is not None
                stream.write(encode_picture(frame.picture.image, image_format))
            written += 1
            if written == count:
                break
        if not written:
            raise InvalidInput(f"{recording}: none of {read} frames can be read")
    left_out = f", {unreadable} cannot be read" if unreadable else ""
    typer.echo(f"{written} of {read} frames in {out}{left_out}")
    if tell_of_source(recording, source.remarks, source.lost):
        raise typer.Exit(1)
