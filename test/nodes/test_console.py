"""The operator's page: who may read it, who may answer, and that an answer reaches the supervisor."""

import asyncio
import json
import threading
import urllib.request

import cv2
import numpy as np
import pytest
import websockets.sync.client
from builtin_interfaces.msg import Time
from fastapi.testclient import TestClient
from sensor_msgs.msg import Image
from starlette.websockets import WebSocketDisconnect

from sticker_uq.nodes.console import Console
from sticker_uq.nodes.console_app import Accepted, PersonsAnswer, make_app, same_origin
from sticker_uq.nodes.console_state import ConsoleState
from sticker_uq.nodes.images import bgr_to_image
from sticker_uq.nodes.qos import IMAGES, LATCHED
from sticker_uq_msgs.msg import Box, GateState, InterventionRequest, ObjectAnswer, Reason, Verdict
from sticker_uq_msgs.srv import ResolveIntervention
from test.helpers.ros import Bench, overrides

HERE = {"origin": "http://testserver"}
ANSWER = {
    "request_id": "r1",
    "person": "Ada",
    "answers": [{"answer": "keep", "x1": 1, "y1": 2, "x2": 3, "y2": 4}],
}


class Supervisor:
    """Stands in for the supervisor's service where only the web side is tested."""

    def __init__(self):
        self.answers = []

    async def __call__(self, answer):
        self.answers.append(answer)
        return Accepted(accepted=True, message="taken")


@pytest.fixture
def supervisor():
    return Supervisor()


@pytest.fixture
def client(supervisor):
    return TestClient(make_app(ConsoleState(), supervisor))


def test_the_page_needs_nothing_from_outside(client):
    page = client.get("/")
    assert page.status_code == 200
    for name in ("console.css", "console.js", "strings.js"):
        assert f"static/{name}" in page.text
        body = client.get(f"/static/{name}").text
        assert body
        assert "http://" not in body.replace('"http://', "")
        assert "https://" not in body
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert client.get("/static/console.py").status_code == 422


def test_an_answer_from_the_page_reaches_the_supervisor(client, supervisor):
    reply = client.post("/answer", json=ANSWER, headers=HERE)
    assert reply.json() == {"accepted": True, "message": "taken"}
    assert supervisor.answers[0].answers[0].answer == "keep"


@pytest.mark.parametrize("headers", [{}, {"origin": "http://evil.example"}, {"origin": "null"}])
def test_an_answer_from_elsewhere_is_refused(client, supervisor, headers):
    assert client.post("/answer", json=ANSWER, headers=headers).status_code == 403
    assert supervisor.answers == []


@pytest.mark.parametrize(
    "change",
    [
        {"person": ""},
        {"request_id": ""},
        {"scene": "burn"},
        {"answers": [{"answer": "remove", "x1": 1, "y1": 2, "x2": 3}]},
        {"answers": [{"answer": "perhaps", "x1": 1, "y1": 2, "x2": 3, "y2": 4}]},
        {"answers": [{"answer": "keep", "x1": 1e9, "y1": 2, "x2": 3, "y2": 4}]},
        {"surprise": 1},
    ],
)
def test_half_an_answer_is_refused(client, supervisor, change):
    assert client.post("/answer", json={**ANSWER, **change}, headers=HERE).status_code == 422
    assert supervisor.answers == []


def test_with_a_token_nothing_is_shown_or_taken_without_it(supervisor):
    client = TestClient(make_app(ConsoleState(), supervisor, token="secret"))
    assert client.get("/").status_code == 401
    assert client.get("/picture.jpg?token=wrong").status_code == 401
    assert client.post("/answer", json=ANSWER, headers=HERE).status_code == 401
    assert client.get("/?token=secret").status_code == 200
    assert client.post("/answer?token=secret", json=ANSWER, headers=HERE).status_code == 200
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/live", headers=HERE) as socket:
        socket.receive_json()


def test_the_page_hears_of_changes_and_of_silence(supervisor):
    state, watching = ConsoleState(), []
    client = TestClient(make_app(state, supervisor, watching=watching.append))
    with client.websocket_connect("/live", headers=HERE) as socket:
        assert socket.receive_json()["connected"] is False
        state.put("gate", {"state": "blocked", "text": "<b>why</b>"})
        message = socket.receive_json()
        assert (message["connected"], message["gate"]["text"]) == (True, "<b>why</b>")
        assert watching == [1]


def test_only_a_real_change_wakes_the_page():
    state = ConsoleState()
    state.put("gate", {"state": "blocked"})
    version = state.version
    state.put("gate", {"state": "blocked"})
    assert state.version == version
    threading.Timer(0.05, state.put, ["request", None]).start()
    assert state.wait_for_change(version, timeout_s=30.0) == version + 1


@pytest.mark.parametrize(
    ("origin", "same"),
    [
        ("http://cell:8780", True),
        ("https://cell:8780", True),
        ("http://cell", False),
        (None, False),
        ("null", False),
    ],
)
def test_same_origin(origin, same):
    assert same_origin(origin, "cell:8780") is same


def test_a_question_is_shown_and_answered_through_real_nodes(bench: Bench):
    asked = []

    def resolve(request, response):
        asked.append(request)
        response.accepted, response.message = True, "thanks"
        return response

    bench.probe.create_service(ResolveIntervention, "intervention/resolve", resolve)
    console = bench.add(Console(parameter_overrides=overrides(port=0)))
    address = f"127.0.0.1:{console.port}"
    reports = bench.diagnostics()
    bench.until(lambda: reports.value("console: page", "port") == str(console.port), "the page's diagnostics")
    gates = bench.publisher_matched(GateState, "gate", LATCHED)
    gates.publish(GateState(state=GateState.STATE_INTERVENTION, text="a person decides"))
    requests = bench.publisher_matched(InterventionRequest, "intervention/request", LATCHED)
    verdict = Verdict(
        object_id=3, label=2, box=Box(x1=1.0, y1=2.0, x2=30.0, y2=40.0), reasons=[Reason(text="uncertain")]
    )
    requests.publish(InterventionRequest(request_id="r1", text="What is this?", objects=[verdict]))
    bench.until(lambda: "request" in console.state.snapshot(), "the question arrives")

    with websockets.sync.client.connect(f"ws://{address}/live", origin=f"http://{address}") as socket:
        shown = json.loads(socket.recv())
        assert shown["gate"] == {"state": "intervention", "text": "a person decides"}
        assert shown["request"]["objects"][0]["reasons"] == ["uncertain"]
        picture = bgr_to_image(np.full((40, 60, 3), 200, np.uint8), Time(sec=1), "camera")
        bench.publisher_matched(Image, "annotated", IMAGES).publish(picture)
        bench.until(console.state.picture, "the picture arrives")
    with urllib.request.urlopen(f"http://{address}/picture.jpg") as reply:
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
    assert replies == [{"accepted": True, "message": "thanks"}]
    assert asked[0].person == "Ada"
    assert asked[0].answers[0].answer == ObjectAnswer.ANSWER_KEEP


def test_an_answer_without_a_supervisor_is_refused_with_the_reason(bench: Bench):
    console = bench.add(Console(parameter_overrides=overrides(port=0)))
    reply = asyncio.run(console._answer(PersonsAnswer(**ANSWER)))
    assert reply == Accepted(accepted=False, message="the supervisor is not there")
