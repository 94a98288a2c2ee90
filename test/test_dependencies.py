# SPDX-License-Identifier: Apache-2.0
"""What the code imports is declared in package.xml and requirements.txt."""

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from catkin_pkg.package import parse_package

from test.test_layout import LAB, ROOT, setup_arguments

#: Import: (rosdep key, project on PyPI), where they are not (NAME, ros-NAME) for a ROS package or (python3-NAME, NAME).
NAMED_OTHERWISE = {
    "PIL": ("python3-pil", "pillow"),
    "catkin_pkg": ("python3-catkin-pkg-modules", "catkin-pkg"),
    "prometheus_client": ("python3-prometheus-client", "prometheus-client"),
    "cv2": ("python3-opencv", "opencv-python-headless"),
    "pytorch_grad_cam": ("python3-grad-cam", "grad-cam"),
    "skimage": ("python3-skimage", "scikit-image"),
    "sklearn": ("python3-sklearn", "scikit-learn"),
    "yaml": ("python3-yaml", "pyyaml"),
}
#: Imports without a rosdep key: from requirements.txt alone.
NO_ROSDEP_KEY = {
    "hdbscan", "lz4", "mapie", "mcap", "playwright", "pyarrow", "pytorch_grad_cam", "ray", "rosbags", "safetensors",
    "simplejpeg", "threadpoolctl", "torchmetrics",
}  # fmt: skip
#: Imports that PyPI does not have: the code that needs them is left out without a ROS installation.
ROS_INSTALLATION_ONLY = {
    "cv_bridge", "launch", "launch_ros", "launch_testing", "tf2_ros", "vision_msgs",
}  # fmt: skip
#: Imports that come with another one, in versions that fit each other.
PART_OF = {"lz4": "rosbags", "markupsafe": "jinja2", "starlette": "fastapi"}
CORE = ("sticker_uq", "launch")
OF_LAB = ("sticker_uq_lab/sticker_uq_lab",)
WITH_TESTS = (*CORE, *OF_LAB, "benchmarks", "test", "sticker_uq_lab/test")
OWN = {"benchmarks", "lab_helpers", "sticker_uq", "sticker_uq_lab", "test"}
INTERFACES = "sticker_uq_msgs"


def imports(folders: tuple[str, ...]) -> dict[str, str]:
    """Each third-party module that files below ``folders`` import, also by name, with a place that does."""
    found: dict[str, str] = {}
    for folder in folders:
        for module, place in imports_below(folder):
            top = module.partition(".")[0]
            if top not in OWN and top not in sys.stdlib_module_names:
                found.setdefault(top, place)
    return found


@functools.cache
def imports_below(folder: str) -> list[tuple[str, str]]:
    return [
        (module, f"{path.relative_to(ROOT)}:{line}")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for module, line in imports_of(path.read_text(encoding="utf-8"))
    ]


