# SPDX-License-Identifier: Apache-2.0
"""Types and limits of the fields of settings models, for ROS parameters and command line options. Without ROS."""

import copy
import difflib
import re
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from sticker_uq.scene import InvalidInput

M = TypeVar("M", bound=BaseModel)
Share = Annotated[float, Field(ge=0.0, le=1.0)]
"""A setting from 0 to 1."""


class Frozen(BaseModel):
    """Values that stay as they are made; a name that is no field is refused. A text below a field describes it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        for info in cls.model_fields.values():
            info.description = info.description and " ".join(info.description.split())

    def part(self, model: type[M]) -> M:
        """Settings of ``model``, whose fields are all among these."""
        return model(**{name: getattr(self, name) for name in model.model_fields})


class Finite(Frozen):
    """The same with finite numbers."""

    model_config = ConfigDict(allow_inf_nan=False)


_SHORTER = {
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "greater than": "above",
    "less than": "below",
    " after validation": "",
}


def same_field(model: type[BaseModel], name: str) -> Any:
    """A copy of the field ``name`` of ``model``, for another model with the same default, limits and meaning."""
    return copy.copy(model.model_fields[name])


def without_none(info: FieldInfo) -> FieldInfo:
    """A field that may be left out, as one that may not be."""
    kinds = [kind for kind in get_args(info.annotation) if kind is not type(None)]
    if len(kinds) != 1 or len(get_args(info.annotation)) != 2 or get_origin(info.annotation) is Literal:
        return info
    given = copy.copy(info)
    given.annotation = kinds[0]
    return given


def kind_of(info: FieldInfo) -> type:
    """The type of a field's values; a choice is a string. Raises TypeError for one that no ROS parameter can have."""
    annotation: Any = info.annotation
    kind: type = str if get_origin(annotation) is Literal else annotation
    if kind not in (bool, int, float, str):
        raise TypeError(f"a field of type {annotation} cannot be a ROS parameter")
    return kind


def limits_of(info: FieldInfo) -> tuple[float | None, float | None, bool, bool]:
    """The lowest and the highest value of a field, None for none, and for each whether it is itself refused."""
    found = {
        name: value
        for constraint in info.metadata
        for name in ("ge", "gt", "le", "lt")
        if (value := getattr(constraint, name, None)) is not None
    }
    return found.get("gt", found.get("ge")), found.get("lt", found.get("le")), "gt" in found, "lt" in found


def expectation(info: FieldInfo) -> str:
    """What a field accepts, in words: ``an integer from 1 to 200``, ``one of cpu, cuda``."""
    if get_origin(info.annotation) is Literal:
        return f"one of {', '.join(map(repr, get_args(info.annotation)))}"
    words = {bool: "true or false", int: "an integer", float: "a number", str: "a string (quote it in YAML)"}
    kind = words[kind_of(info)]
    patterns = [pattern for c in info.metadata if (pattern := getattr(c, "pattern", None))]
    if patterns:
        return f"a string that matches {patterns[0]}"
    low, high, low_open, high_open = limits_of(info)
    if low is not None and high is not None and not (low_open or high_open):
        return f"{kind} from {low} to {high}"
    bounds = []
    if low is not None:
        bounds.append(f"above {low}" if low_open else f"of at least {low}")
    if high is not None:
        bounds.append(f"below {high}" if high_open else f"of at most {high}")
    return f"{kind} {' and '.join(bounds)}".rstrip()


def refusal(info: FieldInfo, problem: Any) -> str:
    """Why pydantic refused a value, ``problem`` of its errors: the field's own rule, or what it expects."""
    info = without_none(info)
    simple = info.annotation in (bool, int, float, str) or get_origin(info.annotation) is Literal
    own_rule = problem["type"] == "value_error" or not simple
    return words(problem) if own_rule else f"expected {expectation(info)}"


def words(problem: Any, model: type[BaseModel] | None = None) -> str:
    """Why pydantic refused a value, ``problem`` of its errors, in our words; with ``model``, the name nearest to an unknown."""
    kind = problem["type"]
    if kind == "value_error":
        return str(problem["ctx"]["error"])
    if kind == "missing":
        return "missing"
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(str(problem["loc"][-1]), _names(model, problem["loc"]), 1)
        return f"unknown name{f', did you mean {near[0]}?' if near else ''}"
    message = re.sub(r"^\w+ should (be|have|match) ", "expected ", problem["msg"])
    for theirs, ours in _SHORTER.items():
        message = message.replace(theirs, ours)
    return message


def _names(model: type[BaseModel] | None, location: tuple[int | str, ...]) -> list[str]:
    fields = model.model_fields if model else {}
    if len(location) <= 1:
        return list(fields)
    inner = _models(fields[name].annotation) if (name := str(location[0])) in fields else _models(model)
    return [found for one in inner for found in _names(one, location[1:])]


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [one for part in get_args(annotation) for one in _models(part)]


def validate(model: type[M], values: dict[str, Any], strict: bool = False) -> M:
    """A ``model`` made of ``values``; raises :class:`InvalidInput` naming each invalid field and what was expected.

    ``strict``: neither ``true`` nor ``"0.8"`` is a number, as in a file.
    """
    try:
        return model.model_validate(values, strict=strict)
    except ValidationError as error:
        raise InvalidInput("; ".join(_sentence(model, problem) for problem in error.errors())) from None


def _sentence(model: type[BaseModel], problem: Any) -> str:
    name = ".".join(str(part) for part in problem["loc"])
    if name not in model.model_fields:
        return f"{name}: {words(problem, model)}" if name else words(problem)
    return f"parameter {name} = {problem['input']!r}: {refusal(model.model_fields[name], problem)}"
