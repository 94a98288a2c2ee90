# SPDX-License-Identifier: Apache-2.0
"""The doctor sees what is wrong with a machine and says what to do."""

import json

import pytest
import torch
from typer.testing import CliRunner

from sticker_uq.cli import app, doctor
from sticker_uq.cli.doctor import CHECKS, Check, CheckLevel, run_checks
from test.helpers.models import small_weights
from test.helpers.simulated_gpu import simulated_gpu

OK, WARN, FAIL = CheckLevel.OK, CheckLevel.WARN, CheckLevel.FAIL


def only(monkeypatch, name: str) -> Check:
    monkeypatch.setattr(doctor, "CHECKS", {name: CHECKS[name]})
    (check,) = run_checks()
    return check


def test_the_table_and_the_json_tell_the_same_and_fail_together(monkeypatch):
    findings = {
        "one": (OK, "fine", ""),
        "two": (WARN, "so [so]", "do that"),
        "three": (FAIL, "bad", "do this"),
    }
    monkeypatch.setattr(doctor, "CHECKS", {name: lambda f=f: f for name, f in findings.items()})
    table = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "120"})
    as_json = CliRunner().invoke(app, ["doctor", "--json"])
    assert table.exit_code == as_json.exit_code == 1
    assert "so [so]" in table.output
    assert "-> do this" in table.output
    assert "1 fine, 1 with a restriction, 1 broken" in table.output
    assert {c["name"]: c["level"] for c in json.loads(as_json.output)} == {
        "one": "OK",
        "two": "WARN",
        "three": "FAIL",
    }


def test_a_check_that_breaks_is_a_finding_and_the_next_is_made(monkeypatch):
    def broken():
        raise ImportError("libGL.so.1:\n cannot open")

    monkeypatch.setattr(doctor, "CHECKS", {"broken": broken, "next": lambda: (OK, "here", "")})
    first, second = run_checks()
    assert first == Check("broken", FAIL, "ImportError: libGL.so.1: cannot open", "run scripts/setup")
    assert second.level is OK


@pytest.mark.parametrize("name", ["ROS", "middleware", "messages", "PyTorch", "packages", "optional"])
def test_the_environment_of_the_tests_is_sound(monkeypatch, name):
    check = only(monkeypatch, name)
    assert check.level is OK, check


@pytest.mark.parametrize(
    ("cuda", "driver", "advice"),
    [
        (None, True, "this PyTorch is built without CUDA"),
        ("13.0", False, "there is no NVIDIA driver on this machine"),
        ("13.0", True, "check with nvidia-smi that it supports CUDA 13.0"),
    ],
)
def test_a_processor_in_place_of_a_gpu_is_a_restriction_with_its_reason(
    monkeypatch, tmp_path, cuda, driver, advice
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    file = tmp_path / "version"
    monkeypatch.setattr(doctor, "NVIDIA_DRIVER", file)
    if driver:
        file.touch()
    check = only(monkeypatch, "device")
    assert check.level is WARN
    assert check.found.startswith("cpu in float32, ")
    assert advice in check.advice


def test_a_gpu_is_named_with_its_precision(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**33, 2**34))
    with simulated_gpu():
        check = only(monkeypatch, "device")
    assert (check.level, check.found) == (OK, "cuda:0 Simulated in float32 (IEEE), 8192 of 16384 MiB free")


@pytest.mark.parametrize(
    ("error", "found"),
    [
        ("CUDA error: no kernel image is available for execution on the device", "has no code (only for sm_80, sm_90)"),
        ("CUDA error: unspecified launch failure", "unspecified launch failure"),
    ],
)  # fmt: skip
def test_a_gpu_that_cannot_compute_is_a_failure(monkeypatch, error, found):
    def fails(*_, **__):
        raise torch.AcceleratorError(error)

    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_80", "sm_90"])
    with simulated_gpu():
        monkeypatch.setattr(torch, "ones", fails)
        check = only(monkeypatch, "device")
    assert check.level is FAIL
    assert found in check.found
    assert ("docs/gpu.md" in check.advice) is ("no kernel image" in error)


