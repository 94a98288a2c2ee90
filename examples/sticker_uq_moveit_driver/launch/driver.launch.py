# SPDX-License-Identifier: Apache-2.0
"""Starts driver and stop service: ``ros2 launch sticker_uq_moveit_driver driver.launch.py driver_params:=driver.yaml``."""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

PACKAGE = "sticker_uq_moveit_driver"
STOP_TIMEOUT_S = "15.0"  # longer than stop_timeout_s: a motion that is under way is stopped first


def generate_launch_description() -> LaunchDescription:
    """Driver and stop service, in a process each."""
    given = str(Path(get_package_share_directory(PACKAGE)) / "config" / "driver.yaml")
    return LaunchDescription(
        [
            DeclareLaunchArgument(
                "driver_params", default_value=given, description="Parameter file of the driver"
            ),
            DeclareLaunchArgument(
                "namespace", default_value="", description="ROS namespace, that of the cell"
            ),
            _node("driver", "moveit_driver"),
            _node("stop_arm", "stop_arm"),
        ]
    )


def _node(executable: str, name: str) -> Node:
    return Node(
        package=PACKAGE,
        executable=executable,
        name=name,
        namespace=LaunchConfiguration("namespace"),
        parameters=[LaunchConfiguration("driver_params")],
        output="screen",
        emulate_tty=True,
        sigterm_timeout=STOP_TIMEOUT_S,
    )
