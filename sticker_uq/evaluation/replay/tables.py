# SPDX-License-Identifier: Apache-2.0
"""Assessments and decisions of a replay as two tables: one row per image, one row per object."""

from __future__ import annotations

import csv
import json
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from sticker_uq.io.files import atomic_write
from sticker_uq.io.labelled_images import read_workpieces
from sticker_uq.messages import texts_of
from sticker_uq.scene import (
    METRICS,
    Exposure,
    ObjectClass,
    ObjectVerdict,
    ObservedObject,
    Outcome,
    SceneAssessment,
    SceneDecision,
)

TableFormat = Literal["parquet", "csv"]
Row = dict[str, Any]
_ROW_GROUP = 1000  # rows that are written at once

EXPOSURE = tuple(one.name for one in fields(Exposure))
_TEXT, _COUNT, _NUMBER, _SMALL = pa.string(), pa.int32(), pa.float64(), pa.float32()
_LOCALIZATION = (
    *("complete_localization", "background_localization", "dil", "decision_threshold"),
    *("unexplained_objectness", "novelty", "missed_sticker_probability", "obstruction"),
)


def _part(scene: SceneAssessment, _: SceneDecision, part: str, name: str) -> Any:
    return getattr(getattr(scene, part), name, math.nan)


def _of(part: str, names: Iterable[str]) -> dict[str, _ImageColumn]:
    """The columns ``names`` of a ``part`` of an assessment; NaN where there is no such part."""
    return {name: (_NUMBER, partial(_part, part=part, name=name)) for name in names}


_ImageColumn = tuple[pa.DataType, Callable[[SceneAssessment, SceneDecision], Any]]
_IMAGE: dict[str, _ImageColumn] = {
    "stamp_ns": (pa.int64(), lambda scene, _: scene.stamp_ns),
    "frame_id": (_TEXT, lambda scene, _: scene.frame_id),
    "status": (_TEXT, lambda scene, _: scene.status.name),
    "status_text": (_TEXT, lambda scene, _: scene.status_text),
    "width": (_COUNT, lambda scene, _: scene.image_size[0]),
    "height": (_COUNT, lambda scene, _: scene.image_size[1]),
    "objects": (_COUNT, lambda scene, _: len(scene.objects)),
    "unstable": (_COUNT, lambda scene, _: len(scene.unstable)),
    **_of("uncertainty", METRICS),
    "scene_distance": (_NUMBER, lambda scene, _: scene.scene_distance),
    **_of("localization", _LOCALIZATION),
    **_of("exposure", EXPOSURE),
    "outcome": (_TEXT, lambda _, decision: decision.outcome.name),
    "reasons": (_TEXT, lambda _, decision: texts_of(decision.reasons)),
    "removable": (_COUNT, lambda _, said: len(said.removable()) if said.outcome is Outcome.WORK else 0),
    "decision_id": (_TEXT, lambda _, decision: decision.decision_id),
    "image_digest": (_TEXT, lambda scene, _: scene.image_digest),
    "assessment_digest": (_TEXT, lambda scene, _: scene.digest),
    "timings_ms": (pa.map_(_TEXT, _NUMBER), lambda scene, _: dict(scene.timings)),
}
_NAMES = ("image", "cell", "laptop")
IMAGE_SCHEMA = pa.schema([*((n, _TEXT) for n in _NAMES), *((n, kind) for n, (kind, _) in _IMAGE.items())])
"""One row per image. ``cell``: the folder of the recording; ``laptop``: the one that it announced, "" for none. Metrics are means
over its clustered objects; units as in ``sticker_uq.scene``."""


def _number(seen: ObservedObject, _: ObjectVerdict | None, field: str, i: int) -> float:
    return float(getattr(seen, field)[i])


def _column(name: str) -> _ObjectColumn:
    return _NUMBER, lambda seen, _: getattr(seen, name)


_ObjectColumn = tuple[pa.DataType, Callable[[ObservedObject, ObjectVerdict | None], Any]]
_OBJECT: dict[str, _ObjectColumn] = {
    "object": (_COUNT, lambda seen, _: seen.id),
    "label": (_TEXT, lambda seen, _: seen.label.name.lower()),
    **{name: (_SMALL, partial(_number, field="box", i=i)) for i, name in enumerate(("x1", "y1", "x2", "y2"))},
    **{f"p_{c.name.lower()}": (_SMALL, partial(_number, field="probabilities", i=c)) for c in ObjectClass},
    "detections": (_COUNT, lambda seen, _: seen.detections),
    "passes": (_COUNT, lambda seen, _: seen.passes),
    "detection_rate": _column("detection_rate"),
    "duplicated": (pa.bool_(), lambda seen, _: seen.duplicated),
    "unstable": (pa.bool_(), lambda seen, _: seen.unstable),
    **{name: _column(name) for name in (*METRICS, "novelty", "single_pass", "close_up", "photo")},
    "box_covariance": (pa.list_(_NUMBER, 16), lambda seen, _: seen.box_covariance.ravel().tolist()),
    "monitors": (pa.map_(_TEXT, _NUMBER), lambda seen, _: {one.name: one.score for one in seen.monitors}),
    "objectors": (_TEXT, lambda _, verdict: ", ".join(verdict.objectors) if verdict else ""),
    "verdict": (_TEXT, lambda _, verdict: verdict.verdict.name if verdict else ""),
    "reasons": (_TEXT, lambda _, verdict: texts_of(verdict.reasons) if verdict else ""),
}
OBJECT_SCHEMA = pa.schema(
    [("image", _TEXT), ("stamp_ns", pa.int64()), *((n, kind) for n, (kind, _) in _OBJECT.items())]
)
"""One row per object, the unstable ones included. ``box_covariance``: 4 x 4, row by row, px^2; ``monitors``: the score of each
of the panel; ``objectors``: whose objection counted.
"""


def image_row(name: str, assessment: SceneAssessment, decision: SceneDecision) -> Row:
    values = {column: value(assessment, decision) for column, (_, value) in _IMAGE.items()}
    return {"image": name, "cell": "", "laptop": "", **values}


def object_rows(name: str, assessment: SceneAssessment, decision: SceneDecision) -> list[Row]:
    """The rows of one image in the table of objects; in a blocked scene no object has a verdict."""
    verdicts = {verdict.object.id: verdict for verdict in decision.verdicts}
    place = {"image": name, "stamp_ns": assessment.stamp_ns}
    return [
        place | {column: value(seen, verdicts.get(seen.id)) for column, (_, value) in _OBJECT.items()}
        for seen in (*assessment.objects, *assessment.unstable)
    ]


@contextmanager
def table_writer(schema: pa.Schema, path: Path) -> Iterator[Callable[[Iterable[Row]], None]]:
    """What appends rows to a new table at `path`, which is complete after the block and absent if it fails.

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
    """Which laptop lay in the cell at a stamp in ns; "" for none, and where none were announced."""
    turns = read_workpieces(source, departures=True)

    def at(stamp_ns: int) -> str:
        before = bisect_right(turns, stamp_ns, key=lambda turn: turn[0])
        return turns[before - 1][1] if before else ""

    return at
