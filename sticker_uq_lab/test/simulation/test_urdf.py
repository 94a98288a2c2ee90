# SPDX-License-Identifier: Apache-2.0
"""The robot description for RViz is the simulated cell."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml

from sticker_uq.geometry import simulated_cell
from sticker_uq_lab.simulation.simulated_cell import SimulationSettings

VIEWERS = Path(__file__).parents[3] / "config" / "viewers"


def test_the_urdf_shows_camera_and_lid_of_the_simulated_cell_where_they_are():
    robot = ElementTree.parse(VIEWERS / "cell.urdf").getroot()
    rviz = yaml.safe_load((VIEWERS / "cell.rviz").read_text())["Visualization Manager"]
    origins = {}
    for joint in robot.iter("joint"):
        assert (joint.get("type"), joint.find("parent").get("link")) == ("fixed", simulated_cell.ARM_FRAME)
        origins[joint.find("child").get("link")] = joint.find("origin").attrib
    frames = {link.get("name") for link in robot.iter("link")}
    assert frames == {*origins, rviz["Global Options"]["Fixed Frame"]}
    camera, lid = origins[SimulationSettings().frame_id], origins["lid"]
    place = [float(each) for each in camera["xyz"].split()]
    roll, pitch, yaw = (float(each) for each in camera["rpy"].split())
    assert (pitch, yaw) == (0.0, 0.0)
    turned = [np.sin(roll / 2), 0.0, 0.0, np.cos(roll / 2)]
    np.testing.assert_allclose([*place, *turned], simulated_cell.CAMERA_POSE, atol=1e-9)
    *normal, distance = simulated_cell.LID_PLANE
    assert np.dot(normal, [float(each) for each in lid["xyz"].split()]) + distance == pytest.approx(0.0)
