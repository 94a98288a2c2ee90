# SPDX-License-Identifier: Apache-2.0
"""The operator's page: who may read it, who may answer, and that an answer reaches the supervisor."""

import asyncio
import json
import math
import threading
import time
import urllib.request

import cv2
import numpy as np
import pytest
import websockets.sync.client
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from fastapi.testclient import TestClient
from sensor_msgs.msg import Image

from sticker_uq.console.access import Access, Addresses
from sticker_uq.console.album import Album
from sticker_uq.console.app import Accepted, Person, PersonsCommand, make_app
from sticker_uq.console.state import ConsoleState
from sticker_uq.nodes.common.images import bgr_to_image, map_to_image
from sticker_uq.nodes.common.qos import DIAGNOSTICS, LATCHED, RELIABLE
from sticker_uq.nodes.console.node import Console
from sticker_uq.scene import InvalidInput
from sticker_uq.testing.bench import overrides
from sticker_uq_msgs.msg import (
    Box,
    GateState,
    InterventionRequest,
    ObjectAnswer,
    ObservedObject,
    Reason,
    ReasonValue,
    SceneAssessment,
    SceneDecision,
    UnexplainedRegion,
    Verdict,
)
from sticker_uq_msgs.srv import OperateGate, ResolveIntervention

PAGE = "http://127.0.0.1:8780"
HERE = {"origin": PAGE}
ADDRESSES = Addresses("127.0.0.1", 8780)
ADA = Person("Ada", False)
ANSWER = {
    "request_id": "r1",
    "person": "Ada",
    "answers": [{"answer": "keep", "x1": 1, "y1": 2, "x2": 3, "y2": 4}],
    "not_stickers": [{"x1": 5, "y1": 6, "x2": 7, "y2": 8}],
    "image_ns": "1700000000123456789",
}


class Cell:
    """Stands in for the cell where only the web side is tested."""

    def __init__(self):
        self.answers, self.commands, self.watching = [], [], []
        self.pictures = {}

    async def answer(self, said, person):
        self.answers.append(said)
        return Accepted(accepted=True, reasons=[])

    async def command(self, wanted, person):
        self.commands.append((wanted.command, *person))
        return Accepted(accepted=True, reasons=[])

    def picture(self, stamp_ns):
        return self.pictures.get(stamp_ns, b"")

    heat = picture

    def note_viewers(self, pages, heat):
        self.watching.append((pages, heat))

    def wrong_token(self, address, lately, ever):
        raise AssertionError("there is no token")


@pytest.fixture
def cell():
    return Cell()


@pytest.fixture
def client(cell):
    return TestClient(make_app(ConsoleState(), cell, Access(), ADDRESSES), base_url=PAGE)


@pytest.mark.parametrize(
    "change",
    [
        {"person": "A\nb"},
        {"person": "\u202eadA"},
        {"answers": [{"answer": "remove", "x1": 1, "y1": 2, "x2": 3}]},
        {"answers": [{"answer": "keep", "x1": 1e9, "y1": 2, "x2": 3, "y2": 4}]},
        {"surprise": 1},
    ],
)
def test_half_an_answer_is_refused(client, cell, change):
    assert client.post("/answer", json={**ANSWER, **change}, headers=HERE).status_code == 422
    assert cell.answers == []


def test_the_page_hears_of_changes_and_of_silence(cell, monkeypatch):
    monkeypatch.setattr("sticker_uq.console.state.FRESH_S", 600.0)
    state = ConsoleState()
    client = TestClient(make_app(state, cell, Access(), ADDRESSES), base_url=PAGE)
    with client.websocket_connect("ws://127.0.0.1:8780/live", headers=HERE) as socket:
        assert socket.receive_json()["connected"] is False
        state.put("gate", {"state": "blocked", "details": ["<b>why</b>"]})
        message = socket.receive_json()
        while "gate" not in message:  # one without news may be under way
            message = socket.receive_json()
        assert (message["connected"], message["gate"]["details"]) == (True, ["<b>why</b>"])
        assert cell.watching == [(1, 0)]
        socket.send_json({"heat": True})
        state.put("gate", {"state": "monitoring"})
        while cell.watching[-1] != (1, 1):
            socket.receive_json()
    assert cell.watching[-1] == (0, 0)


