# SPDX-License-Identifier: Apache-2.0
"""How well novelty detection tells the unknown from the known, as measured when it was trained."""

from dataclasses import asdict, dataclass
from typing import Any, Self

MIN_AUROC = 0.8
"""Least lower bound of an area under the ROC curve at which novelty is used for limits.

0.5 is chance. A normally distributed score with an area of 0.8 finds one unknown in eight where one known in a hundred is asked
about, one of 0.6 one in forty: the limits of a policy would hold back next to nothing.
"""


@dataclass(frozen=True)
class Auroc:
    """Area under the ROC curve with its 95 % interval, 0..1."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True)
class NoveltyQuality:
    """Measured on ``pictures`` pictures that were not trained on.

    ``objects``: how well novelty tells objects of unknown kinds from known ones; ``scenes``: how well the scene distance tells
    photographs of other things from these pictures.
    """

    objects: Auroc
    scenes: Auroc
    pictures: int

    def to_dict(self) -> dict[str, Any]:
        """For the metadata of a weights file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """From what :meth:`to_dict` made. Raises KeyError, TypeError or ValueError for anything else."""
        return cls(Auroc(**plain["objects"]), Auroc(**plain["scenes"]), int(plain["pictures"]))

    @property
    def weakness(self) -> str:
        """Why nothing of this quality is used for limits; empty when something is."""
        return _weak("foreign scenes", self.scenes)

    @property
    def objects_weakness(self) -> str:
        """Why novelty of objects is not used, only of scenes; empty when it is. Of stickers of some 20 px nothing can be told."""
        return _weak("unknown objects", self.objects)


def _weak(name: str, area: Auroc) -> str:
    strong = area.low >= MIN_AUROC
    return "" if strong else f"AUROC of {name} {area}, expected a lower bound of {MIN_AUROC} or more"
