# SPDX-License-Identifier: Apache-2.0
"""ROS launch actions of a cell: launch arguments from :class:`CellOptions`, and the processes of a cell.

Needs launch and launch_ros, which only a ROS installation has; only launch files import this module.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Literal, get_args, get_origin

from launch import LaunchContext, LaunchDescriptionEntity
from launch.actions import DeclareLaunchArgument, EmitEvent, OpaqueFunction
from launch.events import Shutdown
from launch.events.process import ProcessExited
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.utilities import make_namespace_absolute, prefix_namespace

from sticker_uq.cell.processes import CellOptions, ProcessSpec
from sticker_uq.cell.runner import RESPAWN_PAUSE_S, STOP_TIMEOUT_S
from sticker_uq.scene import InvalidInput


def declare_arguments(leave_out: Sequence[str] = ()) -> list[DeclareLaunchArgument]:
    """One argument per field of :class:`CellOptions`, with its description, choices and default."""
    return [
        DeclareLaunchArgument(
            name,
            default_value=_text(info.default),
            description=info.description,
            choices=list(get_args(info.annotation)) if get_origin(info.annotation) is Literal else None,
        )
        for name, info in CellOptions.model_fields.items()
        if name not in leave_out
    ]


def start_processes(
    processes: Callable[[CellOptions], Sequence[ProcessSpec]], leave_out: Sequence[str] = ()
) -> OpaqueFunction:
    """A launch action that starts ``processes(options)`` with the options of the launch arguments.

    An invalid or misspelt argument raises :class:`InvalidInput`, which ends the launch with one line.
    """

    def start(context: LaunchContext) -> list[LaunchDescriptionEntity]:
        names = [name for name in CellOptions.model_fields if name not in leave_out]
        _refuse_misspelt(context.argv, names)
        options = CellOptions.from_texts({name: LaunchConfiguration(name).perform(context) for name in names})
        # a launch file that includes this one may have pushed a namespace
        pushed = context.launch_configurations.get("ros_namespace")
        namespace = make_namespace_absolute(prefix_namespace(pushed, options.namespace) or "")
        return [_node(spec) for spec in processes(options.model_copy(update={"namespace": namespace}))]

    return OpaqueFunction(function=start)


def _refuse_misspelt(arguments: Sequence[str], names: Sequence[str]) -> None:
    """Raise :class:`InvalidInput` for an argument that resembles a known one.

    Launch ignores unknown arguments, so that a misspelt ``policy`` would silently select the default. Other names may belong
    to a launch file that includes this one.
    """
    for argument in arguments:
        given = argument.partition(":=")[0]
        nearest = difflib.get_close_matches(given, names, n=1, cutoff=0.8)
        if nearest and given not in names:
            raise InvalidInput(f"unknown argument {argument}, did you mean {nearest[0]}?")


def _node(spec: ProcessSpec) -> Node:
    # launch parses plain strings as YAML, which would make a number of a model called 123e5
    parameters = {k: ParameterValue(v, value_type=type(v)) for k, v in spec.parameters.items()}
    return Node(
        package=spec.package,
        executable=spec.executable,
        name=spec.name,
        namespace=spec.namespace,
        parameters=[str(spec.params_file), parameters],
        remappings=list(spec.remappings),
        ros_arguments=["--enclave", spec.enclave, *spec.log_arguments()],
        output="screen",
        emulate_tty=True,
        respawn=spec.respawn,
        respawn_delay=RESPAWN_PAUSE_S,
        sigterm_timeout=LaunchConfiguration("sigterm_timeout", default=STOP_TIMEOUT_S),
        sigkill_timeout=LaunchConfiguration("sigkill_timeout", default=STOP_TIMEOUT_S),
        on_exit=_on_exit_of(spec),
    )


def _on_exit_of(spec: ProcessSpec) -> Callable[[ProcessExited, LaunchContext], list[EmitEvent] | None]:
    def on_exit(event: ProcessExited, context: LaunchContext) -> list[EmitEvent] | None:
        if context.is_shutdown:
            return None
        if event.returncode == 0:
            return [EmitEvent(event=Shutdown(reason=f"{spec.name} has ended"))]
        if spec.respawn:
            return None
        # a Shutdown event would leave the exit code of the launch at 0
        raise RuntimeError(f"{spec.name} DIED with exit code {event.returncode}; stopping the others")

    return on_exit


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
