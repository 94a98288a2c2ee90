# SPDX-License-Identifier: Apache-2.0
"""A small simulated cell and what it must do, however its processes are started."""

import time
from pathlib import Path

import yaml

from sticker_uq.nodes.common import qos
from sticker_uq.testing.bench import Bench
from sticker_uq_msgs.msg import GateState, SceneAssessment

PASSES = 3
#: Only a failing test waits so long: three processes load their libraries, one of them torch.
START_PATIENCE_S = 240.0


def write_parameters(folder: Path, **detector: object) -> Path:
    """A parameter file of a patient cell that needs little of the machine; ``detector`` adds to the detector's parameters."""
    path = folder / "small_cell.yaml"
    nodes = {
        "detector": {"passes": PASSES, "threads": 1, **detector},
        "cell_sim": {"width_px": 320, "height_px": 240, "rate": 4.0, "motion_s": 0.2, "failure_rate": 0.0},
        # a busy machine takes seconds for an image
        "supervisor": {
            "max_scene_age_s": 30.0,
            "lease_s": 5.0,
            "accept_timeout_s": 10.0,
            "arm_heartbeat_timeout_s": 5.0,
        },
    }
    path.write_text(yaml.safe_dump({f"/**/{name}": {"ros__parameters": p} for name, p in nodes.items()}))
    return path


class CellWatch:
    """Listens to a cell from before its start; topics are those of ``namespace``."""

    def __init__(self, bench: Bench, namespace: str = "") -> None:
        self._bench = bench
        self._prefix = f"/{namespace}" if namespace else ""
        self._started_ns = time.time_ns()
        self.scenes: list[SceneAssessment] = bench.collect(SceneAssessment, f"{self._prefix}/scene")
        self.gates: list[GateState] = bench.collect(GateState, f"{self._prefix}/gate", qos.LATCHED)

    def assert_comes_up(self) -> None:
        """Scenes of the simulated camera reach the supervisor, whose gate lives, and both lifecycle nodes are active."""
        self._bench.until(lambda: len(self.scenes) >= 2, "two scenes", START_PATIENCE_S)
        self._bench.until(
            lambda: self.gates and self._has_seen_a_scene(self.gates[-1]), "a gate that knows a scene"
        )
        for node in ("detector", "supervisor"):
            assert self._bench.state(f"{self._prefix}/{node}") == "active"
        first, second = self.scenes[:2]
        assert first.status in (SceneAssessment.STATUS_OK, SceneAssessment.STATUS_DEGRADED), first.status_text
        assert (first.image_width, first.image_height, first.passes) == (320, 240, PASSES)
        assert first.header.frame_id == "simulated_camera"
        assert self._started_ns < _ns(first) < _ns(second)
        self._bench.until(lambda: _ns(second) < _ns(self.gates[-1]), "a gate that goes on")
        sequences = [g.sequence for g in self.gates if not g.reasons & GateState.REASON_NOT_ACTIVE]
        assert sequences == sorted(set(sequences))

    @staticmethod
    def _has_seen_a_scene(gate: GateState) -> bool:
        return not gate.reasons & (GateState.REASON_NO_SCENE | GateState.REASON_NOT_ACTIVE)


def _ns(message: SceneAssessment | GateState) -> int:
    return int(message.header.stamp.sec) * 10**9 + int(message.header.stamp.nanosec)
