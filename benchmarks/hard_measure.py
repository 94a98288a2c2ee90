# SPDX-License-Identifier: Apache-2.0
"""What every sampler sees on the scenes of benchmarks.hard, measured once and kept as Parquet: a row per scene, a row per object.

A method reads these tables only, so that a new one costs no new run of the detector.
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import sticker_uq_lab
from benchmarks import hard_scenes
from benchmarks.hard_scenes import NONE, Case, HardScene
from benchmarks.photographs import load_photographs
from sticker_uq.evaluation.executors import map_over
from sticker_uq.evaluation.replay.assessing import (
    assessment_from_plain,
    assessment_to_plain,
    code_fingerprint,
)
from sticker_uq.io.files import atomic_write
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.scene import METRICS, Detections, FloatArray, IntArray, ObservedObject, SceneAssessment
from sticker_uq_lab.robustness.systems import FeatureKeeper

SINGLE, DROPOUT = "single", "dropout"
"""Samplers: one pass without dropout, and T stochastic passes."""
_CHUNK = 25
_SIGNALS = (*METRICS, "novelty")
_OBJECT = ("x1", "y1", "x2", "y2", "background", "logo", "sticker")
_KEY = [
    ("split", pa.string()),
    ("part", pa.string()),
    ("case", pa.string()),
    ("strength", pa.string()),
    ("seed", pa.int64()),
]
_SCENES = pa.schema(
    [
        *_KEY,
        *((name, pa.list_(pa.float32())) for name in ("boxes", "hidden", "things")),
        ("labels", pa.list_(pa.int64())),
        ("assessment", pa.string()),
    ]
)
_OBJECTS = pa.schema(
    [
        *_KEY,
        ("sampler", pa.string()),
        *((name, pa.float32()) for name in (*_OBJECT, "rate")),
        ("unstable", pa.bool_()),
        *((name, pa.float64()) for name in _SIGNALS),
    ]
)


class Job(NamedTuple):
    """One scene to measure: the laptop of ``seed`` in ``case``, for ``split``."""

    split: str
    case: Case
    seed: int

    @property
    def key(self) -> dict[str, Any]:
        """The columns that name it."""
        return {
            "split": self.split,
            "part": "shift",
            "case": self.case.name,
            "strength": self.case.strength,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class Seen:
    """The N objects that one sampler sees in one scene.

    ``boxes`` (N, 4) px; ``probabilities`` (N, 3); ``rate`` (N,): share of the passes; ``unstable`` (N,): in too few to cluster;
    ``signals`` by name, (N,) each.
    """

    boxes: FloatArray
    probabilities: FloatArray
    rate: FloatArray
    unstable: NDArray[np.bool_]
    signals: dict[str, FloatArray]


@dataclass(frozen=True)
class MeasuredScene:
    """One scene with what is true, what perception says, and what every sampler sees."""

    split: str
    part: str
    case: str
    strength: str
    seed: int
    boxes: FloatArray
    labels: IntArray
    hidden: FloatArray
    things: FloatArray
    assessment: SceneAssessment
    seen: dict[str, Seen]


class Instrument:
    """Measures scenes with one SSD; ``panel``: folder of a fitted panel, or empty; ``weights``: file, or empty: the packaged."""

    def __init__(self, panel: str = "", weights: str = "") -> None:
        settings = PerceptionSettings(device="cpu", threads=1, panel=panel, weights=weights)
        plain = Perception(settings.model_copy(update={"panel": ""})).detector
        self.detector = FeatureKeeper(plain.model, plain.settings, plain.weights_hash)
        self.perception = Perception(settings, self.detector)

    def scene(self, image: NDArray[np.uint8]) -> tuple[SceneAssessment, dict[str, Seen]]:
        """What perception says about ``image`` and what every sampler sees."""
        self.detector.features = None
        assessment = self.perception.assess(image)
        assert self.detector.features is not None
        found = self.detector.detect(self.detector.features)
        return assessment, {
            SINGLE: once(found),
            DROPOUT: observed((*assessment.objects, *assessment.unstable)),
        }


def once(found: Detections) -> Seen:
    """What one pass saw."""
    ones = np.ones(len(found))
    unknown = {name: np.full(len(found), np.nan) for name in _SIGNALS}
    return Seen(found.boxes, found.probabilities, ones, ones == 0, unknown)


def observed(objects: Sequence[ObservedObject]) -> Seen:
    """What several passes saw."""
    return Seen(
        np.array([o.box for o in objects], np.float32).reshape(-1, 4),
        np.array([o.probabilities for o in objects], np.float32).reshape(-1, 3),
        np.array([o.detection_rate for o in objects], float),
        np.array([o.unstable for o in objects], bool),
        {name: np.array([getattr(o, name) for o in objects], float) for name in _SIGNALS},
    )


def table_key(instrument: Instrument, profile: str) -> str:
    """Names the measurements of this code, these networks, this panel and laptops of this ``profile``, 16 hex digits."""
    perception = instrument.perception
    parts = [profile, perception.model_hash, perception.settings_hash, perception.panel_hash]
    lab = Path(sticker_uq_lab.__file__).parent
    parts.append(code_fingerprint(lab / "rendering", lab / "corruptions", lab / "datasets" / "abnormal.py"))
    parts += [Path(str(file)).read_text(encoding="utf-8") for file in (hard_scenes.__file__, __file__)]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()


def measure(
    jobs: Sequence[Job],
    folder: Path,
    instrument: Instrument,
    processes: int = 1,
    progress: Callable[[int], None] = lambda _: None,
) -> list[MeasuredScene]:
    """The scenes of ``jobs``; those that ``folder`` does not hold yet are measured, in ``processes`` processes, and added to it.

    Every finished chunk is kept, so that an interrupted run continues.
    """
    (profile,) = {job.case.profile for job in jobs}
    tables = folder / table_key(instrument, profile)
    tables.mkdir(parents=True, exist_ok=True)
    known = _known(tables)
    missing = [job for job in jobs if tuple(job.key.values()) not in known]
    progress(len(jobs) - len(missing))
    settings = instrument.perception.settings
    task = partial(_rows, panel=settings.panel, weights=settings.weights)
    with closing(map_over(task, missing, processes, chunksize=4)) as rows:
        chunk: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
        for number, row in enumerate(rows, 1):
            chunk.append(row)
            if number % _CHUNK == 0 or number == len(missing):
                _write(chunk, tables)
                chunk = []
            progress(1)
    return read(tables, jobs)


def measure_photographs(folder: Path, split: str, instrument: Instrument) -> list[MeasuredScene]:
    """The photographs of `python -m benchmarks.photographs` in ``folder``, on which nothing is to be removed.

    Their names divide them into development and test. InvalidInput as `load_photographs` raises it.
    """
    empty = np.zeros((0, 4), np.float32)
    scenes = []
    for number, (kind, name, image) in enumerate(load_photographs(folder)):
        if split == ("development", "test")[zlib.crc32(name.encode()) % 2]:
            assessment, seen = instrument.scene(image)
            truth = (empty, np.zeros(0, np.int64), empty, empty)
            scenes.append(MeasuredScene(split, "photographs", kind, NONE, number, *truth, assessment, seen))
    return scenes


_instruments: dict[tuple[str, str], Instrument] = {}


def _rows(job: Job, panel: str, weights: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if (panel, weights) not in _instruments:
        _instruments[panel, weights] = Instrument(panel, weights)
    scene = job.case.scene(job.seed)
    assessment, seen = _instruments[panel, weights].scene(scene.image)
    return rows_of(job.key, scene, assessment, seen)


def rows_of(
    key: dict[str, Any], scene: HardScene, assessment: SceneAssessment, seen: dict[str, Seen]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The row of a scene and those of its objects, as the tables hold them."""
    flat = {
        name: np.asarray(getattr(scene, name)).ravel().tolist()
        for name in ("boxes", "hidden", "things", "labels")
    }
    objects = []
    for sampler, found in seen.items():
        for n in range(len(found.boxes)):
            values = [*found.boxes[n].tolist(), *found.probabilities[n].tolist()]
            row = key | dict(zip(_OBJECT, values, strict=True)) | {"sampler": sampler}
            row |= {"rate": float(found.rate[n]), "unstable": bool(found.unstable[n])}
            row |= {name: float(signal[n]) for name, signal in found.signals.items()}
            objects.append(row)
    return key | flat | {"assessment": json.dumps(assessment_to_plain(assessment))}, objects


