# SPDX-License-Identifier: Apache-2.0
"""The supervisor as a node and people: questions, answers, who operates the gate."""

import errno
import os
from typing import Any

from rclpy.parameter import Parameter
from std_srvs.srv import SetBool

from sticker_uq.gate import BlockReason
from sticker_uq.gate.audit import entries
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.supervisor.operator_services import LONGEST_NAME, MOST_ANSWERS
from sticker_uq_msgs.msg import Box, GateState, InterventionRequest, ObjectAnswer
from sticker_uq_msgs.srv import OperateGate, ResolveIntervention
from test.helpers.gate import codes
from test.helpers.supervised import STICKER, UNSURE, Cell, answer


def test_a_person_is_asked_and_answers(bench):
    cell = Cell(bench)
    cell.shows(UNSURE)
    cell.until_gate(GateState.STATE_INTERVENTION, BlockReason.WAITING_FOR_OPERATOR)
    request = cell.until(lambda: cell.requests[-1].request_id and cell.requests[-1], "a request")
    assert request.workpiece_id == "laptop-1"
    assert [v.object_id for v in request.objects] == [0]
    assert request.objects[0].reasons[0].subject == "sticker_probability"
    # somebody who comes late finds the question, too
    late = bench.collect(InterventionRequest, "intervention/request", qos.LATCHED)
    bench.until(lambda: late, "the latched request")
    assert late[0].request_id == request.request_id
    known = {"answers": [answer(ObjectAnswer.ANSWER_REMOVE)]}
    for bad, code in (
        ({"answers": [answer(77)]}, "answer_unknown"),
        (known | {"scene_answer": 99}, "scene_answer_unknown"),
    ):
        refused = cell.resolve(**bad)
        assert (refused.accepted, codes(refused.reasons)) == (False, [code])
        assert refused.message
    assert cell.resolve(answers=[answer(ObjectAnswer.ANSWER_REMOVE)], person_checked=True).accepted
    cell.goal(1)
    assert cell.requests[-1].request_id == ""
    (told,) = cell.answers
    assert (told.request_id, told.person, told.workpiece_id) == (request.request_id, "Ada", "laptop-1")
    assert told.person_checked
    assert told.header.frame_id == "camera"
    assert told.answers[0].answer == ObjectAnswer.ANSWER_REMOVE


def test_what_looks_like_a_sticker_is_left_only_by_name(bench):
    cell = Cell(bench)
    cell.shows(UNSURE)
    cell.until(lambda: cell.requests and cell.requests[-1].request_id, "a request")
    clean = ResolveIntervention.Request.SCENE_CLEAN
    assert codes(cell.resolve(scene_answer=clean).reasons) == ["sticker_not_mentioned"]
    box = cell.requests[-1].objects[0].box
    assert cell.resolve(scene_answer=clean, not_stickers=[box]).accepted
    cell.until(lambda: cell.answers, "the answer is told")
    assert list(cell.answers[0].not_stickers) == [box]


def test_what_is_too_long_is_refused_before_anything_compares_or_writes_it(bench, tmp_path):
    cell = Cell(bench, audit_folder=str(tmp_path / "audit"))
    cell.shows(UNSURE)
    cell.until(lambda: cell.requests and cell.requests[-1].request_id, "a request")
    for fields in (
        {"answers": [answer(ObjectAnswer.ANSWER_KEEP)] * (MOST_ANSWERS + 1)},
        {"not_stickers": [Box()] * (MOST_ANSWERS + 1)},
        {"person": "A" * (LONGEST_NAME + 1)},
        {"request_id": "r" * (LONGEST_NAME + 1)},
    ):
        assert codes(cell.resolve(**fields).reasons) == ["request_too_long"]
    name = "A" * 100_000
    known = OperateGate.Request

    def operate(command: int) -> OperateGate.Response:
        return bench.call(OperateGate, "operate", known(command=command, person=name, person_checked=True))

    assert operate(known.COMMAND_HOLD).accepted, "nothing keeps anybody from hold"
    assert codes(operate(known.COMMAND_RELEASE).reasons) == ["request_too_long"]
    assert cell.node._audit._log.flush(30.0)
    (held,) = [entry.data for entry in entries(tmp_path / "audit") if entry.kind == "hold"]
    assert (held["person"], held["person_check"]) == ("A" * LONGEST_NAME, "unchecked")


