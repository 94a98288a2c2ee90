# SPDX-License-Identifier: Apache-2.0
"""The package holds together: manifest, setup, parameter files, launch files."""

import ast
import importlib.util
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import yaml

from sticker_uq.cell.supervisor_settings import SupervisorNodeSettings
from sticker_uq_moveit_driver.settings import DriverSettings, HaltSettings

PACKAGE = Path(__file__).parents[1]
NAME = "sticker_uq_moveit_driver"


def imported(*folders: str) -> set[str]:
    """The packages that the Python files of ``folders`` import, but those of Python and this one."""
    found: set[str] = set()
    for path in (path for folder in folders for path in (PACKAGE / folder).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {NAME}


def keys(*kinds: str) -> set[str]:
    """The keys of package.xml of these kinds."""
    root = ElementTree.parse(PACKAGE / "package.xml").getroot()
    return {str(element.text).removeprefix("python3-") for kind in kinds for element in root.iter(kind)}


def test_the_manifest_has_a_key_for_every_import_and_no_other() -> None:
    running = imported(NAME, "launch")
    assert keys("depend", "exec_depend") - {"ros2launch"} == running
    assert imported("test") - running - keys("test_depend") == set()


def test_setup_agrees_with_manifest_and_modules() -> None:
    setup = (PACKAGE / "setup.py").read_text(encoding="utf-8")
    version = re.findall(r'version="([^"]+)"', setup)
    root = ElementTree.parse(PACKAGE / "package.xml").getroot()
    assert [root.findtext("version")] == version
    executables = dict(re.findall(r'"(\w+) = \{NAME\}\.(\w+):main"', setup))
    launched = set(
        re.findall(r'_node\("(\w+)"', (PACKAGE / "launch/driver.launch.py").read_text(encoding="utf-8"))
    )
    assert set(executables) == launched
    for module in executables.values():
        assert importlib.util.find_spec(f"{NAME}.{module}") is not None


def test_the_parameter_files_are_valid() -> None:
    driver = yaml.safe_load((PACKAGE / "config/driver.yaml").read_text(encoding="utf-8"))
    shared = driver["/**"]["ros__parameters"]
    HaltSettings.model_validate(shared)
    DriverSettings.model_validate(shared | driver["/**/moveit_driver"]["ros__parameters"])
    cell = yaml.safe_load((PACKAGE / "config/cell.yaml").read_text(encoding="utf-8"))
    supervisor = SupervisorNodeSettings.model_validate(cell["/**/supervisor"]["ros__parameters"])
    assert supervisor.require_pose
    assert supervisor.stop_service == "stop_arm"


def test_the_driver_gives_up_before_the_supervisor_does_and_stops_after_it() -> None:
    driver, supervisor = DriverSettings(), SupervisorNodeSettings()
    assert driver.removal_timeout_s < supervisor.removal_timeout_s
    assert driver.stop_timeout_s > supervisor.cancel_timeout_s
