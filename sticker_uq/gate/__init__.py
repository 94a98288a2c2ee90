"""What may be done about a scene, and when the arm may move: policy, the operator's answers, judgement, and the gate.

Pure functions and frozen values: no clock, no file but the policy's, no torch, no ROS. :func:`judge` turns an assessment into
verdicts; the gate (:func:`step`) turns a stream of decisions and events into a permit that must be renewed to last;
:class:`GateController` joins the two.
"""

from sticker_uq.gate.assumptions.assumption_monitor import AssumptionSettings
from sticker_uq.gate.controller import GateController, facts_of
from sticker_uq.gate.judge import judge, rule
from sticker_uq.gate.operator.answers import Answer, OperatorAnswer, OperatorAnswers, SceneAnswer
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
    "rule",
    "step",
]
