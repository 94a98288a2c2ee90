# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq calibrate``: a policy with a statistical guarantee from labelled images."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import typer
from rich.table import Table

from sticker_uq.calibration.asked import AskedPictures, open_pictures
from sticker_uq.calibration.calibration_report import calibration_report
from sticker_uq.calibration.fitting import FAMILIAR, FitSettings, Levels, fit_policy, take_over
from sticker_uq.calibration.making import FIT_SHARE, Divided, assess_sources, evidence, write_policy
from sticker_uq.calibration.probability import choose_kind
from sticker_uq.calibration.proving import Trials
from sticker_uq.calibration.records import Record, units_of
from sticker_uq.cell.node_settings import NODE_ONLY
from sticker_uq.cli import option
from sticker_uq.cli.options import Alpha, Beta, Delta, Jobs, RayAddress, Topic, output_file, settings_options
from sticker_uq.cli.terminal import command_line, make_progress_bar, output, tell_of_source
from sticker_uq.gate import Policy
from sticker_uq.gate.policy.policy_schema import PanelRule
from sticker_uq.gate.policy.reference import reference_beside
from sticker_uq.gate.policy.signals import SIGNALS, SaliencyName
from sticker_uq.io.coco import check_objects
from sticker_uq.io.files import check_output_file, write_file
from sticker_uq.io.labelled_images import LabelledSource
from sticker_uq.io.share import share_folder
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import InvalidInput

_OF_FITTING = ("signals", "calibration", "saliency", "percentile", "familiar", "split_seed")
CACHE = Path.home() / ".cache" / "sticker_uq" / "assessments.sqlite"


