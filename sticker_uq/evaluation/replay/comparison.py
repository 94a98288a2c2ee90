# SPDX-License-Identifier: Apache-2.0
"""What another bundle or policy says about the same images."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from sticker_uq.evaluation.replay.tables import Row
from sticker_uq.gate import Policy, judge
from sticker_uq.gate.box_overlap import SAME_PLACE_IOU, Box, as_box, iou
from sticker_uq.io.bags import Bag
from sticker_uq.io.messages import scene_from_msg
from sticker_uq.io.topics import IMAGE_TYPES, scene_topic_of
from sticker_uq.perception.settings import PerceptionSettings
from sticker_uq.plain import to_plain
from sticker_uq.scene import (
    InvalidInput,
    ObjectClass,
    Outcome,
    SceneAssessment,
    SceneDecision,
    Verdict,
)

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
class Contender:
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
    candidate: Contender
    rows: list[Row] = field(default_factory=list)

    def add(self, image: str, replayed: Judgement, candidate: Judgement) -> None:
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


class CandidateComparison:
    """What ``candidate`` decides about the images of a replay with ``settings``."""

    def __init__(self, candidate: Contender, settings: PerceptionSettings) -> None:
        self.candidate = candidate
        self.assesses_again = candidate.settings != settings
        """Whether the candidate sees the images in another way, too: :meth:`add_again` is then owed its assessments."""
        self._replayed: list[tuple[str, Judgement]] = []
        self._judged: list[Judgement] = []

    def add(self, image: str, assessment: SceneAssessment, decision: SceneDecision) -> None:
        """Take up the next image of the replay."""
        self._replayed.append((image, Judgement.of(assessment, decision)))
        if not self.assesses_again:
            self.add_again(assessment)

    def add_again(self, assessment: SceneAssessment) -> None:
        """Judge what the candidate sees in the next image."""
        self._judged.append(Judgement.of(assessment, judge(assessment, self.candidate.policy)))

    def differences(self) -> Differences:
        found = Differences(self.candidate)
        for (image, replayed), judged in zip(self._replayed, self._judged, strict=True):
            found.add(image, replayed, judged)
        return found


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


SCENE_TYPE = "sticker_uq_msgs/msg/SceneAssessment"
MOST_EXAMPLES = 10
"""So many differences are told in words."""
_DIGEST_BYTES = 16


class LiveComparison:
    """The assessments that a live cell published on ``topic``, against those of a replay.

    ``scenes`` reads the live ones; of several with the same stamp the last counts. Of each only stamp and digest are kept;
    :meth:`describe_differences` reads them again. ``identical``: how many the replay repeated byte for byte; ``different``:
    how many it did not.
    """

    def __init__(self, topic: str, scenes: Callable[[], Iterable[SceneAssessment]]) -> None:
        self.topic = topic
        self._scenes = scenes
        self._digests = {scene.stamp_ns: _digest(scene) for scene in scenes()}
        self._seen: set[int] = set()
        self._examples: list[SceneAssessment] = []
        self.identical = self.different = 0

    def add(self, replayed: SceneAssessment) -> None:
        """Compare one assessment of the replay with the live cell's. Images that the live cell skipped count for nothing."""
        live = self._digests.get(replayed.stamp_ns)
        if live is None:
            return
        self._seen.add(replayed.stamp_ns)
        if live == _digest(replayed):
            self.identical += 1
            return
        self.different += 1
        if len(self._examples) < MOST_EXAMPLES:
            self._examples.append(replayed)

    @property
    def count(self) -> int:
        return len(self._digests)

    @property
    def missing_count(self) -> int:
        """Live assessments whose image the replay has not seen (yet)."""
        return len(self._digests) - len(self._seen)

    @property
    def agrees(self) -> bool:
        """Whether something was compared and nothing differs."""
        return self.identical > 0 and not self.different

    def describe_differences(self) -> list[str]:
        wanted = {replayed.stamp_ns for replayed in self._examples}
        scenes = self._scenes() if wanted else ()
        live = {scene.stamp_ns: scene for scene in scenes if scene.stamp_ns in wanted}
        return [
            f"image at {replayed.stamp_ns} ns: {_difference(live[replayed.stamp_ns], replayed)}"
            for replayed in self._examples
        ]


def live_scenes(bag: Bag, image_topic: str) -> LiveComparison:
    """The live cell's assessments in `bag`, to be compared with a replay of the images of `image_topic`.

    Where several cameras were recorded, the scenes beside the images count, see :func:`sticker_uq.io.topics.scene_topic_of`.
    Raises InvalidInput when there are none, or several of which none is nearer than the others.
    """
    topics = bag.topics_of(SCENE_TYPE)
    if len(topics) > 1:
        images = [topic for topic, kind in bag.topics.items() if kind in IMAGE_TYPES.values()]
        topics = scene_topic_of(image_topic, topics, images) or topics
    if len(topics) != 1:
        raise InvalidInput(
            f"{bag.path}: expected one topic of {SCENE_TYPE}, found {', '.join(topics) or 'none'}"
        )

    def scenes() -> Iterator[SceneAssessment]:
        for item in bag.messages(topics[0]):
            if item.message is not None:
                yield scene_from_msg(item.message)

    return LiveComparison(topics[0], scenes)


def _digest(scene: SceneAssessment) -> bytes:
    return hashlib.blake2b(scene.to_bytes(), digest_size=_DIGEST_BYTES).digest()


def _difference(live: SceneAssessment, replayed: SceneAssessment) -> str:
    """The first thing in which two assessments differ, in words."""
    a, b = (to_plain(scene, leave_out=("timings", "saliency")) for scene in (live, replayed))
    # What made an assessment explains everything after it, so that is looked at first.
    order = (
        "model", "model_hash", "device", "precision", "settings_hash", "panel_hash", "image_size",
        "image_digest", "status", "status_text",
    )  # fmt: skip
    for name in [*order, *(n for n in a if n not in order)]:
        if json.dumps(a[name]) != json.dumps(b[name]):  # as text, because NaN equals nothing
            short = isinstance(a[name], str | int | float)
            return f"{name} was {a[name]}, is {b[name]}" if short else f"other {name}"
    return "no difference in any field"
