# SPDX-License-Identifier: Apache-2.0
"""A person before the page of a real cell: detector, supervisor, console and simulated arm as processes of their own."""

import json
import re
import threading
from pathlib import Path

import cv2
import numpy as np
import pytest
import rclpy
import yaml
from playwright.sync_api import TimeoutError, expect
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from typer.testing import CliRunner

from sticker_uq.cell.processes import CellOptions, cell_processes
from sticker_uq.cell.runner import ProcessGroup
from sticker_uq.cli import app
from sticker_uq.gate.box_overlap import as_box, same_place
from sticker_uq.io.coco import read_coco
from sticker_uq.io.messages import box_from_msg
from sticker_uq.nodes.common.qos import LATCHED
from sticker_uq.scene import ObjectClass
from sticker_uq_msgs.msg import GateState, InterventionAnswer, InterventionRequest, ObjectAnswer
from test.helpers.browser import until
from test.helpers.models import small_weights

pytestmark = pytest.mark.timeout(900)  # four processes start

CELL = "cell_2"
NODES = ("detector", "supervisor", "cell_sim", "console", "recorder")
PAGE_OF_TOPICS = Path(__file__).parents[3] / "docs" / "reference" / "ros.md"

#: A laptop with two stickers, both of which the detector finds; see the assertion in the test.
SEED = 20
START_MS = 240_000.0
WORK_MS = 180_000.0
#: A state may be gone before a busy browser is asked for it.
RECORD_STATES = """
() => {
  const state = document.getElementById("state");
  window.states = [state.className];
  new MutationObserver(() => window.states.push(state.className)).observe(state, { attributeFilter: ["class"] });
}
"""


@pytest.fixture
def listening(ros_domain):
    """A node, and everything the gate permitted, asked and was told, gathered in a thread while the test drives the browser."""
    rclpy.init(args=[])
    node = Node("listener", namespace=CELL, enable_rosout=False)
    executor = SingleThreadedExecutor()
    messages = {GateState: [], InterventionRequest: [], InterventionAnswer: []}
    for topic, kind, profile in (
        ("gate", GateState, LATCHED),
        ("intervention/request", InterventionRequest, LATCHED),
        ("intervention/answer", InterventionAnswer, 10),
    ):
        node.create_subscription(kind, topic, messages[kind].append, profile)
    executor.add_node(node)
    thread = threading.Thread(target=executor.spin, daemon=True)
    thread.start()
    yield node, messages
    executor.shutdown()
    thread.join(10.0)
    node.destroy_node()
    rclpy.try_shutdown()


def undocumented(node):
    """The topics of the cell that the reference does not have."""
    topics = {name.removeprefix(f"/{CELL}/") for name, _ in node.get_topic_names_and_types()}
    own = {name for name in topics if not re.match(rf"/|({'|'.join(NODES)})/|.*/_action/", name)}
    return own - set(re.findall(r"^\| `([^`]+)` \|", PAGE_OF_TOPICS.read_text(encoding="utf-8"), re.M))


