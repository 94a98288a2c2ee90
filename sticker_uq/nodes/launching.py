"""What the launch files share: arguments declared from :class:`CellOptions`, and its processes as launch actions.

Needs launch and launch_ros, which only a ROS installation has; nothing else of the package imports this module.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from launch import LaunchContext, LaunchDescriptionEntity
from launch.actions import DeclareLaunchArgument, EmitEvent, OpaqueFunction, SetEnvironmentVariable
from launch.events import Shutdown
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from sticker_uq.nodes.processes import (
    PACKAGE,
    CellOptions,
    ProcessSpec,
    absolute_namespace,
    transport_environment,
)


def declared_arguments(leave_out: Sequence[str] = ()) -> list[DeclareLaunchArgument]:
    """One launch argument per field of :class:`CellOptions`, with its description and default."""
    return [
        DeclareLaunchArgument(name, default_value=_text(info.default), description=info.description)
        for name, info in CellOptions.model_fields.items()
        if name not in leave_out
    ]


def start_processes(
    processes: Callable[[CellOptions], Sequence[ProcessSpec]], leave_out: Sequence[str] = ()
) -> OpaqueFunction:
    """An action that starts ``processes(options)`` with the options of the launch arguments."""

    def start(context: LaunchContext) -> list[LaunchDescriptionEntity]:
        names = [name for name in CellOptions.model_fields if name not in leave_out]
        options = CellOptions.from_texts({name: LaunchConfiguration(name).perform(context) for name in names})
        environment = [SetEnvironmentVariable(k, v) for k, v in transport_environment(os.environ).items()]
        return [*environment, *(_node(spec) for spec in processes(options))]

    return OpaqueFunction(function=start)


def _node(spec: ProcessSpec) -> Node:
    return Node(
        package=PACKAGE,
        executable=spec.executable,
        name=spec.name,
        namespace=absolute_namespace(spec.namespace) if spec.namespace else "",
        parameters=[str(spec.params_file), spec.parameters],
        remappings=list(spec.remappings),
        arguments=["--ros-args", "--log-level", spec.log_level],
        output="screen",
        emulate_tty=True,
        respawn=spec.respawn,
        respawn_delay=1.0,
        # a cell without one of its nodes is no cell: the others stop with it
        on_exit=None if spec.respawn else [EmitEvent(event=Shutdown(reason=f"{spec.name} has ended"))],
    )


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
