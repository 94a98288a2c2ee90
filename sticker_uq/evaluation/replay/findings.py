# SPDX-License-Identifier: Apache-2.0
"""What a replay finds beside its tables: counts, what kept objects from being released, pictures to show."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from sticker_uq.evaluation.annotated_images import annotate, saliency_overlay
from sticker_uq.evaluation.replay.tables import Row
from sticker_uq.evaluation.report_model import ReportEntry
from sticker_uq.io.files import atomic_write
from sticker_uq.io.images import encode_jpeg
from sticker_uq.io.sources import SourceImage
from sticker_uq.messages import MEASURES, text_of
from sticker_uq.perception.settings import MODEL_STAGES
from sticker_uq.scene import Outcome, Reason, SceneAssessment, SceneDecision, Verdict

COURSES = ("dil", "shannon_entropy", "mutual_information", "objects")
_MOST_FAILURES = 50


class Tally:
    """Counts and numbers of the images so far.

    ``objections``: objects that each monitor of the panel kept from being removed, which the caller counts; ``courses``: the
    values of each of :data:`COURSES`, image by image; ``failures``: name and reason of the first unusable images.
    """

    def __init__(self) -> None:
        self.images = self.failed = self.objects = self.unstable = self.removable = 0
        self.outcomes: Counter[str] = Counter()
        self.objections: Counter[str] = Counter()
        self.failures: list[tuple[str, str]] = []
        self.courses = {name: array("d") for name in COURSES}
        self._timings: dict[str, array[float]] = {}
        self._busy_ms = 0.0
        self._first_at = 0.0

    def add(self, row: Row) -> None:
        timings = row["timings_ms"]
        if not self.images:
            self._first_at = perf_counter()
        else:
            self._busy_ms += sum(timings.get(stage, 0.0) for stage in MODEL_STAGES)
        self.images += 1
        self.objects += row["objects"]
        self.unstable += row["unstable"]
        self.removable += row["removable"]
        self.outcomes[row["outcome"]] += 1
        if row["status"] == "FAILED":
            self.failed += 1
            if len(self.failures) < _MOST_FAILURES:
                self.failures.append((row["image"], row["status_text"]))
        for name, values in self.courses.items():
            values.append(row[name])
        for stage, ms in timings.items():
            self._timings.setdefault(stage, array("d")).append(ms)

    def medians(self) -> dict[str, float]:
        return {stage: float(np.median(values)) for stage, values in self._timings.items()}

    def model_busy(self, end: float, processes: int) -> float:
        """Share of the time from the first image until ``end`` (of ``perf_counter``) in which the model computed.

        The mean over ``processes``; NaN for one image.
        """
        seconds = (end - self._first_at) * processes
        return min(self._busy_ms * 1e-3 / seconds, 1.0) if self.images > 1 and seconds > 0 else float("nan")


_PERCENTILES = {"value_p10": 10, "value_median": 50, "value_p90": 90}
LIMIT_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("about", "reason", "subject", "name")),
        ("limit", pa.float64()),
        *((name, pa.int64()) for name in ("blocked", "alone")),
        *((name, pa.float64()) for name in _PERCENTILES),
    ]
)
"""One row per reason why an "object" or a "scene" was not released: code and subject of the reason; ``name`` in words; the limit
of the policy; how many it ``blocked``, and how many of these nothing else did; 10th percentile, median and 90th percentile of
what was measured on them, in the unit of the limit, NaN where the reason has no value.
"""


_DETECTOR = (
    "the detector is not sure enough: train it on more pictures like these, longer, or take a larger model; a limit that is only "
    "set looser releases what is wrong, too"
)
_CALIBRATED = (
    "this limit comes with the calibration: calibrate a policy, if this one has no guarantee; more laptops to calibrate on make "
    "it looser, a higher --alpha accepts more mistakes, and a better detector stays below it more often"
)
_NOVELTY = (
    "the novelty network does not know this: train it on pictures like these (`sticker-uq dil learn`); if they are no "
    "laptops of this cell, the limit is right"
)
_OTHER_POLICY = (
    "calibrate a policy for these pictures and settings, or judge them with one that is for any (`config/limits.yaml`); "
    "`--camera` names the camera that took pictures or videos"
)
_MISSED = "label what was missed; where nothing was, let detector and novelty network learn from such lids"
ADVICE = {
    "no_novelty_network": "train a novelty network (`sticker-uq dil learn`), from more pictures if it is too weak",
    "unfamiliar_scene": "unlike the scenes of the calibration: restore light and camera, or calibrate with such scenes, too",
    "missed_place": _MISSED,
    "novel_place": _NOVELTY,
    "monitor_objects": "a monitor of the panel objects: see its score, and fit the panel to these weights and pictures",
    "perception_failed": "the images could not be read: their rows say why",
    **dict.fromkeys(("risk", "left_probability", "dil", "background_saliency", "saliency"), _CALIBRATED),
    **dict.fromkeys(("novelty", "scene_distance", "object_novelty"), _NOVELTY),
    "missed_sticker_probability": _MISSED,
    "obstruction": "a hand or a gripper is in front of the laptop: the cell waits until the view is free; take such images out",
    "unexplained_objectness": _MISSED,
}
"""What to do about a reason, by its code or its subject; about all others, what the detector is unsure of: ``_DETECTOR``."""


@dataclass
class _Reason:
    name: str
    limit: float
    blocked: int = 0
    alone: int = 0
    values: array[float] = field(default_factory=lambda: array("d"))


class BlockedBy:
    """Counts why objects are asked about and why scenes are not released."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], _Reason] = {}

    def add(self, decision: SceneDecision) -> None:
        for about, reasons in _blocking_reasons(decision):
            # several places of one scene may be above the same limit: the first one is the highest
            distinct: dict[tuple[str, str, str], Reason] = {}
            for reason in reasons:
                distinct.setdefault((about, reason.code, reason.subject), reason)
            for key, reason in distinct.items():
                found = self._found.setdefault(key, _Reason(_name(reason), reason.limit))
                found.blocked += 1
                found.alone += len(distinct) == 1
                found.values.append(reason.value)

    def rows(self) -> list[Row]:
        ordered = sorted(self._found.items(), key=lambda item: (item[0][0], -item[1].blocked, item[0]))
        return [
            {
                "about": about,
                "reason": code,
                "subject": subject,
                "name": found.name,
                "limit": found.limit,
                "blocked": found.blocked,
                "alone": found.alone,
                **dict(zip(_PERCENTILES, _percentiles(found.values), strict=True)),
            }
            for (about, code, subject), found in ordered
        ]


