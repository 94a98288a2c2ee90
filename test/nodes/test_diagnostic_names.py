# SPDX-License-Identifier: Apache-2.0
"""The names and keys of /diagnostics in the documentation and in config/diagnostics.yaml are those of the nodes."""

import ast
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

import sticker_uq.nodes
from sticker_uq.nodes.detector import camera_feed, node
from sticker_uq.nodes.supervisor import status_report
from test.test_layout import ROOT

NODES = Path(sticker_uq.nodes.__file__).parent
PAGE = (ROOT / "docs" / "howto" / "monitoring.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| (`[^|]*: [^|]*`) \|[^|]*\| (.*) \|$", PAGE, re.M))
LIFECYCLE = ("supervisor", "detector", "image_source")
FOLDERS = {
    "supervisor": "supervisor", "detector": "detector", "console/node.py": "console", "recorder": "recorder",
    "simulation/image_source.py": "image_source", "simulation/cell_sim.py": "cell_sim",
}  # fmt: skip


def quoted(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


def parts() -> set[str]:
    """``NODE: PART`` of every part that a node registers; a part of each topic ends in ``*``."""
    found = {f"{name}: lifecycle" for name in LIFECYCLE}
    for place, name in FOLDERS.items():
        files = [NODES / place] if place.endswith(".py") else sorted((NODES / place).glob("*.py"))
        for file in files:
            added = re.findall(r'diagnostics\.add\((f?)"([^"]+)"', file.read_text(encoding="utf-8"))
            found |= {f"{name}: {re.sub(r'{.*}', '*', part) if form else part}" for form, part in added}
    return found


def strings_of(file: str) -> set[str]:
    """Every string in a module of the nodes."""
    tree = ast.parse((NODES / file).read_text(encoding="utf-8"))
    return {
        one.value for one in ast.walk(tree) if isinstance(one, ast.Constant) and isinstance(one.value, str)
    }


def test_the_page_has_every_part_of_every_node() -> None:
    documented = {name.replace("TOPIC", "*") for names in ROWS for name in quoted(names)}
    assert documented == parts()


@pytest.mark.parametrize(
    ("status", "keys"),
    [
        ("supervisor: gate", set(status_report._KEYS)),
        ("detector: images", set(camera_feed._KEYS)),
    ],
)
def test_the_page_has_the_keys_of_what_has_a_table_of_them(status: str, keys: set[str]) -> None:
    (row,) = (text for names, text in ROWS.items() if status in quoted(names))
    assert quoted(row) == keys


@pytest.mark.parametrize(
    ("status", "file"),
    [
        ("supervisor: audit", "supervisor/audit_trail.py"),
        ("detector: perception", "detector/node.py"),
        ("supervisor: lifecycle", "common/lifecycle.py"),
        ("console: page", "console/node.py"),
        ("recorder: recording", "recorder/node.py"),
        ("image_source: source", "simulation/image_source.py"),
        ("cell_sim: cell", "simulation/cell_sim.py"),
    ],
)
def test_the_other_keys_of_the_page_are_in_the_node(status: str, file: str) -> None:
    (row,) = (text for names, text in ROWS.items() if status in quoted(names))
    stages = {f"{stage}_ms" for stage in node._STAGES} if status == "detector: perception" else set()
    assert stages <= quoted(row)
    assert quoted(row) - stages <= strings_of(file)


def test_the_aggregator_expects_and_groups_what_the_nodes_publish() -> None:
    content = yaml.safe_load((ROOT / "config" / "diagnostics.yaml").read_text(encoding="utf-8"))
    groups = [g for g in content["analyzers"]["ros__parameters"].values() if isinstance(g, dict)]
    assert {g["type"] for g in groups} == {"diagnostic_aggregator/GenericAnalyzer"}
    expected = {name for group in groups for name in group["expected"]}
    assert expected <= parts()
    for name in parts():
        of_a_robot = not fnmatch(name, "cell_sim:*") and not fnmatch(name, "image_source:*")
        assert sum(name.startswith(tuple(group["startswith"])) for group in groups) == of_a_robot, name
