# SPDX-License-Identifier: Apache-2.0
"""Assessments as JSON values, so that a second calibration or another policy needs no detector run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from sticker_uq.scene import (
    METRICS,
    Exposure,
    ImageUncertainty,
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


@cache
def code_fingerprint(*further: str) -> str:
    """Digest for caches of assessments: source code of perception and of ``further`` parts of this package, 16 hex digits."""
    root = Path(__file__).parents[2]
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
    """The assessment that a cache of a replay holds as :func:`assessment_to_plain` made it; its digest is the same."""
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
