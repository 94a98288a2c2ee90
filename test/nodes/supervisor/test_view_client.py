# SPDX-License-Identifier: Apache-2.0
"""The supervisor asks the cell for a second view: what the service says, or that there is none, becomes an event."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sticker_uq.gate import BlockReason
from sticker_uq.gate.audit import AuditLog
from sticker_uq.gate.events import ViewRefused, ViewTaken
from sticker_uq.gate.second_view import SAME_PLACES
from sticker_uq.nodes.supervisor.audit_trail import unfinished, viewed_before
from sticker_uq.nodes.supervisor.view_client import event_of
from sticker_uq.testing.bench import Bench
from sticker_uq_msgs.msg import GateState
from sticker_uq_msgs.srv import ChangeView
from test.helpers.gate import codes
from test.helpers.supervised import STICKER, UNSURE, Cell


class View:
    """The cell's service; answers as the test says."""

    def __init__(self, bench: Bench, **response: Any) -> None:
        self.requests: list[ChangeView.Request] = []
        self._response = ChangeView.Response(**response)
        bench.probe.create_service(ChangeView, "change_view", self._answer)

    def _answer(self, request: ChangeView.Request, _: ChangeView.Response) -> ChangeView.Response:
        self.requests.append(request)
        return self._response


def unsure(bench: Bench, **parameters: Any) -> Cell:
    cell = Cell(bench, second_views="light", **parameters)
    cell.workpiece("laptop-2")  # has arrived after the start
    cell.shows(UNSURE)
    return cell


def test_the_view_that_is_wanted_is_in_the_request_and_the_next_scenes_are_joined(bench: Bench) -> None:
    view = View(bench, changed=True, places=np.eye(3).ravel())
    reports = bench.diagnostics()
    cell = unsure(bench, second_view_timeout_s=60.0)
    cell.until(lambda: view.requests, "the request")
    assert [(r.view, r.workpiece_id) for r in view.requests] == [(ChangeView.Request.VIEW_LIGHT, "laptop-2")]
    cell.shows(STICKER)
    cell.goal(1)
    cell.until(
        lambda: reports.value("supervisor: gate", "second_view") == "light: taken",
        "the second view in /diagnostics",
    )
    assert (reports.value("supervisor: gate", "second_views"), len(view.requests)) == ("1", 1)
    assert not any(request.request_id for request in cell.requests)


@pytest.mark.parametrize(
    ("response", "code", "detail"),
    [
        (None, "second_view_refused", "change_view"),
        ({"changed": False, "message": "the lamp is broken"}, "second_view_refused", "the lamp is broken"),
        ({"changed": True}, "places_unusable", "not known"),  # without a map of places
    ],
)
def test_a_missing_refusing_or_careless_service_ends_in_the_question(
    bench: Bench, response: dict[str, Any] | None, code: str, detail: str
) -> None:
    view = None if response is None else View(bench, **response)
    cell = unsure(bench, second_view_timeout_s=0.5)
    cell.until_gate(GateState.STATE_INTERVENTION)
    request = cell.until(lambda: [r for r in cell.requests if r.request_id], "the question")[-1]
    assert code in codes(request.reasons)
    assert detail in request.text
    assert any(gate.reasons & BlockReason.SECOND_VIEW for gate in cell.gates)
    assert not any(gate.open for gate in cell.gates)
    assert view is None or len(view.requests) == 1


def test_a_laptop_that_two_nodes_would_turn_is_turned_by_none(bench: Bench) -> None:
    both = [View(bench, changed=True, places=np.eye(3).ravel()) for _ in range(2)]
    cell = unsure(bench, second_view_timeout_s=60.0)
    cell.until_gate(GateState.STATE_INTERVENTION)
    request = cell.until(lambda: [r for r in cell.requests if r.request_id], "the question")[-1]
    assert "second_view_refused" in codes(request.reasons)
    assert not any(view.requests for view in both)


@pytest.mark.parametrize("places", [[0.0] * 9, [float("nan")] * 9])
def test_a_changed_view_without_a_map_of_places_has_no_places(places: list[float]) -> None:
    assert event_of(1, ChangeView.Response(changed=True, places=places)) == ViewTaken(1, None)
    assert event_of(1, ChangeView.Response(changed=False, message="no", places=places)) == ViewRefused(
        1, "no"
    )
    unmoved = ChangeView.Response(changed=True, places=np.eye(3).ravel())
    assert event_of(2, unmoved) == ViewTaken(2, SAME_PLACES)


ASKED = ("second_view", {"workpiece_id": "laptop-1"})


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ([], "laptop-1"),
        ([("stop", {})], "laptop-1"),
        ([("workpiece", {"workpiece_id": "laptop-1"})], "laptop-1"),
        ([("workpiece", {"workpiece_id": "laptop-2"})], ""),
        ([("second_view_refused", {})], ""),
    ],
)
def test_the_log_of_an_earlier_run_tells_which_laptop_had_a_second_view(
    tmp_path: Path, later: list[tuple[str, dict[str, Any]]], expected: str
) -> None:
    log = AuditLog(tmp_path, 10**6)
    for kind, data in [("workpiece", {"workpiece_id": "laptop-1"}), ASKED, *later]:
        log.add(kind, data)
    log.close()
    assert viewed_before(tmp_path) == expected


def test_a_run_that_died_waiting_for_a_second_view_is_a_fault(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, 10**6)
    log.add("gate", {"to": "SECOND_VIEW", "reasons": []})
    log.close()
    assert codes(unfinished(tmp_path)) == ["last_run_viewed"]


def test_after_a_restart_the_laptop_is_a_persons(bench: Bench, tmp_path: Path) -> None:
    log = AuditLog(tmp_path, 10**6)
    for kind, data in (ASKED, ("stop", {})):
        log.add(kind, data)
    log.close()
    cell = Cell(bench, second_views="light", audit_folder=str(tmp_path))
    cell.shows(STICKER)
    cell.until_gate(GateState.STATE_INTERVENTION)
    request = cell.until(lambda: [r for r in cell.requests if r.request_id], "the question")[-1]
    assert "views_not_comparable" in codes(request.reasons)
    assert cell.arm is not None
    assert not cell.arm.goals
