# SPDX-License-Identifier: Apache-2.0
"""Why the gate is closed, in bits and details; what outside of scenes and arm closes it; the lines of its log."""

from dataclasses import replace

import pytest

from sticker_uq.gate import BlockReason, GateState, Phase, Policy
from sticker_uq.gate import events as ev
from sticker_uq.gate.step_context import StepContext
from sticker_uq.scene import Localization, Reason
from test.helpers.gate import SETTINGS, STICKER, UNSURE, Cell, K, asking, codes, faulted, permitted, running

DRIFT = Reason.of("drift", "sharpness", count=9, rate=0.01)
BROKEN = ev.AssumptionBroken(DRIFT)
FULL = Reason.of("audit_write_failed", detail="no space left on device")
BEHIND = Reason.of("audit_behind", seconds=3)
OTHERS = Reason.of("other_gate_publishers", names="a, b")
UNEXPLAINED = Localization(100.0, 20.0, 0.2, 0.46, None, 0.35)
EVERYTHING_IN_DOUBT = Localization(100.0, 95.0, 0.95, 0.46, None, 0.02)


def test_a_misspelt_field_of_the_state_is_an_error():
    with pytest.raises(TypeError, match="the gate's state has no hold"):
        StepContext(GateState(), 0, SETTINGS).set(hold=True)


# --- what outside of scenes, arm and people forbids a permit ----------------------------------------------------------------


def test_each_impediment_closes_for_its_own_reason_until_it_is_over():
    cell = permitted()
    cell.send(ev.Impediment(BlockReason.AUDIT, FULL))
    assert (cell.phase, cell.state.reasons & BlockReason.AUDIT) == (Phase.BLOCKED, BlockReason.AUDIT)
    cell.send(ev.Impediment(BlockReason.SECOND_GATE_PUBLISHER, OTHERS))
    assert {FULL, OTHERS} <= {*cell.state.details}
    cell.send(ev.Impediment(BlockReason.AUDIT, BEHIND))
    assert BEHIND in cell.state.details
    assert FULL not in cell.state.details
    cell.send(ev.Impediment(BlockReason.AUDIT, None))
    assert (
        cell.state.reasons & (BlockReason.AUDIT | BlockReason.SECOND_GATE_PUBLISHER)
        == BlockReason.SECOND_GATE_PUBLISHER
    )
    cell.send(ev.Impediment(BlockReason.SECOND_GATE_PUBLISHER, None))
    assert cell.state.impediments == ()


# --- what the policy rests on -----------------------------------------------------------------------------------------------


def test_the_first_reason_why_the_policy_does_not_hold_stands_and_is_told_once():
    cell = running()
    cell.send(BROKEN)
    assert DRIFT in cell.state.details
    cell.send(ev.AssumptionBroken(Reason.of("drift", "noise", count=9, rate=0.01)))
    assert cell.state.assumption == DRIFT
    assert [line.reasons for line in cell.sent(ev.Log) if line.reasons[0].code == "assumption"] == [
        (Reason("assumption"), DRIFT)
    ]


def test_a_reset_ends_the_question_about_the_policy_and_says_nothing_of_a_fault():
    cell = running().scene(STICKER)
    cell.send(BROKEN)
    assert cell.phase is Phase.INTERVENTION
    cell.send(ev.Reset())
    assert codes(cell.reply().reasons) == ["assumption_reset"]
    assert len(cell.sent(ev.CloseIntervention)) == 1
    assert cell.state.request is None


def test_a_reset_leaves_a_question_that_was_asked_before_the_policy_failed():
    cell = asking()
    cell.send(BROKEN)
    assert cell.state.assumption_request == ""
    cell.send(ev.Reset())
    assert cell.phase is Phase.INTERVENTION
    assert not cell.sent(ev.CloseIntervention)


# --- reasons ----------------------------------------------------------------------------------------------------------------


def test_only_a_question_about_a_scene_with_something_unexplained_says_so():
    policy = Policy(max_unexplained_objectness=0.1, max_dil=0.9, max_dil_clean=0.9)

    def at_work() -> Cell:
        cell = Cell(SETTINGS, policy)
        cell.core.state = replace(running().state, now_ns=cell.now)
        return cell

    about_an_object = at_work().scene(UNSURE, times=K)
    assert about_an_object.phase is Phase.INTERVENTION
    about_an_object.scene(localization=UNEXPLAINED)
    assert not about_an_object.state.reasons & BlockReason.UNEXPLAINED
    about_the_scene = at_work().scene(STICKER, localization=EVERYTHING_IN_DOUBT, times=K)
    assert about_the_scene.phase is Phase.INTERVENTION
    assert about_the_scene.state.request.whole_scene
    assert not about_the_scene.state.reasons & BlockReason.UNEXPLAINED
    about_the_scene.scene(localization=UNEXPLAINED)
    assert about_the_scene.state.reasons & BlockReason.UNEXPLAINED


# --- the log ----------------------------------------------------------------------------------------------------------------


def test_the_log_tells_each_change_of_phase_with_its_reason():
    cell = permitted()
    opened, closed = (
        Reason.of("phase_changed", before=before, after=after)
        for before, after in (("MONITORING", "PERMITTED"), ("PERMITTED", "BLOCKED"))
    )
    assert (opened,) in [line.reasons for line in cell.sent(ev.Log)]
    cell.send(ev.Hold())
    assert (closed, Reason("held")) in [line.reasons[:2] for line in cell.sent(ev.Log)]
    assert cell.sent(ev.Log)[-1].severity is ev.Severity.INFO
    assert faulted().sent(ev.Log)[-1].severity is ev.Severity.ERROR


def test_the_log_tells_other_reasons_of_a_gate_that_stays_blocked_and_only_those():
    cell = running()
    cell.send(ev.Hold())
    cell.send(ev.Impediment(BlockReason.AUDIT, FULL))
    assert cell.phase is Phase.BLOCKED
    told = cell.sent(ev.Log)[-1]
    assert codes(told.reasons) == ["still_blocked", "no_scene", "held", "audit", "audit_write_failed"]
    assert told.severity is ev.Severity.ERROR
    before = len(cell.sent(ev.Log))
    cell.tick()
    assert len(cell.sent(ev.Log)) == before, "the same reasons are told once"
    cell.send(ev.Impediment(BlockReason.AUDIT, None))
    told = cell.sent(ev.Log)[-1]
    assert codes(told.reasons) == ["still_blocked", "no_scene", "held"]
    assert told.severity is ev.Severity.INFO


def test_the_log_names_the_workpiece_that_came():
    cell = running()
    cell.send(ev.WorkpieceChanged("laptop-7", cell.now))
    assert cell.sent(ev.Log)[-1].reasons == (Reason.of("workpiece_arrived", workpiece="laptop-7"),)
