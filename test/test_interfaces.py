# SPDX-License-Identifier: Apache-2.0
"""The interface package is built from the files of this checkout, and each field says what it means."""

import importlib
import re
from pathlib import Path

import pytest
from rosidl_adapter import parser

from sticker_uq.gate import Phase
from sticker_uq.messages import BlockReason
from sticker_uq.scene import ObjectClass, Outcome, Status, Verdict

PACKAGE = Path(__file__).parents[1] / "sticker_uq_msgs"
FILES = sorted(path for kind in ("msg", "srv", "action") for path in (PACKAGE / kind).glob(f"*.{kind}"))
FLOAT = re.compile(r"float(32|64)\b")
UNIT = re.compile(
    r"\b(px(\^2)?|bits|milliseconds|m|rad|dimensionless|probability|count|unit|sum 1|0\.\.\d)(?!\w)"
)


def lines_with_fields(path: Path) -> list[str]:
    stripped = (line.strip() for line in path.read_text().splitlines())
    return [line for line in stripped if line and not line.startswith(("#", "---"))]


def parts(path: Path) -> dict[str, parser.MessageSpecification]:
    """The messages that a file defines, by the name of their Python class."""
    name, kind = path.stem, path.suffix[1:]
    parse = {
        "msg": parser.parse_message_file,
        "srv": parser.parse_service_file,
        "action": parser.parse_action_file,
    }[kind]
    specification = parse("sticker_uq_msgs", str(path))
    if kind == "msg":
        return {name: specification}
    if kind == "srv":
        return {f"{name}_Request": specification.request, f"{name}_Response": specification.response}
    return {
        f"{name}_Goal": specification.goal,
        f"{name}_Result": specification.result,
        f"{name}_Feedback": specification.feedback,
    }


def test_the_package_has_all_three_kinds_of_interfaces():
    assert {path.suffix for path in FILES} == {".msg", ".srv", ".action"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_built_interface_is_the_one_in_the_file(path):
    assert hasattr(importlib.import_module(f"sticker_uq_msgs.{path.suffix[1:]}"), path.stem)
    generated = importlib.import_module(f"sticker_uq_msgs.{path.suffix[1:]}._{_snake_case(path.stem)}")
    for class_name, specification in parts(path).items():
        built = getattr(generated, class_name)
        assert list(built.get_fields_and_field_types()) == [field.name for field in specification.fields]
        for constant in specification.constants:
            assert getattr(built, constant.name) == constant.value


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_field_says_what_it_means(path):
    for line in lines_with_fields(path):
        definition, _, comment = line.partition("#")
        assert re.search(r"[A-Za-z]{2}", comment), f"no explanation: {line}"
        if FLOAT.match(definition):
            assert UNIT.search(comment), f"no unit: {line}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_zero_of_an_enumeration_means_unknown_or_nothing(path):
    zeros = [line.split()[1] for line in lines_with_fields(path) if re.match(r"uint\d+ [A-Z_]+ += 0\b", line)]
    assert all(name.endswith(("_UNKNOWN", "_NONE", "_BACKGROUND")) for name in zeros)


@pytest.mark.parametrize(
    ("message", "prefix", "values"),
    [
        ("GateState", "STATE_", Phase),
        ("GateState", "REASON_", BlockReason),
        ("ObservedObject", "LABEL_", ObjectClass),
        ("SceneAssessment", "STATUS_", Status),
        ("SceneDecision", "OUTCOME_", Outcome),
        ("Verdict", "VERDICT_", Verdict),
    ],
)
def test_the_constants_of_a_message_are_the_values_of_its_enumeration(message, prefix, values):
    constants = parts(PACKAGE / "msg" / f"{message}.msg")[message].constants
    found = {c.name.removeprefix(prefix): c.value for c in constants if c.name.startswith(prefix)}
    assert found == {name: int(value) for name, value in values.__members__.items()}


def test_cmake_builds_every_file():
    listed = re.findall(r'"((?:msg|srv|action)/\w+\.\w+)"', (PACKAGE / "CMakeLists.txt").read_text())
    assert sorted(listed) == sorted(str(path.relative_to(PACKAGE)) for path in FILES)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
