# SPDX-License-Identifier: Apache-2.0
"""``kill -9`` of each node, in the states of the gate that differ for it; the runner starts it again and the cell goes on."""

import pytest

from sticker_uq.gate import BlockReason
from sticker_uq.io.messages import stamp_to_ns
from sticker_uq_msgs.msg import GateState

LATE_S = 5.0
"""So long after the end of its lease an arm has not stopped for it but before, for the busy machine."""


@pytest.mark.parametrize("state", [GateState.STATE_REMOVING, GateState.STATE_INTERVENTION], ids=str)
def test_kill_supervisor(cell, state):
    """Nobody renews the permit: it runs out. The next supervisor starts closed, and remembers that a person was asked."""
    cell.bring(state)
    killed = cell.gates[-1].supervisor
    cell.until_recorded(state)
    cell.kill("supervisor")
    cell.until(lambda: cell.gates[-1].supervisor != killed, "the next supervisor")
    if state == GateState.STATE_INTERVENTION:
        assert cell.until_gate(GateState.STATE_FAULT).details[0].code == "last_run_asked"
        cell.quiet()  # resets while the gate is held: pictures of what was asked about are still under way
        cell.hold(False)
    cell.works()
    told = cell.check_audit()
    begun = max(index for index, entry in enumerate(told) if entry.kind == "start")
    first = next(entry for entry in told[begun:] if entry.kind == "gate")
    assert first.data["open"] is False


def test_kill_detector(cell):
    """Its death closes an open gate, before its last scene is old; the next detector opens it again."""
    cell.bring(GateState.STATE_REMOVING)
    cell.kill("detector")
    cell.until_gate(reason=BlockReason.FAILED_SCENE, code="detector_lost")
    cell.quiet()
    cell.hold(False)


def test_kill_arm(hasty):
    """The goal is lost with its server: the gate closes and faults until the operator has answered."""
    hasty.bring(GateState.STATE_REMOVING)
    killed = hasty.arm_servers()
    hasty.kill("arm")
    hasty.until_gate(reason=BlockReason.ARM_FAILED)
    hasty.until_gate(GateState.STATE_FAULT)
    hasty.until(lambda: len(hasty.arm_servers()) == 1 and hasty.arm_servers() != killed, "the next arm alone")


def test_arm_hangs(hasty):
    """Its server is still there, but it says nothing any more: closed at once, and a fault because its goal does not end."""
    hasty.stop("arm", True)
    try:
        hasty.until_gate(reason=BlockReason.ARM_FAILED)
        hasty.until_gate(GateState.STATE_FAULT)
    finally:
        hasty.stop("arm", False)


def test_supervisor_hangs(cell):
    """The arm stops with its lease; when the supervisor goes on, the permit is not renewed."""

    def told_or_over() -> bool:
        over = cell.now_ns() > stamp_to_ns(cell.gates[-1].valid_until) + LATE_S * 1e9
        return len(cell.stopped) > stops or not cell.gates[-1].open or over

    for _ in range(9):  # a busy machine may close the gate, or the arm stop, before the supervisor hangs
        cell.hold(True)  # forgets the attempts
        cell.hold(False)
        cell.until_moving()
        newest, stops = cell.gates[-1], len(cell.stopped)
        cell.stop("supervisor", True)
        try:
            cell.until(told_or_over, "an arm that has stopped")
            if cell.gates[-1].open and len(cell.stopped) > stops:
                break
        finally:
            cell.stop("supervisor", False)
    else:
        pytest.fail("the arm never stopped with its lease")
    gate = cell.until_gate()
    assert gate.supervisor == newest.supervisor
    assert gate.sequence > newest.sequence


def test_kill_detector_and_arm_while_closed(cell):
    """A closed gate stays closed; a question stands until a person has answered it."""
    cell.bring(GateState.STATE_INTERVENTION)
    killed, said = cell.arm_servers(), len(cell.gates)
    cell.kill("arm")
    cell.kill("detector")
    cell.until(lambda: len(cell.gates) >= said + 5, "more messages of the gate")
    assert not any(gate.open for gate in cell.gates[said:])
    assert cell.gates[-1].state == GateState.STATE_INTERVENTION
    cell.hold(True)
    cell.until(lambda: len(cell.arm_servers()) == 1 and cell.arm_servers() != killed, "the next arm alone")
    cell.quiet()
    cell.hold(False)
