# SPDX-License-Identifier: Apache-2.0
"""Steps and stops of the driver without move_group: a robot of jobs that the test ends, under the product's own ArmClient."""

from collections.abc import Callable
from typing import Any

import pytest
from action_msgs.msg import GoalStatus
from geometry_msgs.msg import PoseWithCovariance

from sticker_uq.gate.events import RemovalCode
from sticker_uq.nodes.arm.client import MotionFailed
from sticker_uq.testing.arm import ArmBench
from sticker_uq.testing.bench import Bench
from sticker_uq_moveit_driver.jobs import Done
from sticker_uq_moveit_driver.motion import PeelMotion
from sticker_uq_moveit_driver.plan import Action, Phase, Piece, pieces_of
from sticker_uq_moveit_driver.settings import DriverSettings, pose_of
from sticker_uq_msgs.action import RemoveSticker

Result = RemoveSticker.Result
SETTINGS = DriverSettings(step_m=0.1, tool="set_bool")  # few pieces: each is polled at 20 Hz


class FakeJob:
    """A motion that lasts until the test ends it, or until a cancellation when ``obeys``."""

    def __init__(self, obeys: bool, error: MotionFailed | None = None) -> None:
        self.done = False
        self.obeys = obeys
        self.error = error
        self.cancelled = 0

    def finished(self) -> bool:
        if self.error is not None:
            raise self.error
        return self.done

    def cancel(self) -> None:
        self.cancelled += 1
        self.done = self.done or self.obeys

    def ended(self) -> bool:
        return self.done or self.error is not None


class FakeRobot:
    """Does the first ``quick`` pieces at once; the next one lasts."""

    def __init__(self, quick: int = 99, obeys: bool = True) -> None:
        self.quick = quick
        self.obeys = obeys
        self.absent: list[str] = []
        self.started: list[Piece] = []
        self.frames: set[str] = set()
        self.halts = 0
        self.prepared = 0
        self.confirms = False
        self.fails_with: MotionFailed | None = None
        self.job: Any = None

    def missing(self) -> list[str]:
        return self.absent

    def prepare(self) -> Any:
        self.prepared += 1
        return Done()

    def start(self, piece: Piece, frame_id: str) -> Any:
        self.started.append(piece)
        self.frames.add(frame_id)
        if len(self.started) <= self.quick:
            return Done()
        self.job = FakeJob(self.obeys, self.fails_with)
        return self.job

    def halt(self) -> None:
        self.halts += 1

    def halted(self) -> bool:
        return self.confirms


class Clock:
    """Time that passes only while the motion sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.at: list[tuple[float, Callable[[], None]]] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for when, happens in self.at:
            if when <= self.now:
                happens()


def valid_goal() -> dict[str, Any]:
    """The fields of a goal for a sticker 0.2 m above the arm's base."""
    pose = PoseWithCovariance()
    pose.pose.position.z, pose.pose.orientation.w = 0.2, 1.0
    return {"pose": pose, "pose_valid": True, "frame_id": "base_link"}


def motion_of(robot: FakeRobot, clock: Clock, said: list[str]) -> PeelMotion:
    """The driver's motion, in the middle of its first piece."""
    motion = PeelMotion(robot, SETTINGS, said.append, monotonic=clock, sleep=clock.sleep)
    steps = motion.steps(RemoveSticker.Goal(**valid_goal()))
    next(steps)
    next(steps)
    return motion


def test_a_permitted_sticker_is_removed_piece_by_piece(bench: Bench) -> None:
    robot = FakeRobot()
    with ArmBench(bench, PeelMotion(robot, SETTINGS, print)) as cell:
        cell.gate.permit()
        status, code, text = cell.result(cell.send(**valid_goal()))
    assert (status, code) == (GoalStatus.STATUS_SUCCEEDED, Result.ERROR_NONE), text
    expected = pieces_of(pose_of("0 0 0.2 0 0 0 1", "pose"), SETTINGS)
    assert [(p.phase, p.action) for p in robot.started] == [(p.phase, p.action) for p in expected]
    assert robot.frames == {"base_link"}
    assert (robot.prepared, robot.halts) == (1, 0)


