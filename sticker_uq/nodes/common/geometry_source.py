# SPDX-License-Identifier: Apache-2.0
"""The cell geometry from ROS: CameraInfo, the pose of the lid, and the pose of the camera in the arm's frame."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from geometry_msgs.msg import PoseStamped
from rclpy.node import Node
from rclpy.time import Time
from sensor_msgs.msg import CameraInfo
from std_msgs.msg import Header

from sticker_uq.cell.supervisor_settings import PoseSettings, numbers_of
from sticker_uq.gate.settings import nanoseconds
from sticker_uq.geometry import Camera, CellGeometry, Plane, Transform
from sticker_uq.io.messages import stamp_to_ns
from sticker_uq.nodes.common.one_publisher import OnePublisher
from sticker_uq.nodes.common.qos import LATCHED, NEWEST_IMAGE_BEST_EFFORT
from sticker_uq.scene import InvalidInput, Reason

MOST_BYTES = 1 << 16
"""Bytes of a message about the calibration; one has less than a thousand."""


class GeometrySource:
    """Subscriptions to the parts of the cell's calibration, combined for each image.

    ``inputs``: each counts only while one node publishes it; ``changed`` is called when another one has come.
    """

    def __init__(
        self, node: Node, settings: PoseSettings, changed: Callable[[], object] = lambda: None
    ) -> None:
        self._settings = settings
        self._node = node
        self._info: CameraInfo | None = None
        self._lid: PoseStamped | None = None
        more: dict[str, Any] = {"changed": changed, "most_bytes": MOST_BYTES, "refused": self._on_refused}
        info = CameraInfo, "camera_info", self._on_info, NEWEST_IMAGE_BEST_EFFORT
        self.inputs = [OnePublisher(node, *info, **more)]
        if not settings.lid_plane:
            self.inputs.append(OnePublisher(node, PoseStamped, "lid_pose", self._on_lid, LATCHED, **more))
        self._tf = None if settings.camera_pose and settings.lid_plane else _TransformTree.if_installed(node)

    def destroy(self) -> None:
        for one in self.inputs:
            one.destroy()
        if self._tf is not None:
            self._tf.destroy()

    def geometry(self, frame_id: str, stamp_ns: int) -> CellGeometry | Reason:
        """The cell's calibration for the image of ``frame_id`` at ``stamp_ns``, or the reason why there is none."""
        try:
            camera = self._camera(frame_id, stamp_ns)
            pose = self._camera_pose(frame_id, stamp_ns)
            return CellGeometry(self._settings.arm_frame, camera, pose, self._plane(stamp_ns))
        except _NotKnown as error:
            return error.reason
        except InvalidInput as error:
            return Reason.of("calibration_unknown", detail=str(error))

    def _on_refused(self, error: InvalidInput) -> None:
        self._node.get_logger().warning(str(error), throttle_duration_sec=10.0)

    def _on_info(self, message: CameraInfo) -> None:
        self._info = message

    def _on_lid(self, message: PoseStamped) -> None:
        self._lid = message

    def _camera(self, frame_id: str, stamp_ns: int) -> Camera:
        if self._info is None:
            raise _NotKnown("camera_info_missing")
        if self._info.header.frame_id != frame_id:
            raise _NotKnown("camera_info_other_frame", expected=frame_id, found=self._info.header.frame_id)
        apart = abs(stamp_ns - stamp_to_ns(self._info.header.stamp))
        if apart > nanoseconds(self._settings.max_calibration_age_s):
            raise _NotKnown("camera_info_apart", seconds=apart / 1e9)
        return camera_from_msg(self._info, self._settings.image_rectified)

    def _camera_pose(self, frame_id: str, stamp_ns: int) -> Transform:
        if self._settings.camera_pose:
            return Transform.of(numbers_of(self._settings.camera_pose), "camera_pose")
        return self._look_up(frame_id, stamp_ns)

    def _plane(self, stamp_ns: int) -> Plane:
        if self._settings.lid_plane:
            return Plane.of(numbers_of(self._settings.lid_plane), "lid_plane")
        if self._lid is None:
            raise _NotKnown("lid_unknown")
        p, q = self._lid.pose.position, self._lid.pose.orientation
        plane = Plane.of_pose(Transform.of([p.x, p.y, p.z, q.x, q.y, q.z, q.w], "lid_pose"))
        frame_id = self._lid.header.frame_id
        if frame_id == self._settings.arm_frame:
            return plane
        return plane.transform_by(self._look_up(frame_id, stamp_ns))

    def _look_up(self, frame_id: str, stamp_ns: int) -> Transform:
        if self._tf is None:
            raise _NotKnown(
                "frame_pose_unknown", frame=frame_id, detail="tf2_ros is not installed, set camera_pose"
            )
        return self._tf.look_up(self._settings.arm_frame, frame_id, stamp_ns)


class _NotKnown(InvalidInput):
    def __init__(self, code: str, **values: str | float) -> None:
        super().__init__(code)
        self.reason = Reason.of(code, "", **values)


class _TransformTree:
    """Transforms from tf2, which comes with a ROS installation only."""

    def __init__(self, node: Node, tf2: Any) -> None:
        self._tf2 = tf2
        self._buffer = tf2.Buffer()
        self._listener = tf2.TransformListener(self._buffer, node)

    @classmethod
    def if_installed(cls, node: Node) -> _TransformTree | None:
        try:
            return cls(node, importlib.import_module("tf2_ros"))
        except ImportError:
            return None

    def destroy(self) -> None:
        self._listener.unregister()

    def look_up(self, target: str, source: str, stamp_ns: int) -> Transform:
        try:
            found = self._buffer.lookup_transform(target, source, Time(nanoseconds=stamp_ns))
        except self._tf2.TransformException as error:
            raise _NotKnown("frame_pose_unknown", frame=source, detail=str(error)) from None
        t, q = found.transform.translation, found.transform.rotation
        return Transform.of([t.x, t.y, t.z, q.x, q.y, q.z, q.w], f"transform of {source}")


def camera_from_msg(message: CameraInfo, rectified: bool = False) -> Camera:
    """Binning and region of interest are included. Raises :class:`InvalidInput` for an invalid calibration."""
    matrix = np.array(message.p if rectified else message.k, float).reshape(3, -1)[:, :3]
    roi, binning = message.roi, (max(message.binning_x, 1), max(message.binning_y, 1))
    matrix[0, 2] -= roi.x_offset
    matrix[1, 2] -= roi.y_offset
    matrix[0] /= binning[0]
    matrix[1] /= binning[1]
    size = ((roi.width or message.width) // binning[0], (roi.height or message.height) // binning[1])
    model, distortion = message.distortion_model, tuple(float(value) for value in message.d)
    if rectified or not any(distortion):
        model, distortion = "", ()
    return Camera(size, matrix, model, distortion)


def camera_to_msg(camera: Camera, header: Header) -> CameraInfo:
    matrix = np.asarray(camera.matrix, float)
    message = CameraInfo(header=header, width=camera.image_size[0], height=camera.image_size[1])
    message.distortion_model = "plumb_bob"
    message.d = [0.0] * 5
    message.k = matrix.ravel().tolist()
    message.r = np.eye(3).ravel().tolist()
    message.p = np.column_stack([matrix, np.zeros(3)]).ravel().tolist()
    return message
