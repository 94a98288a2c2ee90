# SPDX-License-Identifier: Apache-2.0
"""What runs beside the arm never loads torch; every executable, package and file that is named exists."""

import importlib.util
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
    for script in setup_arguments(monkeypatch)["entry_points"]["console_scripts"]:
        executable, module, function = re.split(r"\s*[=:]\s*", script)
        found = importlib.util.find_spec(module)
        assert found is not None, f"{executable}: {module} does not exist"
        source = Path(str(found.origin)).read_text()
        assert re.search(rf"^(def {function}\(|{function} = )", source, re.M), (
            f"{executable}: {module} has no {function}"
        )


def test_manifests_are_valid_and_agree(monkeypatch):
    packages = []
    for folder in (ROOT, ROOT / "sticker_uq_msgs", ROOT / "examples/sticker_uq_moveit_driver"):
        warnings: list[str] = []
        packages.append(parse_package(str(folder), warnings=warnings))
        packages[-1].validate(warnings=warnings)
        assert warnings == []
    # ROS takes X.Y.Z alone: a version is the one that is being made until the changelog dates it
    newest = re.search(r"^## \[?([\d.]+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    driver = (ROOT / "examples/sticker_uq_moveit_driver/setup.py").read_text()
    told = {package.version for package in packages} | {setup_arguments(monkeypatch)["version"], newest[1]}
    assert told | set(re.findall(r'version="([^"]+)"', driver)) == {sticker_uq.__version__}
    assert packages[1].name in {dependency.name for dependency in packages[0].exec_depends}


def test_requirements_are_pinned_exactly():
    lines = [line.strip() for line in (ROOT / "requirements.txt").read_text().splitlines()]
    requirements = [line for line in lines if line and not line.startswith("#")]
    assert requirements
    assert [line for line in requirements if not re.fullmatch(r"[\w.-]+(\[\w+\])?==[\w.]+", line)] == []


def test_every_data_file_of_the_package_is_installed(monkeypatch):
    installed = {
        path
        for package, patterns in setup_arguments(monkeypatch)["package_data"].items()
        for pattern in patterns
        for path in ROOT.joinpath(*package.split(".")).glob(pattern)
    }
    present = {
        path
        for path in (ROOT / "sticker_uq").rglob("*")
        if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts
    }
    assert present - installed == set()


def setup_arguments(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What setup.py says about the package."""
    given: dict[str, Any] = {}
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("setuptools.setup", lambda **arguments: given.update(arguments))
    runpy.run_path("setup.py")
    return given


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=lambda p: p.name)
def test_every_relative_link_of_a_page_leads_somewhere(page):
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_citation_names_this_version_and_the_five_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == sticker_uq.__version__
    assert [str(work["notes"])[:4] for work in citation["references"]] == [f"S00{k}" for k in range(5)]
    assert all(work["authors"] and work["title"] for work in citation["references"])


COMPILER_IS_LEFT_OUT = """
import sys
from sticker_uq.imports import is_compile_supported
import torch, torchvision
from sticker_uq_lab.datasets import default_boxes
model = default_boxes._shapes("ssdlite320_mobilenet_v3_large")
default_boxes._anchors(model, model.anchor_generator, (320, 320))
assert not {"sympy", "torch._dynamo"} & set(sys.modules), "torchvision or default boxes imported the compiler"
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
