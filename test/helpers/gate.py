"""A gate that is driven by hand, and a witness who checks at every step what must always hold.

The witness knows the rules of the gate in another form than the gate does: it looks at the whole history from outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sticker_uq.scene import ObjectClass, ObservedObject, Outcome, SceneAssessment, Verdict
from sticker_uq.supervision import Closed, GateSettings, GateState, Phase, Policy, Supervisor, facts_of
from sticker_uq.supervision.boxes import as_box, iou
from sticker_uq.supervision.events import (
    Activated,
    AnswerGiven,
    ArmReady,
    CancelGoal,
    CloseIntervention,
    DeclareDone,
    Effect,
    Event,
    Fault,
    GoalAccepted,
    GoalRejected,
    OpenIntervention,
    PublishDecision,
    PublishGate,
    Release,
    RemovalCode,
    RemovalFinished,
    Reply,
    Reset,
    SceneReceived,
    SendGoal,
    Tick,
    WorkpieceChanged,
)
from test.helpers.assessments import SECOND, START, assessment, observed

K = 2
SETTINGS = GateSettings(
    consecutive_scenes=K,
    max_scene_age=1.0,
    max_clock_skew=0.05,
    lease=0.4,
    tick_period=0.1,
    accept_timeout=0.5,
    removal_timeout=5.0,
    cancel_timeout=0.6,
    verify_timeout=3.0,
    undecided_timeout=4.0,
    intervention_timeout=10.0,
    max_attempts=2,
)
POLICY = Policy()


class Witness:
    """Sees every step and fails the test as soon as a rule is broken."""

    def __init__(self) -> None:
        self.history: list[SceneReceived] = []  # sound scenes in a row while nothing closed the gate
        self.owed: int | None = None  # goal whose end the arm has not reported
        self.lost = False
        self.last_goal = 0
        self.wire: PublishGate | None = None
        self.request = ""
        self.done: set[str] = set()

    def copy(self) -> Witness:
        """A witness who has seen the same."""
        twin = Witness()
        twin.__dict__.update(self.__dict__)
        twin.history = list(self.history)
        twin.done = set(self.done)
        return twin

    def see(
        self,
        before: GateState,
        event: Event,
        now: int,
        after: GateState,
        effects: Sequence[Effect],
        settings: GateSettings = SETTINGS,
    ) -> None:
        """Check one step."""
        self._ends(event, before)
        self._published(before, after, effects)
        self._latches(before, event, after, effects)
        sound = self._sound(event, before, now, settings)
        if isinstance(event, SceneReceived) and sound:
            self.history.append(event)
        elif isinstance(event, SceneReceived):
            self.history.clear()
        if self._closed(after, now, settings):
            self.history.clear()
            assert not after.open, "open although something closes it"
        self._goals(before, event, after, effects)
        if after.open:
            self._open(after, now, settings)
        if not after.open and before.permit is not None and before.permit.open and after.permit is not None:
            assert CancelGoal(before.permit.goal_id) in effects, "the permit is gone and the arm was not told"
        assert (
            after.open == (after.phase in (Phase.PERMITTED, Phase.REMOVING)) == (after.reasons == Closed.NONE)
        )
        assert bool(after.text) == (not after.open), "a closed gate says why, an open one has no reason"

    def _ends(self, event: Event, before: GateState) -> None:
        if isinstance(event, RemovalFinished | GoalRejected) and event.goal_id == self.owed:
            self.owed = None
        if isinstance(event, Reset) and before.fault and before.permit is not None and before.permit.lost:
            self.owed = None

    def _published(self, before: GateState, after: GateState, effects: Sequence[Effect]) -> None:
        gates = [e for e in effects if isinstance(e, PublishGate)]
        assert len(gates) <= 1
        if gates:
            assert effects[0] is gates[0], "the gate is said before anything else happens"
            self.wire = gates[0]
            assert self.wire.open == after.open
        assert self.wire is None or self.wire.open == after.open, (
            "what was said last is not how the gate stands"
        )
        assert before.phase is after.phase or gates, "a change of phase was not said"

    def _latches(self, before: GateState, event: Event, after: GateState, effects: Sequence[Effect]) -> None:
        if before.fault:
            assert after.fault or isinstance(event, Reset), "a fault ended without a reset"
        if after.fault:
            assert after.phase is Phase.FAULT
        opened = [e for e in effects if isinstance(e, OpenIntervention)]
        closed = [e for e in effects if isinstance(e, CloseIntervention)]
        assert len(opened) <= 1
        if closed:
            answered = isinstance(event, AnswerGiven) and any(
                isinstance(e, Reply) and e.accepted for e in effects
            )
            assert answered or isinstance(event, WorkpieceChanged | Release), "a request was closed by itself"
            assert [e.request_id for e in closed] == [self.request]
            self.request = ""
        if opened:
            assert self.request == "", "a second request was opened"
            self.request = opened[0].request_id
        assert (after.request.request_id if after.request else "") == self.request
        if isinstance(event, WorkpieceChanged) and event.workpiece_id != before.workpiece_id:
            self.done.discard(event.workpiece_id)
        for effect in effects:
            if isinstance(effect, DeclareDone) and effect.workpiece_id:
                assert effect.workpiece_id not in self.done, "a workpiece was declared done twice"
                self.done.add(effect.workpiece_id)
                if effect.clean:
                    assert len(self.history) >= 1
                    assert isinstance(event, SceneReceived)
                    assert event.decision.outcome is Outcome.CLEAN

    def _sound(self, event: Event, before: GateState, now: int, settings: GateSettings) -> bool:
        if not isinstance(event, SceneReceived):
            return False
        facts = event.facts
        previous = self.history[-1].facts if self.history else None
        return (
            facts.usable
            and facts.finite
            and min(facts.image_size) > 0
            and 0 < facts.stamp_ns <= now + round(settings.max_clock_skew * SECOND)
            and event.decision.outcome in (Outcome.WORK, Outcome.ASK, Outcome.CLEAN)
            and (
                previous is None
                or (facts.identity == previous.identity and facts.stamp_ns > previous.stamp_ns)
            )
        )

    def _closed(self, after: GateState, now: int, settings: GateSettings) -> bool:
        """Whether anything at all forbids a permit, told from the outside of the state."""
        limit = round(settings.max_scene_age * SECOND)
        scene = after.scene
        return (
            not after.active
            or bool(after.fault)
            or after.held
            or after.request is not None
            or after.skipped
            or now <= 0
            or scene is None
            or not scene.usable
            or not scene.finite
            or now - scene.stamp_ns >= limit
            or now - after.received_ns >= limit
        )

    def _open(self, after: GateState, now: int, settings: GateSettings) -> None:
        permit = after.permit
        assert permit is not None
        assert permit.revoked_ns is None
        assert permit.goal_id == self.owed
        assert after.arm_ready
        assert not permit.lost
        target, scene, decision = permit.target, after.scene, after.decision
        assert scene is not None
        assert decision is not None
        assert now < permit.valid_until_ns <= now + round(settings.lease * SECOND)
        assert permit.valid_until_ns <= scene.stamp_ns + round(settings.max_scene_age * SECOND)
        assert permit.settings == settings
        assert (scene.model_hash, scene.policy_hash) == (target.model_hash, target.policy_hash)
        thing = target.verdict.object
        assert target.by_person or (thing.label is ObjectClass.STICKER and not thing.unstable), (
            "no stable sticker"
        )
        here = [v for v in decision.verdicts if iou(as_box(v.object.box), target.box) >= settings.match_iou]
        removable = [v for v in here if v.verdict is Verdict.REMOVE]
        if not permit.accepted:
            assert decision.outcome is Outcome.WORK, "open before the arm started, against the newest scene"
            assert removable, "open for something that the newest scene does not show"
        if not removable:
            assert not any(v.object.label is ObjectClass.LOGO for v in here), "open over a logo"
            assert not any(v.verdict is Verdict.ASK for v in here), "open for something in question"

    def _goals(self, before: GateState, event: Event, after: GateState, effects: Sequence[Effect]) -> None:
        sent = [e for e in effects if isinstance(e, SendGoal)]
        assert len(sent) <= 1
        assert not after.open or before.open or sent, "opened without a goal"
        if not sent:
            return
        goal = sent[0]
        assert not before.open
        assert self.owed is None, "a second goal while the arm owes the end of the first"
        assert goal.goal_id > self.last_goal
        assert isinstance(event, SceneReceived), "only a scene opens"
        assert after.open
        assert after.permit is not None
        assert after.permit.goal_id == goal.goal_id
        self.owed = self.last_goal = goal.goal_id
        agreed = self.history[-after.permit.settings.consecutive_scenes :]
        assert len(agreed) == after.permit.settings.consecutive_scenes, "opened after too few scenes in a row"
        place = goal.target.box
        for older in reversed(agreed):
            assert older.decision.outcome is Outcome.WORK
            near = [as_box(v.object.box) for v in older.decision.removable()]
            best = max(near, key=lambda box: iou(box, place))
            assert iou(best, place) >= after.permit.settings.match_iou, (
                "the scenes did not agree about the object"
            )
            place = best


class Cell:
    """A supervisor with a clock, a camera and an arm that a test plays by hand; every step is witnessed."""

    def __init__(self, settings: GateSettings = SETTINGS, policy: Policy = POLICY) -> None:
        self.core = Supervisor(policy, settings)
        self.now = START
        self.effects: list[Effect] = []
        self.last: tuple[Effect, ...] = ()
        self.witness = Witness()

    @property
    def state(self) -> GateState:
        """The state of the gate."""
        return self.core.state

    @property
    def phase(self) -> Phase:
        """The phase of the gate."""
        return self.state.phase

    @property
    def goal(self) -> int:
        """The number of the last goal."""
        return self.state.goals

    def wait(self, seconds: float) -> Cell:
        """Let time pass without telling anybody."""
        self.now += round(seconds * SECOND)
        return self

    def send(self, event: Event) -> tuple[Effect, ...]:
        """Let ``event`` happen now."""
        before = self.state
        self.last = self.core.handle(event, self.now)
        self.effects += self.last
        self.witness.see(before, event, self.now, self.state, self.last, self.core.settings)
        return self.last

    def tick(self, times: int = 1) -> Cell:
        """Let time pass in ticks."""
        for _ in range(times):
            self.wait(self.core.settings.tick_period)
            self.send(Tick())
        return self

    def scene(self, *objects: ObservedObject, times: int = 1, age: float = 0.02, **changes: Any) -> Cell:
        """Let ``times`` scenes of these objects come, 0.1 s apart, of images ``age`` seconds old."""
        for _ in range(times):
            self.wait(0.1)
            values = {"stamp_ns": self.now - round(age * SECOND), **changes}
            self.assess(assessment(*objects, **values))
        return self

    def assess(self, scene: SceneAssessment) -> tuple[Effect, ...]:
        """Let this assessment come now."""
        before = self.state
        effects = self.core.on_scene(scene, self.now)
        self.effects += effects
        event: Event = Fault("the scene could not be judged")
        if isinstance(effects[0], PublishDecision):
            event = SceneReceived(effects[0].decision, facts_of(scene, effects[0].decision))
            effects = effects[1:]
        self.witness.see(before, event, self.now, self.state, effects, self.core.settings)
        self.last = effects
        return effects

    def sent(self, kind: type) -> list[Any]:
        """All effects of this kind so far."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def reply(self) -> Reply:
        """The reply in the last effects."""
        (reply,) = [effect for effect in self.last if isinstance(effect, Reply)]
        return reply


