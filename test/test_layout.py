# SPDX-License-Identifier: Apache-2.0
"""What runs beside the arm never loads torch; every executable, package and file that is named exists."""

import ast
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from catkin_pkg.package import parse_package

import sticker_uq
from sticker_uq.imports import _RoiAlignFinder

ROOT = Path(__file__).parents[1]
LAB = ROOT / "sticker_uq_lab"
HEAVY = ("torch", "torchvision", "torchmetrics", "scipy.optimize", "scipy.stats")


def python(code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)


LIGHT = ("scene", "geometry", "io", "uncertainty", "gate", "cell", "console", "nodes.supervisor")
WITHOUT_TORCH = """
import numpy as np
import sticker_uq.cli.replay
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import StochasticSamples
from sticker_uq.uncertainty import observe

boxes, certain = np.tile(np.float32([0, 0, 9, 9]), (4, 1)), np.tile(np.float32([0, 0, 1]), (4, 1))
assert observe(StochasticSamples(boxes, certain, np.arange(4), 4))[2].objects == 1
PerceptionSettings(model="ssd300_vgg16")
assert "torch" not in sys.modules
"""
"""Passes are clustered, settings made, and the commands that replay ask for help and completion."""


def test_what_runs_beside_the_arm_loads_without_torch():
    code = (
        "import importlib, pkgutil, sys\n"
        f"for package in {LIGHT!r}:\n"
        "    module = importlib.import_module('sticker_uq.' + package)\n"
        "    for found in pkgutil.walk_packages(getattr(module, '__path__', []), module.__name__ + '.'):\n"
        "        importlib.import_module(found.name)\n"
        f"        assert not {{*{HEAVY!r}}} & {{*sys.modules}}, package\n"
    )
    result = python(code + WITHOUT_TORCH)
    assert result.returncode == 0, result.stderr


def test_every_executable_has_its_function(monkeypatch):
    scripts = [(ROOT, line) for line in setup_arguments(monkeypatch)["entry_points"]["console_scripts"]]
    scripts += [(LAB, line) for line in setup_arguments(monkeypatch, LAB)["entry_points"]["console_scripts"]]
    for folder, script in scripts:
        executable, module, function = re.split(r"\s*[=:]\s*", script)
        place = folder.joinpath(*module.split("."))
        source = (place / "__init__.py" if place.is_dir() else place.with_suffix(".py")).read_text()
        assert re.search(rf"^(def {function}\(|{function} = )", source, re.M), (
            f"{executable}: {module} has no {function}"
        )


