# SPDX-License-Identifier: Apache-2.0
"""Faults of camera, pictures and perception, one after the other in one cell of real processes."""

import array
import itertools
import time

import pytest
from rclpy.node import Node
from rclpy.qos import QoSProfile
from sensor_msgs.msg import CameraInfo, Image
from std_msgs.msg import Header

from sticker_uq.gate import BlockReason
from sticker_uq.geometry.simulated_cell import sim_camera
from sticker_uq.io.messages import stamp_to_ns
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.conversions import scene_to_msg
from sticker_uq.nodes.common.geometry_source import camera_to_msg
from sticker_uq.testing.camera import RATE_HZ, ScriptedCamera
from sticker_uq.testing.scenes import assessment
from sticker_uq.testing.scripted_detector import STICKER, Seen
from sticker_uq_msgs.msg import GateState, SceneAssessment, WorkpieceDone
from sticker_uq_msgs.srv import ResolveIntervention
from test.faults.conftest import CALM_HZ
from test.helpers.fault_cell import FaultCell


def test_camera_stall(cell):
    cell.camera.shows()
    cell.until_gate(reason=BlockReason.STALE_SCENE)


def test_camera_frozen(cell):
    """The same pixels under new stamps: the driver repeats its last picture."""
    frozen = cell.camera.picture(Seen.STICKER)
    cell.settle()
    said = len(cell.gates)

    def closed() -> bool:
        frozen.header.stamp = cell.camera.picture(Seen.STICKER).header.stamp
        cell.camera.publish(frozen)
        return any(g.reasons & BlockReason.FROZEN_IMAGE for g in cell.gates[said:])

    cell.until(closed, "a gate that closes for a frozen picture")


@pytest.mark.parametrize(("seconds", "reason"), [(None, BlockReason.STAMP_ORDER), (10.0, BlockReason.CLOCK)])
def test_stamp_that_cannot_be(cell, seconds, reason):
    """A camera whose driver sets no stamp, or whose clock is ahead."""
    cell.settle()
    stamp = 0 if seconds is None else cell.now_ns() + round(seconds * 1e9)
    cell.camera.publish(cell.camera.picture(Seen.STICKER, stamp_ns=stamp))
    cell.until_gate(reason=reason)


def test_camera_clock_behind(cell):
    """It counts from the camera's start: both images and scenes say so."""
    cell.settle()
    cell.until_gate(reason=BlockReason.STALE_SCENE)  # nothing but these pictures could open it now
    said, start = len(cell.gates), cell.now_ns()

    def told() -> bool:
        cell.camera.publish(cell.camera.picture(Seen.STICKER, stamp_ns=cell.now_ns() - start + 10**9))
        stale = [gate for gate in cell.gates[said:] if gate.reasons & BlockReason.STALE_SCENE]
        return any("stamp_since_start" in [one.code for one in gate.details] for gate in stale)

    cell.until(told, "a gate that is closed for a stamp that counts from the start")
    assert not any(gate.open for gate in cell.gates[said:])


def test_camera_slower_than_the_age_limit(cell):
    cell.camera.rate(0.5)
    cell.camera.shows(Seen.STICKER)
    said = len(cell.gates)

    def told() -> bool:  # which of them depends on what came before
        stale = [gate for gate in cell.gates[said:] if gate.reasons & BlockReason.STALE_SCENE]
        codes = {one.code for gate in stale for one in gate.details}
        return bool(codes & {"images_apart", "scenes_too_slow"})

    cell.until(told, "a gate that is closed for scenes that are too far apart")
    said, scenes = len(cell.gates), len(cell.scenes)
    cell.until(lambda: len(cell.scenes) > scenes + 1, "two more scenes")
    assert all(gate.reasons & BlockReason.STALE_SCENE for gate in cell.gates[said:])
    cell.camera.rate(CALM_HZ)
    cell.settle()


def test_duplicate_stamp(cell):
    """Other pixels under the same stamp, again and again: of two that come at once the supervisor sees the newer one only."""
    cell.settle()
    said, stamp = len(cell.gates), cell.now_ns()

    def closed() -> bool:
        cell.camera.publish(cell.camera.picture(Seen.STICKER, stamp_ns=stamp))
        return any(gate.reasons & BlockReason.STAMP_ORDER for gate in cell.gates[said:])

    cell.until(closed, "a gate that closes for a stamp that stands still")


