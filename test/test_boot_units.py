# SPDX-License-Identifier: Apache-2.0
"""The unit files in config/systemd: systemd accepts them, and they start what exists in the documented way."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sticker_uq.cell.processes import CellOptions
from test.test_container import COMPOSE, on_the_robot, started_by
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
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    assert complaints(tmp_path, unit) == ""
    wrong = tmp_path / "wrong.service"
    wrong.write_text(unit.read_text(encoding="utf-8").replace("Restart=", "Rstart="))
    assert "Rstart" in complaints(tmp_path, wrong.rename(tmp_path.parent / f"wrong-{unit.name}"))


def test_the_page_shows_the_unit_files() -> None:
    page = (ROOT / "docs" / "howto" / "boot.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```ini\n(.*?)^```$", page, re.M | re.S)
    assert sorted(shown) == sorted(unit.read_text(encoding="utf-8") for unit in UNITS)


def test_the_robots_unit_starts_the_documented_installation() -> None:
    unit = ROOT / "config" / "systemd" / "sticker-uq.service"
    _, source_ros, _, *sources, _ = on_the_robot("docs/howto/install.md")
    steps = re.findall(r"source \S+", setting(unit, "ExecStart"))
    assert steps == [source_ros, *sources]
    words = example(unit, "CELL_ARGUMENTS").split()
    options = CellOptions.from_texts(dict(word.split(":=", 1) for word in words))
    assert options.console
    assert options.camera_topic == "/camera/image_raw"


def test_dockers_unit_starts_a_service_with_variables_that_it_has() -> None:
    unit = ROOT / "config" / "systemd" / "sticker-uq-docker.service"
    service = setting(unit, "ExecStart").split()[-1]
    cell = COMPOSE["services"][service]
    names = re.findall(r"^# +([A-Z_]+)=", unit.read_text(encoding="utf-8"), re.M)
    assert len(names) == 5
    assert all(f"${{{name}" in str(cell) for name in names)
    values = {name: example(unit, name) for name in ("BUNDLE", "ARGUMENTS")}
    words = started_by(cell, **values)[4:]
    assert CellOptions.from_texts(dict(word.split(":=", 1) for word in words)).respawn
