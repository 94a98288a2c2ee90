"""Camera images reach another process with sensor-data QoS; where they do not, the detector says so.

Fast DDS's own settings lose most of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sticker_uq.nodes.processes import share_folder, transport_environment
from test.helpers.ros import Bench, NodeProcess

RELAY = str(Path(__file__).with_name("image_relay.py"))
PROFILE_VARIABLES = ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE")
IMAGES = 20
ERROR = b"\x02"


def without_profile() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in PROFILE_VARIABLES}


@pytest.mark.usefixtures("ros_domain")
@pytest.mark.parametrize("size", ["1280x960", "1920x1080"])
def test_images_above_the_segment_arrive_with_what_the_launch_files_set(size: str) -> None:
    given = transport_environment(without_profile())
    assert {Path(given[name]) for name in PROFILE_VARIABLES} == {share_folder() / "config" / "fastdds.xml"}
    environment = without_profile() | given
    with subprocess.Popen([sys.executable, RELAY, "receive"], env=environment) as receiver:
        try:
            command = [sys.executable, RELAY, "send", size, str(IMAGES)]
            sender = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        finally:
            receiver.kill()
    assert sender.returncode == 0, sender.stderr
    # The very first image may leave before the two ends have agreed on the transport.
    assert int(sender.stdout.split()[-1]) >= IMAGES - 1


def test_what_a_camera_without_the_profile_loses_is_reported(bench: Bench) -> None:
    newest = bench.diagnostics()
    with NodeProcess("test.nodes.fake_perception", {"autostart": "true"}) as detector:
        detector.wait_for("waiting for first image on /image")
        command = [sys.executable, RELAY, "flood", "1920x1080", str(2 * IMAGES)]
        with subprocess.Popen(command, env=without_profile(), stdout=subprocess.PIPE, text=True) as camera:
            try:
                assert camera.stdout is not None
                sent = int(camera.stdout.readline().split()[-1])

                def told() -> bool:
                    counts = [newest.value("detector: images", name) for name in ("received", "lost")]
                    if None in counts or "n/a" in counts:
                        return False
                    received, lost = map(int, counts)  # type: ignore[arg-type]
                    # the last one lost is noticed only when another one follows
                    return received + lost >= sent - 1 or newest["detector: images"].level == ERROR

                bench.until(told, "every image arrived, was counted as lost, or is missed loudly")
            finally:
                camera.kill()