def test_reordered_stamps(cell):
    cell.settle()
    newest = stamp_to_ns(cell.scenes[-1].header.stamp)  # a busy machine takes longer than a second since then
    cell.camera.publish(cell.camera.picture(Seen.STICKER, stamp_ns=newest - 10**9))
    cell.until_gate(reason=BlockReason.STAMP_ORDER)


def test_ten_times_the_image_rate(cell):
    """More pictures than can be looked at: old ones are dropped, the gate keeps its pace and stays open."""
    parts = cell.bench.diagnostics()
    cell.camera.rate(10 * RATE_HZ)
    start, stamps, said = len(cell.scenes), len(cell.steps), len(cell.gates)
    cell.until(lambda: len(cell.scenes) >= start + 100, "100 scenes")
    cell.until(lambda: len(cell.steps) > stamps and len(cell.gates) >= said + 5, "steps and gate messages")
    cell.until(lambda: parts.value("detector: images", "received"), "diagnostics of the detector")
    cell.camera.rate(CALM_HZ)
    cell.works()


def test_giant_image_that_claims_more_than_it_holds(cell):
    cell.settle()
    giant = Image(width=2**31, height=2**31, encoding="bgr8", step=2**32 - 1)
    giant.header = cell.camera.picture(Seen.STICKER).header
    giant.data = array.array("B", bytes(100))
    cell.camera.publish(giant)
    cell.until_gate(reason=BlockReason.FAILED_SCENE)


def test_giant_image_that_holds_what_it_claims(cell):
    cell.settle()
    cell.camera.publish(cell.camera.picture(Seen.STICKER, width=6000, height=4000))
    cell.until_gate(reason=BlockReason.SOURCE_CHANGED)


def test_wrong_encoding(cell):
    cell.settle()
    image = cell.camera.picture(Seen.STICKER)
    image.encoding = "bayer_nonsense"
    cell.camera.publish(image)
    cell.until_gate(reason=BlockReason.FAILED_SCENE)


def test_nan_and_infinity_in_a_scene(cell):
    cell.camera.shows(Seen.INFINITY)
    cell.until_gate(reason=BlockReason.IMPLAUSIBLE_SCENE, code="values_not_finite")


def test_perception_raises(cell):
    cell.camera.shows(Seen.CRASH)
    cell.until_gate(reason=BlockReason.FAILED_SCENE, code="perception_failed")


def test_gpu_fails(cell):
    """Every further call to the GPU would fail in that process: it says so, ends, and the next one uses the GPU again."""
    failed = cell.group.pid("detector")
    cell.camera.shows(Seen.DEVICE_FAILURE)
    cell.until_gate(reason=BlockReason.FAILED_SCENE, code="perception_failed")
    cell.camera.shows()
    cell.until(lambda: cell.group.pid("detector") != failed, "the next detector")
    assert any("giving up: the GPU said so" in line for line in cell.lines)
    cell.quiet()
    cell.hold(False)


def test_unknown_enumeration(cell):
    """A detector of a version that this supervisor does not know."""
    with cell.in_place_of_detector() as publisher:

        def send() -> None:
            message = scene_to_msg(assessment(STICKER, stamp_ns=cell.now_ns()))
            message.status = 200
            publisher.publish(message)

        cell.until_gate(reason=BlockReason.FAILED_SCENE, code="perception_failed", repeating=send)


def test_unknown_label_is_never_removed(cell):
    """Its probabilities say sticker, so a person is asked."""
    with cell.in_place_of_detector() as publisher:
        since = cell.now_ns()  # messages of before may still arrive

        def asked() -> bool:
            message = scene_to_msg(assessment(STICKER, stamp_ns=cell.now_ns()))
            message.objects[0].label = 77
            publisher.publish(message)
            return any(gate.state == GateState.STATE_INTERVENTION for gate in said())

        def said() -> list[GateState]:
            return [gate for gate in cell.gates if stamp_to_ns(gate.header.stamp) > since]

        cell.until(asked, "a question")
        assert not any(gate.open for gate in said())
        assert cell.answer(ResolveIntervention.Request.SCENE_RESCAN).accepted


