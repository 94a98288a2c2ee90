# SPDX-License-Identifier: Apache-2.0
"""A gate that is driven by hand and witnessed at every step, and the states that tests begin with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sticker_uq.gate import (
    GateController,
    GateSettings,
    GateState,
    OperatorAnswer,
    Phase,
    Policy,
    SceneAnswer,
    facts_of,
)
from sticker_uq.gate import events as ev
from sticker_uq.gate.box_overlap import Box
from sticker_uq.scene import Exposure, ImageCheck, ObjectClass, ObservedObject, Reason, SceneAssessment
from sticker_uq.testing.scenes import MS, SECOND, SIZE, START, assessment, object_at
from test.helpers.witness import POLICY, SETTINGS, K, Witness

STICKER = object_at()
UNSURE = object_at(shannon_entropy=1.5)
SLIGHTLY_UNSURE = object_at(shannon_entropy=1.2)
LOGO = object_at(label=ObjectClass.LOGO)
NEARBY = object_at((105.0, 103.0, 185.0, 163.0))
CANCELLED = ev.RemovalCode.OPERATOR_ABORT
LIT = Exposure(120.0, 0.0, 0.0)


def codes(reasons: Iterable[Reason]) -> list[str]:
    return [reason.code for reason in reasons]


def set_to(**changes: Any) -> GateSettings:
    return GateSettings(**{**SETTINGS.model_dump(), **changes})


Make = Callable[[], "Cell"]


class Cell:
    """A supervisor with a clock, a camera and an arm that a test plays by hand; every step is witnessed."""

    def __init__(self, settings: GateSettings = SETTINGS, policy: Policy = POLICY) -> None:
        self.core = GateController(policy, settings)
        self.now = START
        self.steady = SECOND
        self.effects: list[ev.Effect] = []
        self.last: tuple[ev.Effect, ...] = ()
        self.witness = Witness()

    @property
    def state(self) -> GateState:
        return self.core.state

    @property
    def phase(self) -> Phase:
        return self.state.phase

    @property
    def details(self) -> list[str]:
        """The codes of what is known about why the gate is closed."""
        return codes(self.state.details)

    @property
    def logged(self) -> list[list[str]]:
        return [codes(line.reasons) for line in self.sent(ev.Log)]

    @property
    def goal(self) -> int:
        return self.state.goals

    def wait(self, seconds: float) -> Cell:
        """Let time pass without telling anybody. A negative time puts the clock back."""
        self.now += round(seconds * SECOND)
        self.steady += max(round(seconds * SECOND), 0)
        return self

    def leap(self, seconds: float) -> Cell:
        """Put the clock ahead by ``seconds`` in no time."""
        self.now += round(seconds * SECOND)
        return self

    def send(self, event: ev.Event) -> tuple[ev.Effect, ...]:
        before = self.state
        self.last = self.core.handle(event, self.now)
        self.effects += self.last
        self.witness.see(before, event, self.now, self.state, self.last, self.core.settings)
        return self.last

    def tick(self, times: int = 1) -> Cell:
        for _ in range(times):
            self.wait(self.core.settings.tick_period_s)
            self.send(ev.Tick(self.steady))
        return self

    def scene(self, *objects: ObservedObject, times: int = 1, age: float = 0.02, **changes: Any) -> Cell:
        """Let ``times`` scenes of these objects come, 0.1 s apart, of images ``age`` seconds old."""
        for _ in range(times):
            self.wait(0.1)
            self.assess(assessment(*objects, **{"stamp_ns": self.now - round(age * SECOND), **changes}))
        return self

    def assess(self, scene: SceneAssessment) -> tuple[ev.Effect, ...]:
        before = self.state
        effects = self.core.on_scene(scene, self.now)
        self.effects += effects
        event: ev.Event = ev.Fault()
        if isinstance(effects[0], ev.PublishDecision):
            event = ev.SceneReceived(
                effects[0].decision, facts_of(scene, effects[0].decision, policy=self.core.policy)
            )
            effects = effects[1:]
        self.witness.see(before, event, self.now, self.state, effects, self.core.settings)
        self.last = effects
        return effects

    def image(self, age: float = 0.01, **changes: Any) -> Cell:
        """Let an image arrive that was taken ``age`` seconds ago and follows the one before."""
        stamp = self.now - round(age * SECOND)
        values = {"image_size": SIZE, "exposure": LIT, "previous_stamp_ns": stamp - 50 * MS, **changes}
        check = ImageCheck(values.pop("stamp_ns", stamp), values.pop("frame_id", "camera"), **values)
        self.send(ev.ImageArrived(check))
        return self

    def sent(self, kind: type) -> list[Any]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def reply(self) -> ev.Reply:
        (reply,) = [effect for effect in self.last if isinstance(effect, ev.Reply)]
        return reply


def running(settings: GateSettings = SETTINGS, workpiece: str = "laptop-1", policy: Policy = POLICY) -> Cell:
    """A cell whose supervisor is active and whose arm is ready; no scene has come yet."""
    cell = Cell(settings, policy)
    cell.send(ev.Activated())
    cell.send(ev.ArmReady(True))
    if workpiece:
        cell.send(ev.WorkpieceChanged(workpiece, cell.now))
    return cell


def permitted(settings: GateSettings = SETTINGS) -> Cell:
    cell = running(settings).scene(object_at(), times=K)
    assert cell.phase is Phase.PERMITTED
    return cell


def removing(settings: GateSettings = SETTINGS) -> Cell:
    cell = permitted(settings)
    cell.send(ev.GoalAccepted(cell.goal))
    assert cell.phase is Phase.REMOVING
    return cell


def verifying(settings: GateSettings = SETTINGS) -> Cell:
    """A cell whose arm says that it has peeled the sticker at HERE."""
    cell = removing(settings)
    cell.send(ev.RemovalFinished(cell.goal, ev.RemovalCode.NONE))
    assert cell.phase is Phase.VERIFYING
    return cell


def asking(settings: GateSettings = SETTINGS) -> Cell:
    cell = running(settings).scene(object_at(shannon_entropy=1.5), times=K)
    assert cell.phase is Phase.INTERVENTION
    return cell


def faulted(settings: GateSettings = SETTINGS) -> Cell:
    cell = removing(settings)
    cell.send(ev.Fault())
    assert cell.phase is Phase.FAULT
    return cell


def finish(cell: Cell, code: ev.RemovalCode = ev.RemovalCode.NONE) -> Cell:
    cell.send(ev.RemovalFinished(cell.goal, code))
    return cell


def answer(
    cell: Cell,
    *answers: OperatorAnswer,
    scene: SceneAnswer = SceneAnswer.NONE,
    person: str = "Ada",
    not_stickers: tuple[Box, ...] = (),
) -> bool:
    """Whether a person's answer to the open question was accepted."""
    request = cell.state.request
    cell.send(
        ev.AnswerGiven(
            request.request_id, person, scene, answers, not_stickers=not_stickers, image_ns=request.stamp_ns
        )
    )
    return cell.reply().accepted
