"""Every order of events up to a depth: from the start and from the middle of each phase, a witness sees each step.

Time is abstracted: every event takes a moment, except a pause that outlasts all time limits and a clock that goes back. States
that differ in nothing but numbers, names and such moments count as one.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import pytest

from sticker_uq.scene import ObjectClass, Outcome, SceneAssessment, SceneDecision, Status, Verdict
from sticker_uq.supervision import (
    Answer,
    GateState,
    Memory,
    PersonAnswer,
    Phase,
    SceneAnswer,
    facts_of,
    judge,
    step,
)
from sticker_uq.supervision.arm import PERSONS_STOP
from sticker_uq.supervision.events import (
    Activated,
    AnswerGiven,
    ArmReady,
    Deactivated,
    Event,
    Fault,
    GoalAccepted,
    GoalRejected,
    Hold,
    Release,
    RemovalCode,
    RemovalFinished,
    Reset,
    SceneReceived,
    SceneUnreadable,
    Tick,
    WorkpieceChanged,
)
from test.helpers.assessments import HERE, MS, assessment, observed, rarely_seen
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

pytestmark = pytest.mark.timeout(900)  # 200 000 steps: a while on a busy machine

DEPTH = 5
MOMENT = MS
PAUSE = 1100 * MS  # longer than lease, scene age, acceptance and cancellation
APPROVED = Memory().remember([PersonAnswer(Answer.REMOVE, HERE)])

Make = Callable[[GateState, int], Event | None]
Template = tuple[SceneAssessment, SceneDecision]


@cache
def template(name: str) -> Template:
    """One kind of scene and what the policy makes of it; the forged ones are what a broken policy would."""
    sticker, logo = observed(), observed(label=ObjectClass.LOGO)
    seen = {
        "sticker": assessment(sticker),
        "logo": assessment(logo),
        "unsure": assessment(observed(shannon_entropy=1.5)),
        "empty": assessment(),
        "dubious": assessment(sticker, dil=0.9),
        "approved logo": assessment(logo),
        "failed": assessment(sticker, status=Status.FAILED),
        "not finite": assessment(observed(mutual_information=float("nan"))),
        "other size": assessment(sticker, image_size=(320, 240)),
        "forged logo": assessment(logo),
        "forged rare": assessment(unstable=[rarely_seen()]),
    }[name]
    decision = judge(seen, POLICY, APPROVED if name == "approved logo" else Memory())
    if name.startswith("forged"):
        verdicts = tuple(replace(v, verdict=Verdict.REMOVE) for v in decision.verdicts)
        decision = replace(decision, verdicts=verdicts, outcome=Outcome.WORK)
    return seen, decision


def scene(name: str, age: int = MOMENT) -> Make:
    def make(state: GateState, now: int) -> Event:
        seen, decision = template(name)
        stamp = now - age
        return SceneReceived(
            replace(decision, stamp_ns=stamp), facts_of(replace(seen, stamp_ns=stamp), decision)
        )

    return make


def again(state: GateState, now: int) -> Event | None:
    """The newest image once more."""
    if state.scene is None or state.decision is None:
        return None
    return SceneReceived(state.decision, state.scene)


def answered(scene_answer: SceneAnswer, answer: Answer | None = None) -> Make:
    def make(state: GateState, now: int) -> Event | None:
        if state.request is None:
            return None
        given = () if answer is None else (PersonAnswer(answer, HERE),)
        return AnswerGiven(state.request.request_id, "Ada", scene_answer, given)

    return make


def always(event: Event) -> Make:
    return lambda state, now: event


ALPHABET: dict[str, tuple[Make, int]] = {
    **{
        f"scene: {name}": (scene(name), 2 * MOMENT)
        for name in (
            "sticker",
            "logo",
            "unsure",
            "empty",
            "dubious",
            "approved logo",
            "failed",
            "not finite",
            "other size",
            "forged logo",
            "forged rare",
        )
    },
    "scene: old": (scene("sticker", PAUSE), 2 * MOMENT),
    "scene: in the future": (scene("sticker", -PAUSE), 2 * MOMENT),
    "scene: again": (again, 2 * MOMENT),
    "scene: unreadable": (always(SceneUnreadable("test")), MOMENT),
    "tick": (always(Tick()), MOMENT),
    "pause": (always(Tick()), PAUSE),
    "clock goes back": (always(Tick()), -3 * PAUSE),
    "arm comes": (always(ArmReady(True)), MOMENT),
    "arm goes": (always(ArmReady(False)), MOMENT),
    "accepted": (lambda state, now: GoalAccepted(state.goals), MOMENT),
    "rejected": (lambda state, now: GoalRejected(state.goals), MOMENT),
    "peeled": (lambda state, now: RemovalFinished(state.goals, RemovalCode.NONE), MOMENT),
    "failed": (lambda state, now: RemovalFinished(state.goals, RemovalCode.MOTION_FAILED), MOMENT),
    "stopped": (lambda state, now: RemovalFinished(state.goals, RemovalCode.OPERATOR_ABORT), MOMENT),
    "older goal": (lambda state, now: RemovalFinished(state.goals - 1, RemovalCode.NONE), MOMENT),
    "person: remove": (answered(SceneAnswer.NONE, Answer.REMOVE), MOMENT),
    "person: look again": (answered(SceneAnswer.RESCAN), MOMENT),
    "person: skip": (answered(SceneAnswer.SKIP_LAPTOP), MOMENT),
    "person: clean": (answered(SceneAnswer.CLEAN), MOMENT),
    "person: fault": (answered(SceneAnswer.FAULT), MOMENT),
    "hold": (always(Hold()), MOMENT),
    "release": (always(Release()), MOMENT),
    "reset": (always(Reset()), MOMENT),
    "workpiece": (lambda state, now: WorkpieceChanged(state.workpiece_id + "+", now), MOMENT),
    "fault": (always(Fault("test")), MOMENT),
    "deactivated": (always(Deactivated()), MOMENT),
    "activated": (always(Activated()), MOMENT),
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
        after, effects = step(self.state, event, now, SETTINGS)
        witness = self.witness.copy()
        witness.see(self.state, event, now, after, effects)
        return Node(after, now, witness)


def abstract(state: GateState, now: int) -> Hashable:
    """What two states must share to count as one."""
    permit, check, scene, streak = state.permit, state.verification, state.scene, state.streak
    return (
        (state.active, state.held, bool(state.fault), state.arm_ready, state.skipped, state.done),
        bool(state.problem),
        scene is None or (now - scene.stamp_ns >= PAUSE // 2, scene.stamp_ns <= state.counts_after_ns),
        state.reference is not None and state.reference.image_size,
        (streak.outcome, streak.count, streak.target is not None and streak.target.by_person),
        permit
        and (
            (permit.open, permit.accepted, permit.lost, permit.escalated, permit.foreign),
            (bool(permit.revoked & PERSONS_STOP), permit.target.by_person),
        ),
        check and (check.seen, check.gone, check.target.by_person),
        tuple(count for _, count in state.attempts),
        state.request and (state.request.whole_scene, len(state.request.boxes)),
        state.memory,
    )


SEEDS: dict[str, Callable[[], Cell]] = {
    "start": Cell,
    "monitoring": lambda: running().scene(observed(), times=K - 1),
    "permitted": permitted,
    "removing": removing,
    "verifying": verifying,
    "asking": asking,
    "faulted": faulted,
}


def explore(depth: int) -> Iterator[list[Node]]:
    """The states that are reachable from any of the seeds in 0, 1, 2, ... ``depth`` events but not sooner."""
    cells = [make() for make in SEEDS.values()]
    frontier = [Node(cell.state, cell.now, cell.witness) for cell in cells]
    seen = {abstract(node.state, node.now) for node in frontier}
    yield frontier
    for _ in range(depth):
        reached = []
        for node in frontier:
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


@pytest.fixture(scope="module")
def reached() -> list[Node]:
    """Every reachable state; the witness has seen each step on the way and has not complained."""
    return [node for ring in explore(DEPTH) for node in ring]


def test_no_order_of_events_breaks_a_rule(reached: list[Node]) -> None:
    phases = Counter(node.state.phase for node in reached)
    assert set(phases) == set(Phase) - {Phase.UNKNOWN}
    assert len(reached) > 5_000
    assert any(
        node.state.open and node.state.permit.target.by_person for node in reached if node.state.permit
    )


def test_from_every_state_one_hold_closes(reached: list[Node]) -> None:
    for node in reached:
        held = node.follow(always(Hold()), MOMENT)
        assert held is not None
        assert not held.state.open
        assert held.witness.wire is None or not held.witness.wire.open


def test_every_open_state_closes_when_nothing_more_is_heard(reached: list[Node]) -> None:
    for node in reached:
        if node.state.open:
            closed = node.follow(always(Tick()), PAUSE)
            assert closed is not None
            assert not closed.state.open


def test_no_state_is_a_dead_end(reached: list[Node]) -> None:
    """People, an arm that answers and a new workpiece bring the gate back to a permit from everywhere."""
    for node in reached[::5]:
        state, now = node.state, node.now
        events: list[Event] = [Activated(), Release(), ArmReady(True)]
        events += [
            RemovalFinished(state.goals, RemovalCode.MOTION_FAILED),
            Reset(),
            WorkpieceChanged("new", now),
        ]
        for event in events:
            now += MOMENT
            state, _ = step(state, event, now, SETTINGS)
        for _ in range(K + 2):
            now += 2 * MOMENT
            event = scene("sticker")(state, now)
            assert event is not None
            state, _ = step(state, event, now, SETTINGS)
        assert state.phase is Phase.PERMITTED, node.state
