# SPDX-License-Identifier: Apache-2.0
"""Parameters come from a pydantic model: descriptors, validation at configure and at run time."""

from __future__ import annotations

import math
import re
from typing import Literal

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator
from rcl_interfaces.msg import ParameterType
from rcl_interfaces.srv import SetParameters
from rclpy.context import Context
from rclpy.node import Node
from rclpy.parameter import Parameter

from sticker_uq.cell import processes
from sticker_uq.io.parameter_files import matches, read_sections
from sticker_uq.nodes.common import parameters
from sticker_uq.nodes.common.parameters import declare_settings, note_parameter_files
from sticker_uq.scene import InvalidInput
from sticker_uq.testing.bench import Bench, overrides


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True)

    passes: int = Field(20, ge=1, le=200, description="Stochastic passes")
    rate: float = Field(0.2, ge=0.0, le=0.9, description="Dropout rate")
    patience: float = Field(1.0, gt=0.0)
    device: Literal["cpu", "cuda"] = "cpu"
    weights: str = ""
    colour: str = Field("red", pattern="^(red|blue)$")
    low: float = 0.0
    high: float = 1.0
    verbose: bool = False

    @model_validator(mode="after")
    def ordered(self) -> Settings:
        if self.low >= self.high:
            raise ValueError(f"low = {self.low} must be below high = {self.high}")
        return self


def node_with(bench: Bench, **values: object) -> Node:
    return bench.add(Node("subject", parameter_overrides=overrides(**values)))


def settings_of(bench: Bench, **values: object) -> Settings:
    return declare_settings(node_with(bench, **values), Settings).read()


def set_parameter(bench: Bench, name: str, value: object) -> tuple[bool, str]:
    request = SetParameters.Request(parameters=[Parameter(name, value=value).to_parameter_msg()])
    result = bench.call(SetParameters, "subject/set_parameters", request).results[0]
    return result.successful, result.reason


def test_descriptors_carry_type_description_and_limits(bench):
    node = node_with(bench)
    declare_settings(node, Settings)
    passes = node.describe_parameter("passes")
    assert passes.type == ParameterType.PARAMETER_INTEGER
    assert passes.description == "Stochastic passes"
    assert (passes.integer_range[0].from_value, passes.integer_range[0].to_value) == (1, 200)
    rate = node.describe_parameter("rate")
    assert (rate.floating_point_range[0].from_value, rate.floating_point_range[0].to_value) == (0.0, 0.9)
    assert node.describe_parameter("device").additional_constraints == "one of 'cpu', 'cuda'"
    assert node.describe_parameter("patience").additional_constraints == "a number above 0.0"


def test_an_integer_serves_as_a_number(bench):
    settings = settings_of(bench, rate=0, patience=2)
    assert (settings.rate, settings.patience) == (0.0, 2.0)
    assert isinstance(settings.patience, float)
    assert set_parameter(bench, "patience", 3) == (True, "")
    assert set_parameter(bench, "passes", 3.0)[0] is False


ALL_BAD = {
    "passes": 201, "rate": 0.95, "patience": 0.0, "device": "tpu", "weights": 123, "colour": "grey", "verbose": 1, "raet": 1.0
}  # fmt: skip


@pytest.mark.parametrize(
    ("values", "complaints"),
    [
        (
            ALL_BAD,
            [
                "passes = 201: expected an integer from 1 to 200",
                "rate = 0.95: expected a number from 0.0 to 0.9",
                "patience = 0.0: expected a number above 0.0",
                "device = 'tpu': expected one of 'cpu', 'cuda'",
                "weights = 123: expected a string (quote it in YAML)",
                "colour = 'grey': expected a string that matches ^(red|blue)$",
                "verbose = 1: expected true or false",
                "unknown parameter raet, did you mean rate?",
            ],
        ),
        ({"passes": 20.0, "rate": "0.1"}, ["passes = 20.0: expected an integer", "rate = '0.1': expected a"]),
        (
            {"passes": True, "rate": math.nan},
            ["passes = True: expected an integer", "rate = nan: expected a"],
        ),
        ({"low": 2.0}, ["low = 2.0 must be below high = 1.0"]),
    ],
)
def test_bad_overrides_are_all_named_when_read(bench, values, complaints):
    with pytest.raises(InvalidInput) as error:
        settings_of(bench, **values)
    assert [one for one in complaints if one not in str(error.value)] == []


