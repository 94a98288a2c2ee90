# SPDX-License-Identifier: Apache-2.0
"""Options made from a settings model: same names, ranges and parameter files as the nodes."""

from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer
import yaml
from pydantic import BaseModel, ConfigDict, Field
from typer.testing import CliRunner

from sticker_uq.cli.options import combine, settings_options
from sticker_uq.io.parameter_files import read_parameters
from sticker_uq.scene import InvalidInput


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Literal["small", "large"] = Field("small", description="Detector [see README].")
    passes: int = Field(20, ge=1, le=200, description="Stochastic passes T.")
    dropout_rate: float = Field(0.2, ge=0.0, le=0.9, description="Probability of a dropped activation.")
    enabled: bool = Field(True, description="Whether it is on.")


@pytest.fixture
def run():
    seen = []
    app = typer.Typer()

    @app.command()
    @settings_options("settings", Settings, "detector", also_known=("autostart",))
    def command(
        source: Annotated[str, typer.Argument()], settings: Settings, params: Path | None, top: int = 3
    ) -> None:
        seen.append((source, settings, params, top))

    def invoke(*arguments: str):
        result = CliRunner().invoke(app, ["here", *arguments], env={"COLUMNS": "200"})
        return seen[-1] if seen else None, result

    return invoke


@pytest.fixture
def parameter_file(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "params.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_options_win_over_the_file_and_the_file_over_defaults(run, parameter_file):
    path = parameter_file(
        "detector:\n  ros__parameters: {passes: 7, dropout_rate: 0, enabled: false, autostart: true}\n"
    )
    call, result = run("--params", str(path), "--passes", "9", "--model", "large", "--top", "1")
    assert result.exit_code == 0, result.output
    expected = Settings(model="large", passes=9, dropout_rate=0.0, enabled=False)
    assert call == ("here", expected, path, 1)


def test_help_names_every_field_with_its_range(run):
    _, result = run("--help")
    text = " ".join(result.output.split())
    for expected in (
        "--dropout-rate",
        "--no-enabled",
        "(an integer from 1 to 200, default 20)",
        "small|large",
        "[see README]",
    ):
        assert expected in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--passes", "0"], "--passes 0: expected an integer from 1 to 200"),
        (["--dropout-rate", "0.95"], "--dropout-rate 0.95: expected a number from 0.0 to 0.9"),
        (["--model", "huge"], "--model 'huge': expected one of 'small', 'large'"),
        (["--params", "nowhere.yaml"], "parameter file nowhere.yaml: no such file"),
    ],
)
def test_a_refused_value_is_named_with_what_was_expected(run, arguments, message):
    call, result = run(*arguments)
    assert call is None
    assert isinstance(result.exception, InvalidInput)
    assert str(result.exception) == message


def test_use_sim_time_and_qos_overrides_belong_to_every_node():
    assert (
        combine(Settings, {"use_sim_time": True, "qos_overrides./scene.publisher.depth": 5}, {}) == Settings()
    )


def test_a_file_about_other_nodes_gives_nothing(parameter_file):
    assert read_parameters(parameter_file("supervisor: {ros__parameters: {passes: 5}}"), "detector") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [("a: [", "not a YAML file"), ("", "found no ros__"), ("passes: 3", "found no ros__")],
)
def test_a_file_that_is_no_parameter_file(parameter_file, text, message):
    with pytest.raises(InvalidInput, match=message):
        read_parameters(parameter_file(text), "detector")


def at(*places, **values):
    return {place: {"ros__parameters": {"passes": n + 3} | values} for n, place in enumerate(places)}


@pytest.mark.parametrize(
    ("content", "passes"),
    [
        (at("/cell_1/**"), 3),
        (at("detector", "/**"), 4),
        (at("/cell_1/detector", "/cell_1/**"), 4),
        (at("/**", "/cell_1/detector", "/**/detector"), 5),
        (at("/cell_1/detector", "/cell_2/supervisor"), 3),
        (at("/cell_1/detector", "/cell_2/detector", passes=7), 7),
        ({"cell": {"**": {"ros__parameters": {"passes": 8}}}}, 8),
    ],
)
def test_sections_of_a_parameter_file_are_matched_as_ros_2_does(parameter_file, content, passes):
    file = parameter_file(yaml.safe_dump(content, sort_keys=False))
    assert read_parameters(file, "detector") == {"passes": passes}


def test_a_section_for_all_nodes_may_hold_what_others_know(parameter_file, run):
    file = parameter_file(
        "/**: {ros__parameters: {passes: 3, dropout_rate: 0, use_sim_time: true, lease_s: 0.3}}"
    )
    (_, settings, _, _), result = run("--params", file)
    assert result.exit_code == 0, result.output
    assert (settings.passes, settings.dropout_rate) == (3, 0.0)


@pytest.mark.parametrize("places", [("/cell_1/detector", "/cell_2/detector"), ("/cell_1/**", "detector")])
def test_two_cells_that_do_not_agree_are_refused(parameter_file, places):
    file = parameter_file(yaml.safe_dump(at(*places), sort_keys=False))
    with pytest.raises(
        InvalidInput,
        match=r"passes is 3 for /cell_1/detector and 4 for /.*expected the parameters of one cell",
    ):
        read_parameters(file, "detector")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("/**/detektor: {ros__parameters: {passes: 3}}", "/**/detektor is for no node of the cell; did you mean /**/detector?"),
        ("/cell_1/camera: {ros__parameters: {passes: 3}}", "/cell_1/camera is for no node of the cell; These would match: /**/d"),
        ("/**: {ros__parameters: {lease_ss: 3.0}}", "unknown parameter lease_ss; did you mean lease_s?"),
        ("/**/detector: {ros__parameters: {pases: 3}}", "unknown parameter pases; did you mean passes?"),
        ("/**/detector: {ros__parameters: {passes: 3.0}}", "passes = 3.0: expected an integer from 1 to 200"),
        ("/**/detector: {ros__parameters: {dropout_rate: .nan}}", "dropout_rate = nan: expected a number from 0.0 to 0.9"),
    ],
)  # fmt: skip
def test_a_parameter_that_reaches_no_node_or_is_of_another_type_is_refused(
    run, parameter_file, text, message
):
    seen, result = run("--params", parameter_file(text))
    assert seen is None
    assert isinstance(result.exception, InvalidInput)
    assert message in str(result.exception)
