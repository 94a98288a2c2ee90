# SPDX-License-Identifier: Apache-2.0
"""ROS parameters from a pydantic model, the same validated settings as on the command line.

Fields may be ``bool``, ``int``, ``float``, ``str`` or a ``Literal`` of strings. Their description, limits and
choices become the parameter's descriptor. An invalid override does not fail the construction of a node: it is kept
and reported by name when the settings are read, so that configure fails with the reason.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rclpy.exceptions import ParameterNotDeclaredException
from rclpy.node import Node
from rclpy.parameter import Parameter

from sticker_uq.cell.processes import NODES, check_parameter_file
from sticker_uq.io.parameter_files import is_shared, matches, read_sections
from sticker_uq.io.setting_fields import expectation, kind_of, limits_of, refusal, validate
from sticker_uq.scene import InvalidInput

M = TypeVar("M", bound=BaseModel)

_INTEGER_LIMIT = 2**63 - 1
_FILES: list[Path] = []
# set by launch files and the runner for every node, with or without lifecycle
_ALWAYS_KNOWN = frozenset({"autostart"})


def declare_settings(
    node: Node,
    model: type[M],
    *,
    locked: Callable[[str], str | None] = lambda name: None,
    changed: Callable[[M, M], None] = lambda old, new: None,
) -> SettingsParameters[M]:
    """Declare one parameter of ``node`` per field of ``model``; invalid overrides are reported when they are read.

    ``locked(name)`` may return a reason why a parameter cannot be changed now; ``changed(old, new)`` is called after a valid
    change at run time.
    """
    return SettingsParameters(node, model, locked, changed)


class _UnknownParameter(ParameterNotDeclaredException):
    """What rclpy's parameter services answer for a parameter that a node does not have."""

    def __init__(self, problem: str) -> None:
        Exception.__init__(self, problem)


class SettingsParameters(Generic[M]):
    """The parameters of a node that make up one model; made by :func:`declare_settings`."""

    def __init__(
        self, node: Node, model: type[M], locked: Callable[[str], str | None], changed: Callable[[M, M], None]
    ) -> None:
        self._node = node
        self._model = model
        self._locked = locked
        self._changed = changed
        self._bad_overrides: dict[str, str] = {}
        self._current: M | None = None
        for name, info in model.model_fields.items():
            self._declare(name, info)
        node.add_pre_set_parameters_callback(self._widen)
        node.add_on_set_parameters_callback(self._validate)
        node.add_post_set_parameters_callback(self._apply)

    def read(self) -> M:
        """Raises :class:`InvalidInput` naming every parameter that is unknown or has an invalid value, and what was expected."""
        problems = [
            *self._bad_overrides.values(),
            *unknown_overrides(self._node),
            *_find_misplaced(self._node),
        ]
        if problems:
            raise InvalidInput("; ".join(problems))
        self._current = self._build({})
        return self._current

    def _declare(self, name: str, info: FieldInfo) -> None:
        override = self._node._parameter_overrides.get(name)
        value = info.get_default(call_default_factory=True)
        if override is not None:
            try:
                value = _check_value(name, info, override.value)
            except InvalidInput as error:
                self._bad_overrides[name] = str(error)
        self._node.declare_parameter(name, value, _descriptor(info), ignore_override=True)

    def _build(self, changes: dict[str, Any]) -> M:
        values = {name: self._node.get_parameter(name).value for name in self._model.model_fields}
        return validate(self._model, values | changes)

    def _widen(self, parameters: Sequence[Parameter]) -> list[Parameter]:
        """Converts integers to floats where floats are expected; YAML and ``ros2 param set`` write 1 for 1.0."""
        fields = self._model.model_fields
        unknown = unknown_names((p.name for p in parameters), self._node)
        if unknown:  # rclpy would refuse it too, but names none to a service's caller
            raise _UnknownParameter("; ".join(unknown))
        return [
            Parameter(p.name, value=float(p.value))
            if p.name in fields and fields[p.name].annotation is float and type(p.value) is int
            else p
            for p in parameters
        ]

    def _validate(self, parameters: Sequence[Parameter]) -> SetParametersResult:
        own = {p.name: p.value for p in parameters if p.name in self._model.model_fields}
        changes = [name for name, value in own.items() if self._node.get_parameter(name).value != value]
        reasons = [reason for name in changes if (reason := self._locked(name))]
        if not reasons:
            try:
                self._build(own)
            except InvalidInput as error:
                reasons = [str(error)]
        return SetParametersResult(successful=not reasons, reason="; ".join(reasons))

    def _apply(self, parameters: Sequence[Parameter]) -> None:
        for parameter in parameters:
            self._bad_overrides.pop(parameter.name, None)
        if self._current is None:
            return
        old, self._current = self._current, self._build({})
        if old != self._current:
            self._changed(old, self._current)


