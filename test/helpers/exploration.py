# SPDX-License-Identifier: Apache-2.0
"""The abstracted events of the gate, and every order of them up to a depth; a witness sees each step.

Time is abstracted: every event takes a moment, except a pause that outlasts all time limits and a clock that is set. States
that differ in nothing but numbers, names and such moments count as one.
"""

import json
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from sticker_uq.gate import (
    Answer,
    BlockReason,
    GateState,
    OperatorAnswer,
    OperatorAnswers,
    SceneAnswer,
    facts_of,
    judge,
    step,
)
from sticker_uq.gate import events as ev
from sticker_uq.gate.arm_events import ORDERED_STOP
from sticker_uq.gate.audit.chain import finite
from sticker_uq.gate.box_overlap import Box
from sticker_uq.gate.durable import DurableState
from sticker_uq.gate.state import SceneFacts
from sticker_uq.scene import (
    Exposure,
    ImageCheck,
    ObjectClass,
    Outcome,
    Reason,
    SceneAssessment,
    SceneDecision,
    Status,
    Verdict,
)
from sticker_uq.testing.scenes import HERE, MS, SECOND, SIZE, assessment, object_at, rarely_seen
from test.helpers.gate import (
    POLICY,
    SETTINGS,
    Cell,
    K,
    Witness,
    asking,
    faulted,
    permitted,
    removing,
    running,
    verifying,
)

MOMENT = MS
PAUSE = 1100 * MS  # longer than lease, scene age, acceptance and cancellation
LIT = Exposure(120.0, 0.0, 0.0)
TWO = ("/camera", "/usb_cam")
DETECTORS = Reason.of("scene_publishers", topic="/scene", count=2, names="/detector, /detector")
APPROVED = OperatorAnswers().remember([OperatorAnswer(Answer.REMOVE, HERE)])

Make = Callable[[GateState, int], ev.Event | None]
Template = tuple[SceneDecision, SceneFacts]


@cache
def scenes() -> dict[str, SceneAssessment]:
    """Each kind of scene."""
    sticker, logo = object_at(), object_at(label=ObjectClass.LOGO)
    return {
        "sticker": assessment(sticker),
        "logo": assessment(logo),
        "unsure": assessment(object_at(shannon_entropy=1.5)),
        "slightly unsure": assessment(object_at(shannon_entropy=1.2)),
        "seen twice": assessment(object_at(duplicated=True)),
        "two in one": assessment(object_at((100.0, 100.0, 240.0, 160.0), duplicated=True)),
        "empty": assessment(),
        "dubious": assessment(sticker, dil=0.9),
        "approved logo": assessment(logo),
        "failed": assessment(sticker, status=Status.FAILED),
        "not finite": assessment(object_at(mutual_information=float("nan"))),
        "other size": assessment(sticker, image_size=(320, 240)),
        "dark": assessment(sticker, exposure=Exposure(2.0, 0.99, 0.0)),
        "of two cameras": assessment(sticker, image_publishers=TWO),
        "logo over it": assessment(sticker, object_at((160.0, 140.0, 200.0, 180.0), ObjectClass.LOGO)),
        "forged logo": assessment(logo),
        "forged rare": assessment(unstable=[rarely_seen()]),
    }


@lru_cache(10_000)
def judged(name: str, memory: OperatorAnswers) -> Template:
    """What the policy makes of a scene after these answers; of the forged ones, what a broken policy would."""
    seen = scenes()[name]
    if name == "approved logo" and not memory.scene_clean and memory.against(HERE) is None:
        memory = APPROVED
    decision = judge(seen, POLICY, OperatorAnswers() if name.startswith("forged") else memory)
    if name.startswith("forged"):
        verdicts = tuple(replace(v, verdict=Verdict.REMOVE) for v in decision.verdicts)
        decision = replace(decision, verdicts=verdicts, outcome=Outcome.WORK)
    return decision, facts_of(seen, decision)


def scene(name: str, age: int = MOMENT) -> Make:
    def make(state: GateState, now: int) -> ev.Event:
        decision, facts = judged(name, state.memory)
        stamp = now - age
        return ev.SceneReceived(
            replace(decision, stamp_ns=stamp), replace(facts, stamp_ns=stamp, image_digest=f"{stamp:032x}")
        )

    return make


def image(problem: str = "", exposure: Exposure = LIT, publishers: tuple[str, ...] = ("/camera",)) -> Make:
    def make(state: GateState, now: int) -> ev.Event:
        source = ("camera", SIZE) if state.reference is None else state.reference.source
        check = ImageCheck(now - MOMENT, source[0], problem, source[1], exposure, image_publishers=publishers)
        return ev.ImageArrived(check)

    return make