def test_arrays_that_do_not_fit_together(cell):
    with cell.in_place_of_detector() as publisher:

        def send() -> None:
            message = scene_to_msg(assessment(STICKER, stamp_ns=cell.now_ns()))
            message.objects[0].probabilities = [1.0]
            publisher.publish(message)

        cell.until_gate(reason=BlockReason.FAILED_SCENE, code="scene_unreadable", repeating=send)


def test_detector_hang_and_black_picture(cell):
    """Nothing but a new process helps: the runner starts one when this one is killed.

    A dark picture closes although the detector will never look at it: it hangs over the picture before.
    """
    with cell.hanging_detector():
        if not cell.gates[-1].reasons & BlockReason.STALE_SCENE:
            cell.until_gate(reason=BlockReason.STALE_SCENE)
        cell.camera.shows(Seen.STICKER)
        said, scenes = len(cell.gates), len(cell.scenes)
        cell.until(lambda: len(cell.gates) >= said + 5, "more messages of the gate")
        assert not any(g.open for g in cell.gates[said:])
        # a newer picture would take its place before it was measured
        cell.camera.shows()
        cell.camera.publish(cell.camera.picture(Seen.STICKER, level=0))
        cell.until_gate(reason=BlockReason.EXPOSURE)
        assert len(cell.scenes) == scenes


def test_two_cameras_on_one_topic(cell):
    """One shows the laptop now and then, the other one a clean lid: no laptop is done, and nothing is permitted."""
    done: list[WorkpieceDone] = []
    listening = cell.bench.probe.create_subscription(WorkpieceDone, "/workpiece/done", done.append, 10)
    parts = cell.bench.diagnostics()
    other = second_camera(cell)
    try:
        cell.camera.rate(1.0)
        other.shows(Seen.NOTHING)
        cell.until_gate(reason=BlockReason.SECOND_IMAGE_PUBLISHER, code="image_publishers")
        # discovery may name a node some moments after it has found its publisher
        cell.until(lambda: "/probe, /usb_cam" in cell.gates[-1].text, "both names")
        said = len(cell.gates)
        cell.stays_closed()
        assert all(g.reasons & BlockReason.SECOND_IMAGE_PUBLISHER for g in cell.gates[said:]), "it wavers"
        cell.until(
            lambda: "detector: images" in parts and "2 publishers" in parts["detector: images"].message,
            "diagnostics",
        )
        assert done == []
    finally:
        other.close()
        cell.camera.rate(CALM_HZ)
        cell.bench.probe.destroy_subscription(listening)


def test_a_second_camera_that_sends_nothing(cell):
    """To be discovered is enough: no image of either has to come."""
    cell.settle()
    other = second_camera(cell)
    try:
        cell.until_gate(reason=BlockReason.SECOND_IMAGE_PUBLISHER, code="image_publishers")
    finally:
        other.close()


def test_a_camera_driver_that_is_restarted(cell):
    """The next one may look at another place: the permit ends, and the laptop is looked at anew."""
    said = len(cell.gates)
    cell.camera.restart()
    cell.until_gate(reason=BlockReason.SECOND_IMAGE_PUBLISHER, code="image_publishers")
    cell.works()
    before, *after = (gate.decision_id for gate in cell.gates[said - 1 :] if gate.open)
    assert before != after[-1], "the permit outlived its camera"


