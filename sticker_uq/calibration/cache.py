"""Assessments that were made once and are kept: a second calibration with other levels needs no detector run."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np

import sticker_uq
from sticker_uq.scene import (
    METRICS,
    Exposure,
    ImageUncertainty,
    InvalidInput,
    Localization,
    MonitorScore,
    ObjectClass,
    ObservedObject,
    SceneAssessment,
    Status,
    UnexplainedRegion,
    to_plain,
)

_PERCEPTION = ("scene.py", "detection", "uncertainty", "monitors", "dil", "novelty", "perception")


class AssessmentCache:
    """A file of JSON values by text keys. Values survive an interruption; several processes may use one file."""

    def __init__(self, path: Path) -> None:
        """Open or create the file; raises :class:`InvalidInput` when it is something else."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        try:
            # read by the thread that decodes images, written by the one that assesses them
            self._file = sqlite3.connect(path, timeout=60.0, check_same_thread=False)
            self._file.execute("CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, value BLOB)")
        except sqlite3.DatabaseError as error:
            raise InvalidInput(f"assessment cache {path}: {error}; expected a file of this program") from None

    def get(self, key: str) -> Any | None:
        """The value kept under ``key``, None when there is none."""
        row = self._file.execute("SELECT value FROM kept WHERE key = ?", (key,)).fetchone()
        return None if row is None else json.loads(zlib.decompress(row[0]))

    def put(self, key: str, value: Any) -> None:
        """Keep ``value`` (anything that JSON can hold) under ``key``."""
        data = zlib.compress(json.dumps(value).encode(), 1)
        with self._file:
            self._file.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (key, data))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@cache
def code_fingerprint(*further: str) -> str:
    """Digest of the source code of perception, and of ``further`` parts of this package, 16 hex digits."""
    root = Path(sticker_uq.__file__).parent
    digest = hashlib.blake2b(digest_size=8)
    for part in (*_PERCEPTION, *further):
        files = [root / part] if part.endswith(".py") else sorted((root / part).rglob("*.py"))
        for file in files:
            digest.update(file.relative_to(root).as_posix().encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


def assessment_to_plain(assessment: SceneAssessment) -> dict[str, Any]:
    """``assessment`` as JSON can hold it, without timings and saliency map."""
    return dict(to_plain(assessment, leave_out=("timings", "saliency")))


def assessment_from_plain(plain: Mapping[str, Any]) -> SceneAssessment:
    """The assessment that :func:`assessment_to_plain` was given; its digest is the same."""
    values = dict(plain)
    localization, exposure = values.pop("localization"), values.pop("exposure", None)
    return SceneAssessment(
        **values
        | {
            "status": Status(values["status"]),
            "image_size": tuple(values["image_size"]),
            "objects": tuple(map(_object, values["objects"])),
            "unstable": tuple(map(_object, values["unstable"])),
            "uncertainty": ImageUncertainty(**values["uncertainty"]),
            "localization": None if localization is None else _localization(localization),
            "exposure": None if exposure is None else Exposure(**exposure),
        }
    )


def _localization(plain: Mapping[str, Any]) -> Localization:
    regions = tuple(
        UnexplainedRegion(**region | {"box": np.array(region["box"], np.float32)})
        for region in plain["unexplained"]
    )
    return Localization(**dict(plain) | {"unexplained": regions})


def _object(plain: Mapping[str, Any]) -> ObservedObject:
    return ObservedObject(
        **dict(plain)
        | {
            "label": ObjectClass(plain["label"]),
            "box": np.array(plain["box"], np.float32),
            "probabilities": np.array(plain["probabilities"], np.float32),
            "box_covariance": np.array(plain["box_covariance"], np.float64),
            "corner_hulls": tuple(
                np.array(hull, np.float32).reshape(-1, 2) for hull in plain["corner_hulls"]
            ),
            "monitors": tuple(MonitorScore(**one) for one in plain["monitors"]),
            **{name: float(plain[name]) for name in METRICS},
        }
    )
