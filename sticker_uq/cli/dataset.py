# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq dataset``: labelled pictures of laptops with stickers."""

from __future__ import annotations

import re
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from sticker_uq.cli import (
    dataset_attack,
    dataset_check,
    dataset_frames,
    dataset_from_audit,
    dataset_import,
    dataset_prelabel,
    dataset_prompts,
)
from sticker_uq.cli.options import checked, field_options, output_file, output_folder
from sticker_uq.cli.terminal import counting
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.evaluation.executors import mapped
from sticker_uq.io.coco import (
    IMAGE_FORMATS,
    EncodedScene,
    check_new_dataset,
    encode_picture,
    read_coco,
    write_coco,
)
from sticker_uq.io.files import atomic_write
from sticker_uq.io.images import read_image_file
from sticker_uq.lab.datasets.abnormal import CASES, CLEAN, EXPOSURE, abnormal_scenes
from sticker_uq.lab.rendering import encode_scene
from sticker_uq.lab.rendering.painting import Image
from sticker_uq.lab.rendering.render import render as render_scene
from sticker_uq.lab.rendering.scene_sampling import MOST_OF_PROFILE, Profile, sample_scene
from sticker_uq.scene import InvalidInput

app = typer.Typer(no_args_is_help=True, add_completion=False)
app.command("from-audit")(dataset_from_audit.command)
app.command("attack")(dataset_attack.command)
app.command("import")(dataset_import.command)
app.command("frames")(dataset_frames.command)
app.command("prelabel")(dataset_prelabel.command)
app.command("check")(dataset_check.command)
app.command("prompts")(dataset_prompts.command)


@app.callback()
def _about() -> None:
    """Pictures of laptops with logos and stickers, with COCO annotations."""


@app.command()
def render(
    out: Annotated[Path, output_folder("Folder to write images/ and annotations.json to.")],
    count: Annotated[int, typer.Option(help="How many scenes.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the first scene; scene i has seed + i.")] = 0,
    size: Annotated[str, typer.Option(help="Picture size in pixels, WIDTHxHEIGHT.")] = "960x720",
    stickers: Annotated[
        str, typer.Option(help="Stickers per scene, MIN-MAX; as many as the profile has when not given.")
    ] = "",
    profile: Annotated[
        str,
        typer.Option(
            metavar="|".join(get_args(Profile)),
            help="Scenes: large stickers on a laptop that fills the picture, or those of a study's cell: small ones, closed lids "
            "and laptops opened flat, with what must not be peeled.",
        ),
    ] = "study",
    image_format: Annotated[str, typer.Option("--format", help="Picture files: jpg or png.")] = "jpg",
    jobs: Annotated[int, typer.Option(help="Processes that render.")] = 1,
) -> None:
    """Render scenes and write them as a COCO folder (logo=1, sticker=2)."""
    if count < 1:
        raise InvalidInput(f"--count {count}: expected 1 or more")
    if jobs < 1:
        raise InvalidInput(f"--jobs {jobs}: expected 1 or more")
    if seed < 0:
        raise InvalidInput(f"--seed {seed}: expected 0 or more")
    if image_format not in IMAGE_FORMATS:
        raise InvalidInput(f"--format {image_format!r}: expected {' or '.join(IMAGE_FORMATS)}")
    width, height = _pair("--size", size, r"(\d+)x(\d+)", "WIDTHxHEIGHT, for example 960x720")
    limits = _pair("--stickers", stickers, r"(\d+)-(\d+)", "MIN-MAX, for example 0-8") if stickers else None
    if profile not in get_args(Profile):
        raise InvalidInput(f"--profile {profile!r}: expected {' or '.join(get_args(Profile))}")
    most = MOST_OF_PROFILE[cast(Profile, profile)]
    if limits and not limits[0] <= limits[1] <= most:
        raise InvalidInput(f"--stickers {stickers}: expected MIN <= MAX <= {most}")
    make = partial(
        _make,
        size=(width, height),
        limits=limits,
        image_format=image_format,
        profile=cast(Profile, profile),
    )
    scenes = mapped(make, range(seed, seed + count), jobs, chunksize=4)
    with counting() as bar, closing(scenes):
        task = bar.add_task("rendering", total=count)
        write_coco(out, scenes, progress=lambda done: bar.update(task, completed=done))
    typer.echo(f"{count} scenes in {out}")