@settings_options("settings", PerceptionSettings, "detector", also_known=NODE_ONLY)
def command(
    context: typer.Context,
    settings: PerceptionSettings,
    data: list[Path] = option(
        ...,
        "COCO folder, rosbag2 folder with an annotations.json in it, or folder with the answers of `sticker-uq ask`; may be "
        "repeated.",
    ),
    out: Path = output_file(Path("policy.yaml"), "Policy file to write; NAME.reference.csv goes beside it."),
    part: list[str] | None = option(
        None,
        "NAME=FOLDER[,FOLDER...]: a part of the laptops, by folders of --data and --fit-data; may be repeated. The promises "
        "then hold for each part by itself.",
    ),
    report: Path | None = output_file(None, "Report to write: FILE.html or FILE.md."),
    alpha: Alpha = 0.01,
    beta: Beta = 0.05,
    delta: Delta = 0.1,
    fit_share: float = option(
        FIT_SHARE,
        "Share of the images to fit on; the others test the guarantees. 0: all of them test the score of --base, which "
        "was fitted on other laptops.",
    ),
    split_seed: int = option(0, "Seed of that split.", min=0),
    fit_data: list[Path] | None = option(
        None,
        "Folder as of --data, of other laptops: all of them are fitted on, and all of --data prove; may be repeated.",
    ),
    base: Path | None = option(None, "Policy whose other limits are kept; default: config/limits.yaml."),
    calibration: Literal["isotonic", "temperature", "none"] = option(
        "isotonic",
        "Calibration of the class probabilities; one that makes them worse on other images is not used.",
    ),
    saliency: SaliencyName = option(
        "background_saliency", "Signal of a scene whose percentile on clean laptops is a limit."
    ),
    percentile: float = option(95.0, "Share of the clean laptops that stay below it, %.", min=0, max=100),
    familiar: float = option(
        FAMILIAR,
        "Share of the laptops that count as familiar, %; the operator is asked about others; 100: no limit.",
        min=50,
        max=100,
    ),
    match_iou: float = option(
        0.3, "Lowest overlap (IoU) with a labelled object at which the blade touches it.", min=0.01, max=0.99
    ),
    signals: str = option(
        "",
        f"Signals of the risk score, separated by commas, of {', '.join(SIGNALS)}; default: all that were measured.",
    ),
    panel_combination: Literal["any", "risk"] = option(
        "risk",
        "With --panel: ask an operator on any objection, or use the scores as signals of the risk score.",
    ),
    camera: str = option("", "Frame of the camera that the policy is for; empty: any."),
    valid_days: int = option(0, "Days until the policy expires; 0: it does not.", min=0, max=36_500),
    topic: Topic = None,
    cache: Path = option(CACHE, "File that caches assessments between runs."),
    jobs: Jobs = 0,
    ray_address: RayAddress = "",
) -> None:
    """Choose the limits of a policy on labelled images, with statistical guarantees.

    The images are split: some to fit the calibration and the risk score on, the others to choose limits by Learn-then-Test.
    Fails without writing anything when there are too few images for the guarantees.
    """
    levels = Levels(alpha, beta, delta)
    if not 0.0 <= fit_share < 1.0:
        raise InvalidInput(f"--fit-share {fit_share:g}: expected a number from 0 to below 1")
    if report is not None and report.suffix not in (".html", ".md"):
        raise InvalidInput(f"--report {report}: expected FILE.html or FILE.md")
    check_output_file(reference_beside(out), f"--out {out}: {reference_beside(out)}")
    named = [name for name in signals.replace(" ", "").split(",") if name]
    if unknown := [name for name in named if name not in SIGNALS]:
        raise InvalidInput(f"--signals {', '.join(unknown)}: expected some of {', '.join(SIGNALS)}")
    if named and settings.panel and panel_combination == "risk":
        raise InvalidInput("--signals with --panel: expected --panel-combination any, or no --signals")
    parts = _parts(part or (), data, fit_data or ())
    kept = Policy.load(base or share_folder() / "config" / "limits.yaml")
    if settings.panel:
        panel = (kept.panel or PanelRule()).model_copy(update={"combination": panel_combination})
        kept = kept.model_copy(update={"panel": panel})
    if fit_data and (given := _list_given(context, ("fit_share", "split_seed"))):
        raise InvalidInput(
            f"{given} with --fit-data: expected none, the folders say which laptops are fitted on"
        )
    if not fit_share:
        _refuse_fitting(context, kept, beta)
    others = [LabelledSource(path, topic) for path in fit_data or ()]
    proving = [open_pictures(path, topic) for path in data]
    sources = [*others, *proving]
    for source in sources:
        tell_of_source(source.path, source.remarks, "")
    _check_labels(context, sources, fit_share if not others else 0.0)
    known = evidence(proving, delta, 0.0 if others else fit_share, split_seed)
    typer.echo(known.text(), err=True)
    known.check(alpha, beta)
    with make_progress_bar() as bar:
        advance = partial(bar.advance, bar.add_task("assessing", total=sum(map(len, sources))))
        needed = kept.unmeasured_novelty == "ask"
        assessed = assess_sources(sources, settings, cache, advance, jobs, ray_address, needed)
    for source, found in zip(sources, assessed, strict=True):
        if isinstance(source, AskedPictures) and (left_out := source.describe_unused(len(found.records))):
            typer.echo(left_out, err=True)
    _tell_of_workpieces(sources, [record for part in assessed for record in part.records])
    if others:
        divided = Divided.apart(assessed[: len(others)], assessed[len(others) :])
    else:
        divided = Divided.of(assessed, fit_share, split_seed)
    if fit_share:
        chosen = choose_kind(divided.fit, calibration, match_iou)
        if chosen.kind != calibration:
            typer.echo(chosen.text(), err=True)
        say = partial(typer.echo, err=True)
        how = FitSettings(
            kind=chosen.kind,
            saliency=saliency,
            percentile=percentile,
            match_iou=match_iou,
            familiar=familiar,
            signals=named or None,
            level=alpha,
            clean=beta > 0,
        )
        draft = fit_policy(divided.fit, kept, how, say)
    else:
        draft = take_over(kept, beta > 0)
    numbers, fit_numbers = (
        {name: divided.numbers_of(folders, fit) for name, folders in parts.items()} for fit in (False, True)
    )
    policy = Trials(draft, divided.fit, divided.proof, match_iou, numbers, fit_numbers).policy(levels)
    policy = divided.sign(policy, command_line(), camera, valid_days)
    if report is not None:
        text = calibration_report(policy, draft, divided, levels, html=report.suffix == ".html")
        write_file(report, text)
    write_policy(policy, out)
    _print(policy, out)