def _write(chunk: Sequence[tuple[dict[str, Any], list[dict[str, Any]]]], folder: Path) -> None:
    """Add the rows of some scenes; the scenes come last, so that no scene is there without its objects."""
    name = hashlib.blake2b(json.dumps([row[0] for row in chunk]).encode(), digest_size=8).hexdigest()
    tables = (
        (f"objects-{name}", pa.Table.from_pylist([o for _, objects in chunk for o in objects], _OBJECTS)),
        (f"scenes-{name}", pa.Table.from_pylist([scene for scene, _ in chunk], _SCENES)),
    )
    for stem, table in tables:
        with atomic_write(folder / f"{stem}.parquet") as stream:
            pq.write_table(table, stream, compression="zstd")


def _known(folder: Path) -> set[tuple[Any, ...]]:
    columns = [name for name, _ in _KEY]
    found = [
        pq.read_table(file, columns=columns).to_pylist() for file in sorted(folder.glob("scenes-*.parquet"))
    ]
    return {tuple(row[name] for name in columns) for rows in found for row in rows}


def read(folder: Path, jobs: Iterable[Job]) -> list[MeasuredScene]:
    """Those of ``jobs`` that ``folder`` holds, in their order."""
    wanted = {tuple(job.key.values()): number for number, job in enumerate(jobs)}
    scenes: dict[int, MeasuredScene] = {}
    for file in sorted(folder.glob("scenes-*.parquet")):
        objects: dict[tuple[Any, ...], dict[str, list[dict[str, Any]]]] = {}
        for row in pq.read_table(file.with_name(file.name.replace("scenes", "objects"))).to_pylist():
            key = tuple(row[name] for name, _ in _KEY)
            objects.setdefault(key, {}).setdefault(row["sampler"], []).append(row)
        for row in pq.read_table(file).to_pylist():
            key = tuple(row[name] for name, _ in _KEY)
            if key in wanted:
                seen = {s: _seen(objects.get(key, {}).get(s, [])) for s in (SINGLE, DROPOUT)}
                scenes[wanted[key]] = _scene(row, seen)
    return [scenes[number] for number in sorted(scenes)]


def _scene(row: dict[str, Any], seen: dict[str, Seen]) -> MeasuredScene:
    boxes: dict[str, Any] = {
        name: np.array(row[name], np.float32).reshape(-1, 4) for name in ("boxes", "hidden", "things")
    }
    return MeasuredScene(
        **{name: row[name] for name, _ in _KEY},
        **boxes,
        labels=np.array(row["labels"], np.int64),
        assessment=assessment_from_plain(json.loads(row["assessment"])),
        seen=seen,
    )


def _seen(rows: Sequence[dict[str, Any]]) -> Seen:
    values = np.array([[row[name] for name in _OBJECT] for row in rows], np.float32).reshape(-1, 7)
    return Seen(
        values[:, :4],
        values[:, 4:],
        np.array([row["rate"] for row in rows], float),
        np.array([row["unstable"] for row in rows], bool),
        {name: np.array([row[name] for row in rows], float) for name in _SIGNALS},
    )
