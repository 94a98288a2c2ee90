# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq dataset``: labelled pictures of laptops with stickers."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from sticker_uq.cli import option
from sticker_uq.cli.options import Topic, check_settings, field_options, output_file, output_folder
from sticker_uq.cli.terminal import make_progress_bar, tell_of_source
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.evaluation.executors import map_over
from sticker_uq.io.coco import EncodedScene, check_new_dataset, encode_picture, read_coco, write_coco
from sticker_uq.io.files import whole_folder, write_file
from sticker_uq.io.images import read_image_file
from sticker_uq.io.labelled_images import read_workpieces
from sticker_uq.io.sources import open_source
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.cli import dataset_check, dataset_generate, dataset_import, dataset_prelabel
from sticker_uq_lab.datasets.abnormal import CASES, CLEAN, EXPOSURE, abnormal_scenes
from sticker_uq_lab.datasets.frames import choose_frames, file_name
from sticker_uq_lab.datasets.from_audit import BY_PERSON, AnsweredCase, answered_cases, encode_labelled
from sticker_uq_lab.datasets.prompts import PACKAGED_TEMPLATE, PromptTemplate, write_prompts
from sticker_uq_lab.rendering import encode_scene
from sticker_uq_lab.rendering.designs import Designs, read_designs, with_designs
from sticker_uq_lab.rendering.render import render as render_scene
from sticker_uq_lab.rendering.scene_sampling import MOST_OF_PROFILE, Profile, sample_scene

ImageFormat = Literal["jpg", "png"]
_CASES = (
    f"One of {', '.join((CLEAN, *CASES))} (default: all of these), or, for `train --exposure`, of "
    f"{', '.join(EXPOSURE)}; may be repeated."
)
app = typer.Typer(no_args_is_help=True, add_completion=False)
app.command("import")(dataset_import.command)
app.command("prelabel")(dataset_prelabel.command)
app.command("check")(dataset_check.command)
app.command()(dataset_generate.generate)
app.command()(dataset_generate.review)


@app.callback()
def _about() -> None:
    """Pictures of laptops with logos and stickers, with COCO annotations."""


@app.command()
def render(
    out: Path = output_folder(..., "Folder to write images/ and annotations.json to."),
    count: int = option(100, "How many scenes.", min=1),
    seed: int = option(0, "Seed of the first scene; scene i has seed + i.", min=0),
    size: str = option("960x720", "Picture size in pixels, WIDTHxHEIGHT."),
    stickers: str = option("", "Stickers per scene, MIN-MAX; as many as the profile has when not given."),
    profile: Profile = option(
        "study",
        "Scenes: large stickers on a laptop that fills the picture, or those of a study's cell: small ones, closed lids "
        "and laptops opened flat, with what must not be peeled.",
    ),
    designs: Path | None = option(
        None,
        "Folder with PNG or JPEG files of your own: stickers/, logos/ (which must stay) and photographs/, for tables and "
        "screens; half of each show one of them.",
    ),
    image_format: ImageFormat = option("jpg", "Picture files.", "--format"),
    jobs: int = option(1, "Processes that render.", min=1),
) -> None:
    """Render scenes and write them as a COCO folder (logo=1, sticker=2)."""
    width, height = _pair("--size", size, r"(\d+)x(\d+)", "WIDTHxHEIGHT, for example 960x720")
    limits = _pair("--stickers", stickers, r"(\d+)-(\d+)", "MIN-MAX, for example 0-8") if stickers else None
    most = MOST_OF_PROFILE[profile]
    if limits and not limits[0] <= limits[1] <= most:
        raise InvalidInput(f"--stickers {stickers}: expected MIN <= MAX <= {most}")
    shown = None if designs is None else read_designs(designs)
    make = partial(
        _make, size=(width, height), limits=limits, image_format=image_format, profile=profile, designs=shown
    )
    scenes = map_over(make, range(seed, seed + count), jobs, chunksize=4)
    with make_progress_bar() as bar, closing(scenes):
        task = bar.add_task("rendering", total=count)
        write_coco(out, scenes, progress=lambda done: bar.update(task, completed=done))
    typer.echo(f"{count} scenes in {out}")