def remedy(row: Row) -> str:
    """What to do about the reason of a ``row`` of the table of limits."""
    if row["reason"].startswith("policy_"):
        return _OTHER_POLICY
    return ADVICE.get(row["reason"]) or ADVICE.get(row["subject"], _DETECTOR)


def _blocking_reasons(decision: SceneDecision) -> Iterator[tuple[str, Sequence[Reason]]]:
    for verdict in decision.verdicts:
        if verdict.verdict is Verdict.ASK:
            # of an object seen in few passes the other reasons say what it may be
            rare = verdict.reasons[0].code == "few_passes"
            yield "object", verdict.reasons[:1] if rare else verdict.reasons
    if decision.outcome in (Outcome.ASK, Outcome.BLOCKED):
        # a restriction of perception is told with whatever holds the scene back, and does not hold it back itself
        yield "scene", [r for r in decision.reasons if r.code != "perception_restricted"]


def _name(reason: Reason) -> str:
    if reason.code in ("above_limit", "below_limit") and reason.subject in MEASURES:
        return MEASURES[reason.subject]
    name = text_of(Reason(reason.code, reason.subject)).split(":")[0].split(" at x {")[0]
    return text_of(reason).split(": ")[0] if "{" in name else name


def _percentiles(values: Sequence[float]) -> Sequence[float]:
    known = np.asarray(values)[~np.isnan(values)]
    return np.percentile(known, list(_PERCENTILES.values())).tolist() if len(known) else [float("nan")] * 3


