# SPDX-License-Identifier: Apache-2.0
"""Follow-up test cases: source images put into target circumstances (Wozniak et al., task 4)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from sticker_uq.io.coco import LabelledImage


@dataclass(frozen=True)
class Application:
    """One circumstance of a follow-up case, as it was applied: ``strength`` in the transformation's unit,
    seed and more parameters.
    """

    circumstance: str
    transformation: str
    strength: float
    seed: int
    parameters: tuple[tuple[str, float | str], ...] = ()


@dataclass(frozen=True)
class FollowUpCase:
    """One follow-up image, and its truth.

    ``image_id`` is unique in the folder of cases; ``path`` is the written picture; ``source`` the labelled image it was made
    from; ``applied`` what was done to that, in order: one circumstance, or several at once.

    ``boxes`` (N, 4) float32 x1 y1 x2 y2 px and ``labels`` (N,) int64 are the objects visible in the follow-up; ``origin`` (N,)
    int64 says which of the source's objects each is. ``hidden`` (M,) int64 are the source's objects that are still on the laptop
    but cannot be seen (covered, or outside the image): no detection is expected of them, yet to call the laptop clean would be
    wrong.
    """

    case_id: str
    image_id: int
    path: Path
    source: LabelledImage
    applied: tuple[Application, ...]
    width: int
    height: int
    boxes: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    origin: npt.NDArray[np.int64]
    hidden: npt.NDArray[np.int64]

    @property
    def source_id(self) -> int:
        return self.source.image_id

    @property
    def circumstances(self) -> tuple[str, ...]:
        return tuple(one.circumstance for one in self.applied)

    @property
    def truth(self) -> LabelledImage:
        return LabelledImage(self.path, self.image_id, self.width, self.height, self.boxes, self.labels)


@dataclass(frozen=True)
class CaseSet:
    """Follow-up cases that a robustness assessment judges together.

    ``kind``: "target", all circumstances in the proportions of the specification; "circumstance", every case in that one;
    "sweep", every case in that one at ``strength`` (NaN for the other kinds).
    """

    kind: Literal["target", "circumstance", "sweep"]
    circumstance: str
    strength: float
    cases: tuple[FollowUpCase, ...]

    @property
    def name(self) -> str:
        """A short name of the set of follow-up cases, unique in a robustness assessment."""
        if self.kind == "sweep":
            return f"{self.circumstance}@{self.strength:g}"
        return self.circumstance if self.kind == "circumstance" else "target"
