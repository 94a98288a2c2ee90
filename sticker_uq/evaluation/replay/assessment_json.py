# SPDX-License-Identifier: Apache-2.0
"""Assessments as JSON values, so that a second calibration or another policy needs no detector run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sticker_uq.scene import SceneAssessment, from_plain, to_plain

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
    return from_plain(SceneAssessment, plain)
