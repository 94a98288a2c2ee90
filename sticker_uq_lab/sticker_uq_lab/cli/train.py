# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq train``: trains a sticker detection model on a COCO folder."""

import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from sticker_uq.cli import option
from sticker_uq.cli.options import check_settings, field_options, numbers, output_folder
from sticker_uq.cli.terminal import LOG_EVERY, command_line, output, stage_bars
from sticker_uq.io.coco import ANNOTATIONS, write_coco
from sticker_uq.io.files import check_output_folder
from sticker_uq.io.stopping import resumable
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.rendering import encode_scene, render, sample_scene
from sticker_uq_lab.training.checkpoint import STATE
from sticker_uq_lab.training.training import BEST, EpochResult, TrainSettings, train
from sticker_uq_lab.training.training import Progress as Step

PACKAGED, EXPOSURE = "packaged", "exposure"
_FIRST_SEED, _PICTURES = 1_600_000, 200
_FIELDS = (
    "model", "epochs", "batch_size", "learning_rate", "start", "freeze", "min_size", "input_size",
    "dropout", "photo_head", "precision", "device", "threads", "seed",
)  # fmt: skip


@field_options("values", TrainSettings, *_FIELDS)
def command(
    values: dict[str, Any],
    data: list[Path] = option(..., "COCO folder to train on: annotations.json and images/; may be repeated."),
    out: Path | None = output_folder(
        None, "Folder for best.safetensors, metrics.csv and the state. Default: out/train/MODEL."
    ),
    val_data: Path | None = option(None, "COCO folder to validate on; default: a tenth of --data."),
    exposure: list[Path] | None = option(
        None,
        "COCO folder of pictures of what must not be peeled, to train on beside --data, or packaged for rendered ones "
        "in OUT/exposure; may be repeated.",
    ),
    anchor_scales: str = option(
        "",
        "SSD models only: sides of the default boxes of each map and one more, as shares of the picture. Default: those "
        "of --start or the model where they fit the labels, else smaller ones.",
        metavar="S1,S2,...",
    ),
    resume: bool = option(False, "Resume the training in --out.", "--resume"),
) -> None:
    """Train a detector on a COCO folder with the classes logo and sticker. Ctrl-C keeps the state for --resume."""
    out = out or Path("out") / "train" / str(values["model"])
    settings = check_settings(
        TrainSettings,
        {
            **values,
            "data": tuple(data),
            "exposure": tuple(out / EXPOSURE if str(one) == PACKAGED else one for one in exposure or ()),
            "anchor_scales": numbers("--anchor-scales", anchor_scales),
            "val_data": val_data,
            "out": out,
        },
    )
    console = output()
    check_output_folder(out, f"--out {out}")
    if not resume and (out / STATE).exists():
        raise InvalidInput(f"{out / STATE}: exists already; expected another folder, or --resume")
    if out / EXPOSURE in settings.exposure:
        render_exposure(out / EXPOSURE, console.print)
    resumable(f"--resume continues from {out / STATE}", out / STATE)
    with _show_progress(console) as (on_step, on_epoch), stop_on_signal() as stop:
        finished = train(
            settings,
            resume=resume,
            command=command_line(),
            say=console.print,
            on_step=on_step,
            on_epoch=on_epoch,
            stop=stop,
        )
    if not finished:
        raise KeyboardInterrupt
    console.print(f"best weights in {out / BEST}")


def render_exposure(
    folder: Path,
    say: Callable[[str], None],
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> None:
    """Render the packaged pictures of what must not be peeled to ``folder``, unless they are there."""
    if not (folder / ANNOTATIONS).exists():
        say(f"rendering {_PICTURES} pictures of what must not be peeled to {folder}")
        seeds = range(_FIRST_SEED, _FIRST_SEED + _PICTURES)
        made = (encode_scene(seed, render(sample_scene(seed, profile="study"), (960, 804))) for seed in seeds)
        write_coco(folder, made, lambda done: progress("rendering", done, _PICTURES))


@contextmanager
def _show_progress(
    console: Console,
) -> Iterator[tuple[Callable[[Step], None], Callable[[EpochResult], None]]]:
    """Callbacks that show one line per epoch, and in a terminal a progress bar, elsewhere a line every half minute."""
    columns = (
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TextColumn(
            "loss {task.fields[loss]:.3f}  {task.fields[rate]:.1f} images/s  mAP {task.fields[map50]:.3f}"
        ),
        TimeElapsedColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    live = console.is_terminal
    said = 0.0
    with Progress(*columns, console=console, speed_estimate_period=120, disable=not live) as bar:
        nan = float("nan")
        task = bar.add_task("", total=None, epoch=1, loss=nan, rate=nan, map50=nan)

        def on_step(step: Step) -> None:
            nonlocal said
            if not said:
                images = step.images // step.step
                console.print(
                    f"first step of {images} images: {step.seconds:.1f} s, {_most_memory():.1f} GB of memory at most so far; "
                    f"{step.steps - step.step} more"
                )
                said = time.monotonic()
            elif not live and time.monotonic() - said > LOG_EVERY:
                said = time.monotonic()
                console.print(f"epoch {step.epoch}, step {step.step} of {step.steps}: loss {step.loss:.3f}")
            speed = bar.tasks[0].speed
            bar.update(
                task,
                total=step.steps,
                completed=step.step,
                epoch=step.epoch,
                loss=step.loss,
                map50=step.map50,
                rate=speed * step.images / step.step if speed else nan,
            )

        def on_epoch(result: EpochResult) -> None:
            console.print(
                f"epoch {result.epoch}: loss {result.loss:.3f}, wrongful removals at equal questions {result.wrongful:.1%}, "
                f"mAP@0.5 {result.map50:.3f} (logo {result.ap_logo:.3f}, sticker {result.ap_sticker:.3f}), pictures of "
                f"{result.input_size} px, {result.seconds:.0f} s"
            )

        yield on_step, on_epoch


def _most_memory() -> float:
    """GB that this process has held at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


@contextmanager
def stage_bars_until_stopped() -> Iterator[tuple[Callable[[str, int, int], None], Callable[[], bool]]]:
    """A callback that shows stages, and one that tells whether to stop; the first stops at once, but not a training."""
    with stop_on_signal() as stop, stage_bars(transient=True) as shown:

        def progress(stage: str, done: int, total: int) -> None:
            shown(stage, done, total)
            if stop() and stage != "training":  # which saves its state first
                raise KeyboardInterrupt

        yield progress, stop


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C or SIGTERM was received; a second Ctrl-C interrupts at once."""
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
