# SPDX-License-Identifier: Apache-2.0
"""Frozen dataclasses over arrays to and from plain values: dicts, lists, numbers and strings, as JSON has them."""

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum, IntEnum
from functools import cache
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np

_D = TypeVar("_D")


def to_plain(value: Any, leave_out: tuple[str, ...] = ()) -> Any:
    """``value`` as nested dicts, lists, numbers and strings for JSON; dataclass fields in ``leave_out`` are omitted.

    Arrays become lists of Python numbers without loss (float32 is widened exactly), enums become their values.
    """
    if is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in fields(value) if f.name not in leave_out]
        return {name: to_plain(getattr(value, name), leave_out) for name in names}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {str(k): to_plain(v, leave_out) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(v, leave_out) for v in value]
    return value


_ARRAYS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "box": (np.float32, (4,)),
    "probabilities": (np.float32, (-1,)),
    "box_covariance": (np.float64, (4, 4)),
    "corner_hulls": (np.float32, (-1, 2)),
}
"""Type and shape of the arrays of a scene by the names of their fields."""


def _of_mapping(value: Any, name: str) -> Any:
    return value.get(name, MISSING)


def from_plain(kind: type[_D], value: Any, get: Callable[[Any, str], Any] = _of_mapping) -> _D:
    """The dataclass ``kind`` from what :func:`to_plain` made of it.

    ``get(value, name)``: the value of a field, MISSING to leave the default; by it other containers are read, such as messages.
    An unknown value of an enumeration becomes its member 0. Raises TypeError for a field that is missing.
    """
    found = ((name, hint, get(value, name)) for name, hint in _hints(cast(Any, kind)).items())
    return kind(**{name: _read(hint, name, item, get) for name, hint, item in found if item is not MISSING})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind)}


def _read(hint: Any, name: str, value: Any, get: Callable[[Any, str], Any]) -> Any:
    inner = get_args(hint)
    if isinstance(hint, UnionType):
        return None if value is None else _read(inner[0], name, value, get)
    if get_origin(hint) is tuple:
        return tuple(_read(inner[0], name, item, get) for item in value)
    if name in _ARRAYS:
        dtype, shape = _ARRAYS[name]
        return np.array(value, dtype).reshape(shape)
    if is_dataclass(hint):
        return value if isinstance(value, cast(type, hint)) else from_plain(cast(type[Any], hint), value, get)
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return hint(value) if value in set(hint) else hint(0)
    return value
