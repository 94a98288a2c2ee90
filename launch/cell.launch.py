"""Starts the whole cell: ``ros2 launch sticker_uq cell.launch.py`` (``sim:=true`` for the simulated one)."""

from launch import LaunchDescription

from sticker_uq.nodes.launching import declared_arguments, start_processes
from sticker_uq.nodes.processes import cell_processes


def generate_launch_description() -> LaunchDescription:
    """Detector, supervisor and, with ``sim:=true``, camera, arm and laptops."""
    return LaunchDescription([*declared_arguments(), start_processes(cell_processes)])
