# SPDX-License-Identifier: Apache-2.0
"""What an error of MoveIt means for the goal of the cell."""

import pytest

from sticker_uq.gate.events import RemovalCode
from sticker_uq_moveit_driver.errors import NAMES, removal_code_of, text_of


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (1, RemovalCode.NONE),
        (-1, RemovalCode.MOTION_FAILED),
        (-4, RemovalCode.MOTION_FAILED),
        (-6, RemovalCode.TIMEOUT),
        (-7, RemovalCode.OPERATOR_ABORT),
        (-15, RemovalCode.MOTION_FAILED),
        (-31, RemovalCode.MOTION_FAILED),
        (-29, RemovalCode.UNKNOWN),
        (0, RemovalCode.UNKNOWN),
        (99999, RemovalCode.UNKNOWN),
        (-12345, RemovalCode.UNKNOWN),
    ],
)
def test_an_error_has_the_code_that_the_supervisor_acts_upon(error: int, code: RemovalCode) -> None:
    assert removal_code_of(error) is code


def test_only_success_is_success() -> None:
    assert [error for error in NAMES if removal_code_of(error) is RemovalCode.NONE] == [1]


def test_the_text_says_what_failed_why_and_what_to_look_at() -> None:
    assert text_of(-15, "the motion") == (
        "the motion: MoveIt reports INVALID_GROUP_NAME (-15); see the parameter group"
    )
    assert text_of(-4, "the motion", "controller gone") == (
        "the motion: MoveIt reports CONTROL_FAILED (-4); controller gone"
    )
    assert "an unknown error (-12345)" in text_of(-12345, "the motion")
