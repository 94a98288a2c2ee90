# SPDX-License-Identifier: Apache-2.0
"""Starts the whole cell: ``ros2 launch sticker_uq cell.launch.py`` (``sim:=true`` for the simulated one)."""

from importlib import metadata

from launch import LaunchDescription

from sticker_uq.cell.processes import cell_processes
from sticker_uq.nodes.common.launch_actions import declare_arguments, start_processes

if metadata.version("pydantic").startswith("1."):
    raise RuntimeError(
        "the system's pydantic 1 is too old: activate the virtual environment first, "
        "source src/sticker_uq/.venv/bin/activate, and then use the ros2 in it"
    )


def generate_launch_description() -> LaunchDescription:
    """Detector, supervisor and, with ``sim:=true``, camera, arm and laptops."""
    return LaunchDescription([*declare_arguments(), start_processes(cell_processes)])
