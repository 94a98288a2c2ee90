# SPDX-License-Identifier: Apache-2.0
"""What an error of MoveIt means for the goal of the cell. Without ROS.

The function to change if your cell must treat an error otherwise: :func:`removal_code_of`.
"""

from sticker_uq.gate.events import RemovalCode

SUCCESS = 1
PREEMPTED = -7
TIMED_OUT = -6
#: Values of moveit_msgs/MoveItErrorCodes (Jazzy), which the tests compare with the message.
NAMES = {
    1: "SUCCESS",
    0: "UNDEFINED",
    99999: "FAILURE",
    -1: "PLANNING_FAILED",
    -2: "INVALID_MOTION_PLAN",
    -3: "MOTION_PLAN_INVALIDATED_BY_ENVIRONMENT_CHANGE",
    -4: "CONTROL_FAILED",
    -5: "UNABLE_TO_AQUIRE_SENSOR_DATA",
    -6: "TIMED_OUT",
    -7: "PREEMPTED",
    -10: "START_STATE_IN_COLLISION",
    -11: "START_STATE_VIOLATES_PATH_CONSTRAINTS",
    -12: "GOAL_IN_COLLISION",
    -13: "GOAL_VIOLATES_PATH_CONSTRAINTS",
    -14: "GOAL_CONSTRAINTS_VIOLATED",
    -15: "INVALID_GROUP_NAME",
    -16: "INVALID_GOAL_CONSTRAINTS",
    -17: "INVALID_ROBOT_STATE",
    -18: "INVALID_LINK_NAME",
    -19: "INVALID_OBJECT_NAME",
    -21: "FRAME_TRANSFORM_FAILURE",
    -22: "COLLISION_CHECKING_UNAVAILABLE",
    -23: "ROBOT_STATE_STALE",
    -24: "SENSOR_INFO_STALE",
    -25: "COMMUNICATION_FAILURE",
    -26: "START_STATE_INVALID",
    -27: "GOAL_STATE_INVALID",
    -28: "UNRECOGNIZED_GOAL_TYPE",
    -29: "CRASH",
    -30: "ABORT",
    -31: "NO_IK_SOLUTION",
}
_UNKNOWN_CAUSE = {"UNDEFINED", "FAILURE", "CRASH", "COMMUNICATION_FAILURE"}
_HINTS = {
    "INVALID_GROUP_NAME": "see the parameter group",
    "INVALID_LINK_NAME": "see the parameter tool_link",
    "FRAME_TRANSFORM_FAILURE": "does move_group know the supervisor's arm_frame?",
    "START_STATE_IN_COLLISION": "move the arm away by hand, or allow the contact of tool and lid",
    "GOAL_IN_COLLISION": "is the contact of tool and lid allowed in the planning scene?",
}


def removal_code_of(error: int) -> RemovalCode:
    """The code of the result of RemoveSticker for a value of MoveItErrorCodes.

    PREEMPTED is seen here only when someone else stopped the arm, for what the driver stops itself has its code already; the
    supervisor then asks a person.
    """
    name = NAMES.get(error, "")
    if error == SUCCESS:
        return RemovalCode.NONE
    if error == PREEMPTED:
        return RemovalCode.OPERATOR_ABORT
    if error == TIMED_OUT:
        return RemovalCode.TIMEOUT
    return RemovalCode.UNKNOWN if not name or name in _UNKNOWN_CAUSE else RemovalCode.MOTION_FAILED


def text_of(error: int, what: str, said: str = "") -> str:
    """``what`` failed because of a value of MoveItErrorCodes, in words; ``said``: what MoveIt adds."""
    name = NAMES.get(error, "an unknown error")
    return "; ".join(
        part for part in (f"{what}: MoveIt reports {name} ({error})", said, _HINTS.get(name, "")) if part
    )
