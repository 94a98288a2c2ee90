# SPDX-License-Identifier: Apache-2.0
"""The gate to the arm, without ROS: judge of scenes, state machine, steps, permits, heartbeat of the arm, plausibility,
overlap. ROS: sticker_uq.nodes.supervisor.

Pure functions and frozen values: no clock, no file but the policy's, no torch, no ROS. (`permit`, `presence` and `audit` are what
arm and supervisor do with them: they read the clock, and `audit` writes files.) :func:`judge` turns an assessment into
verdicts; :func:`step` turns decisions and events into a permit that expires; :class:`GateController` joins the two.
"""

from sticker_uq.gate.answers import Answer, OperatorAnswer, OperatorAnswers, SceneAnswer
from sticker_uq.gate.assumptions.assumption_monitor import AssumptionSettings
from sticker_uq.gate.controller import GateController, facts_of
from sticker_uq.gate.judge import judge
from sticker_uq.gate.policy.policy import Policy
from sticker_uq.gate.settings import GateSettings
from sticker_uq.gate.state import BlockReason, GateState, Phase
from sticker_uq.gate.state_machine import step

__all__ = [
    "Answer",
    "AssumptionSettings",
    "BlockReason",
    "GateController",
    "GateSettings",
    "GateState",
    "OperatorAnswer",
    "OperatorAnswers",
    "Phase",
    "Policy",
    "SceneAnswer",
    "facts_of",
    "judge",
    "step",
]
