"""The same perception and the same policy as in the cell, on recorded images, as fast as the machine allows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Protocol

from sticker_uq.datasets.files import atomic_write
from sticker_uq.datasets.images import Picture
from sticker_uq.datasets.sources import ImageSource, SourceImage
from sticker_uq.evaluation import tables
from sticker_uq.evaluation.gallery import Gallery
from sticker_uq.evaluation.replay_report import replay_report
from sticker_uq.evaluation.report import write_report
from sticker_uq.scene import InvalidInput, SceneAssessment, Status
from sticker_uq.supervision import Policy, judge


class Assessor(Protocol):
    """What a replay needs of :class:`sticker_uq.perception.Perception`."""

    def assess(self, image: Picture, stamp_ns: int = 0, frame_id: str = "") -> SceneAssessment:
        """Everything there is to say about `image`."""

    def failed_assessment(self, stamp_ns: int, frame_id: str, reason: str) -> SceneAssessment:
        """A scene with status FAILED, for an image that could not be assessed."""


@dataclass(frozen=True)
class ReplaySummary:
    """What a replay did, as ``summary.json`` holds it.

    ``outcomes``: images per outcome; ``seconds``: wall time of assessing and drawing; ``timings_ms``: medians per stage;
    ``files``: what lies in the folder; ``environment``: versions and settings.
    """

    source: str
    topic: str
    images: int
    failed: int
    objects: int
    unstable: int
    removable: int
    outcomes: Mapping[str, int]
    seconds: float
    timings_ms: Mapping[str, float]
    model: str
    model_hash: str
    settings_hash: str
    policy_hash: str
    files: tuple[str, ...]
    environment: Mapping[str, str]


def replay(
    source: ImageSource,
    source_name: str,
    perception: Assessor,
    policy: Policy,
    out: Path,
    *,
    table_format: tables.TableFormat = "parquet",
    pictures: int | None = None,
    environment: Mapping[str, str] | None = None,
    on_image: Callable[[SceneAssessment], None] = lambda _: None,
) -> ReplaySummary:
    """Assess and judge every image of `source`, nobody having said anything, and write the results into the folder `out`.

    Tables ``images`` and ``objects``, ``pictures/`` (at most `pictures` of them, evenly spread; None: all),
    ``report.html`` and ``summary.json``, each written completely or not at all. An image that cannot be read becomes a row
    with status FAILED. `on_image` is called after every image. Raises InvalidInput when `out` holds files already or the
    source has no images, OSError when the disk refuses.
    """
    _make_folder(out)
    image_rows: list[tables.Row] = []
    object_rows: list[tables.Row] = []
    outcomes: Counter[str] = Counter()
    last = None
    start = perf_counter()
    with Gallery(out / "pictures", pictures, source.continuous) as gallery:
        for item in _read_ahead(source):
            last = _assess(item, perception)
            decision = judge(last, policy)
            outcomes[decision.outcome.name] += 1
            image_rows.append(tables.image_row(item.name, last, decision))
            object_rows += tables.object_rows(item.name, last, decision)
            gallery.add(item, last, decision)
            on_image(last)
        drawn = gallery.finish()
    seconds = perf_counter() - start
    if last is None:
        raise InvalidInput(f"{source_name}: no images in it")
    tables.write_table(image_rows, tables.IMAGE_SCHEMA, out / f"images.{table_format}")
    tables.write_table(object_rows, tables.OBJECT_SCHEMA, out / f"objects.{table_format}")
    summary = ReplaySummary(
        source=source_name,
        topic=source.topic,
        images=len(image_rows),
        failed=sum(row["status"] == Status.FAILED.name for row in image_rows),
        objects=sum(row["objects"] for row in image_rows),
        unstable=sum(row["unstable"] for row in image_rows),
        removable=sum(row["removable"] for row in image_rows),
        outcomes=dict(sorted(outcomes.items())),
        seconds=seconds,
        timings_ms=_medians(image_rows),
        model=last.model,
        model_hash=last.model_hash,
        settings_hash=last.settings_hash,
        policy_hash=policy.hash,
        files=(
            f"images.{table_format}",
            f"objects.{table_format}",
            *(f"pictures/{name}" for name in drawn),
            "report.html",
            "summary.json",
        ),
        environment=dict(environment or {}),
    )
    write_report(replay_report(summary, image_rows, gallery.entries(), policy), out / "report.html")
    with atomic_write(out / "summary.json", "w") as stream:
        json.dump(asdict(summary), stream, indent=2)
    return summary


def _make_folder(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidInput(f"--out {out}: not an empty folder; name another one or remove it")
    out.mkdir(parents=True, exist_ok=True)


def _read_ahead(source: ImageSource) -> Iterator[SourceImage]:
    """The images of `source`, the next one being read and decoded while the present one is in use."""
    images = iter(source)
    with ThreadPoolExecutor(1, "reader") as reader:
        coming = reader.submit(next, images, None)
        while (item := coming.result()) is not None:
            coming = reader.submit(next, images, None)
            yield item


def _assess(item: SourceImage, perception: Assessor) -> SceneAssessment:
    if item.image is None:
        return perception.failed_assessment(item.stamp_ns, item.frame_id, item.error)
    try:
        return perception.assess(item.image, item.stamp_ns, item.frame_id)
    except InvalidInput as error:
        return perception.failed_assessment(item.stamp_ns, item.frame_id, str(error))


def _medians(rows: list[tables.Row]) -> dict[str, float]:
    times: dict[str, list[float]] = {}
    for row in rows:
        for stage, ms in row["timings_ms"].items():
            times.setdefault(stage, []).append(ms)
    return {stage: median(values) for stage, values in times.items()}