def _parts(given: Sequence[str], data: Sequence[Path], others: Sequence[Path]) -> dict[str, set[str]]:
    """The folders of each part that ``given`` names, as they are called in ``data`` or ``others``, some of them in ``data``."""
    known = {path.absolute(): str(path) for path in (*data, *others)}
    proving = {path.absolute() for path in data}
    parts: dict[str, set[str]] = {}
    for text in given:
        name, _, folders = text.partition("=")
        named = {Path(folder).absolute() for folder in folders.split(",") if folder}
        if not name or name in parts or not named <= known.keys() or not named & proving:
            raise InvalidInput(
                f"--part {text}: expected NAME=FOLDER[,FOLDER...], each name once, with folders of --data or --fit-data"
            )
        parts[name] = {known[path] for path in named}
    return parts


def _refuse_fitting(context: typer.Context, kept: Policy, beta: float) -> None:
    """InvalidInput where nothing is to be fitted, and an option says how, or ``kept`` was not fitted."""
    if given := _list_given(context, (*_OF_FITTING, "fit_data")):
        raise InvalidInput(
            f"{given} with --fit-share 0: expected none, the score of --base is taken as it is"
        )
    take_over(kept, beta > 0)


def _check_labels(
    context: typer.Context, sources: Sequence[LabelledSource | AskedPictures], fit_share: float
) -> None:
    """InvalidInput where labels lack a class, or where answers are to do what only labels can."""
    labelled = [source for source in sources if isinstance(source, LabelledSource)]
    answered = [source for source in sources if isinstance(source, AskedPictures)]
    if labelled:
        items = [item for source in labelled for item in source.items.values()]
        check_objects(items, ", ".join(str(source.path) for source in labelled))
    if answered and fit_share:
        raise InvalidInput(
            f"{answered[0].file}: answers prove a score and fit none, which takes boxes of all objects: expected --fit-share 0 "
            "and --base, a policy whose score was fitted on other laptops"
        )
    given = context.get_parameter_source("match_iou")
    if answered and given and given.name == "COMMANDLINE":
        raise InvalidInput(
            f"--match-iou with {answered[0].file}: expected none, a person said which box takes a sticker"
        )


def _list_given(context: typer.Context, names: Sequence[str]) -> str:
    """Which of the options ``names`` are on the command line, as they are written there."""
    sources = {name: context.get_parameter_source(name) for name in names}
    given = [name for name, source in sources.items() if source and source.name == "COMMANDLINE"]
    return ", ".join(f"--{name.replace('_', '-')}" for name in given)


def _tell_of_workpieces(sources: Sequence[LabelledSource | AskedPictures], records: Sequence[Record]) -> None:
    for source in sources:
        if source.recorded and not source.workpieces:
            typer.echo(
                f"{source.path}: the recording does not say which laptop is in the cell (no Workpiece message). Every labelled "
                "image counts as a laptop of its own: the guarantees hold only if no two images show the same one",
                err=True,
            )
    laptops = len(np.unique(units_of(records)))
    if laptops < len(records):
        typer.echo(f"{len(records)} labelled images of {laptops} laptops, which count as {laptops}", err=True)


def _print(policy: Policy, out: Path) -> None:
    assert policy.guarantee is not None
    table = Table("", "promise", "confidence", "bad", "of laptops", "rate there, at most", "limit")
    for name, proof in (
        ("wrongful removal", policy.guarantee.wrongful_removal),
        ("sticker left", policy.guarantee.sticker_left),
    ):
        if proof is not None:
            table.add_row(
                name,
                f"<= {proof.level:g}",
                f"{proof.confidence:g}",
                str(proof.events),
                str(proof.images),
                f"{proof.bound:.4f}",
                f"{proof.limit:.4g}",
            )
    output().print(table)
    typer.echo(f"policy {policy.hash[:12]}: {out}")
