# SPDX-License-Identifier: Apache-2.0
"""What the active side and a candidate judge differently about one image, as counts that can be added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sticker_uq.gate.box_overlap import SAME_PLACE_IOU, Box, as_box, iou
from sticker_uq.scene import ObjectClass, Outcome, SceneAssessment, SceneDecision, Verdict

IMAGES = "images"
"""Images that were compared."""
BOTH, ACTIVE, CANDIDATE = "both", "active", "candidate"
ANSWERED, OTHER_PIXELS, OTHER_BUNDLE = "skipped answered", "skipped other pixels", "skipped other bundle"
"""Images that both sides saw and that cannot be compared: a person's answer decided, the pixels differ, or the scene is not
the candidate's."""
NO_ACTIVE, NO_CANDIDATE = "unpaired active missing", "unpaired candidate missing"
"""Images that only one side has judged."""


@dataclass(frozen=True)
class JudgedObject:
    """An object that enough passes detected, and what was decided about it."""

    label: ObjectClass
    box: Box
    verdict: Verdict


@dataclass(frozen=True)
class Judgement:
    """What one side says about an image."""

    outcome: Outcome
    objects: tuple[JudgedObject, ...]

    @classmethod
    def of(cls, scene: SceneAssessment, decision: SceneDecision) -> Judgement:
        """How the active side or the candidate judges ``scene`` by ``decision``, without objects detected in too few passes."""
        clustered = {one.id for one in scene.objects if not one.unstable}
        objects = (
            JudgedObject(v.object.label, as_box(v.object.box), v.verdict)
            for v in decision.verdicts
            if v.object.id in clustered
        )
        outcome = Outcome.BLOCKED if decision.outcome is Outcome.UNKNOWN else decision.outcome
        return cls(outcome, tuple(objects))

    def releases(self, one: JudgedObject) -> bool:
        """Whether a side of the shadow comparison would permit a removal of ``one``: not where the scene itself is doubtful."""
        return self.outcome is Outcome.WORK and one.verdict is Verdict.REMOVE


def differences(active: Judgement, candidate: Judgement) -> Counter[str]:
    """What active side and candidate judge differently about one image, counted.

    ``images`` 1; ``outcome A>C`` 1 for the two outcomes; of the objects ``objects``, ``released`` and ``asked``, each followed by
    ``both``, ``active`` or ``candidate`` (only that side); ``label A>C`` where both see an object at a place and differ in its
    class.
    """
    counts = Counter({IMAGES: 1, outcome_key(active.outcome, candidate.outcome): 1})
    for first, second in _pairs(active.objects, candidate.objects):
        _count(counts, "objects", first is not None, second is not None)
        _count(
            counts,
            "released",
            first is not None and active.releases(first),
            second is not None and candidate.releases(second),
        )
        _count(counts, "asked", _asks(first), _asks(second))
        if first is not None and second is not None and first.label is not second.label:
            counts[f"label {first.label.name.lower()}>{second.label.name.lower()}"] += 1
    return counts


def outcome_key(active: Outcome, candidate: Outcome) -> str:
    """The shadow's key that images with these two outcomes, of active side and candidate, are counted under."""
    return f"outcome {active.name.lower()}>{candidate.name.lower()}"


def total(counts: Counter[str], kind: str, differing: bool = False) -> int:
    """The sum of all shadow counts ``kind A>C``; with ``differing`` of those in which A is not C."""
    found = ((key.removeprefix(f"{kind} "), n) for key, n in counts.items() if key.startswith(f"{kind} "))
    return sum(n for key, n in found if not differing or len(set(key.split(">"))) > 1)


def asks(counts: Counter[str]) -> tuple[int, int, int]:
    """Images about which a person would be asked by the active side, by the candidate, and by both."""
    return (
        sum(counts[outcome_key(Outcome.ASK, other)] for other in Outcome),
        sum(counts[outcome_key(one, Outcome.ASK)] for one in Outcome),
        counts[outcome_key(Outcome.ASK, Outcome.ASK)],
    )


def _count(counts: Counter[str], kind: str, active: bool, candidate: bool) -> None:
    side = {(True, True): BOTH, (True, False): ACTIVE, (False, True): CANDIDATE}.get((active, candidate))
    if side is not None:
        counts[f"{kind} {side}"] += 1


def _asks(one: JudgedObject | None) -> bool:
    return one is not None and one.verdict is Verdict.ASK


def _pairs(
    active: Sequence[JudgedObject], candidate: Sequence[JudgedObject]
) -> list[tuple[JudgedObject | None, JudgedObject | None]]:
    """Each object with the one at the same place on the other side, those that overlap most first; None where there is none."""
    overlaps = [
        (overlap, i, j)
        for i, one in enumerate(active)
        for j, other in enumerate(candidate)
        if (overlap := iou(one.box, other.box)) >= SAME_PLACE_IOU
    ]
    partner: dict[int, int] = {}
    for _, i, j in sorted(overlaps, key=lambda found: -found[0]):
        if i not in partner and j not in partner.values():
            partner[i] = j
    alone = [(None, other) for j, other in enumerate(candidate) if j not in partner.values()]
    found = [(one, candidate[partner[i]] if i in partner else None) for i, one in enumerate(active)]
    return [*found, *alone]