T = TypeVar("T")

SHOWN = 24
"""Most images that a report shows."""
_AHEAD = 4  # pictures that may wait to be drawn


class Spread(Generic[T]):
    """At most `most` things of a sequence of unknown length, evenly spread over it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._step = 1
        self._count = 0
        self._kept: list[tuple[int, T]] = []

    def place(self) -> int | None:
        self._count += 1
        wanted = self._most > 0 and (self._count - 1) % self._step == 0
        return self._count - 1 if wanted else None

    def add(self, place: int, thing: T) -> None:
        if place % self._step:
            return
        self._kept.append((place, thing))
        while len(self._kept) > self._most:
            self._step *= 2
            self._kept = [(index, thing) for index, thing in self._kept if index % self._step == 0]

    def kept_items(self) -> list[T]:
        return [thing for _, thing in self._kept]


class Gallery:
    """Draws pictures into `folder`, at most `most` (None: all), and collects what the report shows.

    The report shows images about which something else was decided than about the one before; where the images do not follow each
    other in time (`continuous` False), any of them. Drawing runs beside the caller in a thread of its own. A context manager.
    """

    def __init__(self, folder: Path, most: int | None, continuous: bool) -> None:
        self._folder = folder
        self._continuous = continuous
        self._spread: Spread[tuple[str, bytes]] | None = None if most is None else Spread(most)
        self._shown: Spread[ReportEntry] = Spread(SHOWN)
        self._written: list[str] = []
        self._last: object = None
        self._artist = ThreadPoolExecutor(1, "artist")
        self._drawing: deque[Future[None]] = deque()
        if most != 0:
            folder.mkdir()

    def __enter__(self) -> Gallery:
        return self

    def __exit__(self, *_: object) -> None:
        self._artist.shutdown(cancel_futures=True)

    def add(self, item: SourceImage, assessment: SceneAssessment, decision: SceneDecision) -> None:
        """Take up the next image. Raises OSError when the disk refused its picture or that of an image shortly before."""
        kept = 0 if self._spread is None else self._spread.place()
        shown = self._shown.place() if self._differs(assessment, decision) else None
        if kept is None and shown is None:
            return
        self._drawing.append(self._artist.submit(self._draw, item, assessment, decision, kept, shown))
        while len(self._drawing) > _AHEAD:
            self._drawing.popleft().result()

    def finish(self) -> list[str]:
        while self._drawing:
            self._drawing.popleft().result()
        for name, jpeg in self._spread.kept_items() if self._spread is not None else []:
            self._write(name, jpeg)
        return self._written

    def entries(self) -> list[ReportEntry]:
        return self._shown.kept_items()

    def _draw(
        self,
        item: SourceImage,
        assessment: SceneAssessment,
        decision: SceneDecision,
        kept: int | None,
        shown: int | None,
    ) -> None:
        picture = None if item.image is None else annotate(item.image, assessment, decision)
        if kept is not None and picture is not None:
            if self._spread is None:
                self._write(item.name, encode_jpeg(picture))
            else:
                self._spread.add(kept, (item.name, encode_jpeg(picture)))
        if shown is not None:
            attention, seen = None, assessment.localization
            if item.image is not None and seen is not None and seen.saliency is not None:
                attention = saliency_overlay(item.image, assessment)
            entry = ReportEntry(f"Image {item.name}", assessment, decision, picture, attention=attention)
            self._shown.add(shown, entry)

    def _differs(self, assessment: SceneAssessment, decision: SceneDecision) -> bool:
        verdicts = sorted((verdict.object.label, verdict.verdict) for verdict in decision.verdicts)
        said = (assessment.status, decision.outcome, verdicts)
        differs = not self._continuous or said != self._last
        self._last = said
        return differs

    def _write(self, name: str, jpeg: bytes) -> None:
        file = name if name.lower().endswith((".jpg", ".jpeg")) else f"{name}.jpg"
        with atomic_write(self._folder / file) as stream:
            stream.write(jpeg)
        self._written.append(file)