def test_what_a_person_rejects_is_not_touched_and_what_they_approve_is_removed(listening, tablet, tmp_path):
    listener, heard = listening
    policy, parameters, truth = tmp_path / "policy.yaml", tmp_path / "cell.yaml", tmp_path / "truth.json"
    policy.write_text("{min_probability: 1.0, max_dil: 1.0, max_dil_clean: 1.0}\n")  # nothing is sure enough
    nodes = {
        "detector": {"passes": 3, "threads": 1, "weights": str(small_weights(tmp_path, 480))},
        "cell_sim": {
            "width_px": 640,
            "height_px": 480,
            "rate": 1.0,
            "failure_rate": 0.0,
            "record_file": str(truth),
        },
        # a busy machine takes seconds for an image, which is not the subject here
        "supervisor": {"max_scene_age_s": 30.0, "lease_s": 5.0, "accept_timeout_s": 10.0},
    }
    parameters.write_text(
        yaml.safe_dump({f"/**/{name}": {"ros__parameters": p} for name, p in nodes.items()})
    )
    options = CellOptions(
        sim=True, sim_seed=SEED, sim_laptops=1, console=True, console_port=0, policy=str(policy), params_file=str(parameters),
        record=str(tmp_path / "bag"), audit=str(tmp_path / "audit"), namespace=CELL,
    )  # fmt: skip
    lines: list[str] = []
    page_is_up = threading.Event()
    address: list[str] = []

    def follow(line: str) -> None:
        lines.append(line)
        if "the page is at " in line:
            address.append(line.split("the page is at ")[1].strip())
            page_is_up.set()

    with ProcessGroup(cell_processes(options), follow) as group:
        assert page_is_up.wait(START_MS / 1000), "\n".join(lines)
        page = tablet.new_page()
        page.goto(address[0])
        expect(page.locator("#state")).to_have_class("state intervention", timeout=START_MS)
        expect(page.locator("#objects li")).not_to_have_count(0)
        until(
            page, lambda: any(r.objects for r in heard[InterventionRequest]), "the question, heard here too"
        )
        asked = len(heard[InterventionRequest][-1].objects)
        assert asked == 2, "this laptop was chosen because the detector sees two stickers on it"
        expect(page.locator("#picture")).to_have_js_property("naturalWidth", 640)
        rejected, approved = (as_box(box_from_msg(v.box)) for v in heard[InterventionRequest][-1].objects)
        expect(page.locator("#draw")).to_have_attribute("aria-disabled", "false")  # its picture is there
        page.keyboard.press("l")
        page.keyboard.press("2")
        page.keyboard.press("p")
        page.fill("#who", "Ada")
        page.click("#layer-heat")  # before the laptop may be done
        page.evaluate(RECORD_STATES)
        assert undocumented(listener) == set()
        page.click("#send")
        try:
            page.wait_for_function("() => window.states.includes('state removing')", timeout=WORK_MS)
        except TimeoutError as error:
            shown = [*page.evaluate("() => window.states"), page.inner_text("body"), *lines]
            raise AssertionError("\n".join(shown)) from error
        expect(page.locator("#which")).to_have_text(re.compile("^Live"))
        expect(page.locator("#heat")).to_be_visible()
        expect(page.locator("#heat")).to_have_js_property("naturalWidth", 640, timeout=WORK_MS)
        assert group.wait_for_exit(WORK_MS / 1000) == ("cell_sim", 0), "\n".join(lines)
        expect(page.locator("#history")).to_contain_text("Ada: Leave it, Peel it")
        assert group.stop() == dict.fromkeys(NODES, 0), "\n".join(lines)
    assert not any("Traceback" in line or "exception" in line.lower() for line in lines), "\n".join(lines)

    (laptop,) = json.loads(truth.read_text())
    assert (laptop["stickers"], laptop["removed"], laptop["wrong"]) == (2, 1, 0), "\n".join(lines)
    permitted = [as_box(box_from_msg(gate.box)) for gate in heard[GateState] if gate.open]
    assert permitted
    assert all(same_place(box, approved) and not same_place(box, rejected) for box in permitted)
    (answer,) = heard[InterventionAnswer]
    assert answer.person == "Ada"
    assert [said.answer for said in answer.answers] == [ObjectAnswer.ANSWER_KEEP, ObjectAnswer.ANSWER_REMOVE]
    assert np.allclose(as_box(box_from_msg(answer.answers[1].box)), approved, atol=1e-3)

    folders = {"--audit": "audit", "--recording": "bag", "--out": "answered"}
    options = [part for option, name in folders.items() for part in (option, str(tmp_path / name))]
    learned = CliRunner().invoke(app, ["dataset", "from-audit", *options])
    assert learned.exit_code == 0, learned.output
    (picture,) = read_coco(tmp_path / "answered")
    labels = {
        as_box(box): ObjectClass(label) for box, label in zip(picture.boxes, picture.labels, strict=True)
    }
    assert [label for box, label in labels.items() if same_place(box, rejected)] == [ObjectClass.LOGO]
    assert [label for box, label in labels.items() if same_place(box, approved)] == [ObjectClass.STICKER]
    assert sorted(labels.values()) == [ObjectClass.LOGO, ObjectClass.LOGO, ObjectClass.STICKER]
    assert cv2.imread(str(picture.path)).shape == (480, 640, 3)