def test_a_picture_that_is_not_kept_is_no_error(client, cell):
    cell.pictures[5] = b"jpeg"
    assert client.get("/picture/5.jpg").headers["content-type"] == "image/jpeg"
    assert client.get("/heat/5.png").headers["content-type"] == "image/png"
    assert client.get("/picture/6.jpg").status_code == 204
    assert client.get("/picture/x.jpg").status_code == 422


def test_only_a_real_change_wakes_the_page():
    state = ConsoleState()
    state.put("gate", {"state": "blocked"})
    version = state.version
    state.put("gate", {"state": "blocked"})
    assert state.version == version
    threading.Timer(0.05, state.put, ["request", None]).start()
    assert state.wait_for_change(version, timeout_s=30.0) == version + 1


def test_a_question_is_shown_and_answered_through_real_nodes(bench):
    asked = []

    def resolve(request, response):
        asked.append(request)
        response.accepted, response.reasons = True, [Reason(code="answer_taken")]
        return response

    bench.probe.create_service(ResolveIntervention, "intervention/resolve", resolve)
    console = bench.add(Console(parameter_overrides=overrides(port=0, answer_timeout_s=60.0)))
    address = f"127.0.0.1:{console.port}"
    reports = bench.diagnostics()
    bench.until(lambda: reports.value("console: page", "port") == str(console.port), "the page's diagnostics")
    picture = bgr_to_image(np.full((40, 60, 3), 200, np.uint8), Time(sec=1), "camera")
    bench.image_publisher().publish(picture)
    bench.until(lambda: console.picture(10**9), "the picture arrives")
    gates = bench.publisher_matched(GateState, "gate", LATCHED)
    gates.publish(
        GateState(
            state=GateState.STATE_INTERVENTION,
            reasons=GateState.REASON_WAITING_FOR_OPERATOR | GateState.REASON_HELD,
            details=[Reason(code="objects_to_decide", values=[ReasonValue(name="count", number=1.0)])],
        )
    )
    bench.until(lambda: "gate" in console.state.snapshot(), "the gate arrives")
    requests = bench.publisher_matched(InterventionRequest, "intervention/request", LATCHED)
    verdict = Verdict(
        object_id=3,
        label=2,
        box=Box(x1=1.0, y1=2.0, x2=30.0, y2=40.0),
        reasons=[Reason(code="of_tomorrow", text="uncertain")],
    )
    request = InterventionRequest(request_id="r1", objects=[verdict])
    request.header.stamp.sec = 1
    requests.publish(request)
    bench.until(lambda: "request" in console.state.snapshot(), "the question arrives")

    with websockets.sync.client.connect(f"ws://{address}/live", origin=f"http://{address}") as socket:
        shown = json.loads(socket.recv())
        gate = shown["gate"]
        assert (gate["state"], gate["held"]) == ("intervention", True)
        assert [reason["code"] for reason in gate["closed"]] == ["waiting_for_operator", "held"]
        assert [(reason["code"], reason["values"]) for reason in gate["details"]] == [
            ("objects_to_decide", {"count": 1.0})
        ]
        assert shown["request"]["objects"][0]["reasons"][0]["text"] == "uncertain"
        assert [event["kind"] for event in shown["history"]] == ["asked", "gate_intervention"]
        assert {node["node"]: node["level"] for node in shown["health"]}["supervisor"] == "silent"
    with urllib.request.urlopen(f"http://{address}/picture/{shown['request']['stamp']}.jpg") as reply:
        assert cv2.imdecode(np.frombuffer(reply.read(), np.uint8), cv2.IMREAD_COLOR).shape == (40, 60, 3)

    post = urllib.request.Request(
        f"http://{address}/answer",
        data=json.dumps(ANSWER).encode(),
        headers={"Content-Type": "application/json", "Origin": f"http://{address}"},
    )
    replies = []
    asking = threading.Thread(target=lambda: replies.append(json.load(urllib.request.urlopen(post))))
    asking.start()
    bench.until(lambda: replies, "the answer is acknowledged")
    asking.join()
    assert [(r["accepted"], r["reasons"][0]["code"]) for r in replies] == [(True, "answer_taken")]
    assert asked[0].person == "Ada"
    assert asked[0].answers[0].answer == ObjectAnswer.ANSWER_KEEP
    assert list(asked[0].not_stickers) == [Box(x1=5.0, y1=6.0, x2=7.0, y2=8.0)]


