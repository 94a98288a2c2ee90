# SPDX-License-Identifier: Apache-2.0
"""Poses on the lid: against cases that can be calculated by hand, and their covariance against chance."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.gate import judge
from sticker_uq.gate.policy.policy import Policy
from sticker_uq.geometry import Camera, CellGeometry, Plane, Transform, locate, locate_all
from sticker_uq.geometry.pose import YAW_VARIANCE
from sticker_uq.geometry.transforms import quaternion
from sticker_uq.scene import InvalidInput, ObjectClass, ObservedObject, Outcome, Reason
from sticker_uq.testing.scenes import assessment, object_at

F = 500.0
CAMERA = Camera((640, 480), np.array([[F, 0, 320.0], [0, F, 240.0], [0, 0, 1.0]]))
DOWN = Transform.of([0.4, 0.1, 1.0, 1.0, 0.0, 0.0, 0.0], "camera_pose")  # 1 m above the table, looking down
LID = Plane.of([0.0, 0.0, 1.0, -0.2], "lid_plane")  # z = 0.2 m
CELL = CellGeometry("base_link", CAMERA, DOWN, LID)
BOX = (370.0, 190.0, 470.0, 240.0)


def test_straight_down_a_pixel_is_its_share_of_the_distance():
    pose = locate(object_at(BOX), CELL)
    # 0.8 m below the camera a pixel is 1.6 mm; image right is +x, image down is -y of the arm
    np.testing.assert_allclose(pose.position, [0.4 + 100 * 0.0016, 0.1 + 25 * 0.0016, 0.2], atol=1e-12)
    np.testing.assert_allclose(pose.size, [0.16, 0.08], atol=1e-12)
    np.testing.assert_allclose(pose.orientation, [0.0, 0.0, 0.0, 1.0], atol=1e-12)
    covariance = np.reshape(pose.covariance, (6, 6))
    # corners vary by 1 px^2 each and independently: their mean by half of that
    expected = np.diag([0.5 * 0.0016**2, 0.5 * 0.0016**2, 0.0, 0.0, 0.0, YAW_VARIANCE])
    np.testing.assert_allclose(covariance, expected, atol=1e-15)
    assert pose.frame_id == "base_link"


def test_edges_that_move_together_move_the_centre_as_a_whole():
    together = np.array([[4.0, 0, 4, 0], [0, 1, 0, -1], [4, 0, 4, 0], [0, -1, 0, 1]])
    covariance = np.reshape(locate(object_at(BOX, box_covariance=together), CELL).covariance, (6, 6))
    assert covariance[0, 0] == pytest.approx(4.0 * 0.0016**2)
    assert covariance[1, 1] == pytest.approx(0.0, abs=1e-15)


def test_a_tilted_lid_is_met_where_the_ray_meets_it():
    # a lid that rises with x: z = x / 2 in the arm's frame; the centre pixel looks along x = 0.4, y = 0.1
    tilted = replace(CELL, lid=Plane.of([-1.0, 0.0, 2.0, 0.0], "lid_plane"))
    pose = locate(object_at((310.0, 230.0, 330.0, 250.0)), tilted)
    np.testing.assert_allclose(pose.position, [0.4, 0.1, 0.2], atol=1e-12)
    # z out of the lid, towards the camera
    x, y, z, w = pose.orientation
    up = [2 * (x * z + y * w), 2 * (y * z - x * w), 1 - 2 * (x * x + y * y)]
    np.testing.assert_allclose(up, np.array([-1, 0, 2]) / np.sqrt(5), atol=1e-12)


def test_which_side_of_the_plane_its_normal_names_does_not_matter():
    flipped = replace(CELL, lid=Plane.of([0.0, 0.0, -1.0, 0.2], "lid_plane"))
    assert locate(object_at(BOX), flipped) == locate(object_at(BOX), CELL)


POSES = st.tuples(st.floats(-0.4, 0.4), st.floats(-0.4, 0.4), st.floats(-3, 3))


@given(angles=POSES, x=st.floats(150, 490), y=st.floats(100, 380))
def test_the_centre_is_seen_in_the_middle_of_the_box(angles, x, y):
    pose = Transform(rotation_of(*angles) @ DOWN.rotation, np.array([0.3, -0.2, 0.9]))
    lens = Camera((640, 480), CAMERA.matrix, "plumb_bob", (-0.2, 0.05, 0.001, -0.001, 0.0))
    found = locate(object_at((x - 40, y - 20, x + 40, y + 20)), replace(CELL, camera=lens, camera_pose=pose))
    point = np.array([found.position])
    assert found.position[2] == pytest.approx(0.2)
    np.testing.assert_allclose(lens.project(pose.inverse(point)), [[x, y]], atol=1e-5)


def test_the_covariance_is_what_many_noisy_boxes_show():
    random = np.random.default_rng(5)
    root = random.normal(0, 1.5, (4, 4))
    box_covariance = root @ root.T
    lens = Camera((640, 480), CAMERA.matrix, "plumb_bob", (-0.25, 0.08, 0.001, -0.001, 0.0))
    cell = replace(
        CELL, camera=lens, camera_pose=Transform(rotation_of(0.6, 0.3, 0.3) @ DOWN.rotation, DOWN.translation)
    )
    boxes = random.multivariate_normal(BOX, box_covariance, 2000)
    points = np.array([locate(object_at(box), cell).position for box in boxes])
    predicted = np.reshape(locate(object_at(BOX, box_covariance=box_covariance), cell).covariance, (6, 6))[
        :3, :3
    ]
    sampled = np.cov(points.T)
    np.testing.assert_allclose(predicted, sampled, atol=0.08 * np.trace(sampled))
    assert np.trace(predicted) == pytest.approx(np.trace(sampled), rel=0.06)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (replace(CELL, lid=Plane.of([0, 0, 1, -1.5], "lid")), "the lid lies behind the camera"),
        (replace(CELL, lid=Plane.of([0, 0, 1, -1.0], "lid")), "the lid lies behind the camera"),
        (
            replace(CELL, lid=Plane.of([1, 0, 0, -3.0], "lid")),
            "the lid lies behind the camera|angle between the line of sight",
        ),
        (replace(CELL, lid=Plane.of([0.98, 0, 0.02, -0.45], "lid")), "angle between the line of sight"),
    ],
)
def test_a_lid_that_the_camera_cannot_see_is_refused(cell, text):
    with pytest.raises(InvalidInput, match=text):
        locate(object_at((300.0, 230.0, 340.0, 250.0)), cell)


def test_a_place_that_only_a_person_drew_has_a_pose_without_a_covariance():
    pose = locate(ObservedObject.from_operator(3, ObjectClass.STICKER, np.array(BOX)), CELL)
    assert pose.position == locate(object_at(BOX), CELL).position
    assert np.isnan(np.reshape(pose.covariance, (6, 6))[:2, :2]).all()


def test_a_scene_has_the_poses_of_its_objects_or_says_what_is_missing():
    logo = object_at((100.0, 100.0, 140.0, 130.0), ObjectClass.LOGO)
    decision = judge(assessment(object_at(BOX), logo), Policy())
    assert decision.outcome is Outcome.WORK
    located = locate_all(decision, (640, 480), CELL)
    assert set(located.poses) == {0, 1}
    assert (located.problem, located.fingerprint) == (None, CELL.fingerprint)
    assert locate_all(decision, (640, 480), Reason("lid_unknown")).problem == Reason("lid_unknown")
    other = locate_all(decision, (320, 240), CELL)
    assert other.problem == Reason.of("calibration_other_size", expected="640 x 480", found="320 x 240")
    assert not other.poses


def test_only_an_object_that_may_be_removed_must_be_located():
    # the lens model ends between the two
    folding = replace(CELL, camera=Camera((640, 480), CAMERA.matrix, "plumb_bob", (-0.9, 0.0, 0.0, 0.0)))
    inside, outside = (300.0, 230.0, 340.0, 250.0), (580.0, 20.0, 620.0, 40.0)
    decision = judge(assessment(object_at(inside), object_at(outside, ObjectClass.LOGO)), Policy())
    assert locate_all(decision, (640, 480), folding).problem is None
    decision = judge(assessment(object_at(inside, ObjectClass.LOGO), object_at(outside)), Policy())
    problem = locate_all(decision, (640, 480), folding).problem
    assert (problem.code, dict(problem.values)["object"]) == ("object_not_located", 1)


# --- transforms and planes --------------------------------------------------------------------------------------------------


def rotation_of(roll: float, pitch: float, yaw: float) -> np.ndarray:
    rotation = np.eye(3)
    for axis, angle in ((0, roll), (1, pitch), (2, yaw)):
        i, j = [k for k in range(3) if k != axis]
        turn = np.eye(3)
        turn[i, i] = turn[j, j] = np.cos(angle)
        turn[i, j], turn[j, i] = -np.sin(angle), np.sin(angle)
        rotation = turn @ rotation
    return rotation


ANGLES = st.floats(-3.2, 3.2)


@given(roll=ANGLES, pitch=ANGLES, yaw=ANGLES)
def test_quaternions_and_matrices_are_the_same_rotation(roll, pitch, yaw):
    rotation = rotation_of(roll, pitch, yaw)
    found = quaternion(rotation)
    assert np.linalg.norm(found) == pytest.approx(1.0)
    np.testing.assert_allclose(Transform.of([0, 0, 0, *found], "t").rotation, rotation, atol=1e-9)


@given(roll=ANGLES, pitch=ANGLES, x=st.floats(-2, 2))
def test_a_plane_moves_with_its_points(roll, pitch, x):
    transform = Transform(rotation_of(roll, pitch, 0.4), np.array([x, 0.2, -0.3]))
    plane = Plane.of([0.1, -0.4, 2.0, 0.7], "lid")
    on_it = np.array([0.3, 0.5, -(0.03 - 0.2 + 0.7) / 2.0])
    assert plane.normal @ on_it + plane.offset == pytest.approx(0.0)
    moved = plane.transform_by(transform)
    assert moved.normal @ transform(on_it) + moved.offset == pytest.approx(0.0, abs=1e-9)
    np.testing.assert_allclose(transform.inverse(transform(on_it)), on_it, atol=1e-12)


def test_a_pose_is_a_plane_across_its_z_axis():
    plane = Plane.of_pose(Transform.of([0.1, 0.2, 0.3, 0, 0, 0, 1], "lid"))
    np.testing.assert_allclose(plane.normal, [0, 0, 1])
    assert plane.offset == pytest.approx(-0.3)


@pytest.mark.parametrize("values", [[0.0] * 7, [0, 0, 0, 0, 0, 0, 2.0], [0, 0, 0, 1.0], [float("nan")] * 7])
def test_what_is_no_transform_is_refused(values):
    with pytest.raises(InvalidInput, match="camera_pose"):
        Transform.of(values, "camera_pose")


@pytest.mark.parametrize("values", [[0.0, 0.0, 0.0, 1.0], [0, 0, 1.0], [0, 0, float("inf"), 1.0]])
def test_what_is_no_plane_is_refused(values):
    with pytest.raises(InvalidInput, match="lid_plane"):
        Plane.of(values, "lid_plane")
