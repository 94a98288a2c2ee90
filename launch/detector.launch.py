# SPDX-License-Identifier: Apache-2.0
"""Starts the detector alone: ``ros2 launch sticker_uq detector.launch.py camera_topic:=/camera/image_raw``."""

from importlib import metadata

from launch import LaunchDescription

from sticker_uq.cell.processes import CellOptions, detector_process
from sticker_uq.nodes.common.launch_actions import declare_arguments, start_processes

if metadata.version("pydantic").startswith("1."):
    raise RuntimeError(
        "the system's pydantic 1 is too old: activate the virtual environment first, "
        "source src/sticker_uq/.venv/bin/activate, and then use the ros2 in it"
    )


def generate_launch_description() -> LaunchDescription:
    """The detector, which publishes assessments and moves nothing."""
    leave_out = [
        name
        for name in CellOptions.model_fields
        if name in ("policy", "record", "audit") or name.startswith(("sim", "console", "source"))
    ]
    return LaunchDescription(
        [
            *declare_arguments(leave_out),
            start_processes(lambda options: [detector_process(options)], leave_out),
        ]
    )
