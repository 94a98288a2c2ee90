# SPDX-License-Identifier: Apache-2.0
"""Replay of recorded images by the same perception and policy as in the cell, as fast as the machine allows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from time import perf_counter

from sticker_uq.evaluation.metrics.decisions import DecisionCounts, Measured
from sticker_uq.evaluation.replay import tables
from sticker_uq.evaluation.replay.assessing import Assessed
from sticker_uq.evaluation.replay.comparison import CANDIDATE_SCHEMA, Differences
from sticker_uq.evaluation.replay.findings import LIMIT_SCHEMA, BlockedBy, Gallery, Tally
from sticker_uq.evaluation.replay.tables import Row
from sticker_uq.evaluation.reporting.report_model import ReportEntry
from sticker_uq.gate import Policy, judge
from sticker_uq.gate.judge import once_peeled
from sticker_uq.io.coco import LabelledImage
from sticker_uq.io.sources import ImageSource, SourceImage
from sticker_uq.scene import InvalidInput, SceneAssessment, SceneDecision

_MADE_BY = ("model", "model_hash", "settings_hash", "panel_hash", "device", "precision")


@dataclass(frozen=True)
class ReplaySummary:
    """What ``summary.json`` holds.

    ``outcomes``: images per outcome; ``seconds``: wall time of assessing and drawing; ``processes``: in which the model
    computed side by side; ``model_busy``: share of their time since the first image in which it did, NaN for one image;
    ``objections``: objects that each monitor of the panel kept from being removed; ``timings_ms``: medians per stage;
    ``files``: what lies in the folder; ``environment``: versions and settings; ``labelled``: what was decided, counted against
    the labels, None without any; ``declared``: images that the source says it has, None where it does not say; ``lost``: what of
    them could not be read, ``remarks``: what is unusual in the source and loses nothing.
    """

    source: str
    topic: str
    images: int
    failed: int
    objects: int
    unstable: int
    removable: int
    outcomes: Mapping[str, int]
    objections: Mapping[str, int]
    seconds: float
    processes: int
    model_busy: float
    timings_ms: Mapping[str, float]
    model: str
    model_hash: str
    settings_hash: str
    panel_hash: str
    device: str
    precision: str
    policy_hash: str
    files: tuple[str, ...]
    environment: Mapping[str, str]
    labelled: Measured | None = None
    declared: int | None = None
    lost: str = ""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReplayResult:
    """``entries``: images that a report shows; ``limits``: rows of that table; ``differences``: None without a candidate."""

    summary: ReplaySummary
    tally: Tally
    entries: Sequence[ReportEntry]
    limits: Sequence[Row]
    differences: Differences | None


def replay(
    source: ImageSource,
    source_name: str,
    assessed: Assessed,
    policy: Policy,
    out: Path,
    *,
    table_format: tables.TableFormat = "parquet",
    pictures: int | None = None,
    cell: str = "",
    laptop_at: Callable[[int], str] = lambda stamp_ns: "",
    processes: int = 1,
    environment: Mapping[str, str] | None = None,
    labels: Mapping[str, LabelledImage] | None = None,
    on_image: Callable[[SourceImage, SceneAssessment, SceneDecision], None] = lambda *_: None,
    differences: Callable[[], Differences | None] = lambda: None,
) -> ReplayResult:
    """Replay every image of `source` without an operator's answer; write tables and pictures into the folder `out`.

    `assessed`: the images of `source` with their assessments, made in that many `processes`, see
    :mod:`sticker_uq.evaluation.replay.assessing`; what is written is written beside them. Writes tables ``images``, ``objects``
    and ``limits`` (which limit blocked how often) and ``pictures/`` (at most `pictures` of them, evenly spread; None: all), each
    completely or not at all. An image that cannot be read becomes a row with status FAILED. `cell` and `laptop_at`, of a stamp in
    ns, are columns of the table of images. `labels`: by the names of the images without their suffixes; the decisions are then
    counted against them. `on_image` is called after every image;
    `differences` after the last one, for the comparison that report and the table ``candidate`` tell. Raises InvalidInput when
    `out` holds files already, the source has no images or one has another size than its labels, OSError when the disk refuses.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidInput(f"--out {out}: not an empty folder; name another one or remove it")
    start = perf_counter()
    first = next(assessed, None)
    if first is None:
        raise InvalidInput(f"{source_name}: no images in it")
    tally, blocked, unseen = Tally(), BlockedBy(), set(labels or ())
    counts = DecisionCounts()
    out.mkdir(parents=True, exist_ok=True)
    with (
        Gallery(out / "pictures", pictures, source.continuous) as gallery,
        tables.table_writer(tables.OBJECT_SCHEMA, out / f"objects.{table_format}") as write_objects,
        tables.table_writer(tables.IMAGE_SCHEMA, out / f"images.{table_format}") as write_images,
    ):
        for item, assessment in chain([first], assessed):
            decision = judge(assessment, policy)
            row = tables.image_row(item.name, assessment, decision)
            row |= {"cell": cell, "laptop": laptop_at(item.stamp_ns)}
            write_images([row])
            write_objects(tables.object_rows(item.name, assessment, decision))
            tally.add(row)
            tally.objections.update(name for v in decision.verdicts for name in v.objectors)
            blocked.add(decision)
            name = item.name.rsplit(".", 1)[0]
            unseen.discard(name)
            if labels is not None and (truth := labels.get(name)) is not None:
                (width, height), size = assessment.image_size, (truth.width, truth.height)
                if width and (width, height) != size:
                    raise InvalidInput(
                        f"image {item.name} is {width}x{height} px, its labels are for {size[0]}x{size[1]}"
                    )
                laptop = f"laptop {truth.workpiece_id}" if truth.workpiece_id else f"image {item.name}"
                ended = once_peeled(decision, assessment, policy)
                counts.add(laptop, truth.boxes, truth.labels, decision, ended)
            gallery.add(item, assessment, decision)
            on_image(item, assessment, decision)
        drawn = gallery.finish()
    end = perf_counter()
    limit_rows = blocked.rows()
    extra = {"limits": (limit_rows, LIMIT_SCHEMA)}
    compared = differences()
    if compared is not None:
        extra["candidate"] = (compared.rows, CANDIDATE_SCHEMA)
    for name, (rows, schema) in extra.items():
        with tables.table_writer(schema, out / f"{name}.{table_format}") as write:
            write(rows)
    labelled = f"of {len(labels or ())} labelled images are not there"
    summary = ReplaySummary(
        source=source_name,
        topic=source.topic,
        **{name: getattr(tally, name) for name in ("images", "failed", "objects", "unstable", "removable")},
        outcomes=dict(sorted(tally.outcomes.items())),
        objections=dict(sorted(tally.objections.items())),
        seconds=end - start,
        processes=processes,
        model_busy=tally.model_busy(end, processes),
        timings_ms=tally.medians(),
        **{name: getattr(first[1], name) for name in _MADE_BY},
        policy_hash=policy.hash,
        files=(
            f"images.{table_format}",
            f"objects.{table_format}",
            *(f"{name}.{table_format}" for name in extra),
            *(f"pictures/{name}" for name in drawn),
        ),
        environment=dict(environment or {}),
        labelled=None if labels is None else counts.measured(),
        declared=source.declared,
        lost=source.lost,
        remarks=(
            *source.remarks,
            *(f"{len(unseen)} {labelled}, first {name}" for name in sorted(unseen)[:1]),
        ),
    )
    return ReplayResult(summary, tally, gallery.entries(), limit_rows, compared)