@app.command()
def abnormal(
    data: Annotated[Path, typer.Option(help="COCO folder of the source pictures.")],
    out: Annotated[Path, output_folder("Folder to write one COCO folder per case to.")],
    case: Annotated[
        list[str] | None,
        typer.Option(
            help=f"One of {', '.join((CLEAN, *CASES))} (default: all of these), or, for `train --exposure`, of "
            f"{', '.join(EXPOSURE)}; may be repeated."
        ),
    ] = None,
    patch: Annotated[
        list[Path] | None,
        typer.Option(help="Adversarial patch NAME.png of `dataset patch`; makes the case patch-NAME."),
    ] = None,
    count: Annotated[int, typer.Option(help="How many pictures of --data; 0: all.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the occlusions and added objects.")] = 0,
    image_format: Annotated[str, typer.Option("--format", help="Picture files: jpg or png.")] = "jpg",
) -> None:
    """Hide stickers of labelled pictures, lay foreign objects on them or degrade them; the annotations record the changes."""
    if count < 0:
        raise InvalidInput(f"--count {count}: expected 0 or more")
    items = read_coco(data)
    patches = {f"patch-{path.stem}": _read_patch(path) for path in patch or ()}
    chosen = [*(case if case is not None else () if patches else (CLEAN, *CASES)), *patches]
    for name in chosen:
        check_new_dataset(out / name)
    for name in chosen:
        scenes = abnormal_scenes(items[: count or None], name, seed, patches.get(name), image_format)
        written = write_coco(out / name, scenes)
        typer.echo(f"{written} scenes in {out / name}")


@app.command()
@field_options("detector_values", DetectorSettings, "model", "weights", "min_size", "device")
def patch(
    data: Annotated[Path, typer.Option(help="COCO folder with stickers to train the patch on.")],
    out: Annotated[Path, output_file("PNG file to write the patch to.")],
    detector_values: dict[str, Any],
    mode: Annotated[
        str,
        typer.Option(
            metavar="swap|vanish|forge",
            help="Target of the patch: swap (sticker becomes logo), vanish (background) or forge (logo becomes sticker).",
        ),
    ] = "swap",
    steps: Annotated[int, typer.Option(help="Steps of gradient descent.")] = 600,
    seed: Annotated[int, typer.Option(help="Seed of the first patch and of the scenes.")] = 0,
) -> None:
    """Train an adversarial patch (DPatch) against the detection of stickers."""
    # only this command needs torch
    from sticker_uq.detection import load_detector
    from sticker_uq.lab.attacks.dpatch import PatchMode, craft_patch

    if out.suffix.lower() != ".png":
        raise InvalidInput(f"--out {out}: expected a file that ends in .png")
    if mode not in get_args(PatchMode):
        raise InvalidInput(f"--mode {mode}: expected {' or '.join(get_args(PatchMode))}")
    settings = checked(DetectorSettings, detector_values)
    items, detector = read_coco(data), load_detector(settings)
    columns = (
        TextColumn("attacking"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]:.3f}"),
    )
    with Progress(*columns) as bar:
        task = bar.add_task("", total=steps, loss=float("nan"))
        pixels = craft_patch(
            detector,
            items,
            steps=steps,
            seed=seed,
            mode=cast(PatchMode, mode),
            on_step=lambda done, loss: bar.update(task, completed=done, loss=loss),
        )
    with atomic_write(out) as stream:
        stream.write(encode_picture(pixels, "png"))
    typer.echo(f"patch in {out}")


def _read_patch(path: Path) -> Image:
    return read_image_file(path, f"--patch {path}")


def _pair(option: str, text: str, pattern: str, expected: str) -> tuple[int, int]:
    match = re.fullmatch(pattern, text)
    if match is None:
        raise InvalidInput(f"{option} {text!r}: expected {expected}")
    return int(match[1]), int(match[2])


def _make(
    seed: int, size: tuple[int, int], limits: tuple[int, int] | None, image_format: str, profile: Profile
) -> EncodedScene:
    # Counts cycle through the range with the seed, so that all are equally frequent.
    stickers = None if limits is None else limits[0] + seed % (limits[1] - limits[0] + 1)
    scene = sample_scene(seed, stickers=stickers, profile=profile)
    return encode_scene(seed, render_scene(scene, size), image_format)
