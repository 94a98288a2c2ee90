# SPDX-License-Identifier: Apache-2.0
"""What the audit log tells about the life of a gate."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from sticker_uq.gate import Answer, BlockReason, GateState, OperatorAnswer
from sticker_uq.gate import events as ev
from sticker_uq.gate.audit import Narrator
from sticker_uq.scene import Reason
from sticker_uq.testing.scenes import HERE, assessment, object_at
from test.helpers.gate import Cell, K, asking, removing, running

FULL = Reason.of("audit_write_failed", detail="no space left on device")


class Story:
    """Tells what happens in a cell from now on."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.told: list[tuple[str, Any]] = []
        self._narrator = Narrator()
        self._seen = len(cell.effects)

    def send(self, event: Any) -> Story:
        before = self.cell.state
        effects = self.cell.send(event)
        self._seen = len(self.cell.effects)
        self.told += self._narrator.entries_of_step(event, before, self.cell.state, effects)
        return self

    def scene(self, *objects: Any, times: int = 1) -> Story:
        for _ in range(times):
            self.cell.wait(0.1)
            before = self.cell.state
            self.cell.assess(assessment(*objects, stamp_ns=self.cell.now - 1000))
            effects = self.cell.effects[self._seen :]
            self._seen = len(self.cell.effects)
            self.told += self._narrator.entries_of_step(None, before, self.cell.state, effects)
        return self

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.told]

    def only(self, kind: str) -> dict[str, Any]:
        [data] = [data for k, data in self.told if k == kind]
        return dict(data)


def test_a_removal_from_the_first_scene_to_its_proof():
    story = Story(running())
    story.scene(object_at(), times=K)
    cell = story.cell
    story.send(ev.GoalAccepted(cell.goal)).send(ev.RemovalFinished(cell.goal, ev.RemovalCode.NONE, "peeled"))
    story.scene(times=K)
    expected = ["model", "decision", "permit", "goal", "permit_end", "result", "decision", "verified"]
    assert sorted(k for k in story.kinds() if k != "gate") == sorted(expected)
    permit = story.only("permit")
    assert (permit["goal_id"], permit["label"], permit["box"]) == (1, "STICKER", list(HERE))
    assert len(permit["decision_id"]) > 0
    assert {"model_hash", "policy_hash", "image_stamp_ns"} <= set(permit)
    assert story.only("result")["code"] == "NONE"
    assert story.only("permit_end")["revoked"] is False
    gates = [(d["from"], d["to"]) for k, d in story.told if k == "gate" and d["from"] != d["to"]]
    assert gates == [
        ("BLOCKED", "MONITORING"),
        ("MONITORING", "PERMITTED"),
        ("PERMITTED", "REMOVING"),
        ("REMOVING", "VERIFYING"),
        ("VERIFYING", "MONITORING"),
    ]
    json.dumps(story.told, allow_nan=False)


def test_the_same_decision_is_told_once():
    story = Story(running())
    story.scene(object_at(shannon_entropy=1.5), times=5)
    assert story.kinds().count("decision") == 1
    decision = story.only("decision")
    assert decision["verdicts"][0]["verdict"] == "ASK"
    assert decision["verdicts"][0]["reasons"][0]["value"] == 1.5
    story.scene(object_at(shannon_entropy=1.5), object_at((300.0, 100.0, 400.0, 180.0)))
    assert story.kinds().count("decision") == 2


def test_who_answered_what_is_told_and_what_was_refused_too():
    story = Story(asking())
    request = story.cell.state.request
    said = (OperatorAnswer(Answer.REMOVE, HERE),)
    answer = ev.AnswerGiven(request.request_id, "Ada", answers=said, checked=True, image_ns=request.stamp_ns)
    story.send(answer).send(replace(answer, checked=False))  # the second one comes too late
    first, second = [data for kind, data in story.told if kind == "answer"]
    assert (first["person"], first["person_check"], first["accepted"]) == ("Ada", "checked", True)
    assert second["person_check"] == "unchecked"
    assert first["answers"] == [{"answer": "REMOVE", "box": list(HERE)}]
    assert second["accepted"] is False
    assert second["reasons"][0]["code"] == "request_not_open"
    assert story.kinds().count("request_closed") == 1


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (ev.Hold(), BlockReason.HELD),
        (ev.Impediment(BlockReason.AUDIT, FULL), BlockReason.AUDIT),
        (ev.WorkpieceChanged("laptop-2", 0), BlockReason.CONTRADICTED),
    ],
)
def test_a_permit_that_ends_early_is_told_with_its_reason(event, reason):
    story = Story(removing()).send(event)
    end = story.only("permit_end")
    assert end["revoked"] is True
    assert end["reasons"][0]["code"]
    assert story.only("cancel") == {"goal_id": 1}
    assert reason.name in story.only("gate")["closed_by"]


def test_hold_release_reset_and_faults_are_told():
    story = Story(running())
    story.send(ev.Hold()).send(ev.Release()).send(ev.Fault()).send(ev.Reset())
    assert [k for k in story.kinds() if k != "gate"] == ["hold", "release", "fault", "reset"]
    assert story.only("fault") == {"reasons": []}
    assert story.only("reset")["accepted"] is True


def test_nothing_is_told_when_nothing_happens():
    assert Narrator().entries_of_step(None, GateState(), GateState(), ()) == []