def test_health_has_the_nodes_of_this_cell(bench):
    console = bench.add(Console(parameter_overrides=overrides(port=0)))
    publisher = bench.publisher_matched(DiagnosticArray, "/diagnostics", DIAGNOSTICS)
    names = {
        "/other/detector": "detector: perception", "/cell_2/supervisor": "supervisor: gate",
        "/recorder": "recorder: recording",
    }  # fmt: skip
    told = [
        DiagnosticStatus(level=b"\0", name=name, hardware_id=place, message=place)
        for place, name in names.items()
    ]
    publisher.publish(DiagnosticArray(status=told))

    def health():
        return {
            n["node"]: [part["message"] for part in n["parts"]] for n in console.state.snapshot()["health"]
        }

    bench.until(lambda: "recorder" in health(), "the last of them")
    assert health() | {"console": []} == {
        "detector": [], "supervisor": [], "console": [], "recorder": ["/recorder"],
    }  # fmt: skip


def test_a_scene_is_shown_with_its_decision_and_its_picture(bench, monkeypatch):
    monkeypatch.setattr("sticker_uq.nodes.console.node._UNDECIDED_S", 600.0)
    console = bench.add(Console(parameter_overrides=overrides(port=0)))
    images, scenes = bench.image_publisher(), bench.publisher_matched(SceneAssessment, "scene", RELIABLE)
    decisions = bench.publisher_matched(SceneDecision, "decision", RELIABLE)
    decisions.publish(SceneDecision())  # from now on a scene waits for what is decided about it
    bench.until(lambda: console._decided > 0, "the supervisor decides")
    images.publish(bgr_to_image(np.zeros((40, 60, 3), np.uint8), Time(sec=2), "camera"))
    bench.until(lambda: console.picture(2 * 10**9), "the picture arrives")
    scene = SceneAssessment(image_width=60, image_height=40, passes=20, status=SceneAssessment.STATUS_OK)
    scene.header.stamp.sec = 2
    scene.objects = [
        ObservedObject(
            id=0, label=2, box=Box(x2=9.0, y2=9.0), probabilities=[0.1, 0.1, 0.8], total_variance=math.nan
        )
    ]
    scenes.publish(scene)
    decision = SceneDecision(outcome=SceneDecision.OUTCOME_WORK)
    decision.header.stamp.sec = 2
    decision.verdicts = [Verdict(object_id=0, verdict=Verdict.VERDICT_REMOVE)]
    bench.until(lambda: console._scenes, "the scene arrives")
    assert "scene" not in console.state.snapshot()
    decisions.publish(decision)
    shown = bench.until(lambda: console.state.snapshot().get("scene"), "the scene is shown")
    assert (shown["stamp"], shown["picture"], shown["outcome"]) == ("2000000000", True, "work")
    assert shown["objects"][0]["verdict"] == "remove"
    assert shown["objects"][0]["probability"] == pytest.approx(0.8)
    json.dumps(shown, allow_nan=False)


