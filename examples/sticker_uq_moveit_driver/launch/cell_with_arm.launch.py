# SPDX-License-Identifier: Apache-2.0
"""Starts the whole cell with this driver: ``ros2 launch sticker_uq_moveit_driver cell_with_arm.launch.py camera_topic:=...``.

Takes every argument of sticker_uq's cell.launch.py, and ``driver_params``. move_group and the robot's driver run beside it.
"""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription, OpaqueFunction
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration

PACKAGE = "sticker_uq_moveit_driver"


def generate_launch_description() -> LaunchDescription:
    """The cell, the driver and its stop service."""
    own = Path(get_package_share_directory(PACKAGE))
    cell = Path(get_package_share_directory("sticker_uq"))
    return LaunchDescription(
        [
            DeclareLaunchArgument(
                "sim", default_value="false", description="Must be false: the simulation has an arm"
            ),
            DeclareLaunchArgument(
                "params_file",
                default_value=str(own / "config" / "cell.yaml"),
                description="Parameter file of the cell; empty: the one of this package",
            ),
            OpaqueFunction(function=_refuse_simulation),
            _include(cell / "launch" / "cell.launch.py"),
            _include(own / "launch" / "driver.launch.py"),
        ]
    )


def _include(path: Path) -> IncludeLaunchDescription:
    return IncludeLaunchDescription(PythonLaunchDescriptionSource(str(path)))


def _refuse_simulation(context: LaunchContext) -> None:
    if LaunchConfiguration("sim").perform(context).lower() in ("true", "1"):
        raise RuntimeError(
            "sim:=true starts a simulated arm, and the gate stays closed while there are two: leave it out"
        )