def running(settings: GateSettings = SETTINGS, workpiece: str = "laptop-1") -> Cell:
    """A cell whose supervisor is active and whose arm is ready; no scene has come yet."""
    cell = Cell(settings)
    cell.send(Activated())
    cell.send(ArmReady(True))
    if workpiece:
        cell.send(WorkpieceChanged(workpiece, cell.now))
    return cell


def permitted() -> Cell:
    """A cell that holds a permit for the sticker at HERE; the arm has not answered."""
    cell = running().scene(observed(), times=K)
    assert cell.phase is Phase.PERMITTED
    return cell


def removing() -> Cell:
    """A cell whose arm works on the sticker at HERE."""
    cell = permitted()
    cell.send(GoalAccepted(cell.goal))
    assert cell.phase is Phase.REMOVING
    return cell


def verifying() -> Cell:
    """A cell whose arm says that it has peeled the sticker at HERE."""
    cell = removing()
    cell.send(RemovalFinished(cell.goal, RemovalCode.NONE))
    assert cell.phase is Phase.VERIFYING
    return cell


def asking() -> Cell:
    """A cell that asks about an uncertain object at HERE."""
    cell = running().scene(observed(shannon_entropy=1.5), times=K)
    assert cell.phase is Phase.INTERVENTION
    return cell


def faulted() -> Cell:
    """A cell with an internal error while the arm works."""
    cell = removing()
    cell.send(Fault("test"))
    assert cell.phase is Phase.FAULT
    return cell