def test_changes_at_run_time_are_validated_as_a_whole(bench):
    changes: list[tuple[Settings, Settings]] = []
    node = node_with(bench)
    parameters = declare_settings(node, Settings, changed=lambda old, new: changes.append((old, new)))
    parameters.read()
    assert set_parameter(bench, "low", 5.0) == (False, "low = 5.0 must be below high = 1.0")
    assert (
        set_parameter(bench, "device", "tpu")[1] == "parameter device = 'tpu': expected one of 'cpu', 'cuda'"
    )
    assert not set_parameter(bench, "passes", 500)[0]
    assert set_parameter(bench, "pases", 3) == (False, "unknown parameter pases, did you mean passes?")
    assert not changes
    assert set_parameter(bench, "low", 0.5)[0]
    assert [(old.low, new.low) for old, new in changes] == [(0.0, 0.5)]
    assert parameters.read().low == 0.5


def test_a_locked_parameter_says_why(bench):
    node = node_with(bench)
    declare_settings(node, Settings, locked=lambda name: "not now" if name == "device" else None).read()
    assert set_parameter(bench, "device", "cuda") == (False, "not now")
    assert set_parameter(bench, "device", "cpu")[0], "setting the same value changes nothing"
    assert set_parameter(bench, "passes", 3)[0]


PATTERNS = ["/**", "/*", "/**/detector", "/*/detector", "/cell_1/**", "/cell_1/*", "/cell_1/detector", "/line/**/detector",
            "detector", "cell_1/detector", "/line/*/detector", "/line/cell_1/*", "/**/cell_1/**", "**", "/detektor"]  # fmt: skip


@pytest.mark.parametrize("namespace", ["", "/cell_1", "/line/cell_1", "/line/a/b"])
def test_a_section_is_for_the_nodes_that_rclpy_gives_it_to(tmp_path, namespace):
    file = tmp_path / "params.yaml"
    sections = {place: {"ros__parameters": {f"p{n}": n}} for n, place in enumerate(PATTERNS)}
    file.write_text(yaml.safe_dump(sections, sort_keys=False))
    context = Context()
    context.init(["--ros-args", "--params-file", str(file)])
    node = Node("detector", namespace=namespace, context=context)
    given = {name for name in node._parameter_overrides if name.startswith("p")}
    node.destroy_node()
    context.try_shutdown()
    expected = {
        f"p{n}" for n, (place, _) in enumerate(read_sections(file)) if matches(place, f"{namespace}/detector")
    }
    assert given == expected
    assert expected


@pytest.mark.parametrize(
    ("place", "values", "message"),
    [
        ("/**/subjekt", {"passes": 3}, "/**/subjekt is for no node of the cell"),
        ("subject", {"passes": 3}, "/subject is not for /cell_1/subject; /**/subject would match"),
        ("/**", {"lease_ss": 3.0}, "unknown parameter lease_ss; did you mean lease_s?"),
        ("/**/subject", {"pases": 3}, "unknown parameter pases, did you mean passes?"),
        ("/**", {"passes": 3, "lease_s": 0.3, "seed": 4}, ""),
        ("/**/supervisor", {"lease_s": 3}, ""),
    ],
)
def test_a_parameter_file_that_reaches_no_node_fails_with_what_would_match(
    bench, tmp_path, monkeypatch, place, values, message
):
    file = tmp_path / "params.yaml"
    file.write_text(yaml.safe_dump({place: {"ros__parameters": values}}))
    monkeypatch.setattr(processes, "NODES", (*processes.NODES, "subject"))
    monkeypatch.setattr(parameters, "NODES", processes.NODES)
    arguments = ["--ros-args", "--params-file", str(file)]
    monkeypatch.setattr(parameters, "_FILES", [])
    note_parameter_files(arguments)
    node = bench.add(Node("subject", namespace="/cell_1", cli_args=arguments))
    declared = declare_settings(node, Settings)
    if message:
        with pytest.raises(InvalidInput, match=re.escape(message)):
            declared.read()
    else:
        declared.read()
