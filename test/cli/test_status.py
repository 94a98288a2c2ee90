# SPDX-License-Identifier: Apache-2.0
"""What ``sticker-uq status`` says of a gate that others publish, and of none."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.conversions import reason_to_msg
from sticker_uq.scene import Reason
from sticker_uq.testing.arm import GatePublisher
from sticker_uq.testing.bench import Bench, run_bench
from sticker_uq_msgs.msg import GateState


@pytest.fixture
def bench(ros_domain: int) -> Iterator[Bench]:
    with run_bench() as made:
        yield made


def status(*options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sticker_uq.cli", "status", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_gate_reasons_policy_and_diagnostics_are_told_in_words(bench):
    """Of a gate that was held, and a node that warns of its images; the same as JSON."""
    both = [status("--wait", "60"), status("--wait", "60", "--json")]
    GatePublisher(bench).close(
        reasons=GateState.REASON_HELD | GateState.REASON_STALE_SCENE,
        details=[reason_to_msg(Reason.of("gate_publishers_not_received", count=2, topic="/gate"))],
        policy_hash="ab" * 32,
    )
    diagnostics = bench.publisher(DiagnosticArray, "/diagnostics", qos.DIAGNOSTICS)
    entry = DiagnosticStatus(
        level=DiagnosticStatus.WARN,
        name="detector: images",
        message="waiting for [first] image",
        hardware_id="/detector",
        values=[KeyValue(key="received", value="0")],
    )

    def ended() -> bool:
        diagnostics.publish(DiagnosticArray(status=[entry]))
        return all(one.poll() is not None for one in both)

    bench.until(ended, "the end once everything was heard")
    (told, errors), (as_json, _) = (one.communicate() for one in both)
    assert ([one.returncode for one in both], errors) == ([0, 0], "")
    assert "/gate: BLOCKED, closed\n  stale_scene: the newest scene is too old\n  held: held\n" in told
    assert "/gate" in told.split("  - ", 1)[1].splitlines()[0], "the detail in words"
    assert "policy abababababab" in told
    (line,) = (line for line in told.splitlines() if "detector: images" in line)
    assert line.split() == ["WARN", "detector:", "images", "waiting", "for", "[first]", "image"]
    found = json.loads(as_json)
    assert (found["topic"], found["gate"]["state"], found["gate"]["open"]) == ("/gate", "blocked", False)
    assert set(found["gate"]["reasons"]) == {"held", "stale_scene"}
    assert found["gate"]["policy_hash"] == "ab" * 32
    assert found["diagnostics"] == [
        {
            "node": "/detector",
            "name": "detector: images",
            "level": "WARN",
            "message": "waiting for [first] image",
            "values": {"received": "0"},
        }
    ]


def test_nobody_heard_says_where_it_listened_and_what_to_check(bench, ros_domain):
    bench.publisher(GateState, "/cell_2/gate", qos.GATE)
    listening = status("--namespace", "cell_1", "--wait", "5")
    _, errors = listening.communicate(timeout=90)
    assert listening.returncode == 1
    assert f"no gate heard on /cell_1/gate in ROS domain {ros_domain} within 5 s" in errors
    assert "gates there: /cell_2/gate" in errors
    assert "ROS_DOMAIN_ID" in errors
