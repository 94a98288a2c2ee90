"""``sticker-uq calibrate``: a policy with a statistical guarantee from labelled images."""

from __future__ import annotations

import datetime as dt
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer
import yaml
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from sticker_uq.calibration.calibration_report import calibration_report
from sticker_uq.calibration.fitting import FAMILIAR, Levels, certify, fit_policy
from sticker_uq.calibration.planning import Prospect, count_units
from sticker_uq.calibration.probability import choose_kind
from sticker_uq.calibration.records import Assessed, Record, assess, numbered, units_of
from sticker_uq.cell.detector_settings import NODE_ONLY
from sticker_uq.cli.options import output_file, settings_options
from sticker_uq.cli.terminal import output
from sticker_uq.evaluation.replay.assessing import one_by_one, process_count, side_by_side
from sticker_uq.gate import Policy
from sticker_uq.gate.policy.policy_schema import DataSet, PanelRule, Provenance, Validity
from sticker_uq.gate.policy.signals import SaliencyName
from sticker_uq.io.files import atomic_write
from sticker_uq.io.json_store import JsonStore
from sticker_uq.io.labelled_images import LabelledSource
from sticker_uq.io.share import share_folder
from sticker_uq.io.sources import ImageSource, SourceImage
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.factory import load_perception
from sticker_uq.scene import IntArray, InvalidInput, ObjectClass, SceneAssessment

_HEADER = "# Made by `sticker-uq calibrate`, see `provenance`. Changing a number invalidates `guarantee`.\n"
_PACKAGES = ("torch", "torchvision", "numpy", "scipy", "mapie", "hdbscan")
_CACHE = Path.home() / ".cache" / "sticker_uq" / "assessments.sqlite"
_ROLES: tuple[Literal["fit", "certificate"], ...] = ("fit", "certificate")