def unknown_overrides(node: Node) -> list[str]:
    """A sentence for every parameter, in a file or given, that ``node`` does not have, with the nearest known name."""
    of_others = {name for pattern, values in _sections() if is_shared(pattern) for name in values}
    of_others -= {name for pattern, values in _sections() if not is_shared(pattern) for name in values}
    return unknown_names(set(node._parameter_overrides) - _ALWAYS_KNOWN - of_others, node)


def unknown_names(names: Iterable[str], node: Node) -> list[str]:
    """One sentence for each of ``names`` that is no parameter of ``node``, with the nearest that is."""
    known = sorted(node._parameters)
    problems = []
    for name in sorted(set(names) - set(known)):
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f", did you mean {nearest[0]}?" if nearest else ""
        problems.append(f"unknown parameter {name}{hint}")
    return problems


def note_parameter_files(arguments: Sequence[str]) -> None:
    """Keep the parameter files that the ``arguments`` of this process name, for what nodes say about them."""
    _FILES[:] = [Path(file) for option, file in pairwise(arguments) if option == "--params-file"]


def _sections() -> list[tuple[str, dict[str, Any]]]:
    return [section for file in _FILES for section in read_sections(file)]


def _find_misplaced(node: Node) -> list[str]:
    """One sentence for each parameter file with a section that matches no node, or only a ``node`` of another namespace."""
    name, full = node.get_name(), node.get_fully_qualified_name()
    problems = []
    for file in _FILES if name in NODES else ():
        try:
            check_parameter_file(file, node._parameters)
        except InvalidInput as error:
            problems.append(str(error))
        own = [pattern for pattern, _ in read_sections(file) if pattern.rpartition("/")[2] == name]
        if own and not any(matches(pattern, full) for pattern in own):
            problems.append(f"parameter file {file}: {own[0]} is not for {full}; /**/{name} would match")
    return problems


def _check_value(name: str, info: FieldInfo, value: Any) -> Any:
    kind = kind_of(info)
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise InvalidInput(f"parameter {name} = {value!r}: expected {expectation(info)}")
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(Annotated[info.annotation, info])  # type: ignore[arg-type]
        return adapter.validate_python(value)
    except ValidationError as error:
        raise InvalidInput(f"parameter {name} = {value!r}: {refusal(info, error.errors()[0])}") from None


def _descriptor(info: FieldInfo) -> ParameterDescriptor:
    descriptor = ParameterDescriptor(
        description=info.description or "", additional_constraints=expectation(info)
    )
    low, high, _, _ = limits_of(info)
    if low is None and high is None:
        return descriptor
    if kind_of(info) is int:
        lowest = -_INTEGER_LIMIT - 1 if low is None else int(low)
        highest = _INTEGER_LIMIT if high is None else int(high)
        descriptor.integer_range = [IntegerRange(from_value=lowest, to_value=highest, step=0)]
    else:
        lowest_float = -math.inf if low is None else float(low)
        highest_float = math.inf if high is None else float(high)
        descriptor.floating_point_range = [
            FloatingPointRange(from_value=lowest_float, to_value=highest_float, step=0.0)
        ]
    return descriptor