def test_a_gate_that_closes_stops_the_arm_and_no_further_piece_begins(bench: Bench) -> None:
    robot = FakeRobot(quick=2)
    with ArmBench(bench, PeelMotion(robot, SETTINGS, print)) as cell:
        cell.gate.permit()
        handle = cell.send(**valid_goal())
        bench.until(lambda: robot.job is not None, "the third piece")
        cell.gate.close()
        status, code, text = cell.result(handle)
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_PERMIT_REVOKED), text
    assert robot.job.cancelled == robot.halts == 1
    assert len(robot.started) == 3


def test_what_move_group_reports_is_the_code_of_the_result(bench: Bench) -> None:
    robot = FakeRobot(quick=1)
    robot.fails_with = MotionFailed("stopped at the pendant", RemovalCode.OPERATOR_ABORT)
    with ArmBench(bench, PeelMotion(robot, SETTINGS, print)) as cell:
        cell.gate.permit()
        status, code, text = cell.result(cell.send(**valid_goal()))
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_OPERATOR_ABORT)
    assert text == "stopped at the pendant"


def test_a_goal_without_a_pose_or_a_robot_is_refused_before_anything_moves() -> None:
    robot = FakeRobot()
    motion = PeelMotion(robot, SETTINGS, print)
    with pytest.raises(MotionFailed, match="no pose"):
        next(motion.steps(RemoveSticker.Goal()))
    robot.absent = ["/move_action", "/tool"]
    with pytest.raises(MotionFailed, match="not there: /move_action, /tool"):
        next(motion.steps(RemoveSticker.Goal(**valid_goal())))
    assert (robot.prepared, robot.started) == (0, [])


def test_a_stop_is_over_when_the_motion_has_ended() -> None:
    robot, clock, said = FakeRobot(quick=0), Clock(), []
    motion_of(robot, clock, said).stop()
    assert (robot.halts, robot.job.cancelled, clock.now, said) == (1, 1, 0.0, [])


def test_a_stop_is_over_when_the_controller_confirms_it_although_move_group_hangs() -> None:
    robot, clock, said = FakeRobot(quick=0, obeys=False), Clock(), []
    motion = motion_of(robot, clock, said)
    clock.at.append((0.1, lambda: setattr(robot, "confirms", True)))
    motion.stop()
    assert robot.halts == 1
    assert clock.now == pytest.approx(0.1)


def test_an_unconfirmed_stop_is_demanded_again_until_it_is_confirmed() -> None:
    robot, clock, said = FakeRobot(quick=0, obeys=False), Clock(), []
    motion = motion_of(robot, clock, said)
    clock.at.append((1.2, lambda: setattr(robot.job, "done", True)))
    motion.stop()
    assert robot.halts == robot.job.cancelled == 3
    assert len(said) == 2


def test_a_stop_that_nobody_confirms_is_an_error_after_its_time() -> None:
    robot, clock, said = FakeRobot(quick=0, obeys=False), Clock(), []
    with pytest.raises(RuntimeError, match="no confirmation within 5 s"):
        motion_of(robot, clock, said).stop()
    assert robot.halts == 10
    assert clock.now == pytest.approx(SETTINGS.stop_timeout_s, abs=0.05)


def test_nothing_new_begins_while_the_last_motion_goes_on() -> None:
    robot, clock, said = FakeRobot(quick=0, obeys=False), Clock(), []
    motion = motion_of(robot, clock, said)
    robot.confirms = True
    motion.stop()
    with pytest.raises(MotionFailed, match="the last motion has not ended"):
        next(motion.steps(RemoveSticker.Goal(**valid_goal())))
    assert robot.job.cancelled == 2
    robot.job.done = True
    assert next(motion.steps(RemoveSticker.Goal(**valid_goal()))).phase == Phase.APPROACH


def test_progress_grows_to_the_whole_and_every_step_has_a_limit() -> None:
    robot = FakeRobot()
    steps = list(PeelMotion(robot, SETTINGS, print).steps(RemoveSticker.Goal(**valid_goal())))
    progress = [step.progress for step in steps]
    assert progress == sorted(progress)
    assert (progress[0], progress[-1]) == (0.0, 1.0)
    assert {step.duration_s for step in steps} == {SETTINGS.step_timeout_s}
    assert [piece.action for piece in robot.started].count(Action.TOOL_ON) == 1
