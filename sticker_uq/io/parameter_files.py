# SPDX-License-Identifier: Apache-2.0
"""Reading the parameters of one node from ROS 2 parameter files, without ROS."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sticker_uq.io.reading import read_yaml, shown
from sticker_uq.scene import InvalidInput

_ROS_PARAMETERS = "ros__parameters"
_EVERY_NODE = ("/**", "**", "/*", "*")
_EVERY_NODES_OWN = ("use_sim_time", "autostart")


def refuse_unknown(names: Iterable[str], known: Sequence[str], file: Path | None = None) -> None:
    """For a YAML file of ROS parameters: InvalidInput for the first of `names` not `known` nor of every node; suggests the
    nearest.
    """
    for name in names:
        if name in (*known, *_EVERY_NODES_OWN) or name.startswith("qos_overrides"):
            continue
        close = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
        raise InvalidInput(f"{f'{file}: ' if file else ''}unknown parameter {name}; {hint}")


def read_parameters(path: Path, node: str) -> dict[str, Any]:
    """The parameters that the ROS 2 YAML file at `path` gives to `node`; empty when it has other nodes only.

    Sections named ``/**`` apply to every node; a namespace before the node's name is ignored. Raises InvalidInput
    when the file is missing or not a parameter file.
    """
    content = read_yaml(path, f"parameter file {path}")
    sections = list(_sections(content))
    if not sections:
        raise InvalidInput(
            f"parameter file {path}: expected NODE: {_ROS_PARAMETERS}: NAME: VALUE, found no {_ROS_PARAMETERS}"
        )
    nameless = next((name for _, values in sections for name in values if not isinstance(name, str)), "")
    if nameless != "":
        raise InvalidInput(f"parameter file {path}: {shown(nameless)}: expected the name of a parameter")
    everywhere = [values for name, values in sections if name in _EVERY_NODE]
    own = [values for name, values in sections if name.rsplit("/", 1)[-1] == node]
    return {key: value for values in everywhere + own for key, value in values.items()}


def _sections(content: Any, prefix: str = "") -> Iterable[tuple[str, dict[str, Any]]]:
    """Every (node name, parameters) pair below `content`; namespaces may nest."""
    if not isinstance(content, dict):
        return
    for key, value in content.items():
        if key == _ROS_PARAMETERS and isinstance(value, dict):
            yield prefix, value
        else:
            yield from _sections(value, f"{prefix}/{key}" if prefix else str(key))
