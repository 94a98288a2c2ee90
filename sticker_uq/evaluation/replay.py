"""The same perception and the same policy as in the cell, on recorded images, as fast as the machine allows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from time import perf_counter

from sticker_uq.datasets.files import atomic_write
from sticker_uq.datasets.sources import ImageSource
from sticker_uq.evaluation import tables
from sticker_uq.evaluation.assessing import Assessed
from sticker_uq.evaluation.gallery import Gallery
from sticker_uq.evaluation.replay_report import replay_report
from sticker_uq.evaluation.report import write_report
from sticker_uq.scene import InvalidInput, SceneAssessment, Status
from sticker_uq.supervision import Policy, judge


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
    assessed: Assessed,
    policy: Policy,
    out: Path,
    *,
    table_format: tables.TableFormat = "parquet",
    pictures: int | None = None,
    environment: Mapping[str, str] | None = None,
    on_image: Callable[[SceneAssessment], None] = lambda _: None,
) -> ReplaySummary:
    """Judge every image of `source`, nobody having said anything, and write the results into the folder `out`.

    `assessed`: the images of `source` with their assessments, see :mod:`sticker_uq.evaluation.assessing`. Writes tables
    ``images`` and ``objects``, ``pictures/`` (at most `pictures` of them, evenly spread; None: all), ``report.html`` and
    ``summary.json``, each completely or not at all. An image that cannot be read becomes a row with status FAILED.
    `on_image` is called after every image. Raises InvalidInput when `out` holds files already or the source has no images,
    OSError when the disk refuses.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidInput(f"--out {out}: not an empty folder; name another one or remove it")
    image_rows: list[tables.Row] = []
    object_rows: list[tables.Row] = []
    outcomes: Counter[str] = Counter()
    start = perf_counter()
    first = next(assessed, None)
    if first is None:
        raise InvalidInput(f"{source_name}: no images in it")
    out.mkdir(parents=True, exist_ok=True)
    with Gallery(out / "pictures", pictures, source.continuous) as gallery:
        for item, assessment in chain([first], assessed):
            decision = judge(assessment, policy)
            outcomes[decision.outcome.name] += 1
            image_rows.append(tables.image_row(item.name, assessment, decision))
            object_rows += tables.object_rows(item.name, assessment, decision)
            gallery.add(item, assessment, decision)
            on_image(assessment)
        drawn = gallery.finish()
    seconds = perf_counter() - start
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
        model=first[1].model,
        model_hash=first[1].model_hash,
        settings_hash=first[1].settings_hash,
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


def _medians(rows: list[tables.Row]) -> dict[str, float]:
    times: dict[str, list[float]] = {}
    for row in rows:
        for stage, ms in row["timings_ms"].items():
            times.setdefault(stage, []).append(ms)
    return {stage: median(values) for stage, values in times.items()}