@settings_options("settings", PerceptionSettings, "detector", also_known=NODE_ONLY)
def command(
    settings: PerceptionSettings,
    data: Annotated[
        list[Path],
        typer.Option(
            help="COCO folder, or rosbag2 folder with an annotations.json beside its metadata.yaml; may be repeated."
        ),
    ],
    out: Annotated[Path, output_file("Policy file to write.")] = Path("policy.yaml"),
    report: Annotated[Path | None, output_file("Report to write: FILE.html or FILE.md.")] = None,
    alpha: Annotated[
        float, typer.Option(help="Highest rate of images in which anything but a sticker is removed.")
    ] = 0.01,
    beta: Annotated[
        float, typer.Option(help="Highest rate of missed stickers among the images called clean.")
    ] = 0.05,
    delta: Annotated[float, typer.Option(help="1 - delta is the confidence of each guarantee.")] = 0.1,
    fit_share: Annotated[
        float, typer.Option(help="Share of the images to fit on; the others test the guarantees.")
    ] = 0.4,
    split_seed: Annotated[int, typer.Option(min=0, help="Seed of that split.")] = 0,
    base: Annotated[
        Path | None, typer.Option(help="Policy whose other limits are kept; default: the packaged one.")
    ] = None,
    calibration: Annotated[
        Literal["isotonic", "temperature", "none"],
        typer.Option(
            help="Calibration of the class probabilities; one that makes them worse on other images is not used."
        ),
    ] = "isotonic",
    saliency: Annotated[
        SaliencyName,
        typer.Option(help="Signal of a scene whose percentile on clean laptops is a limit."),
    ] = "background_saliency",
    percentile: Annotated[
        float, typer.Option(min=0, max=100, help="Share of the clean laptops that stay below it, %.")
    ] = 95.0,
    familiar: Annotated[
        float,
        typer.Option(
            min=50,
            max=100,
            help="Share of the laptops that count as familiar, %; others are not judged; 100: no limit.",
        ),
    ] = FAMILIAR,
    match_iou: Annotated[
        float,
        typer.Option(
            min=0.01,
            max=0.99,
            help="Lowest overlap (IoU) with a labelled object at which the blade touches it.",
        ),
    ] = 0.3,
    panel_combination: Annotated[
        Literal["any", "risk"],
        typer.Option(
            help="With --panel: ask an operator on any objection, or use the scores as signals of the risk score."
        ),
    ] = "risk",
    camera: Annotated[str, typer.Option(help="Frame of the camera that the policy is for; empty: any.")] = "",
    valid_days: Annotated[
        int, typer.Option(min=0, help="Days until the policy expires; 0: it does not.")
    ] = 0,
    topic: Annotated[str | None, typer.Option(help="Image topic of the recordings.")] = None,
    cache: Annotated[Path, typer.Option(help="File that caches assessments between runs.")] = _CACHE,
) -> None:
    """Choose the limits of a policy on labelled images, with statistical guarantees.

    The images are split: some to fit the calibration and the risk score on, the others to choose limits by Learn-then-Test.
    Fails without writing anything when there are too few images for the guarantees.
    """
    levels = Levels(alpha, beta, delta)
    if not 0.0 < fit_share < 1.0:
        raise InvalidInput(f"--fit-share {fit_share:g}: expected a number between 0 and 1")
    if report is not None and report.suffix not in (".html", ".md"):
        raise InvalidInput(f"--report {report}: expected FILE.html or FILE.md")
    kept = Policy.load(base or share_folder() / "config" / "policy.yaml")
    if settings.panel:
        kept = kept.model_copy(
            update={
                "panel": (kept.panel or PanelRule()).model_copy(update={"combination": panel_combination})
            }
        )
    sources = [LabelledSource(path, topic) for path in data]
    _check_levels(sources, levels, fit_share, split_seed)
    assessed = _assess(sources, settings, cache)
    everything = [record for part in assessed for record in part.records]
    _refuse_repeated(assessed)
    _tell_of_workpieces(sources, everything)
    fit, proof = _split(units_of(everything), fit_share, split_seed)
    fit_records, proof_records = [everything[i] for i in fit], [everything[i] for i in proof]
    chosen = choose_kind(fit_records, calibration, match_iou)
    if chosen.kind != calibration:
        typer.echo(chosen.text(), err=True)
    draft = fit_policy(fit_records, kept, chosen.kind, saliency, percentile, match_iou, familiar, level=alpha)
    policy = certify(draft, fit_records, proof_records, levels, match_iou)
    first = everything[0].assessment
    policy = policy.model_copy(
        update={
            "validity": Validity(
                model=first.model,
                model_hash=first.model_hash,
                settings_hash=first.settings_hash,
                device=first.device_kind,
                precision=first.precision,
                panel_hash=first.panel_hash or None,
                camera=camera,
                until=_today() + dt.timedelta(days=valid_days) if valid_days else None,
            ),
            "provenance": Provenance(
                command=shlex.join(["sticker-uq", *sys.argv[1:]]),
                created=_today(),
                data=tuple(_data_sets(assessed, set(fit))),
                versions={name: metadata.version(name) for name in ("sticker_uq", *_PACKAGES) if _has(name)},
            ),
        }
    )
    if report is not None:
        text = calibration_report(
            policy, draft, fit_records, proof_records, levels, html=report.suffix == ".html"
        )
        with atomic_write(report, "w") as stream:
            stream.write(text)
    with atomic_write(out, "w") as stream:
        stream.write(_HEADER + policy_text(policy))
    _print(policy, out)


