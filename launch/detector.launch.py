"""Starts the detector alone: ``ros2 launch sticker_uq detector.launch.py camera_topic:=/camera/image_raw``."""

from launch import LaunchDescription

from sticker_uq.nodes.launching import declared_arguments, start_processes
from sticker_uq.nodes.processes import CellOptions, detector_process


def generate_launch_description() -> LaunchDescription:
    """The detector, which publishes assessments and moves nothing."""
    leave_out = [
        name
        for name in CellOptions.model_fields
        if name in ("policy", "record", "audit") or name.startswith(("sim", "console"))
    ]
    return LaunchDescription(
        [
            *declared_arguments(leave_out),
            start_processes(lambda options: [detector_process(options)], leave_out),
        ]
    )