@app.command()
def abnormal(
    data: Path = option(..., "COCO folder of the source pictures."),
    out: Path = output_folder(..., "Folder to write one COCO folder per case to."),
    case: list[str] | None = option(None, _CASES),
    patch: list[Path] | None = option(
        None, "Adversarial patch NAME.png of `dataset patch`; makes the case patch-NAME."
    ),
    count: int = option(0, "How many pictures of --data; 0: all.", min=0),
    seed: int = option(0, "Seed of the occlusions and added objects.", min=0),
    image_format: ImageFormat = option("jpg", "Picture files.", "--format"),
) -> None:
    """Hide stickers of labelled pictures, lay foreign objects on them or degrade them; the annotations record the changes."""
    items = read_coco(data)
    patches = {f"patch-{path.stem}": read_image_file(path, f"--patch {path}") for path in patch or ()}
    asked = case if case is not None else () if patches else (CLEAN, *CASES)
    chosen = dict.fromkeys((*asked, *patches))
    for name in chosen:
        check_new_dataset(out / name)
    taken = items[: count or None]
    made = {n: abnormal_scenes(taken, n, seed, patches.get(n), image_format) for n in chosen}
    for name, scenes in made.items():
        written = write_coco(out / name, scenes)
        left = f", {len(taken) - written} pictures without a sticker left out" if written < len(taken) else ""
        typer.echo(f"{written} scenes in {out / name}{left}")


@app.command("close-ups")
@field_options("detector_values", DetectorSettings, "model", "weights", "min_size", "device")
def close_ups(
    detector_values: dict[str, Any],
    data: Path = option(..., "COCO folder of labelled pictures, in the size in which the cell sees them."),
    out: Path = output_folder(..., "New folder for images/ and annotations.json.", empty=True),
    seed: int = option(0, "Seed of what is shown beside labels and what the detector finds.", min=0),
    image_format: ImageFormat = option("jpg", "Picture files.", "--format"),
) -> None:
    """Show labelled objects, and what the detector takes for one, enlarged: to train weights for close-ups.

    `sticker-uq train --start WEIGHTS` on these pictures makes such weights. As NAME_close_ups.safetensors beside NAME.safetensors
    they are used with those.
    """
    # only this command needs torch
    from sticker_uq.detection import load_detector
    from sticker_uq_lab.datasets.close_ups import close_up_scenes

    items = read_coco(data)
    detector = load_detector(check_settings(DetectorSettings, detector_values))
    with make_progress_bar() as bar:
        task = bar.add_task("close-ups", total=len(items))
        scenes = close_up_scenes(items, detector, seed, image_format)
        write_coco(out, scenes, progress=lambda done: bar.update(task, completed=done))
    typer.echo(f"{len(items)} pictures of close-ups in {out}")


@app.command()
@field_options("detector_values", DetectorSettings, "model", "weights", "min_size", "device")
def patch(
    detector_values: dict[str, Any],
    data: Path = option(..., "COCO folder with stickers to train the patch on."),
    out: Path = output_file(..., "PNG file to write the patch to."),
    mode: Literal["swap", "vanish", "forge"] = option(
        "swap",
        "Target of the patch: swap (sticker becomes logo), vanish (background) or forge (logo becomes sticker).",
    ),
    steps: int = option(600, "Steps of gradient descent."),
    seed: int = option(0, "Seed of the first patch and of the scenes.", min=0),
) -> None:
    """Train an adversarial patch (DPatch) against the detection of stickers."""
    # only this command needs torch
    from sticker_uq.detection import load_detector
    from sticker_uq_lab.attacks.dpatch import craft_patch

    if out.suffix.lower() != ".png":
        raise InvalidInput(f"--out {out}: expected a file that ends in .png")
    settings = check_settings(DetectorSettings, detector_values)
    items, detector = read_coco(data), load_detector(settings)
    loss_column = TextColumn("{task.fields[loss]:.3f}")
    with Progress(TextColumn("attacking"), BarColumn(), MofNCompleteColumn(), loss_column) as bar:
        task = bar.add_task("", total=steps, loss=float("nan"))

        def on_step(done: int, loss: float) -> None:
            bar.update(task, completed=done, loss=loss)

        pixels = craft_patch(detector, items, steps=steps, seed=seed, mode=mode, on_step=on_step)
    write_file(out, encode_picture(pixels, "png"))
    typer.echo(f"patch in {out}")


def _pair(option: str, text: str, pattern: str, expected: str) -> tuple[int, int]:
    match = re.fullmatch(pattern, text)
    if match is None:
        raise InvalidInput(f"{option} {text!r}: expected {expected}")
    return int(match[1]), int(match[2])


def _make(
    seed: int,
    size: tuple[int, int],
    limits: tuple[int, int] | None,
    image_format: str,
    profile: Profile,
    designs: Designs | None,
) -> EncodedScene:
    # Counts cycle through the range with the seed, so that all are equally frequent.
    stickers = None if limits is None else limits[0] + seed % (limits[1] - limits[0] + 1)
    scene = sample_scene(seed, stickers=stickers, profile=profile)
    if designs is not None:
        scene = with_designs(scene, designs)
    return encode_scene(seed, render_scene(scene, size), image_format)


