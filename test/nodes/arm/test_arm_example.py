# SPDX-License-Identifier: Apache-2.0
"""The driver that docs/arm.md shows is Python that fits the package: compiled, imported against stand-ins for MoveIt, and run."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from sticker_uq.nodes.arm.client import Motion, MotionFailed
from sticker_uq_msgs.action import RemoveSticker

DOCUMENT = Path(__file__).parents[3] / "docs" / "arm.md"
NOT_ON_PYPI = ("controller_manager_msgs", "moveit_msgs", "shape_msgs")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the example defines."""
    (source,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    for package in NOT_ON_PYPI:
        for name in (package, f"{package}.msg", f"{package}.srv", f"{package}.action"):
            if name not in sys.modules:
                monkeypatch.setitem(sys.modules, name, _stand_in(name))
    monkeypatch.setattr("rclpy.action.ActionClient", MagicMock())
    names: dict[str, Any] = {"__name__": "moveit_arm"}
    exec(compile(source, str(DOCUMENT), "exec"), names)
    return names


def _stand_in(name: str) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__getattr__ = lambda attribute: _known(attribute)  # type: ignore[method-assign]
    return module


def _known(attribute: str) -> Any:
    if attribute.startswith("__"):
        raise AttributeError(attribute)
    if attribute == "MoveItErrorCodes":
        return types.SimpleNamespace(SUCCESS=1, PLANNING_FAILED=-1)
    return MagicMock(name=attribute)


def test_the_example_is_a_motion_that_starts_a_piece_each_time_it_is_asked(example: dict[str, Any]) -> None:
    motion: Motion = example["MoveItMotion"](MagicMock())
    goal = RemoveSticker.Goal(pose_valid=True, frame_id="base_link")
    goal.pose.pose.orientation.w = 1.0
    steps = motion.steps(goal)
    sent = motion._move.send_goal_async  # type: ignore[attr-defined]
    for number in range(1, 5):
        step = next(steps)
        assert sent.call_count == number
        assert step.finished is not None
        assert not step.finished()
        accepted = sent.return_value.add_done_callback.call_args[0][0]
        accepted(MagicMock())
        done = motion._handle.get_result_async.return_value.add_done_callback.call_args[0][0]  # type: ignore[attr-defined]
        result = MagicMock()
        result.result.return_value.result.error_code.val = 1
        done(result)
        assert step.finished()
    assert step.progress == 1.0
    assert next(steps, None) is None
    motion.stop()
    motion._handle.cancel_goal_async.assert_called_once()  # type: ignore[attr-defined]


def test_the_example_tells_what_it_cannot_do(example: dict[str, Any]) -> None:
    motion = example["MoveItMotion"](MagicMock())
    with pytest.raises(MotionFailed, match="no pose"):
        next(motion.steps(RemoveSticker.Goal()))
    motion._code = -4
    with pytest.raises(MotionFailed, match="MoveIt reports -4"):
        motion._finished()


def test_the_example_keeps_its_distance_along_the_lids_normal(example: dict[str, Any]) -> None:
    goal = RemoveSticker.Goal(pose_valid=True, frame_id="base_link")
    goal.pose.pose.orientation.w = 1.0
    goal.pose.pose.position.z = 0.25
    target = example["above"](goal, 0.08)
    assert (target.pose.position.x, target.pose.position.y) == (0.0, 0.0)
    assert target.pose.position.z == pytest.approx(0.33)
    assert target.header.frame_id == "base_link"
