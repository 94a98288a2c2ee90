# SPDX-License-Identifier: Apache-2.0
"""The comparison of a running cell with a candidate: messages in, counts and JSON lines out. It decides nothing."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from sticker_uq.evaluation.shadow.differences import (
    ANSWERED,
    IMAGES,
    NO_ACTIVE,
    NO_CANDIDATE,
    OTHER_BUNDLE,
    OTHER_PIXELS,
    Judgement,
    differences,
    total,
)
from sticker_uq.evaluation.shadow.pairing import Pairing
from sticker_uq.evaluation.shadow.record import Block, Example, ShadowRecord, Versions, sums
from sticker_uq.gate import Policy, judge
from sticker_uq.gate.audit.chain import utc
from sticker_uq.gate.judge import decision_id
from sticker_uq.io.messages import decision_from_msg, stamp_to_ns
from sticker_uq.scene import InvalidInput, SceneAssessment, SceneDecision, Status

BLOCK_NS = 60_000_000_000
"""A line is written after so long, also where the laptop stays; what a kill loses is never older."""
MOST_UNWRITTEN = 1000
"""Lines that wait for a disk that refuses; the oldest are lost, and counted."""
HASHES = ("model_hash", "settings_hash", "panel_hash")
_SCENE, _DECISION, _CANDIDATE = "scene", "decision", "candidate scene"


class ShadowComparison:
    """Compares the active decisions with those of ``policy`` about the candidate's scenes, image by image.

    ``candidate``: the hashes of the candidate, of which those in :data:`HASHES` must be those of its scenes. ``limit``: images of
    which one side is missing yet. ``problem``: why lines do not reach the disk, empty when they do; ``lost``: lines that never
    will; ``skipped``: why the newest image of both sides was not compared, empty when it was.
    """

    def __init__(
        self, policy: Policy, candidate: Mapping[str, str], record: ShadowRecord, limit: int = 200
    ) -> None:
        self._policy = policy
        self._candidate = dict(candidate)
        self._record = record
        self._pairing = Pairing((_SCENE, _DECISION, _CANDIDATE), limit, self._unpaired)
        self._before: dict[Versions, Counter[str]] = sums(record.path.parent)
        self._active: dict[str, str] = {}
        self._workpiece = ""
        self._since_ns = 0
        self._counts: Counter[str] = Counter()
        self._example: Example | None = None
        self._unwritten: deque[Block] = deque()
        self.problem = self.skipped = ""
        self.lost = 0

    @property
    def waiting(self) -> int:
        """Images of which active side or candidate is missing yet."""
        return len(self._pairing)

    @property
    def counts(self) -> Counter[str]:
        """All that was counted of the present active bundle and candidate, by this process and by those before it."""
        return self._before.get(self._versions, Counter()) + self._counts

    def add_scene(self, scene: SceneAssessment, now_ns: int) -> None:
        """Take a scene of the active detector into the shadow comparison."""
        self._add(_SCENE, scene.stamp_ns, scene, now_ns)

    def add_decision(self, message: Any, now_ns: int) -> None:
        """Take a decision of the active supervisor into the shadow comparison, the message as it came."""
        self._add(_DECISION, stamp_to_ns(message.header.stamp), message, now_ns)

    def add_candidate(self, scene: SceneAssessment, now_ns: int) -> None:
        """Take a scene of the candidate's detector."""
        self._add(_CANDIDATE, scene.stamp_ns, scene, now_ns)

    def tick(self, now_ns: int) -> None:
        """Write what the shadow comparison counted when that is due, and what the disk has refused."""
        if self._since_ns and not 0 <= now_ns - self._since_ns < BLOCK_NS:
            self._end_block(now_ns)
        self._write()

    def close(self, now_ns: int) -> None:
        """Write all that the shadow comparison counted."""
        self._pairing.give_up()
        self._end_block(now_ns)
        self._write()

    def summary(self) -> str:
        """What differs between active bundle and candidate, in words."""
        counts = self.counts
        if not counts[IMAGES]:
            return "no image compared yet"
        outcomes = total(counts, "outcome", differing=True)
        only = [counts[f"released {side}"] for side in ("candidate", "active")]
        return (
            f"{counts[IMAGES]} images compared: outcome differs in {outcomes}; stickers released by the candidate only: "
            f"{only[0]}, by the active policy only: {only[1]}"
        )

    @property
    def _versions(self) -> Versions:
        return tuple(sorted(self._active.items())), tuple(sorted(self._candidate.items()))

    def _add(self, stream: str, stamp_ns: int, value: Any, now_ns: int) -> None:
        self._since_ns = self._since_ns or now_ns
        if (found := self._pairing.add(stream, stamp_ns, value)) is not None:
            self._compare(found[_SCENE], found[_DECISION], found[_CANDIDATE], now_ns)

    def _unpaired(self, had: frozenset[str]) -> None:
        self._counts[NO_ACTIVE if _CANDIDATE in had else NO_CANDIDATE] += 1

    def _compare(self, scene: SceneAssessment, message: Any, shadow: SceneAssessment, now_ns: int) -> None:
        try:
            decision = decision_from_msg(message, scene)
        except InvalidInput:  # two scenes with one stamp, of which this decision is about the other
            self._counts[NO_ACTIVE] += 1
            return
        self._begin_block(scene, decision, now_ns)
        self.skipped = self._why_not(scene, decision, shadow)
        if self.skipped:
            self._counts[self.skipped] += 1
            return
        active = Judgement.of(scene, decision)
        candidate = Judgement.of(shadow, judge(shadow, self._policy))
        self._counts += differences(active, candidate)
        if active.outcome is not candidate.outcome and self._example is None:
            names = active.outcome.name, candidate.outcome.name
            self._example = Example(stamp_ns=scene.stamp_ns, active=names[0], candidate=names[1])

    def _why_not(self, scene: SceneAssessment, decision: SceneDecision, shadow: SceneAssessment) -> str:
        """Under what the image is counted that cannot be compared; empty when it can.

        The candidate's answer is its own, so the active one must be, too: with an operator's answer a decision has another id.
        """
        if _usable(shadow) and any(getattr(shadow, name) != self._candidate[name] for name in HASHES):
            return OTHER_BUNDLE
        if scene.image_digest and shadow.image_digest and scene.image_digest != shadow.image_digest:
            return OTHER_PIXELS
        alone = decision_id(scene, decision.policy_hash, workpiece_id=decision.workpiece_id)
        spot_check = any(reason.code == "spot_check" for reason in decision.reasons)
        return ANSWERED if spot_check or decision.decision_id != alone else ""

    def _begin_block(self, scene: SceneAssessment, decision: SceneDecision, now_ns: int) -> None:
        """End the block when another laptop lies there or something else is compared."""
        hashes = {name: getattr(scene, name) for name in HASHES} if _usable(scene) else {}
        active = {**self._active, **hashes, "policy_hash": decision.policy_hash}
        if (active, decision.workpiece_id) != (self._active, self._workpiece):
            if self._active:  # what was counted before the first pair is about this one
                self._end_block(now_ns)
            self._active, self._workpiece = active, decision.workpiece_id
            self._since_ns = self._since_ns or now_ns

    def _end_block(self, now_ns: int) -> None:
        if not self._active or not self._counts:
            return
        self._unwritten.append(
            Block(
                since=utc(self._since_ns),
                until=utc(now_ns),
                workpiece=self._workpiece,
                active=self._active,
                candidate=self._candidate,
                counts=dict(self._counts),
                example=self._example,
            )
        )
        self._before.setdefault(self._versions, Counter()).update(self._counts)
        self._counts, self._example, self._since_ns = Counter(), None, 0
        while len(self._unwritten) > MOST_UNWRITTEN:
            self._unwritten.popleft()
            self.lost += 1

    def _write(self) -> None:
        try:
            while self._unwritten:
                self._record.append(self._unwritten[0])
                self._unwritten.popleft()
        except OSError as refused:
            self.problem = refused.strerror or str(refused)
        else:
            self.problem = ""


def _usable(scene: SceneAssessment) -> bool:
    """A failed scene may lack hashes and digest."""
    return scene.status in (Status.OK, Status.DEGRADED)
