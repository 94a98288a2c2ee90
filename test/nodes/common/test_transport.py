# SPDX-License-Identifier: Apache-2.0
"""Which Fast DDS profile a process uses, and that camera images reach another process with it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sticker_uq.cell.transport import PROFILE_VARIABLES, transport_environment
from sticker_uq.cli.doctor import MIB, RMEM_MAX
from sticker_uq.io.share import share_folder

RELAY = str(Path(__file__).with_name("image_relay.py"))
IMAGES = 20


CONFIG = share_folder() / "config"
LOCALHOST = {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}


@pytest.mark.parametrize(
    ("environment", "profile"),
    [
        ({}, "fastdds.xml"),
        ({"ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET"}, "fastdds.xml"),
        ({"ROS_LOCALHOST_ONLY": "0"}, "fastdds.xml"),
        (LOCALHOST, "fastdds_localhost.xml"),
        ({"ROS_LOCALHOST_ONLY": "1"}, "fastdds_localhost.xml"),
        (LOCALHOST | {"FASTDDS_DEFAULT_PROFILES_FILE": str(CONFIG / "fastdds.xml")}, "fastdds_localhost.xml"),
        (LOCALHOST | {"ROS_STATIC_PEERS": "10.0.0.2"}, "fastdds.xml"),
    ],
)
def test_the_profile_follows_the_discovery_range(environment, profile):
    given = transport_environment(environment)
    assert {given[name] for name in PROFILE_VARIABLES} == {str(CONFIG / profile)}
    # for LOCALHOST rmw_fastrtps would add shared memory to the profile
    assert given.get("ROS_AUTOMATIC_DISCOVERY_RANGE") == (
        "SYSTEM_DEFAULT" if profile == "fastdds_localhost.xml" else None
    )
    assert given.get("ROS_LOCALHOST_ONLY", "0") == "0"


def test_a_users_own_profile_and_other_middlewares_are_left_alone():
    assert transport_environment({"FASTDDS_DEFAULT_PROFILES_FILE": "mine.xml"} | LOCALHOST) == {}
    assert transport_environment(LOCALHOST, "rmw_cyclonedds_cpp") == {}


SEGMENTS = """
import os, pathlib, rclpy
from sticker_uq.nodes.common.lifecycle import init_ros
init_ros([])
node = rclpy.create_node("one", enable_rosout=False)
maps = pathlib.Path(f"/proc/{os.getpid()}/maps").read_text()
print(sum("/dev/shm/fast" in line for line in maps.splitlines()))
"""


def test_a_node_maps_no_shared_memory(ros_domain):
    """A killed process can leave a lock in shared memory, on which the others wait for seconds."""
    environment = without_profile() | LOCALHOST
    command = [sys.executable, "-c", SEGMENTS]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.stdout.strip() == "0", ran.stderr


def without_profile() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in PROFILE_VARIABLES}


@pytest.mark.usefixtures("ros_domain")
def test_camera_images_arrive_with_the_profile_of_the_nodes():
    # best-effort images need more memory for what has been received than some machines give
    reliability = "best_effort" if int(RMEM_MAX.read_text()) >= 4 * MIB else "reliable"
    environment = without_profile() | LOCALHOST
    environment |= transport_environment(environment)
    with subprocess.Popen([sys.executable, RELAY, "receive", reliability], env=environment) as receiver:
        try:
            command = [sys.executable, RELAY, "send", "1920x1080", str(IMAGES), reliability]
            sender = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        finally:
            receiver.kill()
    assert sender.returncode == 0, sender.stderr
    # The very first image may leave before the two ends have agreed on the transport.
    assert int(sender.stdout.split()[-1]) >= IMAGES - 1