def test_every_start_tells_the_bundle_in_the_audit_log(bench, tmp_path):
    folders = tmp_path / "with", tmp_path / "without"
    for folder, bundle in zip(folders, ("ab" * 32, ""), strict=True):
        cell = Cell(bench, audit_folder=str(folder), bundle_hash=bundle)
        assert cell.node._audit._log.flush(30.0)
        [start] = [entry for entry in entries(folder) if entry.kind == "start"]
        assert start.data["bundle_hash"] == bundle
        bench.executor.remove_node(cell.node)
        cell.node.trigger_shutdown()
        bench.probe.destroy_publisher(cell._workpieces)  # the next cell has one of its own


def test_a_person_who_operates_the_gate_stands_in_the_audit_log(bench, tmp_path):
    cell = Cell(bench, audit_folder=str(tmp_path / "audit"))
    known = OperateGate.Request

    def operate(command: int, person: str = "Ada", checked: bool = False) -> OperateGate.Response:
        request = known(command=command, person=person, person_checked=checked)
        return bench.call(OperateGate, "operate", request)

    assert operate(known.COMMAND_HOLD, " ", checked=True).accepted, "nobody needs a name to hold"
    assert operate(known.COMMAND_HOLD, checked=True).accepted
    cell.until_gate(GateState.STATE_BLOCKED, BlockReason.HELD)
    assert codes(operate(known.COMMAND_RELEASE, person=" ").reasons) == ["person_missing"]
    assert codes(operate(known.COMMAND_UNKNOWN).reasons) == ["command_unknown"]
    assert cell.gates[-1].reasons & BlockReason.HELD
    assert operate(known.COMMAND_RELEASE, "Grace").accepted
    assert codes(operate(known.COMMAND_RESET).reasons) == ["no_fault"]
    cell.until_gate(GateState.STATE_BLOCKED)
    assert cell.node._audit._log.flush(30.0)
    said = [
        (e.kind, e.data["person"], e.data["person_check"])
        for e in entries(tmp_path / "audit")
        if "person" in e.data
    ]
    assert said == [
        ("hold", "", "unchecked"), ("hold", "Ada", "checked"), ("release", "Grace", "unchecked"), ("reset", "Ada", "unchecked"),
    ]  # fmt: skip


def test_nothing_is_acknowledged_that_a_full_disk_would_forget(bench, tmp_path, monkeypatch):
    cell = Cell(bench, audit_folder=str(tmp_path / "audit"))

    def refused(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refused)
        cell.shows(STICKER)
        cell.until_gate(GateState.STATE_BLOCKED, BlockReason.AUDIT)
        assert cell.arm.goals == [], "a goal that nobody would know of after a restart"
        told = bench.call(SetBool, "hold", SetBool.Request(data=True))
        assert not told.success
        assert "the audit log cannot be written" in told.message
        cell.until_gate(GateState.STATE_BLOCKED, BlockReason.HELD | BlockReason.AUDIT)
        # nor does another configuration of the same process
        for name in ("deactivate", "cleanup"):
            assert bench.transition("supervisor", name)
    for folder in ("audit", "another"):
        cell.node.set_parameters([Parameter("audit_folder", value=str(tmp_path / folder))])
        said = len(cell.gates)
        for name in ("configure", "activate"):
            assert bench.transition("supervisor", name)
        cell.until(
            lambda said=said: cell.gates[said:] and cell.gates[-1].reasons == BlockReason.HELD, "but a hold"
        )
        for name in ("deactivate", "cleanup") * (folder == "audit"):
            assert bench.transition("supervisor", name)
    assert bench.call(SetBool, "hold", SetBool.Request(data=False)).success
    cell.goal(1)
