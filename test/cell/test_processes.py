# SPDX-License-Identifier: Apache-2.0
"""Which processes make up a cell, and how options reach them."""

import itertools

import pytest
import yaml

from sticker_uq.cell.processes import CellOptions, cell_processes
from sticker_uq.scene import InvalidInput


def _by_name(**options):
    return {spec.name: spec for spec in cell_processes(CellOptions(**options))}


def test_a_real_cell_has_no_simulation():
    assert list(_by_name()) == ["detector", "supervisor"]
    assert list(_by_name(sim=True, record="out/bag")) == ["detector", "supervisor", "recorder", "cell_sim"]


def test_only_given_options_override_the_parameter_file():
    specs = _by_name(passes=7, sim=True, sim_person="ground_truth")
    assert specs["detector"].parameters == {"autostart": True, "use_sim_time": False, "passes": 7}
    assert specs["cell_sim"].parameters == {"use_sim_time": False, "person": "ground_truth"}


def test_texts_become_options_and_keep_their_types():
    options = CellOptions.from_texts(
        {"passes": "5", "dropout_rate": "0.3", "sim": "true", "model": "", "sim_seed": ""}
    )
    assert (options.passes, options.dropout_rate, options.sim, options.sim_seed) == (5, 0.3, True, None)


@pytest.mark.parametrize(
    ("name", "text"),
    [("passes", "0"), ("dropout_rate", "0.95"), ("sim", "perhaps"), ("log_level", "loud"), ("colour", "red")],
)
def test_an_unusable_argument_is_named_with_its_value(name, text):
    with pytest.raises(InvalidInput, match=rf"{name}='{text}'"):
        CellOptions.from_texts({name: text})


def test_a_source_plays_as_the_camera(tmp_path):
    specs = _by_name(
        source=str(tmp_path), source_rate=2.0, camera_topic="/camera/image_raw", namespace="cell_2"
    )
    source = specs["image_source"]
    assert source.parameters == {
        "use_sim_time": False, "autostart": True, "source": str(tmp_path), "loop": True, "transport": "both", "rate": 2.0,
    }  # fmt: skip
    assert set(specs["detector"].remappings) <= set(source.remappings), (
        "what it plays is what the detector reads"
    )
    assert set(specs["supervisor"].remappings) <= set(source.remappings)
    assert source.enclave == "/cell_2/camera"
    assert _by_name(source="0")["image_source"].parameters["source"] == "0", "a camera device is no path"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"source": "nowhere"}, r"source 'nowhere': no such recording, folder, picture or video"),
        ({"source": "/dev/video0", "sim": True}, "source and sim: expected one of them"),
        ({"source_rate": 2.0}, "source_rate without source"),
    ],
)
def test_a_source_that_cannot_be_the_camera_is_refused(options, reason):
    with pytest.raises(InvalidInput, match=reason):
        cell_processes(CellOptions(**options))


def test_a_missing_file_is_named():
    with pytest.raises(InvalidInput, match=r"weights 'nowhere\.safetensors': no such file"):
        cell_processes(CellOptions(weights="nowhere.safetensors"))


def test_camera_topic_and_namespace_reach_the_command_line():
    arguments = _by_name(camera_topic="/camera/image_raw", namespace="cell_2/")["detector"].ros_arguments(
        None
    )
    assert "image:=/camera/image_raw" in arguments
    assert "image/compressed:=/camera/image_raw/compressed" in arguments
    assert "__ns:=/cell_2" in arguments


@pytest.mark.parametrize(("namespace", "logger"), [("", "detector"), ("/a/b/", "a.b.detector")])
def test_the_log_level_is_that_of_the_node_and_not_of_the_middleware(namespace, logger):
    arguments = _by_name(namespace=namespace, log_level="debug")["detector"].ros_arguments(None)
    levels = [value for flag, value in itertools.pairwise(arguments) if flag == "--log-level"]
    assert levels == [f"{logger}:=debug", "sticker_uq:=debug"]


def test_own_parameters_are_written_with_their_types(tmp_path):
    spec = _by_name(model="123E5")["detector"]
    written = yaml.safe_load(spec.write_parameters(tmp_path).read_text())
    assert written["/**"]["ros__parameters"] == {"autostart": True, "use_sim_time": False, "model": "123E5"}


@pytest.mark.parametrize(("namespace", "enclave"), [("", "/detector"), ("cell_2/", "/cell_2/detector")])
def test_every_node_has_the_enclave_of_its_name(namespace, enclave):
    arguments = _by_name(namespace=namespace)["detector"].ros_arguments(None)
    assert arguments[arguments.index("--enclave") + 1] == enclave
