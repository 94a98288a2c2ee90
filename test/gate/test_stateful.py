# SPDX-License-Identifier: Apache-2.0
"""The whole supervisor under random events, random scenes and a clock that jumps; a witness sees every step."""

from typing import Any

import numpy as np
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from sticker_uq.gate import Answer, BlockReason, OperatorAnswer, Phase, SceneAnswer
from sticker_uq.gate.box_overlap import Box
from sticker_uq.gate.events import (
    Activated,
    AnswerGiven,
    ArmLost,
    ArmReady,
    Deactivated,
    Fault,
    GoalAccepted,
    GoalRejected,
    Hold,
    ImageArrived,
    Impediment,
    Release,
    RemovalCode,
    RemovalFinished,
    Reset,
    WorkpieceChanged,
)
from sticker_uq.scene import Exposure, ImageCheck, ObjectClass, ObservedObject, Status
from sticker_uq.testing.scenes import ELSEWHERE, HERE, SECOND, SIZE, SURE, THERE, observed, rarely_seen
from test.helpers.exploration import DETECTORS, LIT
from test.helpers.gate import Cell, running

pytestmark = pytest.mark.timeout(600)

PLACES: list[Box] = [HERE, (110.0, 105.0, 190.0, 165.0), (140.0, 130.0, 220.0, 190.0), THERE, ELSEWHERE]
NAN = float("nan")

places = st.sampled_from(PLACES)
things = st.one_of(
    st.builds(observed, places),
    st.builds(observed, places, st.sampled_from(list(ObjectClass))),
    st.builds(observed, places, shannon_entropy=st.sampled_from([0.5, 1.5, NAN])),
    st.builds(observed, places, duplicated=st.booleans(), detection_rate=st.sampled_from([0.3, 0.9])),
    st.builds(observed, places, st.just(ObjectClass.LOGO), st.just((0.1, 0.5, 0.4))),
)
rare = st.builds(rarely_seen, places, st.integers(1, 2), probabilities=st.sampled_from(list(SURE.values())))
oddities: list[dict[str, Any]] = [
    {"status": Status.FAILED},
    {"status": Status.UNKNOWN},
    {"status": Status.DEGRADED},
    {"image_size": (320, 240)},
    {"image_size": (0, 480)},
    {"frame_id": "other"},
    {"model_hash": "other"},
    {"stamp_ns": 0},
    {"age": 0.5},
    {"age": 2.0},
    {"age": -1.0},
    {"image_publishers": ("/camera", "/usb_cam")},
    {"image_publishers": ()},
    {"dil": None},
    {"dil": 0.9},
]


