# SPDX-License-Identifier: Apache-2.0
"""The whole simulated cell in processes of its own, started by the project's runner: what test/launch tries with launch."""

import re
from pathlib import Path

import pytest

from sticker_uq.cell.processes import CellOptions, cell_processes
from sticker_uq.cell.runner import ProcessGroup
from test.helpers.cell import CellWatch, write_parameters

NODES = ("detector", "supervisor", "cell_sim", "console", "recorder")
pytestmark = pytest.mark.timeout(400)  # three processes start


def test_the_simulated_cell_comes_up_as_documented_and_ends_in_order(bench, tmp_path):
    watch = CellWatch(bench, "cell_2")
    lines: list[str] = []
    page = (Path(__file__).parents[3] / "docs" / "reference" / "ros.md").read_text(encoding="utf-8")
    options = CellOptions(
        sim=True, console=True, console_port=0, namespace="cell_2", record=str(tmp_path / "bag"),
        audit=str(tmp_path / "audit"), params_file=str(write_parameters(tmp_path)),
    )  # fmt: skip
    with ProcessGroup(cell_processes(options), lines.append) as group:
        watch.assert_comes_up()
        topics = {name.removeprefix("/cell_2/") for name, _ in bench.probe.get_topic_names_and_types()}
        topics = {name for name in topics if not re.match(rf"/|({'|'.join(NODES)})/|.*/_action/", name)}
        assert topics - set(re.findall(r"^\| `([^`]+)` \|", page, re.M)) == set()
        codes = group.stop()
    assert codes == dict.fromkeys(NODES, 0), "\n".join(lines)
    assert not any("Traceback" in line or "exception" in line.lower() for line in lines), "\n".join(lines)