def test_cameras_that_live_for_a_moment(cell):
    """Each sends one image of a clean lid and is gone before anybody has looked: none of them counts."""
    done: list[WorkpieceDone] = []
    listening = cell.bench.probe.create_subscription(WorkpieceDone, "/workpiece/done", done.append, 10)
    node = cell.bench.add(Node("flash", enable_rosout=False))
    scenes, said = len(cell.scenes), len(cell.gates)

    def clean() -> list[SceneAssessment]:
        return [scene for scene in itertools.islice(cell.scenes, scenes, None) if not scene.objects]

    def seen() -> bool:
        flash(node, Image, "/image", cell.camera.picture(Seen.NOTHING), qos.IMAGES)
        return len(clean()) >= 10

    try:
        cell.camera.rate(1.0)
        cell.until(seen, "scenes of the clean lid")
        assert all(len(scene.image_publishers) > 1 for scene in clean())
        closed = itertools.dropwhile(lambda gate: gate.open, cell.gates[said:])
        assert not any(gate.open for gate in closed)
        assert done == []
    finally:
        cell.camera.rate(CALM_HZ)
        cell.bench.probe.destroy_subscription(listening)


def test_detectors_that_live_for_a_moment(cell):
    """The same with scenes."""
    node = cell.bench.add(Node("flash", enable_rosout=False))
    cell.works()
    said = len(cell.gates)

    def closed() -> list[GateState]:
        scene = scene_to_msg(assessment(stamp_ns=cell.now_ns()))
        flash(node, SceneAssessment, "/scene", scene, qos.RELIABLE)
        second = BlockReason.SECOND_SCENE_PUBLISHER
        return [gate for gate in cell.gates[said:] if gate.reasons & second]

    first = cell.until(closed, "a closed gate")[0]
    assert "/detector" in first.text
    cell.until(lambda: len(closed()) >= 10, "a gate that says so")
    after = itertools.dropwhile(lambda gate: gate.sequence < first.sequence, cell.gates[said:])
    assert not any(gate.open for gate in after)


def test_two_publishers_of_the_calibration(cell):
    """The other one may be of another camera, by which the arm would reach beside the sticker."""
    info, probe = camera_to_msg(sim_camera(640, 480), Header(frame_id="camera")), cell.bench.probe
    true = probe.create_publisher(CameraInfo, "/camera_info", 10)
    node = cell.bench.add(Node("left_camera", enable_rosout=False))
    cell.until(true.get_subscription_count, "a supervisor that hears it")
    true.publish(info)
    cell.works()
    other = node.create_publisher(CameraInfo, "/camera_info", 10)
    try:
        cell.until_gate(reason=BlockReason.SECOND_SCENE_PUBLISHER, code="scene_publishers")
        cell.until(lambda: "/left_camera, /probe" in cell.gates[-1].text, "both names")
        cell.stays_closed()
    finally:
        node.destroy_publisher(other)
        cell.works()
        probe.destroy_publisher(true)


def test_two_detectors(cell):
    """Both see the same camera: their scenes follow each other in no order."""
    with cell.another(cell.node("detector", "detector_2")):
        cell.until_gate(reason=BlockReason.SECOND_SCENE_PUBLISHER, code="scene_publishers")
        cell.until(lambda: "/detector, /detector_2" in cell.gates[-1].text, "both names")
        said = len(cell.gates)
        cell.stays_closed()
        assert {gate.state for gate in cell.gates[said:]} == {GateState.STATE_BLOCKED}, "it wavers"


def flash(node: Node, kind: type, topic: str, message: object, profile: QoSProfile) -> None:
    """A publisher that sends one message as soon as somebody hears it, and goes."""
    publisher = node.create_publisher(kind, topic, profile)
    end = time.monotonic() + 1.0
    while not publisher.get_subscription_count() and time.monotonic() < end:
        time.sleep(0.0005)
    publisher.publish(message)
    node.destroy_publisher(publisher)


def second_camera(cell: FaultCell) -> ScriptedCamera:
    """A camera of another node on the topic of the cell's own."""
    return ScriptedCamera(cell.bench, "/image", cell.now_ns, "usb_cam")


def test_the_gate_that_closes_is_the_next_one_that_is_said(cell):
    """Order, not time: after the scene that is wrong no message of the gate is open."""
    cell.settle()
    cell.camera.publish(cell.camera.picture(Seen.NAN))
    closed = cell.until_gate(reason=BlockReason.IMPLAUSIBLE_SCENE)
    after = [g for g in cell.gates if g.sequence >= closed.sequence and g.supervisor == closed.supervisor]
    assert not any(g.open for g in after)
    assert after[0].state == GateState.STATE_BLOCKED
