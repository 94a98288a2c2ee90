# SPDX-License-Identifier: Apache-2.0
"""Probability vectors with their true classes, of a detector or of any classifier, and the files they are kept in."""

from __future__ import annotations

import csv
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sticker_uq.evaluation.metrics.matching import MatchedDetections
from sticker_uq.evaluation.metrics.probability_quality import check
from sticker_uq.io.files import atomic_write
from sticker_uq.io.reading import MIB, check_regular
from sticker_uq.scene import FloatArray, IntArray, InvalidInput, ObjectClass

CLASSES = tuple(c.name.lower() for c in ObjectClass)
_DETECTION_COLUMNS = ("score_label", "right", "iou")
MOST_VECTORS = 256 * MIB
"""Bytes of a file of vectors, unpacked. Those of a million objects of 20 classes fit in."""


@dataclass(frozen=True)
class ScoredDetections:
    """What calibration errors of a detector are computed from, for the same objects as the vectors, (N,) each.

    ``label``: class of the score; ``right`` and ``iou`` as in :class:`MatchedDetections`.
    """

    label: IntArray
    right: NDArray[np.bool_]
    iou: FloatArray


@dataclass(frozen=True)
class Vectors:
    """Classified objects: ``p`` (N, K) probabilities, ``y`` (N,) true classes, ``units`` (N,) numbers of their images.

    ``classes``: K names; ``detections`` where a detector made them.
    """

    name: str
    classes: tuple[str, ...]
    p: FloatArray
    y: IntArray
    units: IntArray
    detections: ScoredDetections | None = None

    def __post_init__(self) -> None:
        check(self.p, self.y)
        if len(self.classes) != self.p.shape[1] or self.units.shape != self.y.shape:
            raise InvalidInput(
                f"{self.name}: {len(self.classes)} class names and {len(self.units)} images for probabilities "
                f"{self.p.shape}"
            )


def of_detections(name: str, matched: MatchedDetections) -> Vectors:
    """The probability vectors of a detector: one object per detection, of class background where nothing lies there."""
    scored = ScoredDetections(matched.labels, matched.right, matched.iou)
    return Vectors(name, CLASSES, matched.probabilities, matched.truth, matched.image, scored)


def write_vectors(vectors: Vectors, path: Path) -> None:
    """Write probability ``vectors`` for quality metrics to a CSV file that :func:`read_vectors` reads, completely or not at
    all.
    """
    header = ["image", *(f"p_{name}" for name in vectors.classes), "label"]
    scored = vectors.detections
    with atomic_write(path, "w") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([*header, *(_DETECTION_COLUMNS if scored is not None else ())])
        for row in range(len(vectors.y)):
            values: list[Any] = [
                int(vectors.units[row]),
                *vectors.p[row].tolist(),
                vectors.classes[vectors.y[row]],
            ]
            if scored is not None:
                label = vectors.classes[scored.label[row]]
                values += [label, int(scored.right[row]), float(scored.iou[row])]
            writer.writerow(values)


def read_vectors(path: Path) -> Vectors:
    """The probability vectors in a CSV or npz file, named after it.

    CSV: a column ``p_NAME`` per class and ``label`` (a name or its number); ``image`` says which objects belong together,
    without it each stands alone; ``score_label``, ``right``, ``iou`` come from detectors. npz: ``probabilities`` (N, K),
    ``labels`` (N,), and ``images`` (N,) and ``classes`` (K,) if there are. Raises :class:`InvalidInput` naming the file and
    what is wrong with it.
    """
    if not path.exists():
        raise InvalidInput(f"{path}: no such file; expected probability vectors, .csv or .npz")
    size = check_regular(path)
    try:
        if path.suffix == ".npz":
            with zipfile.ZipFile(path) as archive:
                size = max(size, sum(member.file_size for member in archive.infolist()))
        if size > MOST_VECTORS:
            raise InvalidInput(f"{size} bytes, expected at most {MOST_VECTORS}")
        return _read_npz(path) if path.suffix == ".npz" else _read_csv(path)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    except MemoryError:
        raise InvalidInput(f"{path}: an array does not fit into memory") from None
    except (
        ValueError,
        LookupError,
        TypeError,
        EOFError,
        OSError,
        RuntimeError,
        csv.Error,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise InvalidInput(f"{path}: {error or type(error).__name__}") from None


def _read_npz(path: Path) -> Vectors:
    with np.load(path, allow_pickle=False) as file:
        missing = [name for name in ("probabilities", "labels") if name not in file]
        if missing:
            raise InvalidInput(
                f"array {missing[0]} is missing; expected probabilities (N, K) and labels (N,)"
            )
        p = np.asarray(file["probabilities"], np.float64)
        y = file["labels"]
        if not np.issubdtype(y.dtype, np.integer):
            raise InvalidInput(f"labels are {y.dtype}, expected whole numbers")
        units = _numbered(file["images"]) if "images" in file else np.arange(len(y))
        width = p.shape[1] if p.ndim == 2 else 0
        names = file["classes"] if "classes" in file else np.arange(width)
        return Vectors(path.stem, tuple(map(str, names)), p, y.astype(np.int64), units)


def _read_csv(path: Path) -> Vectors:
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        columns = list(reader.fieldnames or ())
        rows = list(reader)
    classes = tuple(column[2:] for column in columns if column.startswith("p_"))
    if len(classes) < 2 or "label" not in columns:
        raise InvalidInput(
            f"columns {', '.join(columns)}: expected p_NAME for two or more classes, and label"
        )
    if not rows:
        raise InvalidInput("expected at least one object, found none")
    short = next((line for line, row in enumerate(rows, 2) if None in row.values() or None in row), None)
    if short is not None:
        raise InvalidInput(f"line {short}: expected {len(columns)} values")
    p = np.array([[float(row[f"p_{name}"]) for name in classes] for row in rows])
    y = np.array([_class(row["label"], classes, line) for line, row in enumerate(rows, 2)])
    units = (
        _numbered(np.array([row["image"] for row in rows])) if "image" in columns else np.arange(len(rows))
    )
    scored = None
    if set(_DETECTION_COLUMNS) <= set(columns):
        scored = ScoredDetections(
            np.array([_class(row["score_label"], classes, line) for line, row in enumerate(rows, 2)]),
            np.array([row["right"] in ("1", "true", "True") for row in rows]),
            np.array([float(row["iou"]) for row in rows]),
        )
    return Vectors(path.stem, classes, p, y, units, scored)


def _class(text: str, classes: tuple[str, ...], line: int) -> int:
    if text in classes:
        return classes.index(text)
    if text.isdigit() and int(text) < len(classes):
        return int(text)
    raise InvalidInput(f"line {line}: label {text!r}: expected one of {', '.join(classes)}, or its number")


def _numbered(names: NDArray[Any]) -> IntArray:
    """``names`` as numbers in the order in which they first appear."""
    _, first, owner = np.unique(names, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    return rank[owner].astype(np.int64)
