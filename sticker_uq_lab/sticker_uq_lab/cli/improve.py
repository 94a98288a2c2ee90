# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq improve``: from operators' answers to a candidate bundle and a verdict about it."""

from pathlib import Path
from typing import Any

import typer

from sticker_uq.calibration.fitting import Levels
from sticker_uq.cell.bundle import BUNDLE_FILES, Bundle, create_bundle
from sticker_uq.cli import option
from sticker_uq.cli.bundle import promise_of
from sticker_uq.cli.options import Delta, Jobs, Overwrite, Topic, check_settings, field_options, output_folder
from sticker_uq.cli.terminal import command_line, step_line
from sticker_uq.gate import Policy
from sticker_uq.io.files import check_result_folder, write_file
from sticker_uq.io.stopping import resumable
from sticker_uq.perception import PerceptionSettings
from sticker_uq_lab.cli.train import EXPOSURE, PACKAGED, render_exposure, stage_bars_until_stopped
from sticker_uq_lab.improving.improvement import Improvement, ImproveSettings
from sticker_uq_lab.improving.improvement_report import REPORT, improvement_report, lead
from sticker_uq_lab.improving.visits import GLANCE_S
from sticker_uq_lab.kept_pieces import Steps, work_folder
from sticker_uq_lab.training.settings import TrainSettings

_ALPHA, _BETA, _DELTA = 0.01, 0.05, 0.1
_LEARNING_RATE = 5e-4
"""Unless one is given; the default of the model would train the active weights anew."""


@field_options("machine", PerceptionSettings, "device", "threads")
@field_options("asked", ImproveSettings, "newest", "old_test", "tolerance", "novelty_epochs", "seed")
@field_options("training", TrainSettings, "epochs", "batch_size", "learning_rate", "freeze", "dropout")
def command(
    machine: dict[str, Any],
    training: dict[str, Any],
    asked: dict[str, Any],
    bundle: Path = option(..., "The bundle that is active in the cell."),
    audit: list[Path] = option(..., "Folder of the supervisor's audit log; may be repeated."),
    recordings: list[Path] = option(..., "Recording of the same time; may be repeated."),
    out: Path = output_folder(..., "Folder of the candidate, a bundle, new or empty."),
    overwrite: Overwrite = False,
    work: Path | None = output_folder(
        None, "Folder of intermediate results and of the report; default: OUT.work."
    ),
    data: list[Path] | None = option(
        None, "COCO folder of earlier labels to train on beside; may be repeated."
    ),
    exposure: list[Path] | None = option(
        None,
        "COCO folder to train on beside, so that nothing is forgotten; may be repeated. Default: packaged, for rendered "
        "laptops in WORK/exposure.",
    ),
    alpha: float | None = option(
        None, "Highest rate of laptops with a wrongful removal; default: that of the bundle, or 0.01."
    ),
    beta: float | None = option(
        None,
        "Highest rate of missed stickers among laptops called clean; default: that of the bundle, or 0.05; 0: none.",
    ),
    delta: Delta = _DELTA,
    glance: float = option(
        GLANCE_S,
        "Time that a person needs to look at a picture, s; a faster answer is not used; 0: any is.",
        min=0,
    ),
    names: bool = option(False, "Name the operators in the report.", "--names"),
    topic: Topic = None,
    jobs: Jobs = 0,
    allow_uncalibrated: bool = option(
        False,
        "Make a candidate even without a guarantee, with the limits of the bundle.",
        "--allow-uncalibrated",
    ),
) -> None:
    """Train and calibrate a candidate on what operators answered, and compare it with the active bundle.

    The newest laptops judge and never train. The guarantee is proved on answered and spot checked laptops. Nothing is promoted.
    The same call resumes after an interruption. Exit status 0: there is a candidate, with its verdict; 1: there is none, the
    report says why; 2: invalid input.
    """
    training = {"learning_rate": _LEARNING_RATE} | training
    check_result_folder(out, BUNDLE_FILES, f"--out {out}", overwrite)
    work = work_folder(work, out, "candidate")
    active = Bundle.load(bundle)
    perception = active.settings(PerceptionSettings(**machine))
    promised = Policy.load(active.policy).guarantee
    levels = Levels(
        _level(alpha, promised and promised.wrongful_removal, _ALPHA),
        _level(beta, promised and (promised.sticker_left or promised.missed_sticker), _BETA),
        delta,
    )
    steps = Steps(work, step_line, f"--work {work}")
    resumable("the same call resumes", steps.work)
    rendered = [work / EXPOSURE if str(one) == PACKAGED else one for one in exposure or [Path(PACKAGED)]]
    settings = check_settings(
        ImproveSettings,
        {
            **asked,
            "perception": perception,
            "active_policy": active.policy,
            "active_hash": active.hash,
            "audit": tuple(audit),
            "recordings": tuple(recordings),
            "levels": levels,
            "topic": topic,
            "training": training,
            "data": tuple(data or ()),
            "exposure": tuple(rendered),
            "names": names,
            "glance_s": glance,
            "command": command_line(),
        },
    )
    check_settings(TrainSettings, {**training, "data": (work,), "out": work})
    with steps.alone(), stage_bars_until_stopped() as (progress, stop):

        def render() -> None:
            if work / EXPOSURE in rendered:
                render_exposure(work / EXPOSURE, typer.echo, progress)

        found = Improvement(settings, steps, progress, stop, jobs).run(render)
    comparison = found.comparison.document(active.hash)
    made = not found.calibration.refused or allow_uncalibrated
    if made:
        candidate = create_bundle(
            out, found.perception, found.policy, active.manifest.supervisor, comparison, overwrite
        )
        told = f"Candidate in {out}: {promise_of(candidate)}"
    else:
        told = "No candidate: nothing is promised of it; --allow-uncalibrated makes one for a dry run."
    write_file(work / REPORT, improvement_report(found, comparison, told))
    for line in (told, f"{comparison.verdict.upper()}: {lead(comparison)}", f"report: {work / REPORT}"):
        typer.echo(line)
    if not made:
        raise typer.Exit(1)


def _level(given: float | None, promised: Any, otherwise: float) -> float:
    return given if given is not None else otherwise if promised is None else promised.level
