# SPDX-License-Identifier: Apache-2.0
"""Where the tool goes, in which order."""

import math

import numpy as np
import pytest
from pydantic import ValidationError

from sticker_uq.geometry import Transform
from sticker_uq_moveit_driver.plan import Action, Phase, Piece, pieces_of, points_between, tool_at
from sticker_uq_moveit_driver.settings import DriverSettings
from sticker_uq_msgs.action import RemoveSticker

ON_THE_TABLE = Transform.of([0.5, 0.1, 0.2, 0.0, 0.0, 0.0, 1.0], "pose")
HALF = math.sqrt(0.5)
ON_A_WALL = Transform.of([0.5, 0.1, 0.2, 0.0, HALF, 0.0, HALF], "pose")  # the lid's normal is the base's x


def places(pieces: list[Piece], phase: Phase) -> np.ndarray:
    return np.array([piece.target.translation for piece in pieces if piece.phase is phase and piece.target])


def test_the_phases_are_those_of_the_action() -> None:
    feedback = RemoveSticker.Feedback
    for phase in Phase:
        assert getattr(feedback, f"PHASE_{phase.name}") == phase


def test_a_removal_comes_from_above_peels_along_the_lid_and_goes_up_again() -> None:
    pieces = pieces_of(ON_THE_TABLE, DriverSettings())
    assert [piece.phase for piece in pieces] == sorted(piece.phase for piece in pieces)
    assert places(pieces, Phase.APPROACH) == pytest.approx(np.array([[0.5, 0.1, 0.28]]))
    assert places(pieces, Phase.CONTACT)[:, 2] == pytest.approx([0.26, 0.24, 0.22, 0.2])
    peel = places(pieces, Phase.PEEL)
    assert peel[-1] == pytest.approx([0.56, 0.1, 0.22])
    assert (np.diff(peel[:, 0]) > 0).all()
    assert places(pieces, Phase.RETREAT)[-1] == pytest.approx([0.56, 0.1, 0.28])
    assert [piece.action for piece in pieces] == [Action.FREE] + [Action.STRAIGHT] * (len(pieces) - 1)


@pytest.mark.parametrize("step_m", [0.005, 0.02, 0.033, 0.1])
def test_no_straight_motion_is_longer_than_the_limit(step_m: float) -> None:
    pieces = pieces_of(ON_A_WALL, DriverSettings(step_m=step_m))
    places_in_order = np.array([piece.target.translation for piece in pieces if piece.target])
    lengths = np.linalg.norm(np.diff(places_in_order, axis=0), axis=1)
    assert lengths.max() <= step_m + 1e-9


def test_the_tool_grips_on_the_lid_and_lets_go_at_the_end() -> None:
    drop = "0.0 0.5 0.3 1 0 0 0"
    pieces = pieces_of(ON_THE_TABLE, DriverSettings(tool="set_bool", drop_pose=drop))
    actions = [piece.action for piece in pieces]
    grip = actions.index(Action.TOOL_ON)
    assert pieces[grip - 1].target.translation == pytest.approx([0.5, 0.1, 0.2])
    assert pieces[grip + 1].phase is Phase.PEEL
    assert actions[-2:] == [Action.FREE, Action.TOOL_OFF]
    assert pieces[-2].target.translation == pytest.approx([0.0, 0.5, 0.3])
    assert Action.TOOL_ON not in [piece.action for piece in pieces_of(ON_THE_TABLE, DriverSettings())]


def test_heights_are_along_the_lids_normal_and_the_tool_looks_into_the_lid() -> None:
    pose = tool_at(ON_A_WALL, DriverSettings(), 0.0, 0.08)
    assert pose.translation == pytest.approx([0.58, 0.1, 0.2])
    assert pose.rotation[:, 2] == pytest.approx([-1.0, 0.0, 0.0], abs=1e-12)


def test_the_direction_of_peeling_turns_about_the_normal_and_the_tool_with_it() -> None:
    straight, turned = (
        tool_at(ON_THE_TABLE, DriverSettings(peel_angle_deg=angle), 0.06, 0.0) for angle in (0.0, 90.0)
    )
    assert turned.translation == pytest.approx([0.5, 0.16, 0.2])
    assert turned.rotation[:, 0] == pytest.approx([0.0, 1.0, 0.0], abs=1e-12)
    assert straight.rotation[:, 0] == pytest.approx([1.0, 0.0, 0.0], abs=1e-12)


def test_a_tool_that_stands_off_its_link_keeps_its_distance() -> None:
    link_above = DriverSettings(tool_pose="0 0 0.15 1 0 0 0")
    assert tool_at(ON_THE_TABLE, link_above, 0.0, 0.0).translation == pytest.approx([0.5, 0.1, 0.35])


def test_no_motion_has_no_points() -> None:
    assert list(points_between((0.1, 0.0), (0.1, 0.0), 0.02)) == []


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("tool_pose", "0 0 0", "tool_pose = .* must be 7 finite numbers"),
        ("drop_pose", "0 0 0 1 1 0 0", "drop_pose: the quaternion has the length 1.414"),
    ],
)
def test_an_invalid_pose_is_named(name: str, text: str, reason: str) -> None:
    with pytest.raises((ValidationError, ValueError), match=reason):
        DriverSettings(**{name: text})
