# SPDX-License-Identifier: Apache-2.0
"""Where the tool goes, in which order. Without ROS.

The functions to change for another tool: :func:`tool_at` (where it is, seen from the sticker), :func:`pieces_of` (what it does).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum

import numpy as np

from sticker_uq.geometry import Transform
from sticker_uq_moveit_driver.settings import DriverSettings, PeelSettings, pose_of


class Phase(IntEnum):
    """The values of ``RemoveSticker.Feedback.PHASE_*``."""

    UNKNOWN = 0
    APPROACH = 1
    CONTACT = 2
    PEEL = 3
    RETREAT = 4


class Action(Enum):
    """What one piece of a removal does."""

    FREE = "a planned motion through free space"
    STRAIGHT = "a motion in a straight line"
    TOOL_ON = "the tool grips"
    TOOL_OFF = "the tool lets go"


@dataclass(frozen=True)
class Piece:
    """One piece of a removal; ``target``: pose of the tool's link in the arm's frame after a motion, None for the tool."""

    phase: Phase
    action: Action
    target: Transform | None = None


def tool_at(sticker: Transform, settings: PeelSettings, along_m: float, height_m: float) -> Transform:
    """Pose of the tool's link in the arm's frame, ``along_m`` in the direction of peeling from the sticker's centre and
    ``height_m`` out of the lid; ``sticker``: the pose in the goal.
    """
    angle = math.radians(settings.peel_angle_deg)
    turn = np.array(
        [[math.cos(angle), -math.sin(angle), 0.0], [math.sin(angle), math.cos(angle), 0.0], [0.0, 0.0, 1.0]]
    )
    place = Transform(turn, turn @ np.array([along_m, 0.0, height_m]))
    return after(after(sticker, place), pose_of(settings.tool_pose, "tool_pose"))


def pieces_of(sticker: Transform, settings: DriverSettings) -> list[Piece]:
    """The pieces of one removal: approach, contact, grip, peel along the lid, retreat, let go.

    Straight motions are at most ``step_m`` long, because the permit is checked before each piece and a controller whose driver
    has died does no more than the piece that it has.
    """
    first, last = settings.contact_at_m, settings.contact_at_m + settings.peel_m
    above, lifted = settings.approach_m, settings.peel_lift_m
    pieces = [Piece(Phase.APPROACH, Action.FREE, tool_at(sticker, settings, first, above))]

    def straight(phase: Phase, start: tuple[float, float], end: tuple[float, float]) -> None:
        for along_m, height_m in points_between(start, end, settings.step_m):
            pieces.append(Piece(phase, Action.STRAIGHT, tool_at(sticker, settings, along_m, height_m)))

    straight(Phase.CONTACT, (first, above), (first, 0.0))
    if settings.tool != "none":
        pieces.append(Piece(Phase.CONTACT, Action.TOOL_ON))
    straight(Phase.PEEL, (first, 0.0), (last, lifted))
    straight(Phase.RETREAT, (last, lifted), (last, max(above, lifted)))
    if settings.drop_pose:
        pieces.append(Piece(Phase.RETREAT, Action.FREE, pose_of(settings.drop_pose, "drop_pose")))
    if settings.tool != "none":
        pieces.append(Piece(Phase.RETREAT, Action.TOOL_OFF))
    return pieces


def points_between(
    start: tuple[float, float], end: tuple[float, float], longest_m: float
) -> Iterator[tuple[float, float]]:
    """Points of the straight line from ``start`` (left out) to ``end`` at equal distances of at most ``longest_m``; none when
    both are the same point.
    """
    # a length of 0.08 must not become five pieces of 0.02 by rounding
    count = math.ceil(math.dist(start, end) / longest_m - 1e-9)
    for k in range(1, count + 1):
        share = k / count
        yield tuple(a + share * (b - a) for a, b in zip(start, end, strict=True))  # type: ignore[misc]


def after(outer: Transform, inner: Transform) -> Transform:
    """The pose ``inner``, given in the frame of the pose ``outer``, in the frame of ``outer``'s parent."""
    return Transform(outer.rotation @ inner.rotation, outer(inner.translation))