def test_the_saliency_is_asked_for_only_while_a_page_shows_it(bench):
    console = bench.add(Console(parameter_overrides=overrides(port=0)))
    maps = bench.publisher(Image, "saliency", RELIABLE)
    address = f"127.0.0.1:{console.port}"
    with websockets.sync.client.connect(f"ws://{address}/live", origin=f"http://{address}") as socket:
        bench.until(lambda: console._pages == 1, "the page is counted")
        assert maps.get_subscription_count() == 0
        socket.send(json.dumps({"heat": True}))
        bench.until(maps.get_subscription_count, "the saliency is subscribed to")
        values = np.zeros((4, 6), np.float32)
        values[1, 2] = 3.0
        maps.publish(map_to_image(values, Time(sec=1), "camera"))
        png = bench.until(lambda: console.heat(10**9), "the map arrives")
        picture = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_UNCHANGED)
        assert picture.shape == (4, 6, 4)
        assert picture[1, 2, 3] > 0
        assert console.heat(2 * 10**9) == b""
        bench.until(lambda: console.state.snapshot()["heat"] == "1000000000", "the page hears of the map")
    bench.until(lambda: maps.get_subscription_count() == 0, "the subscription ends with the page")


def test_a_question_is_shown_with_its_own_scene_however_many_come_after(bench):
    console = bench.add(Console(parameter_overrides=overrides(port=0)))
    images, scenes = bench.image_publisher(), bench.publisher_matched(SceneAssessment, "scene", RELIABLE)
    requests = bench.publisher_matched(InterventionRequest, "intervention/request", LATCHED)
    region = Box(x1=5.0, y1=6.0, x2=15.0, y2=16.0)
    for second in range(1, 30):
        images.publish(bgr_to_image(np.zeros((40, 60, 3), np.uint8), Time(sec=second), "camera"))
        bench.until(lambda s=second: console.picture(s * 10**9), "the picture arrives")
        scene = SceneAssessment(image_width=60, image_height=40, status=SceneAssessment.STATUS_OK)
        scene.header.stamp.sec = second
        if second == 1:
            scene.dil.unexplained = [UnexplainedRegion(box=region, objectness=0.4, share=1.0)]
        scenes.publish(scene)
        stamp = str(second * 10**9)
        bench.until(
            lambda s=stamp: console.state.snapshot().get("scene", {}).get("stamp") == s, "the scene is shown"
        )
        if second == 1:
            asking = InterventionRequest(request_id="r1")
            asking.header.stamp.sec = 1
            asking.reasons = [Reason(code="missed_place", subject="unexplained_objectness", box=region)]
            requests.publish(asking)
            bench.until(lambda: console.state.snapshot().get("request"), "the question arrives")
    shown = console.state.snapshot()["request"]
    assert shown["reasons"][0]["box"] == {"x1": 5.0, "y1": 6.0, "x2": 15.0, "y2": 16.0}
    assert shown["scene"]["unexplained"][0]["box"] == shown["reasons"][0]["box"]
    assert (shown["scene"]["stamp"], shown["picture"], shown["heat"]) == ("1000000000", True, False)
    assert console.picture(10**9)


def test_a_flood_of_commands_is_refused_at_once_and_hold_gets_through(bench):
    heard = []

    def operate(request, response):
        heard.append(request.command)
        response.accepted = True
        return response

    bench.probe.create_service(OperateGate, "operate", operate)
    console = bench.add(Console(parameter_overrides=overrides(port=0, answer_timeout_s=60.0)))
    bench.until(console.supervisor.operations.service_is_ready, "the service is found")

    async def flood():
        wanted = [PersonsCommand(command=command) for command in ["release"] * 40 + ["hold"]]
        return await asyncio.gather(*(console.command(one, ADA) for one in wanted))

    replies = []
    asking = threading.Thread(target=lambda: replies.extend(asyncio.run(flood())))
    asking.start()
    bench.until(lambda: replies, "all replies")
    asking.join()
    refused = [reply.reasons[0]["code"] for reply in replies if not reply.accepted]
    assert refused == ["supervisor_busy"] * 34, "none was lost on the way"
    assert replies[-1].accepted
    assert heard.count(OperateGate.Request.COMMAND_HOLD) == 1