def again(state: GateState, now: int) -> ev.Event | None:
    if state.scene is None or state.decision is None:
        return None
    return ev.SceneReceived(state.decision, state.scene)


def frozen(state: GateState, now: int) -> ev.Event | None:
    """The newest pixels once more, as if they were a new image."""
    if state.scene is None or state.decision is None:
        return None
    stamp = now - MOMENT
    return ev.SceneReceived(replace(state.decision, stamp_ns=stamp), replace(state.scene, stamp_ns=stamp))


def ticking(state: GateState, now: int) -> ev.Event:
    """Time has passed on all clocks."""
    return ev.Tick(state.steady_ns + now - state.tick_ns)


def leaping(state: GateState, now: int) -> ev.Event:
    """The clock was set, and next to no time has passed."""
    return ev.Tick(state.steady_ns + MOMENT)


def answered(
    scene_answer: SceneAnswer, answer: Answer | None = None, not_stickers: tuple[Box, ...] = ()
) -> Make:
    def make(state: GateState, now: int) -> ev.Event | None:
        if state.request is None:
            return None
        given = () if answer is None else (OperatorAnswer(answer, HERE),)
        request = state.request
        return ev.AnswerGiven(
            request.request_id,
            "Ada",
            scene_answer,
            given,
            not_stickers=not_stickers,
            image_ns=request.stamp_ns,
        )

    return make


def restarted(state: GateState, now: int) -> ev.Event:
    """Another process reads what this one has written."""
    return ev.Restarted(DurableState.from_plain(written(state)))


def written(state: GateState) -> dict[str, Any]:
    """What is on the disk."""
    return dict(json.loads(json.dumps(finite(DurableState.of(state).to_plain()))))


def always(event: ev.Event) -> Make:
    return lambda state, now: event


ALPHABET: dict[str, tuple[Make, int]] = {
    **{f"scene: {name}": (scene(name), 2 * MOMENT) for name in scenes()},
    "scene: old": (scene("sticker", PAUSE), 2 * MOMENT),
    "scene: in the future": (scene("sticker", -PAUSE), 2 * MOMENT),
    "scene: again": (again, 2 * MOMENT),
    "scene: unreadable": (always(ev.SceneUnreadable(Reason("detector_lost"))), MOMENT),
    "scene: frozen": (frozen, 2 * MOMENT),
    "image: good": (image(), MOMENT),
    "image: dark": (image(exposure=Exposure(2.0, 0.99, 0.0)), MOMENT),
    "image: unusable": (image(problem="test"), MOMENT),
    "image: of two cameras": (image(publishers=TWO), MOMENT),
    "detectors: two": (always(ev.Impediment(BlockReason.SECOND_SCENE_PUBLISHER, DETECTORS)), MOMENT),
    "detectors: one": (always(ev.Impediment(BlockReason.SECOND_SCENE_PUBLISHER, None)), MOMENT),
    "tick": (ticking, MOMENT),
    "pause": (ticking, PAUSE),
    "clock goes back": (leaping, -3 * PAUSE),
    "clock leaps ahead": (leaping, 3 * PAUSE),
    "arm comes": (always(ev.ArmReady(True)), MOMENT),
    "arm falls silent": (always(ev.ArmReady(False)), MOMENT),
    "arm goes": (always(ev.ArmLost()), MOMENT),
    "accepted": (lambda state, now: ev.GoalAccepted(state.goals), MOMENT),
    "rejected": (lambda state, now: ev.GoalRejected(state.goals), MOMENT),
    "peeled": (lambda state, now: ev.RemovalFinished(state.goals, ev.RemovalCode.NONE), MOMENT),
    "failed": (lambda state, now: ev.RemovalFinished(state.goals, ev.RemovalCode.MOTION_FAILED), MOMENT),
    "cannot stop": (lambda state, now: ev.RemovalFinished(state.goals, ev.RemovalCode.NOT_STOPPED), MOMENT),
    "stopped": (lambda state, now: ev.RemovalFinished(state.goals, ev.RemovalCode.OPERATOR_ABORT), MOMENT),
    "older goal": (lambda state, now: ev.RemovalFinished(state.goals - 1, ev.RemovalCode.NONE), MOMENT),
    "person: remove": (answered(SceneAnswer.NONE, Answer.REMOVE), MOMENT),
    "person: look again": (answered(SceneAnswer.RESCAN), MOMENT),
    "person: skip": (answered(SceneAnswer.SKIP_LAPTOP), MOMENT),
    "person: clean": (answered(SceneAnswer.CLEAN), MOMENT),
    "person: clean, that too": (answered(SceneAnswer.CLEAN, not_stickers=(HERE,)), MOMENT),
    "person: fault": (answered(SceneAnswer.FAULT), MOMENT),
    "hold": (always(ev.Hold()), MOMENT),
    "release": (always(ev.Release()), MOMENT),
    "reset": (always(ev.Reset()), MOMENT),
    "person: leave it": (answered(SceneAnswer.NONE, Answer.KEEP), MOMENT),
    "restart": (restarted, MOMENT),
    "workpiece": (lambda state, now: ev.WorkpieceChanged(state.workpiece_id + "+", now), MOMENT),
    "workpiece: same id": (lambda state, now: ev.WorkpieceChanged(state.workpiece_id, now), MOMENT),
    "workpiece: repeated": (
        lambda state, _: ev.WorkpieceChanged(state.workpiece_id, state.announced_ns),
        MOMENT,
    ),
    "workpiece: unnamed": (lambda state, now: ev.WorkpieceChanged(" ", now), MOMENT),
    "workpiece: older": (
        lambda state, _: ev.WorkpieceChanged("older", max(state.announced_ns - MOMENT, 1)),
        MOMENT,
    ),
    "fault": (always(ev.Fault()), MOMENT),
    "deactivated": (always(ev.Deactivated()), MOMENT),
    "activated": (always(ev.Activated()), MOMENT),
}