def _check_levels(sources: Sequence[LabelledSource], levels: Levels, share: float, seed: int) -> None:
    """Print what the labels allow to prove; raise InvalidInput when that is not what is asked for."""
    images = [(source, item) for source in sources for item in source.items.values()]
    laptops = numbered(
        [source.workpiece_of(item, 0) if not source.workpieces else "" for source, item in images]
    )
    stickers = np.array([(item.labels == ObjectClass.STICKER).any() for _, item in images])
    _, proof = _split(laptops, share, seed)
    units = count_units(laptops[proof], stickers[proof])
    at_most = any(source.workpieces for source in sources)
    if at_most:  # only the images tell which laptop they show: there may be fewer, and split in another way
        units = replace(units, clean=min(units.laptops, int((~stickers).sum())))
    prospect = Prospect(units, levels.delta)
    typer.echo(
        f"{len(images)} labelled images; in the proof {'at most ' if at_most else ''}{units.laptops} laptops, {units.clean} "
        f"of them without a sticker: {prospect.text()}",
        err=True,
    )
    prospect.check(levels.alpha, levels.beta)
    if stickers.all():
        raise InvalidInput(
            "no labelled image shows a laptop without stickers: the cut-off for clean laptops needs some"
        )


def policy_text(policy: Policy) -> str:
    """``policy`` as YAML, which :meth:`Policy.load` reads back to the same policy."""
    values = policy.model_dump(mode="json", exclude_none=True)
    return yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=120, allow_unicode=True)


def _assess(sources: Sequence[LabelledSource], settings: PerceptionSettings, cache: Path) -> list[Assessed]:
    perception = load_perception(settings)
    total = sum(map(len, sources))
    processes = process_count(settings, total)

    def run(images: ImageSource) -> Iterator[tuple[SourceImage, SceneAssessment]]:
        if processes == 1:
            return one_by_one(images, perception)
        return side_by_side(images, partial(load_perception, settings), processes)

    identity = f"{perception.model_hash}:{perception.settings_hash}:{perception.panel_hash}"
    columns = (TextColumn("assessing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with JsonStore(cache) as known, Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total)
        return [assess(source, run, known, identity, lambda: bar.advance(task)) for source in sources]


def _refuse_repeated(assessed: Sequence[Assessed]) -> None:
    """Raise InvalidInput for a duplicate image, which could be on both sides of the split."""
    seen: dict[str, str] = {}
    for part in assessed:
        for record in part.records:
            name = f"{record.name} of {part.source}"
            first = seen.setdefault(record.assessment.image_digest, name)
            if first != name:
                raise InvalidInput(f"image {name} has the same pixels as {first}: expected every image once")


def _tell_of_workpieces(sources: Sequence[LabelledSource], records: Sequence[Record]) -> None:
    """Print how images are grouped into laptops, where several images may show one."""
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


def _split(units: IntArray, share: float, seed: int) -> tuple[list[int], list[int]]:
    """Indices of the images to fit on and of those to test on, ascending; images of one unit (N,) stay together."""
    laptops = len(np.unique(units))
    order = np.random.default_rng(seed).permutation(laptops)
    fit = round(laptops * share)
    if not 0 < fit < laptops:
        raise InvalidInput(f"{laptops} laptops: expected enough to split them into two parts")
    chosen = np.isin(units, order[:fit])
    return np.flatnonzero(chosen).tolist(), np.flatnonzero(~chosen).tolist()


def _data_sets(assessed: Sequence[Assessed], fit: set[int]) -> list[DataSet]:
    made: list[DataSet] = []
    start = 0
    for part in assessed:
        numbers = range(start, start + len(part.records))
        start += len(part.records)
        for role in _ROLES:
            chosen = [n for n in numbers if (n in fit) == (role == "fit")]
            if chosen:
                made.append(
                    DataSet(role=role, source=part.source, images=len(chosen), fingerprint=part.fingerprint)
                )
    return made


def _today() -> dt.date:
    return dt.datetime.now(dt.UTC).date()


def _has(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def _print(policy: Policy, out: Path) -> None:
    assert policy.guarantee is not None
    table = Table("", "promise", "confidence", "bad", "of images", "rate there, at most", "limit")
    for name, proof in (
        ("wrongful removal", policy.guarantee.wrongful_removal),
        ("missed sticker", policy.guarantee.missed_sticker),
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
