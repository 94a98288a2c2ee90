# SPDX-License-Identifier: Apache-2.0
"""One recording of the fleet as a task: what is missing of its assessments, judgements and gate goes to Parquet files.

A file is named by a hash of all that decides it, and is there completely or not at all. So a call that was killed resumes, and
another policy judges the same assessments again without the detector.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sticker_uq.evaluation.fleet.cells import Recording
from sticker_uq.evaluation.replay.assessing import one_by_one, same_perception
from sticker_uq.evaluation.replay.assessment_json import (
    assessment_from_plain,
    assessment_to_plain,
    code_fingerprint,
)
from sticker_uq.evaluation.replay.blocked import blocked_by
from sticker_uq.evaluation.replay.recording import read_recording
from sticker_uq.evaluation.replay.tables import IMAGE_SCHEMA, Row, image_row, table_writer
from sticker_uq.gate import Policy, judge
from sticker_uq.io.bags import Bag
from sticker_uq.io.labelled_images import recorded_workpieces
from sticker_uq.io.reading import read_chunks
from sticker_uq.io.sources import ImageSource, open_source
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import InvalidInput, SceneAssessment

ASSESSMENTS, JUDGEMENTS, GATES = "assessments", "judgements", "gates"
"""Folders of the Parquet files."""
INDEX = "recordings.parquet"
POLICY = b"sticker_uq.policy"
"""Metadata of the index: the policy as JSON."""
_NO_CONTENT = (".yaml", ".json")
_VERSION = 2
"""Of the rows of assessments: another one where the same perception would write others."""

ASSESSMENT_SCHEMA = pa.schema(
    [
        ("image", pa.string()),
        ("laptop", pa.string()),
        ("assessment", pa.string()),
        ("timings_ms", pa.map_(pa.string(), pa.float64())),
    ]
)
"""One row per image of a recording, in order. ``laptop``: which it shows, as in JUDGEMENT_SCHEMA; ``assessment``: JSON."""
_WHERE = [("cell", pa.string()), ("recording", pa.string()), ("laptop", pa.string())]
JUDGEMENT_SCHEMA = pa.schema(
    [*_WHERE, ("scene_distance", pa.float64()), ("blocked_by", pa.list_(pa.string())), *IMAGE_SCHEMA]
)
"""One row per image of a recording, in order. ``laptop``: unique in its recording, null for an image before the first one that
was announced, or after one had left and before the next; where none was announced, each image counts as one. ``blocked_by``: the
limits, in words, that kept the scene or an object from being released. The others as in
:data:`sticker_uq.evaluation.replay.tables.IMAGE_SCHEMA`.
"""
GATE_SCHEMA = pa.schema(
    [
        *_WHERE,
        ("stamp_ns", pa.int64()),
        ("event", pa.string()),
        ("state", pa.string()),
        ("text", pa.string()),
        ("decision_id", pa.string()),
        ("object_id", pa.int32()),
    ]
)
"""One row per "laptop" that arrived, per "gate" state of the recorded cell, and per "question" to a person."""
INDEX_SCHEMA = pa.schema(
    [
        ("cell", pa.string()),
        ("recording", pa.string()),
        ("digest", pa.string()),
        ("images", pa.int64()),
        ("failed", pa.int64()),
        ("announced", pa.bool_()),
        (ASSESSMENTS, pa.string()),
        (JUDGEMENTS, pa.string()),
        (GATES, pa.string()),
        ("made", pa.list_(pa.string())),
        ("error", pa.string()),
        ("note", pa.string()),
    ]
)
"""One row per recording of the fleet. ``assessments``, ``judgements``, ``gates``: names of its files in these folders, "" for
none; ``announced``: whether it says which laptop is in the cell; ``made``: which of the files the last call made; ``error``: why
it has no judgements; ``note``: why it has no gate.
"""


@dataclass(frozen=True)
class FleetPlan:
    """What every recording of the fleet is replayed with; ``identity``: see
    :func:`sticker_uq.evaluation.replay.assessing.identity_of`.
    """

    perception: PerceptionSettings
    identity: str
    policy: Policy
    out: Path
    topic: str | None = None


def replay_recording(recording: Recording, plan: FleetPlan) -> Row:
    """Task of the fleet: make the files of ``recording`` that are missing in ``plan.out``; its row of the index.

    What cannot be read, assessed or written is the row's error.
    """
    row: Row = dict.fromkeys(INDEX_SCHEMA.names, "") | {"images": 0, "failed": 0, "made": []}
    row |= {"cell": recording.cell, "recording": str(recording.path), "announced": False}
    try:
        _Task(recording, plan, row).run()
    except (InvalidInput, OSError) as error:
        row["error"] = " ".join(str(error).split())
    return row


class _Task:
    def __init__(self, recording: Recording, plan: FleetPlan, row: Row) -> None:
        self._path, self._plan, self._row = recording.path, plan, row
        self._where = {"cell": recording.cell, "recording": str(recording.path)}

    def run(self) -> None:
        source = open_source(self._path, self._plan.topic)
        row, where = self._row, self._where
        row["digest"] = content_digest(self._path)
        turns = recorded_workpieces(self._path, departures=True) if source.topic else ()
        row["announced"] = bool(turns)
        assessed = _key(row["digest"], source.topic, self._plan.identity, _VERSION)
        self._made(ASSESSMENTS, assessed, lambda file: self._assess(source, turns, file))
        judged = _key(assessed, self._plan.policy.hash, _code(), where)
        self._made(JUDGEMENTS, judged, self._judge)
        status = pq.read_table(self.file(JUDGEMENTS), columns=["status", "status_text"]).to_pylist()
        failures = [one["status_text"] for one in status if one["status"] == "FAILED"]
        row |= {"images": len(status), "failed": len(failures)}
        if len(failures) == len(status):
            raise InvalidInput(
                f"{self._path}: none of the {len(status)} images could be assessed: {failures[0]}"
            )
        if turns:
            try:
                self._made(
                    GATES, _key(row["digest"], _code(), where), lambda file: self._read_gate(turns, file)
                )
            except InvalidInput as error:
                row["note"] = str(error)

    def file(self, kind: str) -> Path:
        return self._plan.out / kind / self._row[kind]

    def _made(self, kind: str, key: str, make: Any) -> None:
        name = f"{key}.parquet"
        file = self._plan.out / kind / name
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            make(file)
            self._row["made"].append(kind)
        self._row[kind] = name

    def _assess(self, source: ImageSource, turns: Any, file: Path) -> None:
        perception = same_perception(self._plan.perception, self._plan.identity)
        count = 0
        with table_writer(ASSESSMENT_SCHEMA, file) as write:
            for item, assessment in one_by_one(source, perception):
                count += 1
                write(
                    [
                        {
                            "image": item.name,
                            "laptop": _laptop(turns, item.stamp_ns) if turns else f"image {item.name}",
                            "assessment": json.dumps(assessment_to_plain(assessment)),
                            "timings_ms": dict(assessment.timings),
                        }
                    ]
                )
            if not count:
                raise InvalidInput(f"{self._path}: no images in it")

    def _judge(self, file: Path) -> None:
        with table_writer(JUDGEMENT_SCHEMA, file) as write:
            for row, assessment in read_assessments(self.file(ASSESSMENTS)):
                decision = judge(assessment, self._plan.policy)
                localization = assessment.localization
                distance = float("nan") if localization is None else localization.scene_distance
                write(
                    [
                        {
                            **self._where,
                            "laptop": row["laptop"],
                            "scene_distance": distance,
                            "blocked_by": blocked_by(decision),
                            **image_row(row["image"], assessment, decision),
                            "timings_ms": row["timings_ms"],
                        }
                    ]
                )

    def _read_gate(self, turns: Any, file: Path) -> None:
        cell = read_recording(Bag(self._path), scenes=False)
        rows: list[Row] = [{"stamp_ns": stamp_ns, "event": "laptop"} for stamp_ns, name in turns if name]
        for laptop in (*cell.laptops, cell.between):
            rows += [{"event": "gate", **vars(change)} for change in laptop.gate]
            rows += [
                {
                    "event": "question",
                    "stamp_ns": asked.stamp_ns,
                    "text": asked.text,
                    "decision_id": asked.decision_id,
                }
                for asked in laptop.questions
            ]
        rows.sort(key=lambda row: row["stamp_ns"])
        with table_writer(GATE_SCHEMA, file) as write:
            write(self._where | {"laptop": _laptop(turns, row["stamp_ns"])} | row for row in rows)


def read_assessments(file: Path, rows: set[int] | None = None) -> Iterator[tuple[Row, SceneAssessment]]:
    """The rows of a recording's file of assessments, or those with the numbers ``rows``, each with its assessment."""
    number = 0
    with pq.ParquetFile(file) as table:
        for batch in table.iter_batches(batch_size=256):
            for index in range(batch.num_rows):
                if rows is None or number in rows:
                    row = {
                        name: column[index].as_py()
                        for name, column in zip(batch.schema.names, batch, strict=True)
                    }
                    row["timings_ms"] = dict(row["timings_ms"])
                    yield row, assessment_from_plain(json.loads(row["assessment"]))
                number += 1


