"""A full disk, a second supervisor, and programs that only listen."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from sticker_uq.datasets.bags import Bag
from sticker_uq.nodes.processes import ProcessSpec, share_folder
from sticker_uq.supervision import Closed
from test.helpers.fault_cell import FaultCell


def test_disk_full_for_the_audit_log(cell: FaultCell) -> None:
    """No room for one more entry: the gate closes. With room again it opens, and the log tells the gap."""
    size = max(path.stat().st_size for path in cell.audit_folder.glob("audit-*.jsonl"))
    gaps = sum(e.kind == "gap" for e in cell.check_audit())
    cell.no_room("supervisor", size + 10)
    cell.hold(True)  # something to record
    gate = cell.until_gate(reason=Closed.AUDIT, words="cannot be written")
    head = gate.audit_head
    cell.hold(False)
    cell.until_gate(reason=Closed.AUDIT)
    assert cell.gates[-1].audit_head == head
    cell.no_room("supervisor", None)
    cell.works()
    told = cell.check_audit()
    assert sum(e.kind == "gap" for e in told) == gaps + 1
    kinds = [e.kind for e in told]
    assert "hold" in kinds[kinds.index("gap") - 12 :] or "hold" in kinds


def test_disk_full_for_the_recording(cell: FaultCell, tmp_path: Path) -> None:
    """The recording ends, the cell does not; what was written can be read."""
    spec = recorder(tmp_path / "bag")
    with cell.another(spec) as group:
        cell.until(lambda: any("recording 8 topics" in line for line in cell.lines), "the recorder")
        cell.until(lambda: written(tmp_path / "bag") > 500_000, "some images")
        cell.no_room("recorder", 600_000, group.pid("recorder"))
        cell.until(lambda: any("the recording ends here" in line for line in cell.lines), "the loss is told")
        cell.until_moving_on()
        codes = group.stop()
    assert codes["recorder"] == 1
    assert Bag(tmp_path / "bag").counts["/image"] > 0


def test_a_killed_recorder_goes_on_in_a_new_recording(cell: FaultCell, tmp_path: Path) -> None:
    """Programs that only listen change nothing for the gate; what they wrote until then can be read."""
    with cell.another(recorder(tmp_path / "bag")) as group:
        cell.until(lambda: written(tmp_path / "bag") > 500_000, "some images")
        os.kill(group.pid("recorder"), signal.SIGKILL)
        # whoever waits for an exit starts the process again
        cell.until(
            lambda: group.wait_for_exit(0.0) or written(tmp_path / "bag_2") > 500_000, "a new recording"
        )
        cell.until_moving_on()
        codes = group.stop()
    assert codes["recorder"] == 0
    first, second = Bag(tmp_path / "bag"), Bag(tmp_path / "bag_2")
    assert first.damage
    assert not second.damage
    assert first.counts["/image"] > 0
    assert second.counts["/image"] > 0


def written(bag: Path) -> int:
    """Bytes of a recording on the disk so far."""
    return sum(file.stat().st_size for file in bag.glob("*.mcap"))


def test_two_supervisors(cell: FaultCell) -> None:
    """Whichever speaks first, both close; the arm obeys neither until one is gone."""
    mine = cell.gates[-1].supervisor
    with cell.another(cell.supervisor("supervisor_2", audit="audit_2")):

        def closed() -> bool:
            newest = {g.supervisor: g for g in cell.gates[-20:]}
            rivals = [g for g in newest.values() if g.reasons & Closed.SECOND_SUPERVISOR]
            return len(rivals) == 2

        cell.until(closed, "two closed gates")
        said, steps = len(cell.gates), len(cell.steps)
        cell.until(lambda: len(cell.gates) >= said + 10, "more of what they say")
        assert len({g.supervisor for g in cell.gates[said:]}) == 2
        assert not any(g.open for g in cell.gates[said:])
        assert len(cell.steps) == steps
    cell.works()
    assert cell.gates[-1].supervisor == mine


def test_two_supervisors_with_one_audit_log(cell: FaultCell) -> None:
    """The second one does not even start."""
    with cell.another(cell.supervisor("supervisor_2")) as group:
        ended = cell.until(lambda: group.wait_for_exit(0.0), "the end of the second one")
    assert ended == ("supervisor_2", 1)
    assert any("is a second supervisor running?" in line for line in cell.lines)


def recorder(bag: Path) -> ProcessSpec:
    """The recorder, which is started again when it dies."""
    packaged = share_folder() / "config" / "cell.yaml"
    return ProcessSpec(
        "recorder", "recorder", "", packaged, {"bag": str(bag), "number_if_exists": True}, respawn=True
    )