def imports_of(source: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names):
                yield from ((name.name, node.lineno) for name in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module, node.lineno
            case ast.Call(
                func=ast.Attribute(attr="import_module" | "importorskip"),
                args=[ast.Constant(str(module)), *_],
            ):
                yield module, node.lineno


def keys_of(module: str) -> set[str]:
    """The rosdep keys that may stand for a module."""
    module = PART_OF.get(module, module)
    return {NAMED_OTHERWISE[module][0]} if module in NAMED_OTHERWISE else {module, f"python3-{module}"}


def requirements_of(module: str) -> set[str]:
    """The lines of requirements.txt that may stand for a module."""
    module = PART_OF.get(module, module)
    if module in NAMED_OTHERWISE:
        return {NAMED_OTHERWISE[module][1]}
    return {module, f"ros-{module}".replace("_", "-")}


def declared_keys(folder: Path) -> tuple[set[str], set[str]]:
    """The keys of package.xml in ``folder`` for running and those that only tests need."""
    package = parse_package(str(folder))
    return {dependency.name for dependency in package.exec_depends}, {d.name for d in package.test_depends}


def requirements() -> set[str]:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return {re.split(r"[\[=]", line)[0] for line in lines if line and not line.startswith("#")}


@pytest.fixture
def optional(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What only the extra of sticker_uq_lab/setup.py installs that generates pictures."""
    lines = setup_arguments(monkeypatch, LAB)["extras_require"]["generate"]
    return {line.partition(">")[0] for line in lines}


def test_every_import_is_a_dependency_of_package_xml(optional):
    running, testing = declared_keys(ROOT)
    of_lab, testing_lab = declared_keys(LAB)
    for folders, keys in (
        (CORE, running),
        (OF_LAB, of_lab),
        ((*CORE, "test"), running | testing),
        (WITH_TESTS, running | testing | of_lab | testing_lab),
    ):
        undeclared = {
            module: place
            for module, place in imports(folders).items()
            if module not in NO_ROSDEP_KEY | optional and not keys_of(module) & keys
        }
        assert undeclared == {}, (
            f"no key in package.xml ({'depend, exec_depend' if keys in (running, of_lab) else 'any'})"
        )


def test_every_import_that_pypi_has_is_in_requirements(optional):
    missing = {
        module: place
        for module, place in imports(WITH_TESTS).items()
        if module not in ROS_INSTALLATION_ONLY | optional | {INTERFACES}
        and not requirements_of(module) & requirements()
    }
    assert missing == {}


def test_interfaces_depend_on_the_packages_whose_types_they_use():
    folder = ROOT / INTERFACES
    texts = [
        path.read_text(encoding="utf-8")
        for kind in ("msg", "srv", "action")
        for path in (folder / kind).iterdir()
    ]
    used = {package for text in texts for package in re.findall(r"^(\w+)/\w+", text, re.M)}
    assert used
    package = parse_package(str(folder))
    declared = {dependency.name for dependency in package.build_depends}
    assert declared == used | {"action_msgs"}  # goals, results and feedback are wrapped in its types
    cmake = (folder / "CMakeLists.txt").read_text(encoding="utf-8")
    assert set(re.search(r"DEPENDENCIES ([\w\s]+)\)", cmake)[1].split()) == used


def test_pip_installs_what_the_package_imports_outside_ros(monkeypatch, optional):
    given = setup_arguments(monkeypatch)
    named = {re.split(r"[>=]", line)[0] for line in given["install_requires"]}
    extras = {line for lines in given["extras_require"].values() for line in lines}
    needed = {
        name
        for module in imports(("sticker_uq",))
        for name in requirements_of(module) & requirements()
        if not name.startswith("ros-")
    }
    assert needed - named - optional - {"pytest", "hypothesis", "ray", "playwright"} == set()
    assert named <= requirements() - extras - optional


def test_every_source_file_names_its_license():
    files = subprocess.run(
        ["git", "ls-files", "*.py", "*.js", "*.css", "scripts"], cwd=ROOT, capture_output=True, text=True
    )
    named = [ROOT / name for name in files.stdout.split()] or list(ROOT.glob("sticker_uq*/**/*.py"))
    text = {path: path.read_text() for path in named}
    assert not [
        path
        for path, found in text.items()
        if found and "SPDX-License-Identifier: Apache-2.0" not in found[:200]
    ]


def test_pip_installs_with_the_lab_the_core_and_what_only_the_lab_imports(monkeypatch, optional):
    core, *others = setup_arguments(monkeypatch, LAB)["install_requires"]
    assert core == f"sticker_uq @ {ROOT.as_uri()}", "the core of this checkout"
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert {line.replace(">=", "==") for line in others} <= set(lines)
    imported = {name for module in imports(OF_LAB) for name in requirements_of(module) & requirements()}
    with_core = {re.split(r"[>=]", line)[0] for line in setup_arguments(monkeypatch)["install_requires"]}
    needed = {name for name in imported - with_core - optional if not name.startswith("ros-")}
    assert needed == {line.partition(">")[0] for line in others}
