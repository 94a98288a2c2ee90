# SPDX-License-Identifier: Apache-2.0
"""Replay of recorded images by the same perception and policy as in the cell, as fast as the machine allows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from time import perf_counter

import pyarrow as pa

from sticker_uq.evaluation.metrics.decisions import DecisionCounts, Measured
from sticker_uq.evaluation.replay import tables
from sticker_uq.evaluation.replay.assessing import Assessed
from sticker_uq.evaluation.replay.comparison import CANDIDATE_SCHEMA, Differences
from sticker_uq.evaluation.replay.findings import LIMIT_SCHEMA, BlockedBy, Gallery, Tally
from sticker_uq.evaluation.replay.tables import Row
from sticker_uq.evaluation.report_model import ReportEntry
from sticker_uq.gate import Policy, judge
from sticker_uq.gate.judge import once_peeled
from sticker_uq.io.coco import LabelledImage
from sticker_uq.io.sources import ImageSource, SourceImage
from sticker_uq.scene import InvalidInput, SceneAssessment, SceneDecision


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


@dataclass(kw_only=True)
class Replay:
    """Images of ``source`` judged by ``policy`` without an operator's answer; tables and pictures of them in the folder ``out``.

    ``pictures``: at most so many, evenly spread, None: all; ``cell`` and ``laptop_at``, of a stamp in ns: columns of the table
    of images; ``processes``: in which the images are assessed; ``labels``: by the names of the images without their suffixes,
    against which the decisions are counted.
    """

    source: ImageSource
    name: str
    policy: Policy
    out: Path
    table_format: tables.TableFormat = "parquet"
    pictures: int | None = None
    cell: str = ""
    laptop_at: Callable[[int], str] = lambda stamp_ns: ""
    processes: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, LabelledImage] | None = None

    def __post_init__(self) -> None:
        self._tally, self._blocked, self._counts = Tally(), BlockedBy(), DecisionCounts()
        self._unseen = set(self.labels or ())

    def run(
        self,
        assessed: Assessed,
        on_image: Callable[[SourceImage, SceneAssessment, SceneDecision], None] = lambda *_: None,
        differences: Callable[[], Differences | None] = lambda: None,
    ) -> ReplayResult:
        """Judge every image and write what came of it.

        ``assessed``: the images with their assessments, see :mod:`sticker_uq.evaluation.replay.assessing`; what is written is
        written beside them. Writes tables ``images``, ``objects`` and ``limits`` (which limit blocked how often) and
        ``pictures/``, each completely or not at all. An image that cannot be read becomes a row with status FAILED. ``on_image``
        is called after every image; ``differences`` after the last one, for the comparison that report and the table
        ``candidate`` tell. Raises InvalidInput when ``out`` holds files already, the source has no images or one has another size
        than its labels, OSError when the disk refuses.
        """
        if self.out.exists() and (not self.out.is_dir() or any(self.out.iterdir())):
            raise InvalidInput(f"--out {self.out}: not an empty folder; name another one or remove it")
        start = perf_counter()
        first = next(assessed, None)
        if first is None:
            raise InvalidInput(f"{self.name}: no images in it")
        self.out.mkdir(parents=True, exist_ok=True)
        with (
            Gallery(self.out / "pictures", self.pictures, self.source.continuous) as gallery,
            self._table("objects", tables.OBJECT_SCHEMA) as write_objects,
            self._table("images", tables.IMAGE_SCHEMA) as write_images,
        ):
            for item, assessment in chain([first], assessed):
                decision = judge(assessment, self.policy)
                write_images([self._count(item, assessment, decision)])
                write_objects(tables.object_rows(item.name, assessment, decision))
                self._compare_with_labels(item, assessment, decision)
                gallery.add(item, assessment, decision)
                on_image(item, assessment, decision)
            drawn = gallery.finish()
        end = perf_counter()
        limits = self._blocked.rows()
        extra = {"limits": (limits, LIMIT_SCHEMA)}
        compared = differences()
        if compared is not None:
            extra["candidate"] = (compared.rows, CANDIDATE_SCHEMA)
        for name, (rows, schema) in extra.items():
            with self._table(name, schema) as write:
                write(rows)
        files = (
            *(f"{name}.{self.table_format}" for name in ("images", "objects", *extra)),
            *(f"pictures/{name}" for name in drawn),
        )
        return ReplayResult(
            self._summary(first[1], start, end, files), self._tally, gallery.entries(), limits, compared
        )

    def _table(self, name: str, schema: pa.Schema) -> AbstractContextManager[Callable[[Iterable[Row]], None]]:
        return tables.table_writer(schema, self.out / f"{name}.{self.table_format}")

    def _count(self, item: SourceImage, assessment: SceneAssessment, decision: SceneDecision) -> Row:
        """The row of an image, once counted."""
        row = tables.image_row(item.name, assessment, decision)
        row |= {"cell": self.cell, "laptop": self.laptop_at(item.stamp_ns)}
        self._tally.add(row)
        self._tally.objections.update(name for v in decision.verdicts for name in v.objectors)
        self._blocked.add(decision)
        return row

    def _compare_with_labels(
        self, item: SourceImage, assessment: SceneAssessment, decision: SceneDecision
    ) -> None:
        name = item.name.rsplit(".", 1)[0]
        self._unseen.discard(name)
        truth = None if self.labels is None else self.labels.get(name)
        if truth is None:
            return
        (width, height), size = assessment.image_size, (truth.width, truth.height)
        if width and (width, height) != size:
            raise InvalidInput(
                f"image {item.name} is {width}x{height} px, its labels are for {size[0]}x{size[1]}"
            )
        laptop = f"laptop {truth.workpiece_id}" if truth.workpiece_id else f"image {item.name}"
        ended = once_peeled(decision, assessment, self.policy)
        self._counts.add(laptop, truth.boxes, truth.labels, decision, ended)

    def _summary(
        self, first: SceneAssessment, start: float, end: float, files: tuple[str, ...]
    ) -> ReplaySummary:
        tally, source = self._tally, self.source
        remarks = list(source.remarks)
        if self.labels and self._unseen:
            count = f"{len(self._unseen)} of {len(self.labels)} labelled images are not there"
            remarks.append(f"{count}, first {min(self._unseen)}")
        return ReplaySummary(
            source=self.name,
            topic=source.topic,
            images=tally.images,
            failed=tally.failed,
            objects=tally.objects,
            unstable=tally.unstable,
            removable=tally.removable,
            outcomes=dict(sorted(tally.outcomes.items())),
            objections=dict(sorted(tally.objections.items())),
            seconds=end - start,
            processes=self.processes,
            model_busy=tally.model_busy(end, self.processes),
            timings_ms=tally.medians(),
            model=first.model,
            model_hash=first.model_hash,
            settings_hash=first.settings_hash,
            panel_hash=first.panel_hash,
            device=first.device,
            precision=first.precision,
            policy_hash=self.policy.hash,
            files=files,
            environment=dict(self.environment),
            labelled=None if self.labels is None else self._counts.measure(),
            declared=source.declared,
            lost=source.lost,
            remarks=tuple(remarks),
        )