@pytest.mark.parametrize(
    ("domain", "level"), [("0", OK), ("101", OK), ("102", WARN), ("233", FAIL), ("x", FAIL)]
)
def test_domains(monkeypatch, domain, level):
    monkeypatch.setenv("ROS_DOMAIN_ID", domain)
    assert only(monkeypatch, "domain").level is level


@pytest.mark.parametrize(
    ("variable", "value", "level", "words"),
    [
        ("ROS_LOCALHOST_ONLY", "1", OK, "LOCALHOST (ROS_LOCALHOST_ONLY)"),
        ("ROS_AUTOMATIC_DISCOVERY_RANGE", "OFF", FAIL, "discovery OFF"),
        ("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCAL", WARN, "discovery LOCAL"),
        ("ROS_DISCOVERY_SERVER", "10.0.0.5:11811", OK, "by the server 10.0.0.5:11811"),
    ],
)
def test_discovery(monkeypatch, variable, value, level, words):
    for name in ("ROS_LOCALHOST_ONLY", "ROS_AUTOMATIC_DISCOVERY_RANGE", "ROS_DISCOVERY_SERVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value)
    check = only(monkeypatch, "domain")
    assert check.level is level
    assert words in check.found


def test_a_middleware_that_is_not_installed(monkeypatch):
    monkeypatch.setenv("RMW_IMPLEMENTATION", "rmw_zenoh_cpp")
    check = only(monkeypatch, "middleware")
    assert check.level is FAIL
    assert "install ros-jazzy-rmw-zenoh-cpp" in check.advice


@pytest.mark.parametrize(
    ("profile", "level", "words"),
    [
        (None, OK, "config/fastdds.xml"),
        ("nowhere.xml", FAIL, "does not exist"),
        ("<type>UDPv4</type>", OK, "profile.xml"),
        ("<type> SHM </type>", WARN, "shared-memory transport"),
    ],
)
def test_image_transport(monkeypatch, tmp_path, profile, level, words):
    for variable in ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE"):
        monkeypatch.delenv(variable, raising=False)
    if profile is not None:
        file = tmp_path / profile if profile.endswith(".xml") else tmp_path / "profile.xml"
        if profile.startswith("<"):
            file.write_text(profile)
        monkeypatch.setenv("FASTDDS_DEFAULT_PROFILES_FILE", str(file))
    check = only(monkeypatch, "image transport")
    assert check.level is level
    assert words in check.found


@pytest.mark.parametrize(("content", "level"), [("4194304\n", OK), ("212992\n", WARN), (None, WARN)])
def test_socket_buffers(monkeypatch, tmp_path, content, level):
    file = tmp_path / "rmem_max"
    if content is not None:
        file.write_text(content)
    monkeypatch.setattr(doctor, "RMEM_MAX", file)
    assert only(monkeypatch, "socket buffers").level is level


def test_torch_and_torchvision_of_different_builds(monkeypatch):
    import torchvision

    def refuse(*_):
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(torchvision.ops, "nms", refuse)
    check = only(monkeypatch, "PyTorch")
    assert check.level is FAIL
    assert "operator torchvision::nms does not exist" in check.found


def test_damaged_weights_are_found(monkeypatch, tmp_path):
    from sticker_uq.detection import weights

    file = tmp_path / "ssdlite320_mobilenet_v3_large.safetensors"
    file.write_bytes(b"not weights")
    monkeypatch.setattr(weights, "packaged_weights", lambda name: file if name in file.name else None)
    check = only(monkeypatch, "weights")
    assert check.level is FAIL
    assert file.name in check.found


def test_missing_weights_for_close_ups_are_found(monkeypatch, tmp_path):
    from sticker_uq.detection import weights

    file = small_weights(tmp_path)
    monkeypatch.setattr(weights, "packaged_weights", lambda name: file if "ssdlite" in name else None)
    check = only(monkeypatch, "weights")
    assert (check.level, check.found) == (FAIL, "none for ssdlite320_mobilenet_v3_large, for close-ups")


def test_what_only_a_ros_installation_has_is_no_fault(monkeypatch):
    monkeypatch.setattr(doctor, "find_spec", lambda _: None)
    check = only(monkeypatch, "optional")
    assert (check.level, check.found) == (OK, "without launch_ros, cv_bridge, vision_msgs")
    assert "sticker-uq cell" in check.advice
