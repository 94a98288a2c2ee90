# SPDX-License-Identifier: Apache-2.0
"""A full disk, a second supervisor, and programs that only listen."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from sticker_uq.cell.processes import ProcessSpec
from sticker_uq.gate import BlockReason
from sticker_uq.io.bags import Bag
from sticker_uq.io.share import share_folder
from sticker_uq.nodes.common import qos
from sticker_uq_msgs.msg import GateState
from test.helpers.fault_cell import FaultCell


def test_disk_full_for_the_audit_log(cell):
    """No space for one more entry: the gate closes. With space again it opens, and the log tells the gap."""
    size = max(path.stat().st_size for path in cell.audit_folder.glob("audit-*.jsonl"))
    gaps = sum(e.kind == "gap" for e in cell.check_audit())
    cell.disk_full("supervisor", size + 10)
    cell.hold(True)  # something to record
    head = cell.until_gate(reason=BlockReason.AUDIT, code="audit_write_failed").audit_head
    cell.hold(False)
    cell.until_gate(reason=BlockReason.AUDIT)
    assert cell.gates[-1].audit_head == head
    cell.disk_full("supervisor", None)
    cell.works()
    told = cell.check_audit()
    assert sum(e.kind == "gap" for e in told) == gaps + 1
    kinds = [e.kind for e in told]
    assert "hold" in kinds[kinds.index("gap") - 12 :] or "hold" in kinds


def test_the_audit_log_is_moved_away(cell):
    """The process could go on writing what nobody finds. Back in its place it goes on, with a gap."""
    gaps = sum(e.kind == "gap" for e in cell.check_audit())
    away = cell.audit_folder.with_name("away")
    cell.audit_folder.rename(away)
    gate = cell.until_gate(reason=BlockReason.AUDIT, code="audit_write_failed")
    assert str(cell.audit_folder) in gate.text
    cell.stays_closed()
    away.rename(cell.audit_folder)
    cell.works()
    cell.until(lambda: sum(e.kind == "gap" for e in cell.check_audit()) == gaps + 1, "the gap in the log")


def test_disk_full_for_the_recording(cell, tmp_path):
    """The recording ends, the cell does not, and with space again it goes on; what was written can be read."""
    spec = recorder(tmp_path / "bag")
    with cell.another(spec) as group:
        cell.until(lambda: any(", images from /" in line for line in cell.lines), "the recorder")
        cell.until(lambda: written(tmp_path / "bag") > 500_000, "some images")
        cell.disk_full("recorder", 600_000, group.pid("recorder"))
        cell.until(lambda: any("recording stopped" in line for line in cell.lines), "the loss is told")
        cell.until_moving_on()
        assert not (tmp_path / "bag_2").exists()
        cell.disk_full("recorder", None, group.pid("recorder"))
        cell.until(lambda: written(tmp_path / "bag_2") > 500_000, "some images in a new folder")
        codes = group.stop()
    assert codes["recorder"] == 1
    assert Bag(tmp_path / "bag").counts["/image"] > 0
    second = Bag(tmp_path / "bag_2")
    assert not second.damage
    assert second.counts["/gate"] > 0


def test_a_killed_recorder_goes_on_in_a_new_recording(cell, tmp_path):
    """Programs that only listen change nothing for the gate; what they wrote until then can be read."""

    looked_at = 0

    def recorded(bag: str, *topics: str) -> bool:
        # a recording that goes on ends with a piece that cannot be read yet; to read it takes time that the camera needs
        nonlocal looked_at
        if (size := written(tmp_path / bag)) < looked_at + 2_000_000:
            return False
        looked_at = size
        counts = Bag(tmp_path / bag).counts
        return all(counts.get(topic) for topic in topics)

    with cell.another(recorder(tmp_path / "bag")) as group:
        cell.until(lambda: recorded("bag", "/image"), "some images")
        looked_at = 0
        os.kill(group.pid("recorder"), signal.SIGKILL)

        def recorded_again() -> bool:
            # whoever waits for an exit starts the process again
            assert group.wait_for_exit(0.0) is None
            return recorded("bag_2", "/image", "/gate")

        cell.until(recorded_again, "images and the gate in a new recording")
        cell.until_moving_on()
        codes = group.stop()
    assert codes["recorder"] == 0
    first, second = Bag(tmp_path / "bag"), Bag(tmp_path / "bag_2")
    assert first.damage
    assert not second.damage
    assert first.counts["/image"] > 0
    assert second.counts["/gate"] > 0


def written(bag: Path) -> int:
    """Bytes of a recording on the disk so far."""
    return sum(file.stat().st_size for file in bag.glob("*.mcap"))


def test_two_supervisors(cell):
    """Whichever speaks first, both close and name the other; the arm obeys neither until one is gone."""
    mine = cell.gates[-1].supervisor
    with cell.another(cell.supervisor("supervisor_2", audit="audit_2")):

        def closed() -> bool:
            newest = {g.supervisor: g for g in cell.gates[-20:]}
            closed = [g for g in newest.values() if g.reasons & BlockReason.SECOND_GATE_PUBLISHER]
            return len(closed) == 2 and any("/supervisor_2" in gate.text for gate in closed)

        cell.until(closed, "two closed gates, one of which names the other's node")
        said = len(cell.gates)
        cell.stays_closed()
        cell.until(lambda: len({gate.supervisor for gate in cell.gates[said:]}) == 2, "both go on")
    cell.works()
    assert cell.gates[-1].supervisor == mine


def test_a_supervisor_that_is_not_heard(cell):
    """It is there, as discovery tells, but what it says does not arrive: what it permits is not known."""
    unheard = cell.gate_publisher(qos.NEWEST_IMAGE_BEST_EFFORT)
    try:
        cell.until_gate(reason=BlockReason.UNKNOWN_GATE_PUBLISHER, code="gate_publishers_not_received")
        cell.until(lambda: "/probe" in cell.gates[-1].text, "its name")
        cell.stays_closed()
    finally:
        cell.bench.probe.destroy_publisher(unheard)


@pytest.mark.parametrize(
    ("topic", "reason"),
    [("scene", BlockReason.SECOND_SCENE_PUBLISHER), ("gate", BlockReason.UNKNOWN_GATE_PUBLISHER)],
)
def test_a_flood_of_another_type(cell, topic, reason):
    """It is not received, but it is named."""
    with subprocess.Popen([sys.executable, "-m", "test.helpers.alien", topic]) as process:
        try:
            cell.until_gate(reason=reason)
            # discovery knows the publisher first, its node soon after
            cell.until(
                lambda: (
                    cell.gates[-1].reasons & reason and "/alien (std_msgs/msg/String)" in cell.gates[-1].text
                ),
                "the name of the node",
            )
        finally:
            process.terminate()


def test_two_supervisors_with_one_audit_log(cell):
    """The second one does not even start."""
    with cell.another(cell.supervisor("supervisor_2")) as group:
        ended = cell.until(lambda: group.wait_for_exit(0.0), "the end of the second one")
    assert ended == ("supervisor_2", 1)
    assert any("is a second supervisor running?" in line for line in cell.lines)


def test_a_killed_console_serves_the_page_again(cell):
    """The question stands without it; the page of the next one operates the gate, and the audit log says who did."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    packaged = share_folder() / "config" / "cell.yaml"
    spec = ProcessSpec("console", "console", "", packaged, {"port": port}, respawn=True)
    cell.bring(GateState.STATE_INTERVENTION)
    with cell.another(spec) as group:
        cell.until(lambda: page(port), "the page")
        said = len(cell.gates)
        os.kill(group.pid("console"), signal.SIGKILL)
        cell.until(lambda: not page(port), "the page is gone")
        cell.until(lambda: group.wait_for_exit(0.0) or page(port), "the page of the next one")
        cell.until(
            lambda: group.wait_for_exit(0.0) or hold_on(port)["accepted"], "a supervisor that it finds"
        )
        asked = (GateState.STATE_INTERVENTION,)
        assert {gate.state for gate in cell.gates[said:]} == set(asked)
        assert group.stop()["console"] == 0
    assert not cell.until_gate(*asked, reason=BlockReason.HELD).open
    cell.until(lambda: ("hold", "Grace") in told_persons(cell), "who it was, in the audit log")
    cell.quiet()
    cell.hold(False)


def page(port: int) -> bool:
    """Whether the console's page is served."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10.0) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def hold_on(port: int) -> Any:
    """What the page's server answers when Grace holds the gate."""
    address = f"http://127.0.0.1:{port}"
    headers = {"Content-Type": "application/json", "Origin": address}
    body = json.dumps({"command": "hold", "person": "Grace"}).encode()
    request = urllib.request.Request(f"{address}/command", body, headers)
    with urllib.request.urlopen(request, timeout=30.0) as answer:
        return json.load(answer)


def told_persons(cell: FaultCell) -> list[tuple[str, str]]:
    """Kind and person of the entries of the audit log that name one."""
    return [(entry.kind, entry.data["person"]) for entry in cell.check_audit() if entry.data.get("person")]


def recorder(bag: Path) -> ProcessSpec:
    """The recorder, which is started again when it dies."""
    packaged = share_folder() / "config" / "cell.yaml"
    return ProcessSpec(
        "recorder", "recorder", "", packaged, {"bag": str(bag), "number_if_exists": True}, respawn=True
    )
