# SPDX-License-Identifier: Apache-2.0
"""Reading the parameters of one node from ROS 2 parameter files, without ROS."""

import difflib
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from sticker_uq.io.reading import read_yaml, show_value
from sticker_uq.scene import InvalidInput

_ROS_PARAMETERS = "ros__parameters"
_EVERY_NODES_OWN = ("use_sim_time", "autostart")


def refuse_unknown(names: Iterable[str], known: Sequence[str], file: Path | None = None) -> None:
    """Raise InvalidInput for the first of `names` that is neither `known` nor a parameter of every node; suggests the nearest."""
    for name in names:
        if name in (*known, *_EVERY_NODES_OWN) or name.startswith("qos_overrides"):
            continue
        close = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
        raise InvalidInput(f"{f'{file}: ' if file else ''}unknown parameter {name}; {hint}")


def read_parameters(path: Path, node: str, known: Collection[str] | None = None) -> dict[str, Any]:
    """The parameters that the ROS 2 YAML file at `path` gives to `node`; empty when it has other nodes only.

    As in ROS 2, a section may be for one node (``/cell_1/detector``), for those of any namespace (``/**/detector``) or for all
    (``/**``, ``/cell_1/**``), and a later one wins. Of the sections for all, names that are not `known` to the node are
    another's. Raises InvalidInput when the file is missing or not a parameter file, and when it has sections for the node in
    several namespaces that do not agree.
    """
    sections = read_sections(path)
    places = (_namespace(pattern, node) for pattern, _ in sections)
    found: dict[str, dict[str, Any]] = {place: {} for place in places if place is not None}
    if len(found) > 1:  # "" stands for any namespace
        found.pop("", None)
    for place, values in found.items():
        for pattern, section in sections:
            if matches(pattern, _full(place, node)):
                every = known is None or not is_shared(pattern)
                values.update({k: value for k, value in section.items() if every or k in (known or ())})
    first = next(iter(found), "")
    for place, values in [*found.items()][1:]:  # the first agrees with itself, also where a value is NaN
        for name in sorted({*values, *found[first]}):
            one, other = (of.get(name, "not set") for of in (found[first], values))
            if one != other:
                raise InvalidInput(
                    f"parameter file {path}: {name} is {show_value(one)} for {_full(first, node)} and {show_value(other)} for "
                    f"{_full(place, node)}: expected the parameters of one cell; leave the other's out"
                )
    return found.get(first, {})


def read_sections(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """The sections of the file at `path` in order: for which nodes (``/**/detector``), and their parameters."""
    sections = [
        (f"/{name.lstrip('/')}", values)
        for name, values in _sections(read_yaml(path, f"parameter file {path}"))
    ]
    if not sections:
        raise InvalidInput(
            f"parameter file {path}: expected NODE: {_ROS_PARAMETERS}: NAME: VALUE, found no {_ROS_PARAMETERS}"
        )
    nameless = next((name for _, values in sections for name in values if not isinstance(name, str)), "")
    if nameless != "":
        raise InvalidInput(f"parameter file {path}: {show_value(nameless)}: expected the name of a parameter")
    return sections


def is_shared(pattern: str) -> bool:
    return pattern.rpartition("/")[2] in ("*", "**")


def matches(pattern: str, node: str) -> bool:
    """Whether the section ``pattern`` is for the node with the full name ``node``, by the rule of rclcpp and rclpy."""
    expression = re.escape(pattern).replace(r"/\*\*", r"(/\w+)*").replace(r"/\*", r"(/\w+)")
    return re.fullmatch(expression, node) is not None


def _full(namespace: str, node: str) -> str:
    return f"{namespace.rstrip('/')}/{node}"


def _namespace(pattern: str, node: str) -> str | None:
    """A namespace in which a section is for ``node``: "" if it is for every one, None if for none."""
    *spaces, last = pattern.strip("/").split("/")
    if last not in (node, "*", "**"):
        return None
    if not spaces and last == node:
        return "/"
    named = [space.replace("*", "any") for space in spaces if space != "**"]
    return "/" + "/".join(named) if named else "" if "**" in (last, *spaces) else "/"


def _sections(content: Any, prefix: str = "") -> Iterable[tuple[str, dict[str, Any]]]:
    if not isinstance(content, dict):
        return
    for key, value in content.items():
        if key == _ROS_PARAMETERS and isinstance(value, dict):
            yield prefix, value
        else:
            yield from _sections(value, f"{prefix}/{key}" if prefix else str(key))
