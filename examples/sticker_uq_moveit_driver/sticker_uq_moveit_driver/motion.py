# SPDX-License-Identifier: Apache-2.0
"""The motion of the arm: the pieces of a removal, one step each, and how it is stopped. Without MoveIt's messages."""

import time
from collections.abc import Callable, Iterator
from typing import Protocol

from sticker_uq.geometry import Transform
from sticker_uq.nodes.arm.client import MotionFailed, MotionStep
from sticker_uq_moveit_driver.jobs import Job
from sticker_uq_moveit_driver.plan import Phase, Piece, pieces_of
from sticker_uq_moveit_driver.settings import DriverSettings
from sticker_uq_msgs.action import RemoveSticker

RETRY_S = 0.5
"""Time after which a stop that is not confirmed is demanded again."""
POLL_S = 0.02


class Robot(Protocol):
    """What moves the arm and its tool; ``moveit.MoveItRobot`` is one."""

    def missing(self) -> list[str]:
        """Names of the servers that are not there."""

    def prepare(self) -> Job:
        """Make the arm ready to move after :meth:`halt`."""

    def start(self, piece: Piece, frame_id: str) -> Job:
        """Start ``piece``, whose target is in the frame ``frame_id``."""

    def halt(self) -> None:
        """Demand that everything that moves stops, without waiting."""

    def halted(self) -> bool:
        """Whether the controller has confirmed a :meth:`halt` since :meth:`prepare`."""


class PeelMotion:
    """Peels a sticker with ``robot``; implements ``sticker_uq.nodes.arm.client.Motion``."""

    def __init__(
        self,
        robot: Robot,
        settings: DriverSettings,
        log: Callable[[str], object],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._robot = robot
        self._settings = settings
        self._log = log
        self._monotonic = monotonic
        self._sleep = sleep
        self._job: Job | None = None

    def steps(self, goal: RemoveSticker.Goal) -> Iterator[MotionStep]:
        """One step per piece of the removal of the goal's sticker; raises :class:`MotionFailed`."""
        sticker = sticker_pose(goal)
        if missing := self._robot.missing():
            raise MotionFailed(f"not there: {', '.join(missing)}")
        if self._job is not None and not self._job.ended():
            self._job.cancel()
            raise MotionFailed("the last motion has not ended")
        pieces = pieces_of(sticker, self._settings)
        self._job = self._robot.prepare()
        yield self._step(Phase.APPROACH, 0.0)
        for k, piece in enumerate(pieces, start=1):
            self._job = self._robot.start(piece, goal.frame_id)
            yield self._step(piece.phase, k / len(pieces))

    def stop(self) -> None:
        """Demand the stop until it is confirmed: by the end of the motion or by the controller.

        While it waits the goal has not ended, so that after its cancel_timeout_s the supervisor uses the cell's stop_service.
        Raises :class:`RuntimeError` after ``stop_timeout_s``.
        """
        job = self._job
        give_up = self._monotonic() + self._settings.stop_timeout_s
        while True:
            if job is not None:
                job.cancel()
            self._robot.halt()
            again = min(self._monotonic() + RETRY_S, give_up)
            while True:
                if job is None or job.ended() or self._robot.halted():
                    return
                if self._monotonic() >= again:
                    break
                self._sleep(POLL_S)
            self._log("the arm has not confirmed the stop")
            if self._monotonic() >= give_up:
                raise RuntimeError(f"no confirmation within {self._settings.stop_timeout_s:g} s")

    def _step(self, phase: Phase, progress: float) -> MotionStep:
        assert self._job is not None
        return MotionStep(phase, self._settings.step_timeout_s, progress, self._job.finished)


def sticker_pose(goal: RemoveSticker.Goal) -> Transform:
    """The pose of the sticker in the frame ``goal.frame_id``; raises :class:`MotionFailed` when the goal has none."""
    if not goal.pose_valid:
        raise MotionFailed("the goal has no pose: calibrate the camera and set the supervisor's require_pose")
    p, q = goal.pose.pose.position, goal.pose.pose.orientation
    return Transform.of([p.x, p.y, p.z, q.x, q.y, q.z, q.w], "the pose of the goal")