def write_index(rows: list[Row], plan: FleetPlan) -> None:
    """Write the fleet's index of ``rows``, in their order, with the policy. A recording whose bytes another one has too, whose
    laptops would count twice, gets an error in its row.
    """
    seen: dict[str, str] = {}
    for row in rows:
        first = seen.setdefault(row["digest"] or row["recording"], row["recording"])
        if first != row["recording"] and not row["error"]:
            row["error"] = f"{row['recording']}: has the same bytes as {first}, expected every recording once"
    policy = json.dumps(plan.policy.model_dump(mode="json", exclude_none=True))
    with table_writer(INDEX_SCHEMA.with_metadata({POLICY: policy}), plan.out / INDEX) as write:
        write(rows)


def content_digest(path: Path) -> str:
    """BLAKE2b digest of a recording: the names and bytes of its files, 32 hex digits, of a folder without metadata and labels.

    Raises InvalidInput for a file that cannot be read.
    """
    digest = hashlib.blake2b(digest_size=16)
    files = [path] if path.is_file() else sorted(f for f in path.iterdir() if f.suffix not in _NO_CONTENT)
    for file in files:
        digest.update(f"{file.name if path.is_dir() else file.suffix}\0".encode(errors="surrogateescape"))
        if file.is_file():  # a device is an image that cannot be read, which its row says
            digest.update(file.stat().st_size.to_bytes(8, "little"))
            for chunk in read_chunks(file, 1 << 62):
                digest.update(chunk)
    return digest.hexdigest()


def _code() -> str:
    return code_fingerprint("gate", "evaluation/replay", "evaluation/fleet/recordings.py")


def _key(*facts: Any) -> str:
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()


def _laptop(turns: Any, stamp_ns: int) -> str | None:
    """The laptop in the cell at ``stamp_ns``; None for none."""
    before = bisect_right(turns, stamp_ns, key=lambda turn: turn[0])
    return turns[before - 1][1] or None if before else None
