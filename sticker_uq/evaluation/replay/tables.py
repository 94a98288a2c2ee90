# SPDX-License-Identifier: Apache-2.0
"""Assessments and decisions of a replay as two tables: one row per image, one row per object."""

from __future__ import annotations

import csv
import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from sticker_uq.io.files import atomic_write
from sticker_uq.io.labelled_images import recorded_workpieces
from sticker_uq.messages import texts_of
from sticker_uq.scene import METRICS, Exposure, ObjectVerdict, Outcome, SceneAssessment, SceneDecision

TableFormat = Literal["parquet", "csv"]
Row = dict[str, Any]
_ROW_GROUP = 1000  # rows that are written at once

SCENE_SIGNALS = ("unexplained_objectness", "novelty", "missed_sticker_probability")
EXPOSURE = tuple(one.name for one in fields(Exposure))
IMAGE_SCHEMA = pa.schema(
    [
        ("image", pa.string()),
        ("cell", pa.string()),
        ("laptop", pa.string()),
        ("stamp_ns", pa.int64()),
        ("frame_id", pa.string()),
        ("status", pa.string()),
        ("status_text", pa.string()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("objects", pa.int32()),
        ("unstable", pa.int32()),
        *[(name, pa.float64()) for name in METRICS],
        ("complete_localization", pa.float64()),
        ("background_localization", pa.float64()),
        ("dil", pa.float64()),
        ("decision_threshold", pa.float64()),
        *[(name, pa.float64()) for name in SCENE_SIGNALS],
        *[(name, pa.float64()) for name in EXPOSURE],
        ("outcome", pa.string()),
        ("reasons", pa.string()),
        ("removable", pa.int32()),
        ("decision_id", pa.string()),
        ("image_digest", pa.string()),
        ("assessment_digest", pa.string()),
        ("timings_ms", pa.map_(pa.string(), pa.float64())),
    ]
)
"""One row per image. ``cell``: the folder of the recording; ``laptop``: the one that it announced, "" for none. Metrics are means
over its clustered objects; units as in ``sticker_uq.scene``."""

OBJECT_SCHEMA = pa.schema(
    [
        ("image", pa.string()),
        ("stamp_ns", pa.int64()),
        ("object", pa.int32()),
        ("label", pa.string()),
        *[(name, pa.float32()) for name in ("x1", "y1", "x2", "y2")],
        *[(f"p_{name}", pa.float32()) for name in ("background", "logo", "sticker")],
        ("detections", pa.int32()),
        ("passes", pa.int32()),
        ("detection_rate", pa.float64()),
        ("duplicated", pa.bool_()),
        ("unstable", pa.bool_()),
        *[(name, pa.float64()) for name in METRICS],
        ("novelty", pa.float64()),
        ("single_pass", pa.float64()),
        ("box_covariance", pa.list_(pa.float64(), 16)),
        ("monitors", pa.map_(pa.string(), pa.float64())),
        ("objectors", pa.string()),
        ("verdict", pa.string()),
        ("reasons", pa.string()),
    ]
)
"""One row per object, the unstable ones included. ``box_covariance``: 4 x 4, row by row, px^2; ``monitors``: the score of each
of the panel; ``objectors``: whose objection counted.
"""


def image_row(name: str, assessment: SceneAssessment, decision: SceneDecision) -> Row:
    localization = assessment.localization
    located = (
        "complete_localization",
        "background_localization",
        "dil",
        "decision_threshold",
        *SCENE_SIGNALS,
    )
    return {
        "image": name,
        "cell": "",
        "laptop": "",
        "stamp_ns": assessment.stamp_ns,
        "frame_id": assessment.frame_id,
        "status": assessment.status.name,
        "status_text": assessment.status_text,
        "width": assessment.image_size[0],
        "height": assessment.image_size[1],
        "objects": len(assessment.objects),
        "unstable": len(assessment.unstable),
        **{metric: getattr(assessment.uncertainty, metric) for metric in METRICS},
        **{part: float("nan") if localization is None else getattr(localization, part) for part in located},
        **{name: getattr(assessment.exposure, name, float("nan")) for name in EXPOSURE},
        "outcome": decision.outcome.name,
        "reasons": texts_of(decision.reasons),
        "removable": len(decision.removable()) if decision.outcome is Outcome.WORK else 0,
        "decision_id": decision.decision_id,
        "image_digest": assessment.image_digest,
        "assessment_digest": assessment.digest,
        "timings_ms": dict(assessment.timings),
    }


def object_rows(name: str, assessment: SceneAssessment, decision: SceneDecision) -> list[Row]:
    """The rows of one replayed image in the table of objects. Of a blocked scene no object has a verdict."""
    verdicts = {verdict.object.id: verdict for verdict in decision.verdicts}
    rows = []
    for observed in (*assessment.objects, *assessment.unstable):
        verdict: ObjectVerdict | None = verdicts.get(observed.id)
        rows.append(
            {
                "image": name,
                "stamp_ns": assessment.stamp_ns,
                "object": observed.id,
                "label": observed.label.name.lower(),
                **dict(zip(("x1", "y1", "x2", "y2"), observed.box.tolist(), strict=True)),
                **dict(
                    zip(("p_background", "p_logo", "p_sticker"), observed.probabilities.tolist(), strict=True)
                ),
                "detections": observed.detections,
                "passes": observed.passes,
                "detection_rate": observed.detection_rate,
                "duplicated": observed.duplicated,
                "unstable": observed.unstable,
                **{metric: getattr(observed, metric) for metric in METRICS},
                "novelty": observed.novelty,
                "single_pass": observed.single_pass,
                "box_covariance": observed.box_covariance.ravel().tolist(),
                "monitors": {one.name: one.score for one in observed.monitors},
                "objectors": ", ".join(verdict.objectors) if verdict else "",
                "verdict": verdict.verdict.name if verdict else "",
                "reasons": texts_of(verdict.reasons) if verdict else "",
            }
        )
    return rows


@contextmanager
def table_writer(schema: pa.Schema, path: Path) -> Iterator[Callable[[Iterable[Row]], None]]:
    """What appends rows to a new table of a replay at `path`, which is there, complete,
    after the block and not at all if it fails.

    The suffix says how: .parquet or .csv. However many rows there are, few are held in memory. In csv lists and maps are
    JSON, numbers keep every digit and what was not measured is ``nan``. Raises OSError when the disk refuses.
    """
    if path.suffix == ".parquet":
        with atomic_write(path) as stream, pq.ParquetWriter(stream, schema) as writer:
            waiting: list[Row] = []

            def flush() -> None:
                writer.write_table(pa.Table.from_pylist(waiting, schema=schema))
                waiting.clear()

            def append(rows: Iterable[Row]) -> None:
                waiting.extend(rows)
                if len(waiting) >= _ROW_GROUP:
                    flush()

            yield append
            flush()
        return
    with atomic_write(path, "w") as stream:
        lines = csv.DictWriter(stream, schema.names, lineterminator="\n")
        lines.writeheader()
        yield lambda rows: lines.writerows({name: _plain(row[name]) for name in schema.names} for row in rows)


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


def cell_of(source: Path) -> str:
    return source.absolute().parent.name or "/"


def laptops_of(source: Path) -> Callable[[int], str]:
    """The laptop that lay in the cell of a recording at a stamp in ns; "" for none, and where none were announced."""
    turns = recorded_workpieces(source, departures=True)

    def at(stamp_ns: int) -> str:
        before = bisect_right(turns, stamp_ns, key=lambda turn: turn[0])
        return turns[before - 1][1] if before else ""

    return at