@app.command()
def frames(
    recording: Path = typer.Argument(..., help="rosbag2 recording or video."),
    out: Path = output_folder(..., "New folder to write the frames to.", empty=True),
    every: float = option(2.0, "Shortest time between two frames, s.", min=0),
    min_motion: float = option(
        2.0,
        "Smallest difference from the last chosen frame, mean over the picture, grey levels.",
        min=0,
        max=255,
    ),
    count: int = option(0, "Most frames; 0: no limit.", min=0),
    topic: Topic = None,
    image_format: ImageFormat = option("png", "Picture files.", "--format"),
) -> None:
    """Choose frames of a recording by time and by their difference from the last chosen one.

    A frame is named after its number in the recording, as `replay` counts, and after the laptop if the recording announces it:
    `dataset import --group "laptop\\d+"` then keeps frames of one laptop together.
    """
    source = open_source(recording, topic)
    if not source.continuous:
        raise InvalidInput(f"{recording}: is no recording or video; its pictures can be labelled as they are")
    workpieces = read_workpieces(recording) if source.topic else ()
    read = unreadable = written = 0
    with whole_folder(out) as folder:
        for picture, chosen in choose_frames(source, every, min_motion):
            read += 1
            unreadable += picture.image is None
            if picture.image is None or not chosen:
                continue
            write_file(
                folder / file_name(picture, workpieces, image_format),
                encode_picture(picture.image, image_format),
            )
            written += 1
            if written == count:
                break
        if not written:
            raise InvalidInput(f"{recording}: none of {read} frames can be read")
    left_out = f", {unreadable} cannot be read" if unreadable else ""
    typer.echo(f"{written} of {read} frames in {out}{left_out}")
    if tell_of_source(recording, source.remarks, source.lost):
        raise typer.Exit(1)


_ANSWERED = "Answered interventions of the cell: boxes by an operator, or by the policy"


@app.command("from-audit")
def from_audit(
    audit: Path = option(..., "Folder of the supervisor's audit log."),
    recording: list[Path] = option(..., "Recording of the same time; may be repeated."),
    out: Path = output_folder(..., "Folder to write images/ and annotations.json to."),
    topic: Topic = None,
) -> None:
    """Write every answered intervention as a labelled picture of a COCO folder, for train and calibrate.

    The log is verified first, so that no altered answer is used. A picture with an unanswered object is left
    out. "Peel it" and a drawn box become a sticker, "leave it" a logo, "nothing is there" no box; what was not in question is
    labelled as the policy decided, with "source": "policy" in its annotation.
    """
    left_out: Counter[str] = Counter()
    said: Counter[str] = Counter()

    def usable(cases: Iterable[AnsweredCase]) -> Iterator[EncodedScene]:
        for number, case in enumerate(cases):
            if case.picture is None:
                left_out[case.problem] += 1
                continue
            said.update(box.source for box in case.boxes)
            yield _encode_answered(number, case)

    lost: list[bool] = []
    check_new_dataset(out)
    cases = answered_cases(audit, recording, topic, lambda *told: lost.append(tell_of_source(*told)))
    scenes = usable(cases)
    first = next(scenes, None)  # an empty data set is not written
    written = 0 if first is None else write_coco(out, chain([first], scenes), description=_ANSWERED)
    for problem, count in sorted(left_out.items()):
        typer.echo(f"left out {count}: {problem}")
    if not written:
        raise InvalidInput(f"{audit}: none of {sum(left_out.values())} answers gives a labelled picture")
    people = said[BY_PERSON]
    typer.echo(
        f"{written} pictures in {out}: {people} boxes by operators, {sum(said.values()) - people} by the policy"
    )
    if any(lost):
        raise typer.Exit(1)


def _encode_answered(number: int, case: AnsweredCase) -> EncodedScene:
    assert case.picture is not None
    question = case.question
    about = {
        "request_id": question.request_id,
        "workpiece_id": question.workpiece_id,
        "stamp_ns": question.image_stamp_ns,
        "person": question.person,
    }
    sources = tuple({"source": box.source} for box in case.boxes)
    return encode_labelled(case.picture, case.boxes, number, about, box_fields=sources)


@app.command()
def prompts(
    out: Path = output_file(..., "File to write the prompts to, one JSON object a line."),
    count: int = option(150, "How many prompts.", min=1),
    seed: int = option(0, "Seed of the first prompt; prompt i has seed + i.", min=0),
    template: Path = option(
        PACKAGED_TEMPLATE, "YAML file with the phrases.", show_default="the packaged one"
    ),
) -> None:
    """Sample prompts for pictures of laptops with stickers (Lu et al., Table 1), for an image generator."""
    phrases = PromptTemplate.load(template)
    write_prompts(out, (phrases.draw(seed + index, index) for index in range(count)))
    typer.echo(f"{count} prompts in {out}, with the phrases of {template}")
