# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq qualify``: from labelled images to a bundle that is ready, or to what is missing for one."""

from pathlib import Path
from typing import Any

import typer

from sticker_uq.calibration.fitting import Levels
from sticker_uq.cell.bundle import BUNDLE_FILES, create_bundle
from sticker_uq.cell.node_settings import NODE_ONLY
from sticker_uq.cli import option, options
from sticker_uq.cli.bundle import promise_of
from sticker_uq.cli.terminal import command_line, step_line
from sticker_uq.gate import Policy
from sticker_uq.io.files import check_result_folder, write_file
from sticker_uq.io.share import share_folder
from sticker_uq.io.stopping import resumable
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.cli.train import stage_bars_until_stopped
from sticker_uq_lab.datasets.importing.grouping import shares_of
from sticker_uq_lab.kept_pieces import Steps, work_folder
from sticker_uq_lab.qualifying.candidate import without_guarantee
from sticker_uq_lab.qualifying.qualification import REFUSED, SHARES, Qualification, QualifySettings
from sticker_uq_lab.qualifying.qualification_report import REPORT, lead, qualification_report
from sticker_uq_lab.training.settings import TrainSettings

_TRAINING = ("epochs", "batch_size", "learning_rate", "start", "freeze", "dropout")
_ASKED = ("min_removed", "near", "base", "novelty_epochs", "robustness_images")
_DRAFT = "uncalibrated.yaml"


@options.settings_options(
    "perception",
    PerceptionSettings,
    "detector",
    also_known=NODE_ONLY,
    other_help={name: f"refused, also in --params: {why}" for name, why in REFUSED.items()},
)
@options.field_options("training", TrainSettings, *_TRAINING)
@options.field_options("asked", QualifySettings, *_ASKED)
def command(
    perception: PerceptionSettings,
    params: Path | None,
    training: dict[str, Any],
    asked: dict[str, Any],
    data: Path = option(
        ...,
        "COCO folder, or a folder with the parts learn, calibrate and test, as `dataset import --split` writes them.",
    ),
    out: Path = options.output_folder(..., "Folder of the bundle, new or empty."),
    overwrite: options.Overwrite = False,
    work: Path | None = options.output_folder(
        None, "Folder of intermediate results and of the report; default: OUT.work."
    ),
    alpha: options.Alpha = 0.01,
    beta: options.Beta = 0.05,
    delta: options.Delta = 0.1,
    split: str = option(
        ",".join(map(str, SHARES)), "Shares of learn, calibrate and test, where --data is one COCO folder."
    ),
    no_robustness: bool = option(False, "Do not assess robustness.", "--no-robustness"),
    jobs: options.Jobs = 0,
    ray_address: options.RayAddress = "",
    allow_uncalibrated: bool = option(
        False, "Make a bundle even if not ready, with limits without a guarantee.", "--allow-uncalibrated"
    ),
) -> None:
    """Check, train, evaluate, learn novelty, calibrate, test, assess robustness: a bundle, and a report that says ready or not.

    It always trains: --start FILE trains on from weights, and --weights is refused. For weights that are to stay as they are,
    calibrate and make the bundle by themselves (`sticker-uq calibrate`, `sticker-uq bundle create`).

    The same call resumes after an interruption. Exit status 0: ready; 1: not ready, the report says why; 2: invalid input.
    """
    check_result_folder(out, BUNDLE_FILES, f"--out {out}", overwrite)
    work = work_folder(work, out, "bundle")
    options.check_settings(TrainSettings, {**training, "data": (data,), "out": work})
    supervisor = options.supervisor_parameters(params)
    settings = options.check_settings(
        QualifySettings,
        asked
        | ({"robustness_images": 0} if no_robustness else {})
        | {
            "data": data,
            "levels": Levels(alpha, beta, delta),
            "training": training,
            "perception": perception,
            "shares": shares_of(split),
            "seed": perception.seed,
            "command": command_line(),
        },
    )
    steps = Steps(work, step_line, f"--work {work}")
    resumable("the same call resumes", steps.work)
    with steps.alone(), stage_bars_until_stopped() as (progress, stop):
        found = Qualification(settings, steps, progress, stop, jobs, ray_address).run()
    told = _bundle(found, steps, out, supervisor, allow_uncalibrated, overwrite)
    report = work / REPORT
    write_file(report, qualification_report(found, told))
    typer.echo(told)
    typer.echo(f"{'READY' if found.ready else 'NOT READY'}: {lead(found)}")
    typer.echo(f"report: {report}")
    if not found.ready:
        raise typer.Exit(1)


def _bundle(
    found: Qualification,
    steps: Steps,
    out: Path,
    supervisor: dict[str, Any],
    allow_uncalibrated: bool,
    overwrite: bool,
) -> str:
    """Make the bundle, if there is to be one; what became of it, in a sentence."""
    weights = f"Weights are in {Path(found.perception.weights).parent}."
    if not found.ready and not allow_uncalibrated:
        return f"No bundle; --allow-uncalibrated makes one without a guarantee, for a dry run. {weights}"
    # what is not ready promises nothing, also where one of several requirements was proved: a real arm asks for the promise alone
    limits = found.policy or found.settings.base
    policy = (
        found.policy
        if found.policy and found.ready
        else without_guarantee(
            Policy.load(limits or share_folder() / "config" / "limits.yaml"),
            steps.work / _DRAFT,
            found.novelty,
        )
    )
    try:
        made = create_bundle(out, found.perception, policy, supervisor, overwrite=overwrite)
    except InvalidInput as error:
        if found.ready:
            raise
        return f"No bundle: {error}. {weights}"
    return f"Bundle in {out}: {promise_of(made)}"
