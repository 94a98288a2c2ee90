# SPDX-License-Identifier: Apache-2.0
"""What starts a cell at boot and in a container exists and starts it in the documented way."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from sticker_uq.cell.processes import CellOptions
from test.test_layout import ROOT

UNITS = sorted((ROOT / "config" / "systemd").glob("*.service"))


def setting(unit: Path, name: str) -> str:
    """The value of the one line ``name=value`` of ``unit``."""
    (value,) = re.findall(rf"^{name}=(.*)$", unit.read_text(encoding="utf-8"), re.M)
    return str(value)


def example(unit: Path, name: str) -> str:
    """The value of ``name`` in the environment file that the comment of ``unit`` shows."""
    (value,) = re.findall(rf"^# +{name}=(.*)$", unit.read_text(encoding="utf-8"), re.M)
    return str(value)


def complaints(folder: Path, unit: Path) -> str:
    """What ``systemd-analyze verify`` says about ``unit`` in ``folder``, beside a unit of Docker."""
    (folder / "docker.service").write_text("[Service]\nExecStart=/bin/true\n")
    shutil.copy(unit, folder)
    command = ["systemd-analyze", "verify", str(folder / unit.name)]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_the_unit(unit, tmp_path):
    assert complaints(tmp_path, unit) == ""
    wrong = tmp_path / "wrong.service"
    wrong.write_text(unit.read_text(encoding="utf-8").replace("Restart=", "Rstart="))
    assert "Rstart" in complaints(tmp_path, wrong.rename(tmp_path.parent / f"wrong-{unit.name}"))


def test_the_page_shows_the_unit_files():
    page = (ROOT / "docs" / "howto" / "boot.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```ini\n(.*?)^```$", page, re.M | re.S)
    assert sorted(shown) == sorted(unit.read_text(encoding="utf-8") for unit in UNITS)


def test_the_robots_unit_starts_the_documented_installation():
    unit = ROOT / "config" / "systemd" / "sticker-uq.service"
    _, source_ros, _, *sources, _ = on_the_robot("docs/howto/install.md")
    assert re.findall(r"source \S+", setting(unit, "ExecStart")) == [source_ros, *sources]
    words = example(unit, "CELL_ARGUMENTS").split()
    options = CellOptions.from_texts(dict(word.split(":=", 1) for word in words))
    assert options.console
    assert options.camera_topic == "/camera/image_raw"


def test_dockers_unit_starts_a_service_with_variables_that_it_has():
    unit = ROOT / "config" / "systemd" / "sticker-uq-docker.service"
    cell = COMPOSE["services"][setting(unit, "ExecStart").split()[-1]]
    names = re.findall(r"^# +([A-Z_]+)=", unit.read_text(encoding="utf-8"), re.M)
    assert len(names) == 5
    assert all(f"${{{name}" in str(cell) for name in names)
    values = {name: example(unit, name) for name in ("BUNDLE", "ARGUMENTS")}
    words = started_by(cell, **values)[4:]
    assert CellOptions.from_texts(dict(word.split(":=", 1) for word in words)).respawn


PAGES = ("README.md", "docs/howto/install.md")
COMPOSE = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8"))


def on_the_robot(page: str) -> list[str]:
    """The commands under "On the robot" of ``page``."""
    text = re.sub(r"(<!--.*?-->\n)+\n", "", (ROOT / page).read_text(encoding="utf-8"))
    section = text.split("\n## On the robot\n")[1].split("\n## ")[0]
    block = re.findall(r"^(?:    .*\n)+", section, re.M)[0]
    return [line.strip() for line in block.splitlines()]


def started_by(service: dict[str, Any], **variables: str) -> list[str]:
    """The words of a service's command, as compose would fill in the variables."""

    def value(found: re.Match[str]) -> str:
        name, operator, text = found.groups()
        given = variables.get(name, "")
        if operator == ":+":
            return re.sub(rf"\$\{{{name}\}}", given, text) if given else ""
        return given or text

    form = r"\$\{(\w+)(:[-+])((?:[^${}]|\$\{\w+\})*)\}"
    text = re.sub(form, value, service["command"])
    assert "$" not in text
    return shlex.split(text)


@pytest.mark.parametrize("page", PAGES)
def test_the_image_runs_the_commands_of_the_page(page):
    clone, *commands, launch = on_the_robot(page)
    assert clone.endswith(" src/sticker_uq")
    assert launch.startswith("ros2 launch sticker_uq cell.launch.py ")
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    build = next(block for block in re.split(r"(?<!\\)\n", dockerfile) if block.startswith("RUN "))
    steps = [step.strip(" \\\n") for step in build.removeprefix("RUN ").split("&&")]
    entry = (ROOT / "docker" / "entrypoint").read_text(encoding="utf-8").splitlines()
    # without variables
    run = [re.sub(r"^(\w+=\S+ )+", "", step) for step in steps if not step.startswith("rm ")]
    assert run == commands[:2]
    sourced = [line for line in entry if line.startswith("source ")]
    assert sourced == [command for command in commands if command.startswith("source ")]


@pytest.mark.parametrize("service", COMPOSE["services"])
def test_services_start_launch_files_with_arguments_that_exist(service):
    words = started_by(COMPOSE["services"][service], BUNDLE="lids", ARGUMENTS="log_level:=debug")
    assert words[:3] == ["ros2", "launch", "sticker_uq"]
    assert (ROOT / "launch" / words[3]).is_file()
    given = dict(word.split(":=", 1) for word in words[4:])
    CellOptions.from_texts(given)
    assert bool(given.get("sim")) == (service == "sim")


def test_a_robots_cell_names_only_what_is_given():
    cell = COMPOSE["services"]["cell"]
    bare = ["ros2", "launch", "sticker_uq", "cell.launch.py", "camera_topic:=/camera/image_raw"]
    assert started_by(cell) == bare
    assert started_by(cell, BUNDLE="lids", ARGUMENTS="console:=true record:=/cell/bag") == [
        *bare, "bundle:=/cell/lids", "console:=true", "record:=/cell/bag",
    ]  # fmt: skip


def test_a_simulated_cell_cannot_reach_a_real_arm():
    sim, cell = COMPOSE["services"]["sim"], COMPOSE["services"]["cell"]
    assert cell["network_mode"] == "host"
    assert not {"network_mode", "networks"} & set(sim)


def test_mounted_files_lie_where_the_command_looks():
    (mount,) = COMPOSE["services"]["cell"]["volumes"]
    assert mount.endswith(":/cell")
    assert ":=/cell/${BUNDLE}" in COMPOSE["services"]["cell"]["command"]
