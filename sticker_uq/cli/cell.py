# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq cell``: start the whole cell as separate processes, with or without launch on the machine."""

import inspect
from typing import Annotated, Any

import typer

from sticker_uq.cell.processes import CellOptions, cell_processes
from sticker_uq.cell.runner import run_processes
from sticker_uq.io.stopping import take_time_to_end


def command(**values: Any) -> None:
    """Start detector, supervisor and, with --sim, the simulated cell; Ctrl-C stops all.

    Starts the same nodes with the same parameters as `ros2 launch sticker_uq cell.launch.py`.
    """
    take_time_to_end()  # the nodes end in order
    raise typer.Exit(
        run_processes(cell_processes(CellOptions.from_texts({k: _text(v) for k, v in values.items()})))
    )


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _parameter(name: str) -> inspect.Parameter:
    info = CellOptions.model_fields[name]
    kind: Any = bool if info.annotation is bool else str
    default = info.default if kind is bool else _text(info.default)
    switch = [f"--{name.replace('_', '-')}"] if kind is bool else []
    option = typer.Option(*switch, help=info.description, show_default=bool(default))
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
    )


command.__signature__ = inspect.Signature([_parameter(name) for name in CellOptions.model_fields])  # type: ignore[attr-defined]