class GateMachine(RuleBasedStateMachine):
    """Events as they may come from outside; the cell's witness asserts after each of them."""

    cell: Cell

    @initialize(named=st.booleans())
    def start(self, named: bool) -> None:
        self.cell = running(workpiece="laptop-0" if named else "")
        self.lid = [observed()]

    # what a cell does all day

    @rule(times=st.integers(1, 6), jitter=st.floats(0, 3))
    def same_picture(self, times: int, jitter: float) -> None:
        random = np.random.default_rng(times)
        for _ in range(times):
            self.cell.scene(*[observed_at(o, o.box + random.uniform(-jitter, jitter, 4)) for o in self.lid])

    @rule(found=st.lists(things, max_size=3), unstable=st.lists(rare, max_size=1))
    def other_picture(self, found: list[ObservedObject], unstable: list[ObservedObject]) -> None:
        self.lid = found
        self.cell.scene(*found, unstable=unstable)

    @rule(times=st.integers(1, 4))
    def empty_lid(self, times: int) -> None:
        self.cell.scene(times=times)

    @rule(times=st.integers(1, 12))
    def time_passes(self, times: int) -> None:
        self.cell.tick(times)

    @precondition(lambda self: self.cell.phase is Phase.MONITORING)
    @rule(accepts=st.booleans())
    def sure_sticker(self, accepts: bool) -> None:
        self.lid = [observed()]
        self.cell.scene(*self.lid, times=3)
        if accepts:
            self.cell.send(GoalAccepted(self.cell.goal))

    @precondition(lambda self: self.cell.state.permit is not None)
    @rule(code=st.none() | st.sampled_from([RemovalCode.NONE] * 6 + list(RemovalCode)))
    def arm_answers(self, code: RemovalCode | None) -> None:
        goal = self.cell.goal
        self.cell.send(GoalAccepted(goal) if code is None else RemovalFinished(goal, code))

    @precondition(lambda self: self.cell.state.request is not None)
    @rule(
        said=st.sampled_from(list(Answer)[1:4]),
        scene=st.sampled_from([SceneAnswer.NONE] * 4 + list(SceneAnswer)),
        drawn=st.none() | places,
        meant=st.lists(places, max_size=3),
    )
    def person_answers(self, said: Answer, scene: SceneAnswer, drawn: Box | None, meant: list[Box]) -> None:
        request = self.cell.state.request
        assert request is not None
        answers = [OperatorAnswer(said, box) for box in request.boxes]
        if drawn is not None:
            answers.append(OperatorAnswer(Answer.MISSED, drawn))
        self.cell.send(
            AnswerGiven(request.request_id, "Ada", scene, tuple(answers), not_stickers=tuple(meant))
        )

    @precondition(lambda self: self.cell.phase is Phase.MONITORING)
    @rule(number=st.integers(6, 9))
    def uncertain_laptop(self, number: int) -> None:
        self.cell.wait(0.1).send(WorkpieceChanged(f"laptop-{number}", self.cell.now))
        self.lid = [observed(shannon_entropy=1.5)]
        self.cell.scene(*self.lid, times=3)

    @precondition(lambda self: self.cell.phase in (Phase.FAULT, Phase.BLOCKED))
    @rule(number=st.integers(1, 3))
    def person_repairs(self, number: int) -> None:
        for event in (
            ArmReady(True),
            RemovalFinished(self.cell.goal, RemovalCode.UNKNOWN),
            Reset(),
            Release(),
        ):
            self.cell.send(event)
        if self.cell.state.skipped:
            self.cell.send(WorkpieceChanged(f"laptop-{number}", self.cell.now))

    # what happens now and then

    @rule(changes=st.sampled_from(oddities))
    def odd_picture(self, changes: dict[str, Any]) -> None:
        self.cell.scene(*self.lid, **changes)

    @rule(seconds=st.sampled_from([-1000.0, -3.0, -0.05, 0.0, 0.3, 0.7, 5.0, 100.0]))
    def clock_jumps(self, seconds: float) -> None:
        self.cell.wait(seconds)

    @rule(data=st.data())
    def anything_else(self, data: st.DataObject) -> None:
        goal, now = self.cell.goal, self.cell.now
        mishaps = [
            ImageArrived(ImageCheck(now, "camera", "test")),
            ImageArrived(ImageCheck(now, "camera", "", SIZE, Exposure(120.0, 0.0, 0.0))),
            ImageArrived(ImageCheck(now, "camera", "", SIZE, Exposure(2.0, 1.0, 0.0))),
            ImageArrived(ImageCheck(now, "camera", "", SIZE, LIT, image_publishers=("/camera", "/usb_cam"))),
            Impediment(BlockReason.SECOND_SCENE_PUBLISHER, DETECTORS),
            Impediment(BlockReason.SECOND_SCENE_PUBLISHER, None),
            ArmReady(False),
            ArmLost(),
            ArmReady(True),
            GoalRejected(goal, "busy"),
            GoalAccepted(goal - 1),
            RemovalFinished(goal - 1, RemovalCode.NONE),
            AnswerGiven("other", "Ada", SceneAnswer.NONE, (OperatorAnswer(Answer.REMOVE, HERE),)),
            Hold(),
            Release(),
            Reset(),
            WorkpieceChanged("laptop-4", now),
            WorkpieceChanged("laptop-5", now - SECOND),
            Fault(),
            Deactivated(),
            Activated(),
        ]
        self.cell.send(data.draw(st.sampled_from(mishaps)))


def observed_at(thing: ObservedObject, box: np.ndarray) -> ObservedObject:
    """The same thing a little further."""
    return ObservedObject(**{**vars(thing), "box": box.astype(np.float32)})


TestGate = GateMachine.TestCase
TestGate.settings = hypothesis_settings(max_examples=60, stateful_step_count=40, deadline=None)
