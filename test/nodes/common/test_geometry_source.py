# SPDX-License-Identifier: Apache-2.0
"""The calibration of the cell over ROS, and what is said when a part of it is missing."""

import numpy as np
import pytest
import rclpy
from geometry_msgs.msg import PoseStamped
from pydantic import ValidationError
from sensor_msgs.msg import CameraInfo
from std_msgs.msg import Header

from sticker_uq.cell.supervisor_settings import PoseSettings
from sticker_uq.geometry import CellGeometry
from sticker_uq.geometry.simulated_cell import SIMULATED_GEOMETRY, project_to_image, sim_camera
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.conversions import ns_to_stamp
from sticker_uq.nodes.common.geometry_source import GeometrySource, camera_from_msg, camera_to_msg
from sticker_uq.scene import InvalidInput, Reason
from sticker_uq.testing.bench import Bench

STAMP = 5_000_000_000
KNOWN = {"camera_pose": "0.4 0.0 1.0 1 0 0 0", "lid_plane": "0, 0, 1, -0.2"}


def info(frame_id: str = "camera", stamp_ns: int = STAMP) -> CameraInfo:
    return camera_to_msg(sim_camera(640, 480), Header(stamp=ns_to_stamp(stamp_ns), frame_id=frame_id))


class GeometryBench:
    """A pose source that is told what a cell tells."""

    def __init__(self, bench: Bench, **settings: object) -> None:
        self.bench = bench
        self.node = bench.add(rclpy.create_node("poses", enable_rosout=False))
        self.source = GeometrySource(self.node, PoseSettings(**settings))
        self._info = bench.publisher_matched(CameraInfo, "camera_info", qos.IMAGES)

    def tell(self, message: CameraInfo) -> None:
        self._info.publish(message)
        self.bench.until(lambda: self.source._info == message, "the CameraInfo")

    def says(self, stamp_ns: int = STAMP, frame_id: str = "camera") -> CellGeometry | Reason:
        return self.source.geometry(frame_id, stamp_ns)


def test_everything_known_makes_a_geometry(bench):
    rig = GeometryBench(bench, **KNOWN)
    assert rig.says() == Reason("camera_info_missing")
    rig.tell(info())
    found = rig.says()
    assert isinstance(found, CellGeometry)
    assert found.frame_id == "base_link"
    assert found.camera.fingerprint == sim_camera(640, 480).fingerprint
    np.testing.assert_allclose(found.camera_pose.translation, [0.4, 0.0, 1.0])
    np.testing.assert_allclose([*found.lid.normal, found.lid.offset], [0, 0, 1, -0.2])


def test_a_calibration_of_another_time_or_camera_is_refused(bench):
    rig = GeometryBench(bench, **KNOWN, max_calibration_age_s=2.0)
    rig.tell(info())
    assert isinstance(rig.says(STAMP + 2_000_000_000), CellGeometry)
    assert rig.says(STAMP + 2_100_000_000) == Reason.of("camera_info_apart", seconds=2.1)
    assert rig.says(STAMP - 2_100_000_000) == Reason.of("camera_info_apart", seconds=2.1)
    assert rig.says(frame_id="other") == Reason.of(
        "camera_info_other_frame", expected="other", found="camera"
    )
    rig.tell(CameraInfo(header=info().header, width=640, height=480))
    assert "not calibrated" in str(rig.says())


def test_the_lid_may_come_from_a_topic(bench):
    rig = GeometryBench(bench, camera_pose=KNOWN["camera_pose"])
    rig.tell(info())
    assert rig.says() == Reason("lid_unknown")
    lid = PoseStamped(header=Header(frame_id="base_link"))
    lid.pose.position.z = 0.3
    bench.publisher_matched(PoseStamped, "lid_pose", qos.LATCHED).publish(lid)
    bench.until(lambda: rig.source._lid is not None, "the lid")
    found = rig.says()
    assert isinstance(found, CellGeometry)
    np.testing.assert_allclose([*found.lid.normal, found.lid.offset], [0, 0, 1, -0.3])


def test_without_tf2_a_transform_that_is_not_set_is_missing(bench, monkeypatch):
    monkeypatch.setattr(
        "sticker_uq.nodes.common.geometry_source._TransformTree.if_installed", lambda node: None
    )
    rig = GeometryBench(bench, lid_plane=KNOWN["lid_plane"])
    rig.tell(info())
    assert "tf2_ros is not installed, set camera_pose" in str(rig.says())


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"camera_pose": "1 2 3"}, "must be 7 finite numbers"),
        ({"camera_pose": "0 0 0 0 0 0 2"}, "the length 2"),
        ({"camera_pose": "a b"}, "could not convert"),
        ({"lid_plane": "0 0 0 1"}, "not all 0"),
    ],
)
def test_a_bad_setting_is_refused(values, text):
    with pytest.raises(ValidationError, match=text):
        PoseSettings(**values)


def test_binning_and_region_of_interest_move_the_optical_axis():
    message = info()
    message.roi.x_offset, message.roi.y_offset, message.roi.width, message.roi.height = 100, 40, 400, 300
    message.binning_x = message.binning_y = 2
    camera = camera_from_msg(message)
    assert camera.image_size == (200, 150)
    np.testing.assert_allclose(camera.matrix, [[384, 0, 110], [0, 384, 100], [0, 0, 1]])


def test_of_a_rectified_picture_p_counts_and_the_lens_does_not():
    message = info()
    message.d = [0.1, 0.0, 0.0, 0.0, 0.0]
    message.p = [500.0, 0, 300, 0, 0, 500, 200, 0, 0, 0, 1, 0]
    assert camera_from_msg(message).distortion == (0.1, 0.0, 0.0, 0.0, 0.0)
    rectified = camera_from_msg(message, rectified=True)
    assert rectified.distortion == ()
    assert rectified.matrix[0, 2] == 300
    message.distortion_model = "kannala"
    with pytest.raises(InvalidInput, match="'kannala' is unknown"):
        camera_from_msg(message)


def test_the_simulated_cell_knows_its_own_geometry():
    PoseSettings(**{k: v for k, v in SIMULATED_GEOMETRY.items() if k in PoseSettings.model_fields})
    np.testing.assert_allclose(
        project_to_image(np.array([0.45, 0.0, 0.25]), sim_camera(960, 720)), [480, 360]
    )
