# SPDX-License-Identifier: Apache-2.0
"""A second bundle or policy on the images of a replay: what the two judge differently, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from sticker_uq.evaluation.replay.tables import Row
from sticker_uq.gate import Policy
from sticker_uq.gate.box_overlap import SAME_PLACE_IOU, Box, as_box, iou
from sticker_uq.perception.settings import PerceptionSettings
from sticker_uq.scene import ObjectClass, Outcome, SceneAssessment, SceneDecision, Verdict

KINDS = {"objects": "detected", "released": "released", "asked": "asked about"}
"""What is counted of objects, with its words."""
SIDES = ("both", "replayed", "candidate")
CANDIDATE_SCHEMA = pa.schema(
    [
        ("image", pa.string()),
        ("outcome", pa.string()),
        ("candidate_outcome", pa.string()),
        *((f"{kind}_{side}", pa.int32()) for kind in KINDS for side in SIDES),
        ("other_classes", pa.list_(pa.string())),
    ]
)
"""The table ``candidate``. ``released_candidate``: objects that only the candidate releases; ``other_classes``: of each object to
which the two give different classes, REPLAYED>CANDIDATE."""


@dataclass(frozen=True)
class Candidate:
    name: str
    settings: PerceptionSettings
    policy: Policy


@dataclass(frozen=True)
class JudgedObject:
    """An object that enough passes detected, and what was decided about it."""

    label: ObjectClass
    box: Box
    verdict: Verdict


@dataclass(frozen=True)
class Judgement:
    outcome: Outcome
    objects: tuple[JudgedObject, ...]

    @classmethod
    def of(cls, scene: SceneAssessment, decision: SceneDecision) -> Judgement:
        """The decision about ``scene``, without objects detected in too few passes."""
        clustered = {one.id for one in scene.objects if not one.unstable}
        objects = (
            JudgedObject(v.object.label, as_box(v.object.box), v.verdict)
            for v in decision.verdicts
            if v.object.id in clustered
        )
        outcome = Outcome.BLOCKED if decision.outcome is Outcome.UNKNOWN else decision.outcome
        return cls(outcome, tuple(objects))

    def releases(self, one: JudgedObject | None) -> bool:
        """Whether a removal of ``one`` would be permitted: not where the scene itself is doubtful."""
        return one is not None and self.outcome is Outcome.WORK and one.verdict is Verdict.REMOVE


@dataclass
class Differences:
    """What the replayed perception and policy and those of ``candidate`` judge differently, image by image."""

    candidate: Candidate
    rows: list[Row] = field(default_factory=list)

    def add(self, image: str, replayed: Judgement, candidate: Judgement) -> None:
        """Count what the two judge about ``image``."""
        counts: Counter[str] = Counter()
        classes = []
        for first, second in _pairs(replayed.objects, candidate.objects):
            _count(counts, "objects", first is not None, second is not None)
            _count(counts, "released", replayed.releases(first), candidate.releases(second))
            _count(counts, "asked", _asks(first), _asks(second))
            if first is not None and second is not None and first.label is not second.label:
                classes.append(f"{first.label.name.lower()}>{second.label.name.lower()}")
        self.rows.append(
            {
                "image": image,
                "outcome": replayed.outcome.name,
                "candidate_outcome": candidate.outcome.name,
                **{f"{kind}_{side}": counts[f"{kind}_{side}"] for kind in KINDS for side in SIDES},
                "other_classes": classes,
            }
        )

    def summary(self) -> str:
        differing = sum(row["outcome"] != row["candidate_outcome"] for row in self.rows)
        only = [sum(row[f"released_{side}"] for row in self.rows) for side in ("candidate", "replayed")]
        return (
            f"compared with {self.candidate.name}: outcome differs in {differing} of {len(self.rows)} images; objects released "
            f"only there: {only[0]}, only here: {only[1]}"
        )


def _count(counts: Counter[str], kind: str, replayed: bool, candidate: bool) -> None:
    if replayed or candidate:
        counts[f"{kind}_{'both' if replayed and candidate else 'replayed' if replayed else 'candidate'}"] += 1


def _asks(one: JudgedObject | None) -> bool:
    return one is not None and one.verdict is Verdict.ASK


def _pairs(
    replayed: Sequence[JudgedObject], candidate: Sequence[JudgedObject]
) -> list[tuple[JudgedObject | None, JudgedObject | None]]:
    """Each object with the one at the same place on the other side, those that overlap most first; None where there is none."""
    overlaps = [
        (overlap, i, j)
        for i, one in enumerate(replayed)
        for j, other in enumerate(candidate)
        if (overlap := iou(one.box, other.box)) >= SAME_PLACE_IOU
    ]
    partner: dict[int, int] = {}
    for _, i, j in sorted(overlaps, key=lambda found: -found[0]):
        if i not in partner and j not in partner.values():
            partner[i] = j
    alone = [(None, other) for j, other in enumerate(candidate) if j not in partner.values()]
    found = [(one, candidate[partner[i]] if i in partner else None) for i, one in enumerate(replayed)]
    return [*found, *alone]
