# SPDX-License-Identifier: Apache-2.0
"""Node ``cell_sim``: simulated camera, arm and laptops, so that the whole cell runs without hardware.

Publishes images of a rendered laptop, peels what the supervisor permits, removes it from the image, and presents the
next laptop when this one is done. For unattended demos and tests a simulated operator answers from ground truth.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.node import Node
from rclpy.task import Future
from rclpy.timer import Timer
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from std_msgs.msg import Header

from sticker_uq.geometry.simulated_cell import ARM_FRAME, project_to_image, sim_camera
from sticker_uq.io.messages import box_from_msg
from sticker_uq.nodes.arm.client import ArmClient, MotionFailed, MotionStep
from sticker_uq.nodes.arm.executor import ArmExecutor
from sticker_uq.nodes.common.conversions import box_to_msg
from sticker_uq.nodes.common.diagnostics import Diagnostics, Level, PartReport, cell_timer
from sticker_uq.nodes.common.geometry_source import camera_to_msg
from sticker_uq.nodes.common.images import bgr_to_compressed, bgr_to_image, map_to_image
from sticker_uq.nodes.common.lifecycle import request_exit, run_process
from sticker_uq.nodes.common.parameters import declare_settings
from sticker_uq.nodes.common.qos import IMAGES, LATCHED, RELIABLE
from sticker_uq.scene import FloatArray
from sticker_uq_lab.simulation.simulated_cell import SimulatedCell, SimulationSettings, Touch
from sticker_uq_msgs.action import RemoveSticker
from sticker_uq_msgs.msg import InterventionRequest, ObjectAnswer, SceneDecision, Workpiece, WorkpieceDone
from sticker_uq_msgs.srv import ResolveIntervention

REMEMBERED_DECISIONS = 200
NAME = "simulated person (ground truth)"
_ANSWERS = {Touch.STICKER: ObjectAnswer.ANSWER_REMOVE, Touch.LID: ObjectAnswer.ANSWER_NOT_THERE}
KEEP = ObjectAnswer.ANSWER_KEEP
"""Of anything else, which is there."""


class SimulatedOperator:
    """Gets ``intervention/request`` and ``decision``, answers with ``intervention/resolve``."""

    def __init__(self, node: Node, cell: SimulatedCell, lock: threading.Lock) -> None:
        self._node = node
        self._cell = cell
        self._lock = lock
        self._group = group = MutuallyExclusiveCallbackGroup()
        self._detected: OrderedDict[str, list[FloatArray]] = OrderedDict()
        self._request_id = ""
        self._thinking: Timer | None = None
        node.create_subscription(SceneDecision, "decision", self._on_decision, RELIABLE, callback_group=group)
        node.create_subscription(
            InterventionRequest, "intervention/request", self._on_request, LATCHED, callback_group=group
        )
        self._client = node.create_client(ResolveIntervention, "intervention/resolve", callback_group=group)

    def _on_decision(self, message: SceneDecision) -> None:
        self._detected[message.decision_id] = [box_from_msg(verdict.box) for verdict in message.verdicts]
        while len(self._detected) > REMEMBERED_DECISIONS:
            self._detected.popitem(last=False)

    def _on_request(self, message: InterventionRequest) -> None:
        self._stop_thinking()
        self._request_id = message.request_id
        if message.request_id:
            delay = max(self._cell.settings.person_delay_s, 1e-3)
            answer = partial(self._answer, message)
            self._thinking = cell_timer(self._node, delay, answer, callback_group=self._group)

    def _stop_thinking(self) -> None:
        if self._thinking is not None:
            self._node.destroy_timer(self._thinking)
            self._thinking = None

    def _answer(self, message: InterventionRequest) -> None:
        self._stop_thinking()
        if not self._client.service_is_ready():
            self._node.get_logger().warning("intervention/resolve is not available: the request stays open")
            return
        asked = [box_from_msg(verdict.box) for verdict in message.objects]
        known = asked + self._detected.get(message.decision_id, [])
        newest = next(reversed(self._detected.values()), [])
        with self._lock:
            if message.workpiece_id not in ("", self._cell.record.workpiece_id):
                return
            answers = [self._cell.touch(box)[0] for box in asked]
            missed = self._cell.missed_stickers(known)
            left = self._cell.record.left
            self._cell.record.answers += 1
        request = ResolveIntervention.Request(
            request_id=message.request_id, person=NAME, image_stamp=message.header.stamp
        )
        said = [(box, _ANSWERS.get(kind, KEEP)) for box, kind in zip(asked, answers, strict=True)]
        said += [(box, ObjectAnswer.ANSWER_MISSED) for box in missed]
        request.answers = [ObjectAnswer(answer=answer, box=box_to_msg(box)) for box, answer in said]
        if left == 0:
            request.scene_answer = ResolveIntervention.Request.SCENE_CLEAN
            request.not_stickers = [box_to_msg(box) for box in known + newest]
        elif not request.answers:
            request.scene_answer = ResolveIntervention.Request.SCENE_RESCAN
        told = ", ".join(kind.value for kind in answers) or "nothing was asked about an object"
        self._node.get_logger().info(
            f"answering {message.request_id} from the simulation's ground truth: {told}; {len(missed)} missed, {left} left"
        )
        self._client.call_async(request).add_done_callback(lambda future: self._on_answered(future, message))

    def _on_answered(self, future: Future, message: InterventionRequest) -> None:
        response = future.result()
        if response is None or response.accepted:
            return
        self._node.get_logger().warning(f"the answer was not accepted: {response.message}")
        if self._request_id == message.request_id:
            self._on_request(message)  # the scene has changed meanwhile


# share of a motion's duration that each phase takes, and the progress after it
_PHASES = (
    (RemoveSticker.Feedback.PHASE_APPROACH, 0.35, 0.35),
    (RemoveSticker.Feedback.PHASE_CONTACT, 0.1, 0.45),
    (RemoveSticker.Feedback.PHASE_PEEL, 0.35, 0.8),
    (RemoveSticker.Feedback.PHASE_RETREAT, 0.2, 1.0),
)


@dataclass
class SimulatedMotion:
    """Peels at the end of the peeling phase. Implements ``Motion``."""

    node: Node
    cell: SimulatedCell
    lock: threading.Lock
    unwritten: bool = False

    def steps(self, goal: RemoveSticker.Goal) -> Iterator[MotionStep]:
        """Four phases; the sticker is removed from the image between peeling and retreat."""
        self.check_pose(goal)
        with self.lock:
            fails = self.cell.motion_fails()
        for phase, share, progress in _PHASES:
            if phase == RemoveSticker.Feedback.PHASE_RETREAT:
                if fails:
                    with self.lock:
                        self.cell.record.motions_failed += 1
                    raise MotionFailed("the blade slipped off the sticker (simulated)")
                self._peel(goal)
            yield MotionStep(phase, share * self.cell.settings.motion_s, progress)

    def stop(self) -> None:
        """Does nothing: the blade leaves the lid at once."""

    def check_pose(self, goal: RemoveSticker.Goal) -> None:
        """Raise :class:`MotionFailed` when the pose of ``goal`` does not project into its box."""
        if not goal.pose_valid:
            return
        settings, where = self.cell.settings, goal.pose.pose.position
        if goal.frame_id != ARM_FRAME:
            raise MotionFailed(f"the pose is in frame {goal.frame_id!r}, expected {ARM_FRAME!r}")
        camera = sim_camera(settings.width_px, settings.height_px)
        x, y = project_to_image(np.array([where.x, where.y, where.z]), camera)
        box = goal.box
        if not (box.x1 <= x <= box.x2 and box.y1 <= y <= box.y2):
            raise MotionFailed(
                f"the pose projects to {x:.0f}, {y:.0f} px, outside the box of the goal (simulated)"
            )

    def write_record(self) -> None:
        """Write the records, under the lock. An error does not stop the cell; of several in a row the first is logged."""
        told, self.unwritten = self.unwritten, False
        try:
            self.cell.write_record()
        except OSError as error:
            self.unwritten = True
            if not told:
                self.node.get_logger().error(f"the record of the laptops cannot be written: {error}")

    def _peel(self, goal: RemoveSticker.Goal) -> None:
        with self.lock:
            touched = self.cell.peel(box_from_msg(goal.region))
            self.write_record()
        if touched is not Touch.STICKER:
            self.node.get_logger().error(
                f"object {goal.object_id}: the blade touched the {touched.value}, not a sticker"
            )


class CellSim(Node):
    def __init__(self, **arguments: Any) -> None:
        super().__init__("cell_sim", **arguments)
        self._settings = declare_settings(self, SimulationSettings).read()
        self._lock = threading.Lock()
        self._cell = SimulatedCell(self._settings)
        self._cell.write_record()  # reports an unwritable path before the first laptop
        self._images = self.create_publisher(Image, "image", IMAGES)
        self._compressed = self.create_publisher(CompressedImage, "image/compressed", IMAGES)
        self._info = self.create_publisher(CameraInfo, "camera_info", IMAGES)
        self._relief = self.create_publisher(Image, "relief", IMAGES) if self._settings.relief else None
        self._lens = sim_camera(self._settings.width_px, self._settings.height_px)
        self._workpiece = self.create_publisher(Workpiece, "workpiece", LATCHED)
        self.create_subscription(WorkpieceDone, "workpiece/done", self._on_done, LATCHED)
        self._motion = SimulatedMotion(self, self._cell, self._lock)
        self._arm = ArmClient(self, self._motion)
        by_truth = self._settings.person == "ground_truth"
        self._person = SimulatedOperator(self, self._cell, self._lock) if by_truth else None
        # rendering is slow and must not block the gate, the arm or the operator
        camera_group = MutuallyExclusiveCallbackGroup()
        cell_timer(self, 1.0 / self._settings.rate, self._publish_picture, callback_group=camera_group)
        self._publish_workpiece()
        self._diagnostics = Diagnostics(self)
        self._diagnostics.add("cell", self._report)

    def _report(self) -> PartReport:
        with self._lock:
            record, laptops = self._cell.record, len(self._cell.records)
            values = {"laptop": record.workpiece_id, "laptops": laptops}
            values |= {"removed": record.removed, "left": record.left}
            wrong = record.wrong
        values["wrongly_touched"] = wrong
        if wrong:
            return PartReport(Level.ERROR, f"the arm was at {wrong} wrong places on this laptop", values)
        return PartReport(Level.OK, "a laptop lies in the cell", values)

    def _publish_picture(self) -> None:
        raw, compressed = self._images.get_subscription_count(), self._compressed.get_subscription_count()
        if not raw and not compressed:
            return
        stamp = self.get_clock().now().to_msg()
        self._info.publish(camera_to_msg(self._lens, Header(stamp=stamp, frame_id=self._settings.frame_id)))
        with self._lock:
            picture = self._cell.picture()
            heights = self._cell.relief() if self._relief is not None else None
        if self._relief is not None and heights is not None:
            self._relief.publish(map_to_image(heights, stamp, self._settings.frame_id))
        if raw:
            self._images.publish(bgr_to_image(picture, stamp, self._settings.frame_id))
        if compressed:
            quality = self._settings.jpeg_quality
            self._compressed.publish(bgr_to_compressed(picture, stamp, self._settings.frame_id, quality))

    def _publish_workpiece(self) -> None:
        with self._lock:
            record, index = self._cell.record, len(self._cell.records) - 1
        message = Workpiece(id=record.workpiece_id, index=index)
        message.header.stamp = self.get_clock().now().to_msg()
        message.header.frame_id = self._settings.frame_id
        self._workpiece.publish(message)
        self.get_logger().info(f"{record.workpiece_id} is in the cell ({record.stickers} stickers)")

    def _on_done(self, message: WorkpieceDone) -> None:
        if message.result not in (WorkpieceDone.RESULT_CLEAN, WorkpieceDone.RESULT_LEFT_TO_OPERATOR):
            return
        with self._lock:
            record = self._cell.record
            # ignores a latched message of an earlier laptop or run
            if message.workpiece_id != record.workpiece_id or self._cell.is_finished:
                return
            more = self._cell.hand_over()
            self._motion.write_record()
        self.get_logger().info(
            f"{record.workpiece_id} leaves: {message.reason.text}; {record.removed} removed, {record.left} left, "
            f"{record.wrong} wrongly touched"
        )
        if more:
            self._publish_workpiece()
        else:
            self.get_logger().info("that was the last laptop")
            request_exit(self)


main = partial(run_process, CellSim, executor=ArmExecutor)
