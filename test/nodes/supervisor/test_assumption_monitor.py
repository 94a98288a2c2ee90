# SPDX-License-Identifier: Apache-2.0
"""The supervisor as a node: workpieces unlike those of its policy close the gate, others do not."""

from pathlib import Path

import numpy as np
import yaml
from std_msgs.msg import Float64
from std_srvs.srv import Trigger

from sticker_uq.gate import BlockReason
from sticker_uq.gate.policy.reference import Reference
from sticker_uq.testing.scenes import assessment, object_at
from sticker_uq_msgs.msg import GateState
from sticker_uq_msgs.srv import ResolveIntervention
from test.helpers.gate import codes
from test.nodes.supervisor.test_supervisor import STICKER, Cell


def policy_file(folder: Path, rng: np.random.Generator) -> Path:
    """The packaged limits, made from 80 workpieces with one sticker and a DiL of 0.1 to 0.3."""
    scenes = [
        assessment(object_at(), dil=float(rng.uniform(0.1, 0.3)), image_digest=f"{n:032x}") for n in range(80)
    ]
    path = folder / "policy.yaml"
    path.write_text(
        yaml.safe_dump({"max_dil": 1.0, "reference": Reference.of(scenes).model_dump(mode="json")})
    )
    return path


def test_a_shifted_stream_closes_the_gate_and_one_like_before_does_not(bench, tmp_path):
    rng = np.random.default_rng(1)
    cell = Cell(bench, arm=False, policy=str(policy_file(tmp_path, rng)))
    evidence = bench.collect(Float64, "monitor/drift")
    reports = bench.diagnostics()

    def workpieces(count: int, dil: float) -> None:
        """That many come, each seen at least once; ends early when the gate closes."""
        for _ in range(count):
            watch = cell.node._core.watch
            before = watch.workpieces
            cell.camera.changes["dil"] = dil + float(rng.uniform(0.1, 0.3))
            cell.workpiece(f"laptop-{len(cell.done)}-{before}-{dil}")
            cell.shows(STICKER)
            cell.until(lambda: watch.workpieces > before, "the workpiece is seen")  # noqa: B023
            if cell.node._core.state.assumption:
                return

    workpieces(20, dil=0.0)
    assert not any(gate.reasons & BlockReason.ASSUMPTION for gate in cell.gates)
    assert 0.0 <= evidence[-1].data < 1.0

    workpieces(20, dil=0.5)
    gate = cell.until_gate(GateState.STATE_INTERVENTION, BlockReason.ASSUMPTION)
    assert ("drift", "background_saliency") in [(r.code, r.subject) for r in gate.details]
    cell.until(lambda: evidence[-1].data >= 1.0, "the evidence on monitor/drift")
    cell.until(
        lambda: (
            "background saliency per pixel has changed"
            in (reports.value("supervisor: gate", "assumption") or "")
        ),
        "diagnostics",
    )
    (asked,) = {r.request_id: r for r in cell.requests if r.request_id}.values()
    assert codes(asked.reasons)[:2] == ["assumption", "drift"]

    assert cell.resolve(scene_answer=ResolveIntervention.Request.SCENE_RESCAN).accepted
    cell.until_gate(GateState.STATE_BLOCKED, BlockReason.ASSUMPTION)
    assert bench.call(Trigger, "reset", Trigger.Request()).success
    cell.until(
        lambda: not cell.gates[-1].reasons & BlockReason.ASSUMPTION, "the gate goes on after the reset"
    )
