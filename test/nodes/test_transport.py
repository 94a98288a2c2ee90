"""Camera images reach another process with sensor-data QoS; Fast DDS's own settings lose most of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RELAY = str(Path(__file__).with_name("image_relay.py"))
PROFILE = str(Path(__file__).parents[2] / "config" / "fastdds.xml")
IMAGES = 20


@pytest.mark.usefixtures("ros_domain")
def test_best_effort_images_arrive_with_the_profile() -> None:
    names = ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE")
    environment = {**os.environ, **dict.fromkeys(names, PROFILE)}
    with subprocess.Popen([sys.executable, RELAY, "receive"], env=environment) as receiver:
        try:
            command = [sys.executable, RELAY, "send", str(IMAGES)]
            sender = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        finally:
            receiver.kill()
    assert sender.returncode == 0, sender.stderr
    # The very first image may leave before the two ends have agreed on the transport.
    assert int(sender.stdout.split()[-1]) >= IMAGES - 1