def test_hold_and_reset_reach_the_supervisor(bench):
    heard = []

    def operate(request, response):
        heard.append((request.command, request.person))
        response.accepted = request.command != OperateGate.Request.COMMAND_RESET
        return response

    service = bench.probe.create_service(OperateGate, "operate", operate)
    console = bench.add(Console(parameter_overrides=overrides(port=0, answer_timeout_s=60.0)))
    bench.until(console.supervisor.operations.service_is_ready, "the service is found")
    for command in ("hold", "release", "reset"):
        replies = []
        wanted = PersonsCommand(command=command)
        asking = threading.Thread(
            target=lambda w=wanted, r=replies: r.append(asyncio.run(console.command(w, ADA)))
        )
        asking.start()
        bench.until(lambda r=replies: r, command)
        asking.join()
        assert replies[0].accepted == (command != "reset")
    known = OperateGate.Request
    commands = (known.COMMAND_HOLD, known.COMMAND_RELEASE, known.COMMAND_RESET)
    assert heard == [(command, "Ada") for command in commands]
    assert [event["kind"] for event in console.state.snapshot()["history"]] == ["release", "hold"]
    bench.probe.destroy_service(service)
    bench.until(lambda: not console.supervisor.operations.service_is_ready(), "the service is gone")
    refused = asyncio.run(console.command(PersonsCommand(command="reset"), ADA))
    assert (refused.accepted, refused.reasons[0]["code"]) == (False, "supervisor_missing")


def test_a_hold_that_no_supervisor_takes_is_said_until_one_does(bench):
    console = bench.add(Console(parameter_overrides=overrides(port=0)))
    refused = asyncio.run(console.command(PersonsCommand(command="hold"), ADA))
    assert (refused.accepted, refused.reasons[0]["code"]) == (False, "supervisor_missing")
    heard = []

    def operate(request, response):
        heard.append((request.command, request.person))
        response.accepted = True
        return response

    bench.probe.create_service(OperateGate, "operate", operate)

    def said():
        return [event["kind"] for event in console.state.snapshot()["history"]]

    bench.until(lambda: said() == ["hold"], "the hold in the history")
    assert heard == [(OperateGate.Request.COMMAND_HOLD, "Ada")]


def test_a_node_that_falls_silent_is_not_shown_as_well(monkeypatch):
    state = ConsoleState(("detector", "supervisor"))
    state.report("detector", "model", 0, "running")
    state.report("detector", "input", 1, "slow")
    health = {node["node"]: node["level"] for node in state.snapshot()["health"]}
    assert health == {"detector": "warning", "supervisor": "silent"}
    later = time.monotonic() + 60
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert [node["level"] for node in state.snapshot()["health"]] == ["silent", "silent"]


def test_the_album_keeps_what_is_shown_and_forgets_what_is_old():
    encoded, now = [], [0.0]

    def encode(image):
        encoded.append(bytes(image.data))
        if encoded[-1] == b"broken":
            raise InvalidInput("broken")
        return encoded[-1]

    album = Album(encode, seconds=2.0, most_bytes=1000, clock=lambda: now[0])
    for number in range(60):  # a camera at 30 Hz: all of two seconds are there, whatever their number
        now[0] = number / 30
        album.add(number, Image(data=b"broken" if number == 7 else b"%d" % number))
    assert album.pin("question", 0)
    assert encoded == []  # nobody has looked yet
    now[0] = 3.0
    album.add(60, Image(data=b"60"))
    assert album.file(0) == album.file(0) == b"0"
    assert encoded == [b"0"]
    assert album.file(7) == b""
    assert not album.pin("live", 29)
    assert album.pin("live", 30)
    album.unpin("question")
    assert album.file(1) == b""
    now[0] = 100.0
    album.add(61, Image(data=b"61"))
    assert album.file(61) == b"61", "the newest one stays, however slow the camera"


def test_the_album_keeps_no_more_than_its_memory_and_always_the_newest():
    album = Album(lambda image: bytes(image.data), seconds=60.0, most_bytes=100)
    for stamp in range(10):
        album.add(stamp, Image(data=bytes([stamp]) * 40))
    assert [stamp for stamp in range(10) if album.file(stamp)] == [8, 9]
    album.add(9, Image(data=b"again"))
    album.add(10, Image(data=b"x" * 55))
    assert [stamp for stamp in range(11) if album.file(stamp)] == [8, 9, 10]
    album.add(11, Image(data=b"x" * 1000))
    assert album.file(11)
    assert not album.pin("live", 10)