@dataclass
class Node:
    """One reachable state, when it was reached, and who saw the way there."""

    state: GateState
    now: int
    witness: Witness

    def follow(self, make: Make, duration: int) -> "Node | None":
        now = self.now + duration
        event = make(self.state, now)
        if event is None:
            return None
        before = GateState() if isinstance(event, ev.Restarted) else self.state
        after, effects = step(before, event, now, SETTINGS)
        witness = self.witness.copy()
        witness.see(self.state, event, now, after, effects, SETTINGS)
        return Node(after, now, witness)


def abstract(state: GateState, now: int) -> Hashable:
    """What two states must share to count as one."""
    permit, check, scene, streak = state.permit, state.verification, state.scene, state.streak
    return (
        (state.active, state.held, bool(state.fault), state.arm_ready, state.skipped, state.done),
        (bool(state.problems), bool(state.impediments), state.refused is not None, state.stop_demanded),
        state.picture and min(state.picture.count, SETTINGS.frozen_images),
        scene is None
        or (
            now - scene.stamp_ns >= PAUSE // 2,
            state.waited_ns >= SECOND,
            scene.stamp_ns <= state.counts_after_ns,
        ),
        state.reference is not None and (state.reference.source, state.reference.judges),
        (streak.outcome, streak.count, streak.target is not None and streak.target.by_operator),
        permit
        and (
            (permit.open, permit.accepted, permit.lost, permit.escalated, permit.foreign),
            (bool(permit.revoked & ORDERED_STOP), permit.target.by_operator, permit.doubts),
        ),
        check and (check.seen, check.gone, check.target.by_operator),
        (tuple(count for _, count in state.attempts), state.removed),
        state.request
        and (
            (state.request.whole_scene, len(state.request.boxes), state.request.source[1] == SIZE),
            len(state.request.stickers),
        ),
        state.memory,
    )


SEEDS: dict[str, Callable[[], Cell]] = {
    "start": lambda: Cell(SETTINGS),
    "monitoring": lambda: running(SETTINGS).scene(object_at(), times=K - 1),
    "permitted": lambda: permitted(SETTINGS),
    "removing": lambda: removing(SETTINGS),
    "verifying": lambda: verifying(SETTINGS),
    "verified": lambda: verifying(SETTINGS).scene(times=K).scene(object_at(), times=K - 1),
    "asking": lambda: asking(SETTINGS),
    "faulted": lambda: faulted(SETTINGS),
}


def explore(depth: int, thinned: int = 1) -> Iterator[list[Node]]:
    """The states that are reachable from any of the seeds in 0, 1, 2, ... ``depth`` events but not sooner.

    The last event follows every ``thinned``-th of the states before it only.
    """
    cells = [make().tick() for make in SEEDS.values()]
    frontier = [Node(cell.state, cell.now, cell.witness) for cell in cells]
    seen = {abstract(node.state, node.now) for node in frontier}
    yield frontier
    for length in range(1, depth + 1):
        reached = []
        for node in frontier[:: thinned if length == depth else 1]:
            for name, (make, duration) in ALPHABET.items():
                try:
                    after = node.follow(make, duration)
                except AssertionError as error:
                    error.add_note(f"{name} in {node.state}")
                    raise
                if after is not None and (key := abstract(after.state, after.now)) not in seen:
                    seen.add(key)
                    reached.append(after)
        frontier = reached
        yield frontier
