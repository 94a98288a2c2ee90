# SPDX-License-Identifier: Apache-2.0
"""The names of /diagnostics in config/diagnostics.yaml are those of the nodes."""

import re
from fnmatch import fnmatch
from pathlib import Path

import yaml

import sticker_uq.nodes
from test.test_layout import ROOT

NODES = Path(sticker_uq.nodes.__file__).parent
LIFECYCLE = ("supervisor", "detector", "image_source")
FOLDERS = {
    "supervisor": "supervisor", "detector": "detector", "console/node.py": "console", "recorder": "recorder",
    "image_source": "image_source",
}  # fmt: skip


def parts() -> set[str]:
    """``NODE: PART`` of every part that a node registers; a part of each topic ends in ``*``."""
    found = {f"{name}: lifecycle" for name in LIFECYCLE}
    for place, name in FOLDERS.items():
        files = [NODES / place] if place.endswith(".py") else sorted((NODES / place).glob("*.py"))
        for file in files:
            added = re.findall(
                r'(?:diagnostics\.add|report_while_configured)\((f?)"([^"]+)"',
                file.read_text(encoding="utf-8"),
            )
            found |= {f"{name}: {re.sub(r'{.*}', '*', part) if form else part}" for form, part in added}
    return found


def test_the_aggregator_expects_and_groups_what_the_nodes_publish():
    content = yaml.safe_load((ROOT / "config" / "diagnostics.yaml").read_text(encoding="utf-8"))
    groups = [g for g in content["analyzers"]["ros__parameters"].values() if isinstance(g, dict)]
    assert {g["type"] for g in groups} == {"diagnostic_aggregator/GenericAnalyzer"}
    assert {name for group in groups for name in group["expected"]} <= parts()
    for name in parts():
        of_a_robot = not fnmatch(name, "image_source:*")
        assert sum(name.startswith(tuple(group["startswith"])) for group in groups) == of_a_robot, name