def test_manifests_are_valid_and_agree(monkeypatch):
    packages = []
    for folder in (ROOT, ROOT / "sticker_uq_msgs", LAB, ROOT / "examples/sticker_uq_moveit_driver"):
        warnings: list[str] = []
        packages.append(parse_package(str(folder), warnings=warnings))
        packages[-1].validate(warnings=warnings)
        assert warnings == []
    # ROS takes X.Y.Z alone: a version is the one that is being made until the changelog dates it
    newest = re.search(r"^## \[?([\d.]+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    driver = (ROOT / "examples/sticker_uq_moveit_driver/setup.py").read_text()
    told = {package.version for package in packages} | {newest[1]}
    told |= {setup_arguments(monkeypatch, folder)["version"] for folder in (ROOT, LAB)}
    assert told | set(re.findall(r'version="([^"]+)"', driver)) == {sticker_uq.__version__}
    assert packages[1].name in {dependency.name for dependency in packages[0].exec_depends}


def test_the_lab_needs_the_core_and_the_core_no_lab():
    core, lab = (parse_package(str(folder)) for folder in (ROOT, LAB))
    assert core.name in {dependency.name for dependency in lab.exec_depends}
    assert lab.name not in {dependency.name for dependency in (*core.exec_depends, *core.test_depends)}


def test_requirements_are_pinned_exactly():
    lines = [line.strip() for line in (ROOT / "requirements.txt").read_text().splitlines()]
    requirements = [line for line in lines if line and not line.startswith("#")]
    assert requirements
    # what comes after the semicolon says on which machines
    pinned = re.compile(r"[\w.-]+(\[\w+\])?==[\w.]+(; [\w =\"]+)?")
    assert [line for line in requirements if not pinned.fullmatch(line)] == []


@pytest.mark.parametrize("folder", [ROOT, LAB], ids=["sticker_uq", "sticker_uq_lab"])
def test_every_data_file_of_the_package_is_installed(folder, monkeypatch):
    given = setup_arguments(monkeypatch, folder)
    installed = {
        path
        for package, patterns in given["package_data"].items()
        for pattern in patterns
        for path in folder.joinpath(*package.split(".")).glob(pattern)
    }
    present = {
        path
        for path in (folder / given["name"]).rglob("*")
        if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts
    }
    assert present - installed == set()


def setup_arguments(monkeypatch: pytest.MonkeyPatch, folder: Path = ROOT) -> dict[str, Any]:
    """What setup.py in ``folder`` says about the package."""
    given: dict[str, Any] = {}
    monkeypatch.chdir(folder)
    monkeypatch.setattr("setuptools.setup", lambda **arguments: given.update(arguments))
    runpy.run_path("setup.py")
    return given


def test_the_tests_of_the_core_import_nothing_of_the_lab():
    of_lab = re.compile(r"^\s*(?:from|import) (?:sticker_uq_lab|lab_helpers)\b", re.M)
    sources = sorted((ROOT / "test").rglob("*.py"))
    assert sources
    assert [str(path) for path in sources if of_lab.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "page", sorted([*ROOT.glob("*.md"), LAB / "README.md"]), ids=lambda p: str(p.relative_to(ROOT))
)
def test_every_relative_link_of_a_page_leads_somewhere(page):
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_citation_names_this_version_and_the_five_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == sticker_uq.__version__
    assert [str(work["notes"])[:4] for work in citation["references"]] == [f"S00{k}" for k in range(5)]
    assert all(work["authors"] and work["title"] for work in citation["references"])


@pytest.mark.parametrize("root", [ROOT / "sticker_uq", LAB / "sticker_uq_lab"], ids=lambda root: root.name)
def test_a_package_has_at_most_thirteen_rooms(root):
    assert 1 < len([*root.glob("*/__init__.py")]) <= 13


@pytest.mark.parametrize("package", ["detection", "perception", "perception.dil"])
def test_what_is_loaded_when_used_has_a_type(package):
    """A type checker reads the branch that imports the names, the interpreter the one that says where they are."""
    tree = ast.parse(
        (ROOT.joinpath("sticker_uq", *package.split(".")) / "__init__.py").read_text(encoding="utf-8")
    )
    (branch,) = (node for node in tree.body if isinstance(node, ast.If))
    assert ast.unparse(branch.test) == "TYPE_CHECKING"
    typed = {
        alias.name: str(node.module).removeprefix(f"sticker_uq.{package}.")
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    (loaded,) = (ast.literal_eval(node) for node in ast.walk(branch) if isinstance(node, ast.Dict))
    assert typed == loaded


COMPILER_IS_LEFT_OUT = """
import sys
before = list(sys.meta_path)
import sticker_uq
assert sys.meta_path == before, "import sticker_uq changes how a program imports"
from sticker_uq.imports import import_torchvision_without_compiler, is_compile_supported
import_torchvision_without_compiler()
import torch, torchvision
assert not {"sympy", "torch._dynamo"} & set(sys.modules), "torchvision imported the compiler"
boxes = torch.tensor([[0, 0, 0, 2, 2.0]])
assert torchvision.ops.roi_align(torch.ones(1, 1, 4, 4), boxes, 1).item() == 1
asked = sys.modules["torchvision.ops.roi_align"].is_compile_supported
assert asked is is_compile_supported, "torchvision no longer asks torch._dynamo: sticker_uq/imports.py can go"
"""


def test_torchvision_is_imported_without_the_compiler_of_torch(monkeypatch):
    done = subprocess.run([sys.executable, "-c", COMPILER_IS_LEFT_OUT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    monkeypatch.setitem(sys.modules, "torch._dynamo", ModuleType("torch._dynamo"))
    assert _RoiAlignFinder().find_spec("torchvision.ops.roi_align", None) is None, "it is loaded already"
