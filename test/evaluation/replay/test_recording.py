# SPDX-License-Identifier: Apache-2.0
"""A recording laptop by laptop: every image belongs to the laptop that it shows, or to none, and none is lost."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from rclpy.serialization import serialize_message

from sticker_uq.evaluation.replay.recording import read_recording
from sticker_uq.gate import Policy, judge
from sticker_uq.io.bag_writer import BagWriter
from sticker_uq.io.bags import Bag
from sticker_uq.io.labelled_images import read_workpieces
from sticker_uq.nodes.common.conversions import decision_to_msg, header_of, scene_to_msg
from sticker_uq.scene import Outcome
from sticker_uq.testing.scenes import MS, START, assessment, object_at
from sticker_uq_msgs.msg import (
    GateState,
    InterventionAnswer,
    InterventionRequest,
    SceneAssessment,
    SceneDecision,
    Workpiece,
    WorkpieceDone,
)

TOPICS = {
    "scene": SceneAssessment,
    "decision": SceneDecision,
    "gate": GateState,
    "workpiece": Workpiece,
    "workpiece/done": WorkpieceDone,
    "intervention/request": InterventionRequest,
    "intervention/answer": InterventionAnswer,
}
FRAME_MS = 100

stays = st.fixed_dictionaries(
    {
        "dirty": st.integers(0, 3),
        "clean": st.integers(1, 3),
        "after": st.integers(0, 3),
        "leaves": st.booleans(),
    }
)


def record(path: Path, laptops: list[dict], before: int) -> int:
    """Write a recording in which each laptop shows a sticker in some images, none in others, and may then leave; the next one is
    seen before it is announced. Returns the number of images.
    """
    images = 0
    with BagWriter(path) as bag:
        for topic, kind in TOPICS.items():
            bag.add_topic(f"/{topic}", f"sticker_uq_msgs/msg/{kind.__name__}")

        def write(topic, message, **header):
            stamp_ns = START + images * FRAME_MS * MS
            if header:
                message.header = header_of(stamp_ns + header["after_ms"] * MS, "camera")
            bag.write(f"/{topic}", stamp_ns, serialize_message(message))

        def image(sticker, workpiece_id=""):
            nonlocal images
            images += 1
            scene = assessment(*[object_at()] * sticker, stamp_ns=START + images * FRAME_MS * MS)
            decision = replace(judge(scene, Policy()), workpiece_id=workpiece_id)
            write("scene", scene_to_msg(scene))
            write("decision", decision_to_msg(decision))

        for _ in range(before):
            image(True)
        for number, stay in enumerate(laptops, 1):
            name = f"laptop-{number}"
            write("workpiece", Workpiece(id=name), after_ms=10)
            for _ in range(stay["dirty"]):
                image(True, name)
            for _ in range(stay["clean"]):
                image(False, name)
            write("gate", GateState(state=GateState.STATE_MONITORING, object_id=number), after_ms=0)
            if stay["leaves"]:
                done = WorkpieceDone(workpiece_id=name, result=WorkpieceDone.RESULT_CLEAN)
                write("workpiece/done", done, after_ms=0)
                for _ in range(stay["after"]):
                    image(True, name)
    return images


@given(st.lists(stays, min_size=1, max_size=4), st.integers(0, 2))
@hypothesis_settings(max_examples=8)
def test_no_clean_laptop_ends_with_work_and_no_image_is_lost_or_counted_twice(laptops, before):
    with TemporaryDirectory() as folder:
        images = record(Path(folder) / "bag", laptops, before)
        cell = read_recording(Bag(Path(folder) / "bag"))
    everyone = (*cell.laptops, cell.between)
    assert sum(len(one.scenes) for one in everyone) == images
    assert sum(len(one.decisions) for one in everyone) == images
    assert len({scene.stamp_ns for one in everyone for scene in one.scenes}) == images
    for laptop, stay in zip(cell.laptops, laptops, strict=True):
        assert laptop.clean == stay["leaves"]
        assert len(laptop.scenes) == stay["dirty"] + stay["clean"]
        assert [change.object_id for change in laptop.gate] == [int(laptop.workpiece_id[-1])]
        if laptop.clean:
            assert laptop.decision_of(laptop.scenes[-1]).outcome is Outcome.CLEAN


def test_a_laptop_that_comes_again_is_another_stay(tmp_path):
    with BagWriter(tmp_path / "bag") as bag:
        for topic, kind in TOPICS.items():
            bag.add_topic(f"/{topic}", f"sticker_uq_msgs/msg/{kind.__name__}")
        for number, topic in enumerate(("workpiece", "workpiece/done", "workpiece")):
            said = {"id": "a"} if topic == "workpiece" else {"workpiece_id": "a", "result": 1}
            message = TOPICS[topic](header=header_of(START + number * 1000 * MS, "camera"), **said)
            bag.write(f"/{topic}", START, serialize_message(message))
    first, second = read_recording(Bag(tmp_path / "bag")).laptops
    assert (first.clean, second.clean, second.left_ns) == (True, False, 0)


def test_departures_end_the_turn_of_a_laptop(tmp_path):
    laptops = [{"dirty": 1, "clean": 1, "after": 1, "leaves": leaves} for leaves in (True, False)]
    record(tmp_path / "bag", laptops, 0)
    ms = [((stamp - START) / MS, name) for stamp, name in read_workpieces(tmp_path / "bag", departures=True)]
    assert ms == [(10, "1 (laptop-1)"), (200 + 1 / MS, ""), (310, "2 (laptop-2)")]
    named = tuple((stamp, name) for stamp, name in read_workpieces(tmp_path / "bag", True) if name)
    assert read_workpieces(tmp_path / "bag") == named
