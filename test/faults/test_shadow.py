# SPDX-License-Identifier: Apache-2.0
"""A candidate beside the cell: it would release everything, and nothing of it ever reaches the arm."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
import yaml

from sticker_uq.cell.bundle import MANIFEST, Bundle, Manifest
from sticker_uq.cell.processes import CellOptions, ProcessSpec, cell_processes
from sticker_uq.cell.runner import ProcessGroup
from sticker_uq.evaluation.shadow.record import read_blocks
from sticker_uq.gate import Policy
from sticker_uq.io.share import share_folder
from sticker_uq.testing.bench import Reports
from sticker_uq.testing.fault_cell import FaultCell, ModuleProcess
from sticker_uq_msgs.msg import GateState

EVERYTHING = {
    "min_probability": 0.34, "min_detection_rate": 0.0, "max_variation_ratio": 1.0, "max_shannon_entropy": 1.6,
    "max_mutual_information": 1.6, "max_relative_total_variance": 10.0, "max_relative_predictive_surface": 10.0,
}  # fmt: skip
OF_EVERY_NODE = {"/diagnostics", "/rosout", "/parameter_events"}
COMPARISON = "shadow: comparison"


@pytest.fixture(scope="module")
def candidate(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A bundle of the scripted detector with a policy that releases whatever it sees."""
    folder = tmp_path_factory.mktemp("candidate")
    packaged = yaml.safe_load((share_folder() / "config" / "policy.yaml").read_text())
    (folder / "policy.yaml").write_text(yaml.safe_dump(packaged | EVERYTHING))
    (folder / "weights.safetensors").write_bytes(b"nothing loads them here")
    files = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}
    manifest = Manifest(
        created=date(2026, 1, 1),
        version="0",
        model="ssdlite320_mobilenet_v3_large",
        device="cpu",
        model_hash="m" * 64,
        settings_hash="s" * 64,
        panel_hash="",
        policy_hash=Policy.load(folder / "policy.yaml").hash,
        guarantee="",
        detector={},
        supervisor={},
        files=files,
    )
    (folder / MANIFEST).write_text(yaml.safe_dump(manifest.model_dump(mode="json")))
    return Bundle.load(folder)


def specs(candidate: Bundle, folder: Path) -> list[ProcessSpec]:
    """The processes that ``shadow:=`` starts, with the scripted detector in the place of the real one."""
    options = CellOptions(shadow=str(candidate.folder), shadow_folder=str(folder))
    detector, shadow = (spec for spec in cell_processes(options) if not spec.essential)
    scripted = ModuleProcess(
        detector.executable, detector.name, detector.namespace, detector.params_file, {"autostart": True},
        detector.remappings, nice=detector.nice, essential=False, module="sticker_uq.testing.scripted_detector",
    )  # fmt: skip
    return [
        scripted,
        replace(shadow, parameters=shadow.parameters | {"silent_after_s": 1.0, "max_waiting": 20}),
    ]


@contextmanager
def running(cell: FaultCell, candidate: Bundle, folder: Path) -> Iterator[tuple[ProcessGroup, Reports]]:
    """A shadow beside the cell that has compared images."""
    with ProcessGroup(specs(candidate, folder), cell.lines.append) as group:
        told = cell.bench.diagnostics()
        cell.until(lambda: int(told.value(COMPARISON, "images") or 0) >= 5, "images that were compared")
        yield group, told


def test_a_shadow_that_would_release_everything_opens_no_gate(
    cell: FaultCell, candidate: Bundle, tmp_path: Path
) -> None:
    cell.bring(GateState.STATE_INTERVENTION)  # the active policy asks about what the camera shows
    opened = len([gate for gate in cell.gates if gate.open])
    with running(cell, candidate, tmp_path) as (group, told):
        cell.until(
            lambda: int(told.value(COMPARISON, "released_by_candidate_only") or 0) >= 20,
            "stickers that only the candidate would release",
        )
        node = cell.bench.probe
        assert set(dict(node.get_publisher_names_and_types_by_node("shadow", "/"))) == OF_EVERY_NODE
        assert node.get_client_names_and_types_by_node("shadow", "/") == []
        published = dict(node.get_publisher_names_and_types_by_node("shadow_detector", "/shadow"))
        assert {name for name in published if not name.startswith("/shadow/")} == OF_EVERY_NODE
        assert "/shadow/scene" in published
        publishing = {
            info.node_name
            for topic in ("/gate", "/scene")
            for info in node.get_publishers_info_by_topic(topic)
        }
        assert "supervisor" in publishing
        assert not publishing & {"shadow", "shadow_detector"}
        codes = group.stop()
    assert len([gate for gate in cell.gates if gate.open]) == opened
    cell.quiet()  # takes the question back
    cell.hold(False)
    assert codes == {"shadow_detector": 0, "shadow": 0}
    blocks = [block for block in read_blocks(tmp_path) if block]
    assert {block.workpiece for block in blocks} == {""}
    assert sum(block.counts.get("outcome ask>work", 0) for block in blocks) >= 20


def test_a_shadow_that_hangs_or_dies_disturbs_nothing(
    cell: FaultCell, candidate: Bundle, tmp_path: Path
) -> None:
    with running(cell, candidate, tmp_path) as (group, told):
        os.kill(group.pid("shadow_detector"), signal.SIGSTOP)
        cell.until(lambda: "no scene of the candidate" in told[COMPARISON].message, "a warning")
        cell.until(lambda: int(told.value(COMPARISON, "without_candidate") or 0) >= 5, "images given up")
        assert int(told.value(COMPARISON, "waiting") or 0) <= 20
        cell.until_moving_on()
        os.kill(group.pid("shadow"), signal.SIGSTOP)
        cell.quiet()
        cell.hold(False)
        cell.works()
        for name in ("shadow_detector", "shadow"):
            os.kill(group.pid(name), signal.SIGKILL)
        cell.until_moving_on()
        assert group.wait_for_exit(0.5) is None, "the runner goes on without them"
    with running(cell, candidate, tmp_path):
        cell.until_moving_on()
